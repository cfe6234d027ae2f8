//! `/error`: where nothing sends anybody, kept so that an address that somebody saved still says something.

use ::http::StatusCode;

use crate::http::context::RequestContext;
use crate::http::response::Answer;
use crate::pages::Heading;

/// Shows the page.
pub fn respond(context: &RequestContext) -> Answer {
    let message = "Please go back to the application and try again.";
    context.error_page(StatusCode::BAD_REQUEST, Heading::Request, message)
}
