//! `GET` and `POST /oauth2/authorize`: RFC 6749 section 4.1.1, OpenID Connect Core 3.1.2.1.

use ::http::{Method, StatusCode};

use crate::flow::begin_authorization::begin_authorization;
use crate::http::call::{Aside, Call};
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::Answer;
use crate::http::screen::onward::{self, repeat_as_get};
use crate::oauth::authorize::Unanswerable;
use crate::oauth::redirect_uri::Mismatch;
use crate::page::Heading;
use crate::route::Route;

/// Answers an authorization request, or shows the user why it cannot be answered.
pub async fn respond(call: &Call) -> Answer {
    let parameters = match call.link_parameters() {
        Ok(parameters) => parameters,
        Err(page) => return *page,
    };
    call.dress_for(parameters.get("client_id"), parameters.get("ui_locales"));
    if call.method() == Method::POST {
        return repeat_as_get(call, &Route::Authorize);
    }
    let admit = || call.admit_sign_in();
    match begin_authorization(&call.app.core, &parameters, &call.browser(), admit, call.now).await {
        Ok(Ok(next)) => onward::go(call, next),
        Ok(Err(unanswerable)) => {
            call.note_aside(aside(unanswerable, &parameters));
            call.error_page(
                StatusCode::BAD_REQUEST,
                Heading::Request,
                &unanswerable.to_string(),
            )
        }
        Err(failure) => error::failed_page(call, &failure),
    }
}

/// What the log is told of it besides.
fn aside(unanswerable: Unanswerable, parameters: &Parameters) -> Aside {
    Aside {
        reason: match unanswerable {
            Unanswerable::UnknownClient => Some("unknown_client"),
            Unanswerable::DisabledClient => Some("client_disabled"),
            _ => None,
        },
        redirect_uri: match unanswerable {
            Unanswerable::RedirectUri(Mismatch::Unregistered) => {
                parameters.get("redirect_uri").map(Aside::address)
            }
            _ => None,
        },
        ..Aside::default()
    }
}
