//! The parts of a request that endpoints read: its body, its host and its credentials.

use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http::Version;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap};
use http_body_util::BodyExt;
use hyper::body::Body;
use zeroize::Zeroizing;

use crate::oauth::client_auth::BasicCredentials;
use crate::oauth::dpop;
use crate::oauth::parameters::form_decode;
pub use crate::oauth::parameters::{ParameterError, Parameters};

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Longer than allowed; 413.
    #[error("the body is too large")]
    TooLarge,
    /// The peer ended it early or framed it wrongly.
    #[error("the body is incomplete")]
    Broken,
    /// It did not arrive in time; 408.
    #[error("the body took too long")]
    TimedOut,
}

/// How many bytes beyond the limit are read and discarded, so that the sender sees the answer. On HTTP/2 this is less
/// than the flow-control window of one request.
const MAX_DISCARDED: usize = 1024 * 1024;

/// Reads a whole body of at most `limit` bytes within `time`.
///
/// Of a longer body a part is read and discarded. A peer that is still sending does not read the answer, and would see
/// only a closed connection.
pub async fn read_body<B>(body: &mut B, limit: usize, time: Duration) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut seen = 0_usize;
    let read = async {
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else {
                continue;
            };
            seen = seen.saturating_add(data.len());
            if seen <= limit {
                whole.extend_from_slice(&data);
            } else if seen > limit.saturating_add(MAX_DISCARDED) {
                break;
            }
        }
        Ok(whole.freeze())
    };
    let read = tokio::time::timeout(time, read).await;
    if seen > limit {
        return Err(BodyError::TooLarge);
    }
    read.unwrap_or(Err(BodyError::TimedOut))
}

/// How long an unread rest of a body is kept. Long enough for the sender to read the answer first, short enough that the
/// connection's flow-control window soon recovers.
const UNREAD_BODY_DELAY: Duration = Duration::from_millis(250);
/// The most bytes of an unread body: the flow-control window of a stream.
pub const MAX_UNREAD: usize = 64 * 1024;

/// Keeps the unread rest of a body a moment longer than the answer takes.
///
/// When the body is dropped, a peer on HTTP/2 is told to stop sending (`RST_STREAM` with `NO_ERROR`, RFC 9113 section 8.1).
/// Some peers, such as curl 7.88, discard an answer that they have not read before that. `permit` is dropped with the body.
pub fn keep_unread(body: impl Body + Send + 'static, permit: impl Send + 'static) {
    tokio::spawn(async move {
        tokio::time::sleep(UNREAD_BODY_DELAY).await;
        drop((body, permit));
    });
}

/// Reads the rest of a body and discards it, for as long as [`keep_unread`] keeps one.
///
/// If an HTTP/1 connection is closed while the peer still sends, it is reset and the answer is lost (RFC 9112 section 9.6).
pub fn discard_unread(mut body: impl Body<Data = Bytes> + Send + Unpin + 'static) {
    tokio::spawn(async move { read_body(&mut body, 0, UNREAD_BODY_DELAY).await });
}

/// Whether a request has one well-formed `Host` line (RFC 9112 section 3.2), which HTTP/1.0 may leave out. HTTP/2 has
/// `:authority` instead. Any host is accepted.
pub fn has_valid_host(version: Version, headers: &HeaderMap) -> bool {
    if version >= Version::HTTP_2 {
        return true;
    }
    let mut found = headers.get_all(HOST).iter();
    match (found.next(), found.next()) {
        (None, _) => version < Version::HTTP_11,
        (Some(host), None) => host.to_str().is_ok_and(is_host),
        (Some(_), Some(_)) => false,
    }
}

