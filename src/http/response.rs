//! The few shapes that answers have.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, PRAGMA};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

/// Every answer of the service: all of its body at once.
pub type Answer = Response<Full<Bytes>>;

/// An answer without a body.
pub fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

/// JSON. A value that has no JSON form is a fault of ours and makes a bare 500.
pub fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => with_body(status, "application/json", body.into()),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            empty(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

/// A page.
pub fn html(status: StatusCode, page: String) -> Answer {
    with_body(status, "text/html; charset=utf-8", page.into())
}

/// Plain text.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    with_body(status, "text/plain; charset=utf-8", text.into())
}

/// Bytes of a type that is known beforehand.
pub fn with_body(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Sends the browser elsewhere with GET (RFC 9700 section 4.12: never 307, which would send the password
/// along). Not stored, because the address may hold a code. An address that cannot stand in a header is a
/// fault of ours and makes a bare 500.
pub fn redirect_303(location: &str) -> Answer {
    let Ok(location) = HeaderValue::from_str(location) else {
        tracing::error!("a redirect's address has characters that cannot stand in a header");
        return empty(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let mut answer = empty(StatusCode::SEE_OTHER);
    answer.headers_mut().insert(LOCATION, location);
    no_store(answer)
}

/// Marks an answer that holds a token or another secret (RFC 6749 section 5.1).
pub fn no_store(mut answer: Answer) -> Answer {
    forbid_storing(answer.headers_mut());
    answer
}

/// The headers of [`no_store`].
pub fn forbid_storing(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http_body_util::BodyExt;

    use super::*;

    async fn body(answer: Answer) -> Bytes {
        answer.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn json_and_pages_say_what_they_are() {
        let answer = json(
            StatusCode::BAD_REQUEST,
            &BTreeMap::from([("error", "invalid_request")]),
        );
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(body(answer).await, r#"{"error":"invalid_request"}"#);
        let page = html(StatusCode::OK, "<p>".to_owned());
        assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(
            text(StatusCode::OK, "ok").headers()[CONTENT_TYPE],
            "text/plain; charset=utf-8"
        );
    }

    #[tokio::test]
    async fn what_json_cannot_hold_is_a_bare_500() {
        let answer = json(StatusCode::OK, &BTreeMap::from([(vec![1], 1)]));
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(body(answer).await.is_empty());
    }

    #[test]
    fn a_redirect_is_a_303_that_nobody_stores() {
        let answer = redirect_303("https://app.example/cb?code=1");
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        assert_eq!(answer.headers()[LOCATION], "https://app.example/cb?code=1");
        assert_eq!(answer.headers()[CACHE_CONTROL], "no-store");
        assert_eq!(
            redirect_303("/\r\nSet-Cookie: a=b").status(),
            StatusCode::INTERNAL_SERVER_ERROR
        );
    }
}
