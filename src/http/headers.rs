//! Headers of answers: security, caching, and CORS.

use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW,
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
    HeaderValue, IF_NONE_MATCH, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, StatusCode};

use super::response::{self, HttpResponse};
use crate::app::PublishedDocument;

/// The header that names a request in the answer and in the log.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");

/// Sets the headers that every answer has. `hsts` requires TLS (RFC 6797 section 7.2) and a host without other services.
///
/// The referrer policy sends the origin only, so that no address with a code or transaction leaks. `no-referrer` would not
/// do: with it, browsers send `Origin: null` with our own forms and with a response that is posted to a client.
///
/// `Cross-Origin-Opener-Policy` is not set: it would break relying parties that open the sign-in in a window of its own
/// and wait for its answer.
pub fn secure(headers: &mut HeaderMap, request_id: &str, hsts: bool) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("strict-origin"));
    if let Ok(request_id) = HeaderValue::from_str(request_id) {
        headers.insert(X_REQUEST_ID, request_id);
    }
    if hsts {
        headers.insert(
            STRICT_TRANSPORT_SECURITY,
            HeaderValue::from_static("max-age=31536000"),
        );
    }
}

/// Sets the further headers of a page. `policy` says what it may load (Content Security Policy 3).
pub fn page(headers: &mut HeaderMap, policy: &str) {
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(
        PERMISSIONS_POLICY,
        HeaderValue::from_static(
            "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
        ),
    );
}

/// The origins whose scripts may read an answer. Credentials are never allowed: no cookie crosses origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedOrigin<'request> {
    Any,
    /// The origin in the request's `Origin` header.
    One(&'request HeaderValue),
}

/// Lets scripts of an origin read the answer (Fetch standard, section 3.3).
pub fn allow_origin(headers: &mut HeaderMap, origin: AllowedOrigin<'_>) {
    let value = match origin {
        AllowedOrigin::Any => HeaderValue::from_static("*"),
        AllowedOrigin::One(origin) => {
            vary_by_origin(headers);
            origin.clone()
        }
    };
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, value);
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("www-authenticate, dpop-nonce, retry-after, x-request-id"),
    );
}

/// Tells caches that the answer depends on the origin. Every answer of a route that checks origins needs it, also if the
/// origin was refused.
pub fn vary_by_origin(headers: &mut HeaderMap) {
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

/// The request headers that the endpoints read. Scripts may send them even if the preflight request does not name them.
const ALWAYS_ALLOWED_HEADERS: [HeaderName; 3] =
    [AUTHORIZATION, CONTENT_TYPE, HeaderName::from_static("dpop")];

/// Whether only browsers or proxies may set a header, because it says who sent the request or how it was transported.
/// `*` is refused too, because it would allow all headers.
fn is_set_by_transport(name: &HeaderName) -> bool {
    let name = name.as_str();
    ["sec-", "proxy-", "x-forwarded-", "x-real-", "access-control-"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || [
            "*",
            "connection",
            "content-length",
            "cookie",
            "expect",
            "forwarded",
            "host",
            "keep-alive",
            "origin",
            "referer",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "via",
        ]
        .contains(&name)
}

/// The most header names of a preflight request that are read. No real request has so many.
const MAX_REQUESTED_HEADERS: usize = 100;

/// The headers that a script may send: all requested headers, except those of the transport. Libraries add headers that
/// no endpoint reads, such as `traceparent` of W3C Trace Context.
fn allowed_headers(request: &HeaderMap) -> HeaderValue {
    let mut allowed = ALWAYS_ALLOWED_HEADERS.to_vec();
    let requested = request.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let lists = requested.filter_map(|list| list.to_str().ok());
    let names = lists
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok());
    for name in names.take(MAX_REQUESTED_HEADERS) {
        if !is_set_by_transport(&name) && !allowed.contains(&name) {
            allowed.push(name);
        }
    }
    let names: Vec<_> = allowed.iter().map(HeaderName::as_str).collect();
    HeaderValue::from_str(&names.join(", ")).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// How long a browser may keep the answer to a preflight request, in seconds. This is the upper limit of Chromium.
const PREFLIGHT_MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// Answers a preflight request of an allowed origin (Fetch standard, section 3.3.3).
pub fn preflight(request: &HeaderMap, methods: &[Method], origin: AllowedOrigin<'_>) -> HttpResponse {
    let mut answer = response::empty(StatusCode::NO_CONTENT);
    let headers = answer.headers_mut();
    allow_origin(headers, origin);
    headers.remove(ACCESS_CONTROL_EXPOSE_HEADERS);
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, method_list(methods));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(request));
    headers.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE);
    answer
}

/// Answers a request whose method the route does not have (RFC 9110 section 15.5.6).
pub fn method_not_allowed(methods: &[Method]) -> HttpResponse {
    let mut answer = response::empty(StatusCode::METHOD_NOT_ALLOWED);
    answer.headers_mut().insert(ALLOW, method_list(methods));
    answer
}