/// `uri-host [":" port]` (RFC 9110 section 7.2).
fn is_host(text: &str) -> bool {
    let (is_host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (literal, port) = rest.split_once(']').unwrap_or_default();
        (Ipv6Addr::from_str(literal).is_ok(), port)
    } else {
        let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte);
        (name.bytes().all(is_fit), port)
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    is_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaType {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `application/json`.
    Json,
    /// Any other type, or more than one.
    Other,
}

/// The body's type without its parameters (RFC 9110 section 8.3.1); `None` without a `Content-Type`.
pub fn media_type(headers: &HeaderMap) -> Option<MediaType> {
    let mut found = headers.get_all(CONTENT_TYPE).iter();
    let first = found.next()?;
    let essence = first
        .to_str()
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    Some(if found.next().is_some() {
        MediaType::Other
    } else if essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        MediaType::Form
    } else if essence.eq_ignore_ascii_case("application/json") {
        MediaType::Json
    } else {
        MediaType::Other
    })
}

/// The `Authorization` header cannot be read, or there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed authorization header")]
pub struct Malformed;

/// The `Authorization` header (RFC 9110 section 11.4).
pub struct Authorization<'request> {
    /// Its scheme, in upper or lower case.
    pub scheme: &'request str,
    /// What follows the scheme.
    pub credentials: &'request str,
}

/// The `Authorization` header, if there is one.
pub fn authorization(headers: &HeaderMap) -> Result<Option<Authorization<'_>>, Malformed> {
    let mut found = headers.get_all(AUTHORIZATION).iter();
    let Some(first) = found.next() else {
        return Ok(None);
    };
    if found.next().is_some() {
        return Err(Malformed);
    }
    let text = first.to_str().map_err(|_| Malformed)?;
    let (scheme, credentials) = text.split_once(' ').unwrap_or((text, ""));
    Ok(Some(Authorization {
        scheme,
        credentials: credentials.trim_matches(' '),
    }))
}

fn credentials_for_scheme<'request>(
    headers: &'request HeaderMap,
    wanted: &str,
) -> Result<Option<&'request str>, Malformed> {
    let found = authorization(headers)?;
    Ok(found
        .filter(|found| found.scheme.eq_ignore_ascii_case(wanted))
        .map(|found| found.credentials))
}

/// The credentials of the Basic scheme.
#[derive(Debug, PartialEq, Eq)]
pub struct BasicHeader {
    /// Its user name and password.
    pub decoded: BasicCredentials,
    /// The secret before decoding: many clients do not encode it.
    pub secret_as_sent: Zeroizing<String>,
}

/// A client's identifier and secret from the Basic scheme. `None` when there is no such header or it is of another
/// scheme.
pub fn basic_credentials(headers: &HeaderMap) -> Result<Option<BasicHeader>, Malformed> {
    let Some(encoded) = credentials_for_scheme(headers, "Basic")? else {
        return Ok(None);
    };
    let decoded = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| Malformed)?);
    let mut halves = decoded.splitn(2, |byte| *byte == b':');
    let (Some(user), Some(password)) = (halves.next(), halves.next()) else {
        return Err(Malformed);
    };
    let user = form_decode(user).ok_or(Malformed)?;
    let as_sent = std::str::from_utf8(password).map_err(|_| Malformed)?;
    let secret_as_sent = Zeroizing::new(as_sent.to_owned());
    let password = form_decode(password).unwrap_or_else(|| secret_as_sent.clone());
    Ok(Some(BasicHeader {
        decoded: BasicCredentials {
            user: user.to_string(),
            password,
        },
        secret_as_sent,
    }))
}

/// The scheme of an access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// The token alone (RFC 6750 section 2.1).
    Bearer,
    /// The token with a proof in the header `DPoP` (RFC 9449 section 7.1).
    Dpop,
}

/// An access token in a header.
pub struct AccessToken<'request> {
    pub text: &'request str,
    pub scheme: Scheme,
}

/// The access token of the `Authorization` header. `None` when there is no such header or it is of another scheme.
pub fn access_token(headers: &HeaderMap) -> Result<Option<AccessToken<'_>>, Malformed> {
    for (scheme, name) in [(Scheme::Bearer, "Bearer"), (Scheme::Dpop, dpop::SCHEME)] {
        if let Some(text) = credentials_for_scheme(headers, name)? {
            return if is_token(text) {
                Ok(Some(AccessToken { text, scheme }))
            } else {
                Err(Malformed)
            };
        }
    }
    Ok(None)
}

