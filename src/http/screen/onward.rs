//! Where the browser goes after a step of a sign-in.

use ::http::StatusCode;
use ::http::header::SET_COOKIE;
use uuid::Uuid;

use super::account;
use crate::flow::authorization::{Next, Onward};
use crate::http::call::Call;
use crate::http::cookie::{A_YEAR, Cookie};
use crate::http::response::{self, Answer};
use crate::oauth::authorize::{AuthorizationResponse, ResponseMode};
use crate::page::{AccountNotice, FormPost, Heading};
use crate::route::Route;

/// Sends the browser on, with the cookies it is given.
pub fn go(call: &Call, onward: Onward) -> Answer {
    let mut answer = match onward.next {
        Next::Respond(response) => deliver(call, response),
        Next::SignIn(id) => response::redirect_303(&address(call, &Route::Login, id)),
        Next::AskConsent(id) => response::redirect_303(&address(call, &Route::Consent, id)),
        Next::Account { deed_waits: false } => response::redirect_303(&call.app.path(&Route::Account)),
        Next::Account { deed_waits: true } => {
            let session = match &onward.session {
                Some(secret) => secret.reveal(),
                None => call.cookie(Cookie::Session).unwrap_or_default(),
            };
            account::back(call, AccountNotice::DeedWaits, session)
        }
    };
    let cookies = [
        onward
            .binding
            .and_then(|secret| Cookie::Browser.set(secret.reveal(), Some(A_YEAR))),
        onward
            .session
            .and_then(|secret| Cookie::Session.set(secret.reveal(), None)),
    ];
    for cookie in cookies.into_iter().flatten() {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
    answer
}

/// Has the browser ask again with GET, the form as the query.
///
/// A form that a client's page posts comes without our cookies, which are `SameSite=Lax`; the redirect brings
/// them. What does not fit into an address is refused.
pub fn repeat_as_get(call: &Call, route: &Route) -> Answer {
    // With what else a browser sends it stays below the 16 KiB of a header.
    const LONGEST: usize = 14 * 1024;
    if call.body.len() > LONGEST {
        let message = "The request is too long.";
        return call.error_page(StatusCode::PAYLOAD_TOO_LARGE, Heading::Request, message);
    }
    match std::str::from_utf8(&call.body) {
        Ok(form) if form.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') => {
            response::redirect_303(&format!("{}?{form}", call.app.path(route)))
        }
        _ => {
            let message = "The form is not encoded as it should be.";
            call.error_page(StatusCode::BAD_REQUEST, Heading::Request, message)
        }
    }
}

/// The address of a page of a transaction.
pub fn address(call: &Call, page: &Route, id: Uuid) -> String {
    format!("{}?transaction={id}", call.app.path(page))
}

/// Carries the answer to the client, the way it asked for.
fn deliver(call: &Call, answer: AuthorizationResponse) -> Answer {
    match answer.response_mode {
        ResponseMode::Query => response::redirect_303(&answer.location()),
        ResponseMode::FormPost => {
            let fields = answer
                .parameters
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value));
            let page = FormPost {
                action: answer.uri,
                fields: fields.collect(),
            };
            call.page(StatusCode::OK, &page, None)
        }
    }
}
