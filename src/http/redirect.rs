//! The redirect from plain HTTP to the issuer, on a listener of its own.

use ::http::header::{CONNECTION, HeaderValue, LOCATION};
use ::http::uri::PathAndQuery;
use ::http::{Request, StatusCode};

use crate::app::App;
use crate::http::response::{HttpResponse, empty};

/// Redirects to the same path at the issuer (308, RFC 9110 section 15.4.9). A target without a path, such as that of
/// CONNECT, leads to the issuer itself. The connection closes, because no further request belongs here.
pub fn to_issuer<B>(app: &App, request: &Request<B>) -> HttpResponse {
    let target = request.uri().path_and_query().map(PathAndQuery::as_str);
    let path = target.filter(|path| path.starts_with('/')).unwrap_or("/");
    let Ok(location) = HeaderValue::from_str(&format!("{}{path}", app.issuer_origin)) else {
        return empty(StatusCode::BAD_REQUEST);
    };
    let mut answer = empty(StatusCode::PERMANENT_REDIRECT);
    let headers = answer.headers_mut();
    headers.insert(LOCATION, location);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
