//! How the ACME library reaches the authority: by the one way out, within its bounds.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use url::Url;

use crate::net::outbound::Client;

/// The longest wait that an authority can ask for, in seconds.
pub const LONGEST_WAIT: u64 = 24 * 60 * 60;

/// The way to the authority. A clone shares what is remembered.
#[derive(Clone)]
pub struct Transport {
    client: Client,
    wait: Arc<AtomicU64>,
}

impl Transport {
    /// By way of this client.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            wait: Arc::default(),
        }
    }

    /// How many seconds the authority wants to be left alone (RFC 8555 section 6.6), as it said with its latest
    /// refusal; zero when it did not.
    pub fn wait(&self) -> u64 {
        self.wait.load(Ordering::Relaxed)
    }
}

impl HttpClient for Transport {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let this = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let url = Url::parse(&head.uri.to_string())
                .map_err(|_| Error::Str("the authority names an address that is none"))?;
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            let message = Request::from_parts(head, Full::from(body));
            let answer = this.client.carry(&url, message).await;
            let (mut head, body) = answer
                .map_err(|error| Error::Other(Box::new(error)))?
                .into_parts();
            let wait = bound_wait(&mut head.headers);
            if !head.status.is_success() {
                this.wait.store(wait, Ordering::Relaxed);
            }
            Ok(BytesResponse {
                parts: head,
                body: Box::new(body),
            })
        })
    }
}

/// The wait in seconds that the header asks for, cut to what is bearable, in the header too: the library adds it to
/// the time of day, which has an end. A date is left to the library and counts for nothing here.
fn bound_wait(headers: &mut HeaderMap) -> u64 {
    let Some(value) = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()) else {
        return 0;
    };
    let value = value.trim();
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    let wait = value.parse().unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
    headers.insert(RETRY_AFTER, HeaderValue::from(wait));
    wait
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_authority_can_ask_for_more_than_a_day() {
        for (said, wait) in [
            ("30", 30),
            ("86401", LONGEST_WAIT),
            ("18446744073709551615", LONGEST_WAIT),
            ("99999999999999999999999", LONGEST_WAIT),
            ("-1", 0),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 0),
            ("", 0),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, said.parse().unwrap());
            assert_eq!(bound_wait(&mut headers), wait, "{said}");
            if wait > 0 {
                assert_eq!(headers[RETRY_AFTER], wait.to_string());
            }
        }
        assert_eq!(bound_wait(&mut HeaderMap::new()), 0);
    }
}
