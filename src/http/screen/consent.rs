//! `GET` and `POST /consent`: the page that asks whether a client may act for the user.

use ::http::{Method, StatusCode};
use uuid::Uuid;

use super::underway::{self, Asked};
use super::{csrf, onward, person};
use crate::flow::authorization::{self, Underway};
use crate::flow::give_consent::{decline, give_consent};
use crate::http::call::Call;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::Answer;
use crate::oauth::authorize::Step;
use crate::page::{Consent, Heading};
use crate::route::Route;

/// Shows the page, or takes the answer.
pub async fn respond(call: &Call) -> Answer {
    let Asked {
        parameters,
        browser,
        underway,
    } = match underway::find(call) {
        Ok(asked) => asked,
        Err(page) => return *page,
    };
    let id = underway.id;
    let core = &call.app.core;
    let is_ours = call.method() == Method::POST && call.is_from_own_page();
    let decision = parameters.get("decision").filter(|_| is_ours);
    if decision == Some("deny") && underway.transaction.refused.is_none() {
        // A no counts whatever has happened meanwhile in other tabs, and for whoever says it. It needs no CSRF token:
        // it comes from our own page, gives nobody anything, and ends only the request of this browser.
        return match decline(core, underway, call.now).await {
            Ok(next) => onward::go(call, next),
            Err(failure) => error::failed_page(call, &failure),
        };
    }
    let session = match (&underway.step, &underway.session) {
        (Step::AskConsent, Some(live)) => live.id,
        _ => {
            return match authorization::carry_on(core, &browser, underway, call.now).await {
                Ok(next) => onward::go(call, next),
                Err(failure) => error::failed_page(call, &failure),
            };
        }
    };
    let cookie = call.cookie(Cookie::Browser).unwrap_or_default();
    let form = form(id, session);
    let says_yes = decision == Some("allow");
    if !says_yes || !csrf::is_valid(parameters.get("csrf"), cookie, &form) {
        return draw(call, &underway, &csrf::token(cookie, &form), says_yes);
    }
    match give_consent(core, &browser, underway, call.now).await {
        Ok(Ok(next)) => onward::go(call, next),
        Ok(Err(refusal)) => call.error_page(StatusCode::BAD_REQUEST, Heading::Request, &refusal.description),
        Err(failure) => error::failed_page(call, &failure),
    }
}

/// `is_again` says that a yes was sent that does not count: it was asked for in another session.
fn draw(call: &Call, underway: &Underway, csrf: &str, is_again: bool) -> Answer {
    let request = &underway.transaction.request;
    let scope = request.scope_for_consent();
    let user = underway.session.as_ref().map(|live| person(&live.user));
    let page = Consent {
        action: call.app.path(&Route::Consent),
        transaction: underway.id.to_string(),
        csrf: csrf.to_owned(),
        client_name: underway.client.display_name().to_owned(),
        user: user.unwrap_or_default(),
        is_again,
        scopes: scope
            .iter()
            .map(|name| call.scope_line(Some(&underway.client), name))
            .collect(),
    };
    call.page(StatusCode::OK, &page, request.ui_locales.as_deref())
}

/// The form is drawn for one user's session: the answer does not count in another.
fn form(id: Uuid, session: Uuid) -> String {
    format!("consent:{id}:{session}")
}
