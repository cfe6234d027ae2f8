//! `/error`: where nothing sends anybody, kept so that an address that somebody saved still says something.

use ::http::StatusCode;

use crate::http::call::Call;
use crate::http::response::Answer;
use crate::page::Heading;

/// Shows the page.
pub fn respond(call: &Call) -> Answer {
    let message = "Please go back to the application and try again.";
    call.error_page(StatusCode::BAD_REQUEST, Heading::Request, message)
}
