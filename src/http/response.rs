//! The kinds of answers: empty, JSON, page, text, redirect.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION, PRAGMA};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

/// An answer of the service, with its whole body in memory.
pub type HttpResponse = Response<Full<Bytes>>;

/// An answer without a body.
pub fn empty(status: StatusCode) -> HttpResponse {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}

/// JSON. A value that cannot be written as JSON is a bug and makes a bare 500.
pub fn json(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    match serde_json::to_vec(value) {
        Ok(body) => with_body(status, "application/json", body.into()),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            empty(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

pub fn html(status: StatusCode, page: String) -> HttpResponse {
    with_body(status, "text/html; charset=utf-8", page.into())
}

/// Plain text.
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> HttpResponse {
    with_body(status, "text/plain; charset=utf-8", text.into())
}

/// Bytes of a fixed media type.
pub fn with_body(status: StatusCode, content_type: &'static str, body: Bytes) -> HttpResponse {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// Sends the browser to another address with GET. RFC 9700 section 4.12 forbids 307, which would send the password again.
/// Not stored, because the address may contain a code. An address that a header cannot contain is a bug and makes a bare
/// 500.
pub fn redirect_303(location: &str) -> HttpResponse {
    let Ok(location) = HeaderValue::from_str(location) else {
        tracing::error!("a redirect's address has characters that a header cannot contain");
        return empty(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let mut answer = empty(StatusCode::SEE_OTHER);
    answer.headers_mut().insert(LOCATION, location);
    no_store(answer)
}

/// Forbids caches to store an answer, such as one with a token (RFC 6749 section 5.1).
pub fn no_store(mut answer: HttpResponse) -> HttpResponse {
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    answer
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http_body_util::BodyExt;

    use super::*;

    async fn body(answer: HttpResponse) -> Bytes {
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