fn method_list(methods: &[Method]) -> HeaderValue {
    let list = methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    HeaderValue::from_str(&list).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// How long a cache may go on using a stale document while the service cannot be reached (RFC 5861 section 4).
const STALE_IF_ERROR: Duration = Duration::from_hours(24);

/// Answers with a document that caches may keep for `max_age`, and longer in an outage. Answers 304 if the sender has the
/// document already (RFC 9110 section 13.1.2).
pub fn cacheable(
    request: &HeaderMap,
    content_type: &'static str,
    document: &PublishedDocument,
    max_age: Duration,
) -> HttpResponse {
    let tag = &document.entity_tag;
    let mut answer = if has_entity_tag(request, tag) {
        response::empty(StatusCode::NOT_MODIFIED)
    } else {
        response::with_body(StatusCode::OK, content_type, document.body.clone())
    };
    let headers = answer.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, tag);
    }
    let (fresh, stale) = (max_age.as_secs(), STALE_IF_ERROR.as_secs());
    if let Ok(value) = HeaderValue::from_str(&format!("public, max-age={fresh}, stale-if-error={stale}")) {
        headers.insert(CACHE_CONTROL, value);
    }
    answer
}

fn has_entity_tag(request: &HeaderMap, tag: &str) -> bool {
    request
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|header| header.to_str().ok())
        .flat_map(|header| header.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hsts_is_sent_over_tls_only() {
        let mut headers = HeaderMap::new();
        secure(&mut headers, "0198-abc", false);
        assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[REFERRER_POLICY], "strict-origin");
        assert_eq!(headers[X_REQUEST_ID], "0198-abc");
        assert!(!headers.contains_key(STRICT_TRANSPORT_SECURITY));
        secure(&mut headers, "0198-abc", true);
        assert_eq!(headers[STRICT_TRANSPORT_SECURITY], "max-age=31536000");
    }

    #[test]
    fn a_page_carries_its_policy() {
        let mut headers = HeaderMap::new();
        page(&mut headers, "default-src 'none'");
        assert_eq!(headers[CONTENT_SECURITY_POLICY], "default-src 'none'");
        assert!(headers.contains_key(PERMISSIONS_POLICY));
    }

    #[test]
    fn an_allowed_origin_is_echoed_and_never_with_credentials() {
        let origin = HeaderValue::from_static("https://app.example");
        let answer = preflight(&HeaderMap::new(), &[Method::POST], AllowedOrigin::One(&origin));
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        let headers = answer.headers();
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example");
        assert_eq!(headers[VARY], "Origin");
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_METHODS], "POST");
        assert_eq!(
            headers[ACCESS_CONTROL_ALLOW_HEADERS],
            "authorization, content-type, dpop"
        );
        assert_eq!(headers[ACCESS_CONTROL_MAX_AGE], "7200");
        assert!(!headers.contains_key("access-control-allow-credentials"));

        let mut headers = HeaderMap::new();
        allow_origin(&mut headers, AllowedOrigin::Any);
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert!(!headers.contains_key(VARY));
    }

    #[test]
    fn a_script_may_send_any_header_but_those_of_the_transport() {
        for (asked, added) in [
            ("", ""),
            ("DPoP,Authorization", ""),
            (
                "traceparent, X-Requested-With,x-requested-with",
                ", traceparent, x-requested-with",
            ),
            (
                "cookie, Host, origin, sec-fetch-site, proxy-authorization, te",
                "",
            ),
            ("Forwarded, X-Forwarded-For, x-real-ip, baggage", ", baggage"),
            ("a b, , \"x\", *, x:y", ""),
        ] {
            let mut request = HeaderMap::new();
            request.insert(ACCESS_CONTROL_REQUEST_HEADERS, asked.parse().unwrap());
            let allowed = allowed_headers(&request);
            assert_eq!(
                allowed,
                format!("authorization, content-type, dpop{added}"),
                "{asked}"
            );
        }
    }

    #[test]
    fn a_wrong_method_is_told_the_right_ones() {
        let answer = method_not_allowed(&[Method::GET, Method::HEAD]);
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(answer.headers()[ALLOW], "GET, HEAD");
    }

    #[test]
    fn a_known_document_is_not_sent_again() {
        let age = Duration::from_mins(5);
        let document = PublishedDocument::new("{}".into());
        let ask = |known: Option<&str>| {
            let mut request = HeaderMap::new();
            if let Some(known) = known {
                request.insert(IF_NONE_MATCH, known.parse().unwrap());
            }
            cacheable(&request, "application/json", &document, age)
        };
        let first = ask(None);
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(
            first.headers()[CACHE_CONTROL],
            "public, max-age=300, stale-if-error=86400"
        );
        let tag = first.headers()[ETAG].to_str().unwrap().to_owned();
        assert_eq!(
            tag,
            "\"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\""
        );
        for known in [
            tag.clone(),
            format!("W/{tag}"),
            format!("\"other\", {tag}"),
            "*".to_owned(),
        ] {
            let again = ask(Some(&known));
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!(again.headers()[ETAG], tag.as_str());
        }
        assert_eq!(ask(Some("\"other\"")).status(), StatusCode::OK);
    }
}
