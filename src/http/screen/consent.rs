//! `GET` and `POST /consent`: the page that asks whether a client may act for the user.

use ::http::{Method, StatusCode};
use uuid::Uuid;

use super::login_context::LoginRequest;
use super::page_parts::{application_pages, mark, person, scope_lines, unverified_by};
use super::{address, browser_redirect, csrf, login_context};
use crate::flow::login::consent::{decline, give_consent};
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::response::HttpResponse;
use crate::oauth::client::{Client, ClientOrigin};
use crate::oauth::client_document;
use crate::oauth::login::{LoginStep, ResolvedPurpose};
use crate::oauth::redirect_uri::MatchedRedirectUri;
use crate::pages::Consent;
use crate::pages::consent::RedirectTarget;
use crate::route::Route;

/// Shows the page, or takes the answer.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let LoginRequest {
        parameters,
        browser,
        login,
    } = login_context::load(context).await?;
    let core = &context.app.core;
    let ResolvedPurpose::Code { request, client } = &login.purpose else {
        return login_context::continue_login(context, &login).await;
    };
    let is_form = context.method() == Method::POST;
    let decision = parameters.get("decision").filter(|_| is_form);
    let own_form = match &login.session {
        Some(live) => form(login.transaction.id, live.id),
        None => String::new(),
    };
    let has_token = is_form && csrf::has_token(context, &parameters, &own_form);
    if is_form && let Some(page) = context.foreign_form_page(has_token) {
        return Ok(page);
    }
    if decision == Some("deny") && !login.is_refused {
        // A denial counts for any user of this browser, also if another tab has signed in anew. It needs no CSRF token: it
        // comes from our own page, grants nothing, and ends only the request of this browser.
        let redirect = decline(core, &login, request, context.now).await?;
        return Ok(browser_redirect::send(context, redirect));
    }
    let (LoginStep::AskConsent, Some(live)) = (&login.step, &login.session) else {
        return login_context::continue_login(context, &login).await;
    };
    let is_allowed = decision == Some("allow");
    if is_allowed && csrf::check(context, has_token)? {
        let redirect = give_consent(context.browser_login(&browser, &login), request, live).await?;
        return Ok(browser_redirect::send(context, redirect));
    }
    let page = Consent {
        action: context.app.path(&Route::Consent),
        transaction: login.sealed.clone(),
        csrf: csrf::of_browser(context, &own_form),
        mark: mark(context, client),
        document_host: document_host(client),
        redirect_target: redirect_target(&request.target.return_to),
        unverified_by: unverified_by(context, client),
        pages: application_pages(client),
        user: person(&live.user),
        other_user: address::other_user(context, &login.sealed),
        // The consent was given in another session, and does not count.
        is_repeated: is_allowed,
        scopes: scope_lines(context, Some(client), &request.scope_for_consent()),
    };
    Ok(context.page(StatusCode::OK, &page, request.ui_locales.as_deref()))
}

/// The host of the client's metadata document.
fn document_host(client: &Client) -> Option<String> {
    let is_documented = client.origin == ClientOrigin::MetadataDocument;
    let address = client_document::address_of(&client.client_id).filter(|_| is_documented)?;
    address.host_str().map(ToOwned::to_owned)
}

/// Where the code is sent. The page shows it because a name alone proves nothing.
fn redirect_target(return_to: &MatchedRedirectUri) -> RedirectTarget {
    match return_to.host() {
        Some(host) if !return_to.is_native() => RedirectTarget::Host(host),
        _ => RedirectTarget::Device,
    }
}

/// The CSRF context of the form. It names the session: the consent does not count in another one.
fn form(id: Uuid, session: Uuid) -> String {
    format!("consent:{id}:{session}")
}
