//! `/error`: no page links here. It is for browsers that have the address in a bookmark.

use ::http::StatusCode;

use crate::http::context::RequestContext;
use crate::http::response::HttpResponse;
use crate::pages::ErrorKind;

/// Shows the page.
pub fn respond(context: &RequestContext) -> HttpResponse {
    let message = "the address was opened without a request";
    context.error_page(StatusCode::BAD_REQUEST, ErrorKind::Request, message)
}
