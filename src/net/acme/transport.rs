//! Connects the ACME library to the outbound client and its limits.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{DATE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use url::Url;

use crate::net::outbound::Client;

/// The longest wait that an authority can ask for, in seconds.
const LONGEST_WAIT: u64 = 24 * 60 * 60;

/// The transport to the authority. A clone shares the wait.
#[derive(Clone)]
pub struct Transport {
    client: Client,
    /// Used if an answer has no `Date`.
    now: u64,
    wait: Arc<AtomicU64>,
}

impl Transport {
    /// A transport by this client. `now` is in seconds since the epoch.
    pub fn new(client: Client, now: u64) -> Self {
        Self {
            client,
            now,
            wait: Arc::default(),
        }
    }

    /// The seconds that the authority asked to wait with its latest refusal (RFC 8555 section 6.6), or zero.
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
            let is_document = head.method == Method::GET;
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
            if is_document {
                check_directory(&body)?;
            }
            let wait = bound_wait(&mut head.headers, this.now);
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

/// Fails for a directory whose `newNonce` is no address. The library does not check this.
fn check_directory(body: &[u8]) -> Result<(), Error> {
    let document = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
    match document.get("newNonce").and_then(|url| url.as_str()) {
        Some(url) if url.parse::<Uri>().is_err() => Err(Error::Str("its newNonce is no address")),
        _ => Ok(()),
    }
}

/// The wait in seconds of `Retry-After`, cut to the maximum. The header is cut too, because the library adds it to the
/// time of day, which could overflow. A date (RFC 9110 section 10.2.3) counts from `Date`, or from `now`.
fn bound_wait(headers: &mut HeaderMap, now: u64) -> u64 {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let Some(value) = text(RETRY_AFTER).filter(|value| !value.is_empty()) else {
        return 0;
    };
    let wait = if value.bytes().all(|byte| byte.is_ascii_digit()) {
        value.parse().unwrap_or(LONGEST_WAIT)
    } else if let Some(until) = seconds(value) {
        until.saturating_sub(text(DATE).and_then(seconds).unwrap_or(now))
    } else {
        return 0;
    };
    let wait = wait.min(LONGEST_WAIT);
    headers.insert(RETRY_AFTER, HeaderValue::from(wait));
    wait
}

/// An HTTP date (RFC 9110 section 5.6.7) in seconds since the epoch.
fn seconds(date: &str) -> Option<u64> {
    let moment: SystemTime = httpdate::parse_http_date(date).ok()?;
    Some(moment.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2027-01-15, 08:00:00.
    const NOW: u64 = 1_800_000_000;

    #[test]
    fn no_authority_can_ask_for_more_than_a_day() {
        for (said, wait) in [
            ("30", 30),
            ("86401", LONGEST_WAIT),
            ("18446744073709551615", LONGEST_WAIT),
            ("99999999999999999999999", LONGEST_WAIT),
            ("-1", 0),
            ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_WAIT),
            ("Fri, 15 Jan 2027 08:01:00 GMT", 60),
            ("Friday, 15-Jan-27 09:00:00 GMT", 3600),
            ("Fri, 15 Jan 2027 07:59:00 GMT", 0),
            ("tomorrow", 0),
            ("", 0),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, said.parse().unwrap());
            assert_eq!(bound_wait(&mut headers, NOW), wait, "{said}");
            if wait > 0 {
                assert_eq!(headers[RETRY_AFTER], wait.to_string());
            }
        }
        assert_eq!(bound_wait(&mut HeaderMap::new(), NOW), 0);
    }

    #[test]
    fn a_date_to_wait_for_counts_by_the_clock_of_the_authority() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "Fri, 15 Jan 2027 10:10:00 GMT".parse().unwrap());
        headers.insert(DATE, "Fri, 15 Jan 2027 10:00:00 GMT".parse().unwrap());
        assert_eq!(bound_wait(&mut headers, NOW), 600);
        assert_eq!(headers[RETRY_AFTER], "600");
    }
}
