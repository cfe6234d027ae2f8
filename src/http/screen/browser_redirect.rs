//! Redirects of the browser after a step of a sign-in.

use ::http::StatusCode;

use super::{account_notice, address};
use crate::flow::Failure;
use crate::flow::login::destination::{BrowserRedirect, Destination};
use crate::flow::login::sign_response::sign_response;
use crate::http::context::RequestContext;
use crate::http::cookie::{self, Cookie};
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::oauth::authorize::AuthorizationResponse;
use crate::oauth::response_mode::ResponseMode;
use crate::pages::{AccountNotice, ErrorKind, FormPost};
use crate::route::Route;
use crate::secret::{Secret, SessionCookie};

/// Sends the browser to its next page, with new cookies if there are any.
pub fn send(context: &RequestContext, redirect: BrowserRedirect) -> HttpResponse {
    let page = |page, sealed: &str| response::redirect_303(&address::page(context, page, sealed));
    let mut answer = match redirect.destination {
        // If this fails, the user is signed in nevertheless: the page that says so gets the cookies, too.
        Destination::Respond(response) => deliver(context, response)
            .unwrap_or_else(|failure| error::answer(context, &Route::Authorize, failure.into())),
        // The sign-in page knows the next step, and says it.
        Destination::SignIn(sealed) | Destination::NoAccess(sealed) => page(&Route::Login, &sealed),
        Destination::AskConsent(sealed) => page(&Route::Consent, &sealed),
        Destination::SecondFactor { sealed, proof } => {
            let proof = proof.as_deref().unwrap_or_default();
            response::redirect_303(&address::second_step(context, &sealed, proof))
        }
        Destination::ChoosePassword { sealed, link } => {
            response::redirect_303(&address::link(context, &sealed, &link))
        }
        Destination::OfferPasskey(sealed) => page(&Route::PasskeyOffer, &sealed),
        Destination::DecideDevice(sealed) => page(&Route::Device, &sealed),
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
        cookie::append(&mut answer, context.set_cookie(Cookie::Browser, secret.reveal()));
    }
    if let Some(secret) = redirect.session {
        append_session(context, &mut answer, &secret);
    }
    answer
}

/// Sets the cookie of the session. It has no `Max-Age`, so it ends with the browser.
pub fn append_session(context: &RequestContext, answer: &mut HttpResponse, secret: &Secret<SessionCookie>) {
    cookie::append(answer, context.set_cookie(Cookie::Session, secret.reveal()));
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

/// Sends the answer to the client in the response mode that it asked for. A refusal is logged, because otherwise only
/// the application sees it.
fn deliver(context: &RequestContext, answer: AuthorizationResponse) -> Result<HttpResponse, Failure> {
    if let Some((error, description)) = answer.error() {
        context.log_refusal(error, description);
    }
    let answer = sign_response(&context.app.core, answer, context.now)?;
    Ok(match answer.response_mode {
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
    })
}
