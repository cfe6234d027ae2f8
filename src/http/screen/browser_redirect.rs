//! Redirects of the browser after a step of a sign-in.

use ::http::StatusCode;
use ::http::header::{HeaderValue, SET_COOKIE};

use super::{account_notice, second_factor};
use crate::flow::login::sign_response::sign_response;
use crate::flow::login::transaction::{BrowserRedirect, Destination};
use crate::http::context::RequestContext;
use crate::http::cookie::{A_YEAR, Cookie};
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::oauth::authorize::AuthorizationResponse;
use crate::oauth::response_mode::ResponseMode;
use crate::pages::{AccountNotice, ErrorKind, FormPost};
use crate::route::Route;
use crate::secret::{Secret, SessionCookie};

/// Sends the browser to its next page, with new cookies if there are any.
pub fn send(context: &RequestContext, redirect: BrowserRedirect) -> HttpResponse {
    let mut answer = match redirect.destination {
        Destination::Respond(response) => deliver(context, response),
        Destination::SignIn(sealed) => response::redirect_303(&page_address(context, &Route::Login, &sealed)),
        Destination::AskConsent(sealed) => {
            response::redirect_303(&page_address(context, &Route::Consent, &sealed))
        }
        Destination::SecondFactor(sealed, proof) => {
            response::redirect_303(&second_factor::address(context, &sealed, &proof))
        }
        Destination::OfferPasskey(sealed) => {
            response::redirect_303(&page_address(context, &Route::PasskeyOffer, &sealed))
        }
        Destination::DecideDevice(sealed) => {
            response::redirect_303(&page_address(context, &Route::Device, &sealed))
        }
        Destination::Account(account) => {
            let page = Route::recognise(&account.page).filter(Route::is_account);
            let page = page.unwrap_or(Route::Account);
            if account.action_pending {
                let session = match &redirect.session {
                    Some(secret) => secret.reveal(),
                    None => context.cookie(Cookie::Session).unwrap_or_default(),
                };
                account_notice::redirect(context, &page, AccountNotice::ActionPending, session)
            } else {
                response::redirect_303(&context.app.path(&page))
            }
        }
    };
    if let Some(secret) = redirect.binding {
        let cookie = Cookie::Browser.set(secret.reveal(), Some(A_YEAR));
        append_cookie(&mut answer, cookie);
    }
    if let Some(secret) = redirect.session {
        append_session(&mut answer, &secret);
    }
    answer
}

/// Sets the cookie of the session. It has no `Max-Age`, so it ends with the browser.
pub fn append_session(answer: &mut HttpResponse, secret: &Secret<SessionCookie>) {
    append_cookie(answer, Cookie::Session.set(secret.reveal(), None));
}

/// Adds a `Set-Cookie` header, if there is a value.
pub fn append_cookie(answer: &mut HttpResponse, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// Redirects a POST to the same address with GET and the form as the query.
///
/// A form that a client's page posts comes without our cookies, which are `SameSite=Lax`. The redirected request has them.
/// A form that does not fit into an address is refused.
pub fn repeat_as_get(context: &RequestContext, route: &Route) -> HttpResponse {
    // With the other headers of a browser, the request stays below the 16 KiB of a header.
    const MAX_QUERY: usize = 14 * 1024;
    if context.body.len() > MAX_QUERY {
        let message = "the request is longer than 14 KiB";
        return context.error_page(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::Request, message);
    }
    match std::str::from_utf8(&context.body) {
        Ok(form) if form.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') => {
            response::redirect_303(&format!("{}?{form}", context.app.path(route)))
        }
        _ => {
            let message = "the form is not URL-encoded";
            context.error_page(StatusCode::BAD_REQUEST, ErrorKind::Request, message)
        }
    }
}

/// The address of a page of a sealed transaction.
pub fn page_address(context: &RequestContext, page: &Route, sealed: &str) -> String {
    format!("{}?transaction={sealed}", context.app.path(page))
}

/// Sends the answer to the client in the response mode that it asked for. A refusal is logged, because otherwise only
/// the application sees it.
fn deliver(context: &RequestContext, answer: AuthorizationResponse) -> HttpResponse {
    if let Some((error, description)) = answer.error() {
        context.log_refusal(error, description);
    }
    let answer = match sign_response(&context.app.core, answer, context.now) {
        Ok(answer) => answer,
        Err(failure) => return error::failed_page(context, &failure),
    };
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