/// The access token from the Bearer scheme. `None` when there is no such header or it is of another scheme.
pub fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, Malformed> {
    let found = access_token(headers)?.filter(|token| token.scheme == Scheme::Bearer);
    Ok(found.map(|token| token.text))
}

/// `token68` of RFC 9110 section 11.2.
fn is_token(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let is_char = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !body.is_empty() && body.bytes().all(is_char)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use http::HeaderName;
    use http_body_util::Full;
    use hyper::body::Frame;
    use proptest::prelude::*;

    use super::*;

    const TIME: Duration = Duration::from_secs(10);

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect()
    }

    fn basic(credentials: &[u8]) -> HeaderMap {
        headers(&[(AUTHORIZATION, &format!("basic {}", STANDARD.encode(credentials)))])
    }

    /// A body of unknown length. It yields `left` single bytes, and then never ends.
    struct Drip {
        left: usize,
    }

    impl Body for Drip {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return Poll::Pending;
            }
            self.left -= 1;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test]
    async fn a_body_of_the_allowed_length_is_read_and_one_byte_more_is_not() {
        let body = || Full::new(Bytes::from_static(b"12345"));
        assert_eq!(read_body(&mut body(), 5, TIME).await.unwrap(), "12345");
        assert_eq!(read_body(&mut body(), 4, TIME).await, Err(BodyError::TooLarge));
        assert_eq!(
            read_body(&mut Drip { left: 6 }, 5, Duration::from_millis(10)).await,
            Err(BodyError::TooLarge)
        );
    }

    #[tokio::test]
    async fn a_body_that_stops_half_way_is_not_waited_for() {
        let read = read_body(&mut Drip { left: 3 }, 5, Duration::from_millis(10)).await;
        assert_eq!(read, Err(BodyError::TimedOut));
    }

    /// A body without data that ends when told to. Its value shows whether the body was dropped.
    struct Silent {
        _held: Arc<()>,
    }

    impl Body for Silent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn what_is_not_read_outlives_the_answer_by_a_moment_and_no_more() {
        let held = Arc::new(());
        let silent = Silent {
            _held: Arc::clone(&held),
        };
        let begun = std::time::Instant::now();
        keep_unread(silent, Arc::clone(&held));
        while Arc::strong_count(&held) > 1 {
            assert!(begun.elapsed() < TIME, "kept for ever");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(begun.elapsed() >= UNREAD_BODY_DELAY);
    }

    #[test]
    fn a_media_type_is_read_without_its_parameters() {
        let one = |value: &str| media_type(&headers(&[(CONTENT_TYPE, value)]));
        assert_eq!(
            one("Application/X-WWW-form-urlencoded; charset=UTF-8"),
            Some(MediaType::Form)
        );
        assert_eq!(one("application/json"), Some(MediaType::Json));
        assert_eq!(one("application/json-seq"), Some(MediaType::Other));
        assert_eq!(one(""), Some(MediaType::Other));
        assert_eq!(media_type(&HeaderMap::new()), None);
        let two = headers(&[
            (CONTENT_TYPE, "application/json"),
            (CONTENT_TYPE, "application/json"),
        ]);
        assert_eq!(media_type(&two), Some(MediaType::Other));
    }

    #[test]
    fn basic_credentials_are_form_decoded_and_split_at_the_first_colon() {
        let found = basic_credentials(&basic(b"web%3Aapp:a%25b+c:d"))
            .unwrap()
            .unwrap();
        let BasicCredentials { user, password } = &found.decoded;
        assert_eq!((user.as_str(), password.as_str()), ("web:app", "a%b c:d"));
        assert_eq!(found.secret_as_sent.as_str(), "a%25b+c:d");
    }

    #[test]
    fn basic_credentials_that_cannot_be_read_are_malformed() {
        assert_eq!(basic_credentials(&basic(b"no colon")), Err(Malformed));
        assert_eq!(basic_credentials(&basic(b"a:\xff")), Err(Malformed));
        for value in [
            "Basic",
            "Basic !!!",
            "Basic YTpi\u{e9}",
            "Basic YTpiYw",
            "Basic YTpi Yw==",
        ] {
            assert_eq!(
                basic_credentials(&headers(&[(AUTHORIZATION, value)])),
                Err(Malformed),
                "{value}"
            );
        }
        let twice = headers(&[(AUTHORIZATION, "Basic YTpi"), (AUTHORIZATION, "Bearer x")]);
        assert_eq!(basic_credentials(&twice), Err(Malformed));
        assert_eq!(bearer_token(&twice), Err(Malformed));
    }

    #[test]
    fn a_header_of_another_scheme_is_no_fault() {
        assert_eq!(
            basic_credentials(&headers(&[(AUTHORIZATION, "Bearer x")])),
            Ok(None)
        );
        assert_eq!(bearer_token(&basic(b"a:b")), Ok(None));
        assert_eq!(bearer_token(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn a_bearer_token_has_the_characters_of_one() {
        let one = |value: &str| {
            bearer_token(&headers(&[(AUTHORIZATION, value)])).map(|token| token.map(str::to_owned))
        };
        assert_eq!(
            one("bearer  eyJ.a-b_c~+/=="),
            Ok(Some("eyJ.a-b_c~+/==".to_owned()))
        );
        for value in [
            "Bearer",
            "Bearer ",
            "Bearer =",
            "Bearer a b",
            "Bearer a,b",
            "Bearer \"a\"",
            "Bearer a=b",
        ] {
            assert_eq!(one(value), Err(Malformed), "{value}");
        }
    }

    #[test]
    fn a_host_is_named_once_and_is_one() {
        let named = |version, hosts: &[&str]| {
            let lines: Vec<_> = hosts.iter().map(|host| (HOST, *host)).collect();
            has_valid_host(version, &headers(&lines))
        };
        for host in [
            "id.example.com",
            "id.example.com:8443",
            "id_1.example.com:",
            "192.0.2.1:80",
            "[2001:db8::1]",
            "[::ffff:192.0.2.1]:443",
            "",
        ] {
            assert!(named(Version::HTTP_11, &[host]), "{host}");
            assert!(!named(Version::HTTP_11, &[host, host]), "{host}");
            assert!(!named(Version::HTTP_10, &[host, host]), "{host}");
        }
        for host in [
            "a b",
            "a, b.example",
            "a/b",
            "user@a",
            "a:b",
            "a:80:80",
            "a?b",
            "[2001:db8::1",
            "[a]",
            "[::1]80",
            "::1",
            "caf\u{e9}",
            "\"a\"",
        ] {
            assert!(!named(Version::HTTP_11, &[host]), "{host}");
            assert!(!named(Version::HTTP_10, &[host]), "{host}");
        }
        assert!(!named(Version::HTTP_11, &[]));
        assert!(named(Version::HTTP_10, &[]));
        assert!(named(Version::HTTP_2, &[]));
    }

    proptest! {
        #[test]
        fn no_header_panics(line in "[ -~]{0,80}") {
            let headers = headers(&[(AUTHORIZATION, &line)]);
            let _ = (basic_credentials(&headers), bearer_token(&headers));
        }
    }

    #[test]
    fn an_http2_connection_lives_through_a_body_that_is_too_large() {
        use crate::http::MAX_BODY;
        use crate::net::activity::BYTES_PER_REQUEST;
        // Frames may be as small as half a kilobyte, each with nine bytes of its own.
        let body = MAX_BODY + MAX_DISCARDED;
        assert!(body + body / 512 * 9 <= BYTES_PER_REQUEST);
    }
}
