//! How the ACME library reaches the authority: by the one way out, within its bounds.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{DATE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
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
    /// For authorities that do not say what time it is.
    now: u64,
    wait: Arc<AtomicU64>,
    pause: Arc<AtomicU64>,
    status: Arc<AtomicU16>,
}

impl Transport {
    /// By way of this client. `now` is in seconds since the epoch.
    pub fn new(client: Client, now: u64) -> Self {
        Self {
            client,
            now,
            wait: Arc::default(),
            pause: Arc::default(),
            status: Arc::default(),
        }
    }

    /// How many seconds the authority wants to be left alone (RFC 8555 section 6.6), as it said with its latest
    /// refusal or when it was [left alone](Self::leave_alone); zero when it did not.
    pub fn wait(&self) -> u64 {
        self.wait.load(Ordering::Relaxed)
    }

    /// How many seconds the authority wants to pass before the same is asked again, as it said with its latest answer,
    /// which may be a good one (RFC 8555 sections 7.4 and 8.2); zero when it did not.
    pub fn pause(&self) -> u64 {
        self.pause.load(Ordering::Relaxed)
    }

    /// The status of the latest answer (RFC 9110 section 15), which the library does not tell; zero before the first.
    pub fn status(&self) -> u16 {
        self.status.load(Ordering::Relaxed)
    }

    /// Takes the pause that the authority wants for a refusal, because it is too long to sit out.
    pub fn leave_alone(&self) {
        self.wait.store(self.pause(), Ordering::Relaxed);
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
            this.status.store(head.status.as_u16(), Ordering::Relaxed);
            if is_document {
                check_directory(&body)?;
            }
            let wait = bound_wait(&mut head.headers, this.now);
            this.pause.store(wait, Ordering::Relaxed);
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

/// Fails for a directory that names no address to have nonces from: the library takes it for granted that it does.
fn check_directory(body: &[u8]) -> Result<(), Error> {
    let document = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
    match document.get("newNonce").and_then(|url| url.as_str()) {
        Some(url) if url.parse::<Uri>().is_err() => Err(Error::Str("its newNonce is no address")),
        _ => Ok(()),
    }
}

/// The wait in seconds that the header asks for, cut to what is bearable, in the header too: the library adds it to
/// the time of day, which has an end. A date (RFC 9110 section 10.2.3) counts from the one on the answer, or from `now`.
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

/// A date of HTTP (RFC 9110 section 5.6.7) in seconds since the epoch.
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

    #[test]
    fn a_directory_whose_nonces_are_nowhere_does_not_reach_the_library() {
        assert!(check_directory(b"{\"newNonce\":\"https://ca.example/new nonce\"}").is_err());
        assert!(check_directory(b"{\"newNonce\":\"https://ca.example/new-nonce\"}").is_ok());
        assert!(
            check_directory(b"<html>").is_ok(),
            "what is no directory is refused later"
        );
    }
}
