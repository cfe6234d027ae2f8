//! Where the browser goes after a step of a sign-in.

use ::http::StatusCode;
use ::http::header::SET_COOKIE;
use uuid::Uuid;

use super::account;
use crate::flow::login::transaction::{Next, Onward};
use crate::http::context::RequestContext;
use crate::http::cookie::{A_YEAR, Cookie};
use crate::http::response::{self, Answer};
use crate::oauth::authorize::{AuthorizationResponse, ResponseMode};
use crate::pages::{AccountNotice, FormPost, Heading};
use crate::route::Route;

/// Sends the browser on, with the cookies it is given.
pub fn go(context: &RequestContext, onward: Onward) -> Answer {
    let mut answer = match onward.next {
        Next::Respond(response) => deliver(context, response),
        Next::SignIn(id) => response::redirect_303(&address(context, &Route::Login, id)),
        Next::AskConsent(id) => response::redirect_303(&address(context, &Route::Consent, id)),
        Next::Account { deed_waits: false } => response::redirect_303(&context.app.path(&Route::Account)),
        Next::Account { deed_waits: true } => {
            let session = match &onward.session {
                Some(secret) => secret.reveal(),
                None => context.cookie(Cookie::Session).unwrap_or_default(),
            };
            account::back(context, AccountNotice::DeedWaits, session)
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
pub fn repeat_as_get(context: &RequestContext, route: &Route) -> Answer {
    // With what else a browser sends it stays below the 16 KiB of a header.
    const LONGEST: usize = 14 * 1024;
    if context.body.len() > LONGEST {
        let message = "The request is too long.";
        return context.error_page(StatusCode::PAYLOAD_TOO_LARGE, Heading::Request, message);
    }
    match std::str::from_utf8(&context.body) {
        Ok(form) if form.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') => {
            response::redirect_303(&format!("{}?{form}", context.app.path(route)))
        }
        _ => {
            let message = "The form is not encoded as it should be.";
            context.error_page(StatusCode::BAD_REQUEST, Heading::Request, message)
        }
    }
}

/// The address of a page of a transaction.
pub fn address(context: &RequestContext, page: &Route, id: Uuid) -> String {
    format!("{}?transaction={id}", context.app.path(page))
}

/// Carries the answer to the client, the way it asked for.
fn deliver(context: &RequestContext, answer: AuthorizationResponse) -> Answer {
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
            context.page(StatusCode::OK, &page, None)
        }
    }
}
