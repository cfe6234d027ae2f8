//! `GET` and `POST /consent`: the page that asks whether a client may act for the user.

use ::http::{Method, StatusCode};
use uuid::Uuid;

use super::login_context;
use super::login_context::Asked;
use super::{browser_redirect, csrf, person};
use crate::flow::login::consent::{decline, give_consent};
use crate::flow::login::transaction;
use crate::flow::login::transaction::Underway;
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::Answer;
use crate::oauth::authorize::Step;
use crate::pages::{Consent, Heading};
use crate::route::Route;

/// Shows the page, or takes the answer.
pub async fn respond(context: &RequestContext) -> Answer {
    let Asked {
        parameters,
        browser,
        underway,
    } = match login_context::find(context) {
        Ok(asked) => asked,
        Err(page) => return *page,
    };
    let id = underway.id;
    let core = &context.app.core;
    let is_ours = context.method() == Method::POST && context.is_from_own_page();
    let decision = parameters.get("decision").filter(|_| is_ours);
    if decision == Some("deny") && underway.transaction.refused.is_none() {
        // A no counts whatever has happened meanwhile in other tabs, and for whoever says it. It needs no CSRF token:
        // it comes from our own page, gives nobody anything, and ends only the request of this browser.
        return match decline(core, underway, context.now).await {
            Ok(next) => browser_redirect::go(context, next),
            Err(failure) => error::failed_page(context, &failure),
        };
    }
    let session = match (&underway.step, &underway.session) {
        (Step::AskConsent, Some(live)) => live.id,
        _ => {
            return match transaction::carry_on(core, &browser, underway, context.now).await {
                Ok(next) => browser_redirect::go(context, next),
                Err(failure) => error::failed_page(context, &failure),
            };
        }
    };
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let form = form(id, session);
    let says_yes = decision == Some("allow");
    if !says_yes || !csrf::is_valid(parameters.get("csrf"), cookie, &form) {
        return draw(context, &underway, &csrf::token(cookie, &form), says_yes);
    }
    match give_consent(core, &browser, underway, context.now).await {
        Ok(Ok(next)) => browser_redirect::go(context, next),
        Ok(Err(refusal)) => {
            context.error_page(StatusCode::BAD_REQUEST, Heading::Request, &refusal.description)
        }
        Err(failure) => error::failed_page(context, &failure),
    }
}

/// `is_again` says that a yes was sent that does not count: it was asked for in another session.
fn draw(context: &RequestContext, underway: &Underway, csrf: &str, is_again: bool) -> Answer {
    let request = &underway.transaction.request;
    let scope = request.scope_for_consent();
    let user = underway.session.as_ref().map(|live| person(&live.user));
    let page = Consent {
        action: context.app.path(&Route::Consent),
        transaction: underway.id.to_string(),
        csrf: csrf.to_owned(),
        client_name: underway.client.display_name().to_owned(),
        user: user.unwrap_or_default(),
        is_again,
        scopes: scope
            .iter()
            .map(|name| context.scope_line(Some(&underway.client), name))
            .collect(),
    };
    context.page(StatusCode::OK, &page, request.ui_locales.as_deref())
}

/// The form is drawn for one user's session: the answer does not count in another.
fn form(id: Uuid, session: Uuid) -> String {
    format!("consent:{id}:{session}")
}
