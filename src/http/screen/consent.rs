//! `GET` and `POST /consent`: the page that asks whether a client may act for the user.

use ::http::{Method, StatusCode};
use uuid::Uuid;

use super::login::OTHER_USER;
use super::login_context;
use super::login_context::LoginRequest;
use super::{browser_redirect, csrf, mark, person};
use crate::flow::login::consent::{decline, give_consent};
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::HttpResponse;
use crate::oauth::client::ClientOrigin;
use crate::oauth::client_document;
use crate::oauth::login::{LoginStep, ResolvedPurpose};
use crate::oauth::redirect_uri::{MatchedRedirectUri, with_query};
use crate::oauth::{Client, Scope};
use crate::pages::Consent;
use crate::pages::consent::{RedirectTarget, ScopeGroup, ScopeLine};
use crate::pages::text::PLACE;
use crate::route::Route;

/// Shows the page, or takes the answer.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let LoginRequest {
        parameters,
        browser,
        login,
    } = match login_context::load(context).await {
        Ok(request) => request,
        Err(page) => return *page,
    };
    let core = &context.app.core;
    let (request, client) = match &login.purpose {
        ResolvedPurpose::Code { request, client } => (request, client),
        ResolvedPurpose::Account(_) | ResolvedPurpose::Device { .. } => {
            return login_context::continue_login(context, &login).await;
        }
    };
    let is_form = context.method() == Method::POST;
    let is_from_us = is_form && context.is_from_own_page();
    let decision = parameters.get("decision").filter(|_| is_from_us);
    if decision == Some("deny") && !login.is_refused {
        // A denial counts for any user of this browser, also if another tab has signed in anew. It needs no CSRF token: it
        // comes from our own page, grants nothing, and ends only the request of this browser.
        return match decline(core, &login, request, context.now).await {
            Ok(redirect) => browser_redirect::send(context, redirect),
            Err(failure) => error::failed_page(context, &failure),
        };
    }
    let (LoginStep::AskConsent, Some(live)) = (&login.step, &login.session) else {
        return login_context::continue_login(context, &login).await;
    };
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let form = form(login.transaction.id, live.id);
    let has_token = is_form && csrf::is_valid(parameters.get("csrf"), cookie, &form);
    if has_token && let Some(page) = context.elsewhere_page() {
        return page;
    }
    let is_allowed = decision == Some("allow");
    if is_allowed && has_token {
        return match give_consent(core, &browser, &login, request, live, context.now).await {
            Ok(Ok(redirect)) => browser_redirect::send(context, redirect),
            Ok(Err(error)) => login_context::transaction_error(context, error),
            Err(failure) => error::failed_page(context, &failure),
        };
    }
    let scope = request.scope_for_consent();
    let page = Consent {
        action: context.app.path(&Route::Consent),
        transaction: login.sealed.clone(),
        csrf: csrf::token(cookie, &form),
        mark: mark(context, client),
        document_host: document_host(client),
        redirect_target: redirect_target(&request.target.return_to),
        unverified_by: client
            .registered_itself()
            .then(|| context.with_page_style(None, |theme, _| theme.product_name().to_owned())),
        user: person(&live.user),
        other_user: with_query(
            &context.app.path(&Route::Login),
            &[("transaction", login.sealed.as_str()), (OTHER_USER, "1")],
        ),
        // The consent was given in another session, and does not count.
        is_repeated: is_allowed,
        scopes: scope
            .iter()
            .map(|name| scope_line(context, Some(client), name))
            .collect(),
    };
    context.page(StatusCode::OK, &page, request.ui_locales.as_deref())
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

/// A scope value, or the identifier of an API, as a page shows it. The description is the text of the client, else of
/// the API, else of the registered scope value, else of the theme in the language of pages.
pub(super) fn scope_line(context: &RequestContext, client: Option<&Client>, scope: &str) -> ScopeLine {
    let catalog = context.app.core.catalog();
    let apis = catalog.apis();
    let own = client.and_then(|client| client.scope_texts.get(scope));
    let of_api = || apis.of_scope(scope)?.metadata.scope_texts.get(scope);
    let of_operator = || catalog.scopes().text(scope);
    let of_theme = || {
        context.with_page_style(None, |_, locale| match apis.named(scope) {
            Some(api) => Some(locale.text().scope_api.replacen(PLACE, api.display_name(), 1)),
            None => locale.scope(scope).map(ToOwned::to_owned),
        })
    };
    let tells_of_user =
        |scope: &str| Scope::is_built_in(scope) || catalog.scopes().claims_of(scope).next().is_some();
    let group = match apis.named(scope).or_else(|| apis.of_scope(scope)) {
        Some(api) => ScopeGroup::Api(api.display_name().to_owned()),
        None if scope == Scope::OFFLINE_ACCESS => ScopeGroup::Offline,
        None if tells_of_user(scope) => ScopeGroup::Identity,
        None => ScopeGroup::Other,
    };
    ScopeLine {
        group,
        name: scope.to_owned(),
        description: own
            .or_else(of_api)
            .or_else(of_operator)
            .cloned()
            .or_else(of_theme)
            .unwrap_or_default(),
    }
}
