//! `GET` and `POST /oauth2/logout`: OpenID Connect RP-Initiated Logout 1.0 section 2.

use ::http::{Method, StatusCode};

use crate::flow::sign_out::{SignOut, begin_sign_out};
use crate::http::call::{Aside, Call};
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::http::screen::logout;
use crate::http::screen::onward::repeat_as_get;
use crate::page::Heading;
use crate::route::Route;

/// Ends the session of this browser where an ID token names its user, or asks.
pub async fn respond(call: &Call) -> Answer {
    let parameters = match call.page_parameters() {
        Ok(parameters) => parameters,
        Err(page) => return *page,
    };
    call.dress_for(parameters.get("client_id"), parameters.get("ui_locales"));
    if call.method() == Method::POST {
        return repeat_as_get(call, &Route::EndSession);
    }
    match begin_sign_out(&call.app.core, &parameters, &call.browser(), call.now).await {
        Ok(Ok(SignOut::Done(return_to))) => logout::done(call, return_to),
        Ok(Ok(SignOut::Ask)) => response::redirect_303(&logout::address(call, &Route::LogoutConfirm)),
        Ok(Err(refusal)) => {
            call.note_aside(Aside {
                redirect_uri: parameters.get("post_logout_redirect_uri").map(Aside::address),
                ..Aside::default()
            });
            call.error_page(StatusCode::BAD_REQUEST, Heading::Request, &refusal.description)
        }
        Err(failure) => error::failed_page(call, &failure),
    }
}
