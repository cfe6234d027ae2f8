//! `/error`: no page links here. It is for browsers that have the address in a bookmark.

use ::http::StatusCode;

use crate::http::context::RequestContext;
use crate::http::response::HttpResponse;
use crate::pages::Heading;

/// Shows the page.
pub fn respond(context: &RequestContext) -> HttpResponse {
    let message = "Please go back to the application and try again.";
    context.error_page(StatusCode::BAD_REQUEST, Heading::Request, message)
}
