//! `GET` and `POST /oauth2/authorize`: RFC 6749 section 4.1.1, OpenID Connect Core 3.1.2.1.

use ::http::{Method, StatusCode};

use crate::flow::begin_authorization::begin_authorization;
use crate::http::call::Call;
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::http::screen::onward;
use crate::oauth::redirect_uri::with_query;
use crate::page::Heading;
use crate::route::Route;

/// A posted request of more than this many bytes is not turned into an address.
const LONGEST_QUERY: usize = 8 * 1024;

/// Answers an authorization request, or shows the user why it cannot be answered.
pub async fn respond(call: &Call) -> Answer {
    let parameters = match call.parameters() {
        Ok(parameters) => parameters,
        Err(refusal) => {
            return call.error_page(StatusCode::BAD_REQUEST, Heading::Request, &refusal.description);
        }
    };
    if call.method() == Method::POST
        && call.body.len() <= LONGEST_QUERY
        && parameters.first_repeated().is_none()
    {
        return repeat_as_get(call, parameters.iter());
    }
    match begin_authorization(&call.app.core, &parameters, &call.browser(), call.now).await {
        Ok(Ok(next)) => onward::go(call, next),
        Ok(Err(unanswerable)) => call.error_page(
            StatusCode::BAD_REQUEST,
            Heading::Request,
            &unanswerable.to_string(),
        ),
        Err(failure) => error::failed_page(call, &failure),
    }
}

/// A form posted by the client's page comes without our cookies, which are `SameSite=Lax`: the browser sends
/// them when it asks again.
fn repeat_as_get<'a>(call: &Call, parameters: impl Iterator<Item = (&'a str, &'a str)>) -> Answer {
    let parameters: Vec<_> = parameters.collect();
    response::redirect_303(&with_query(&call.app.path(&Route::Authorize), &parameters))
}
