//! `/logout/confirm` and `/logged-out`.

use ::http::{Method, StatusCode};

use super::csrf;
use super::page_parts::person;
use crate::flow::login::session::{of_browser, signed_in};
use crate::flow::login::sign_out::confirm_sign_out;
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::oauth::openid::logout;
use crate::oauth::redirect_uri::with_query;
use crate::pages::{LoggedOut, LogoutConfirm};
use crate::route::Route;

const FORM: &str = "logout";

/// The address of a sign-out page, with the client and the `ui_locales` of this request (OpenID Connect RP-Initiated
/// Logout 1.0 section 2). The address of the confirmation page also has the post-logout redirect URI and `state`.
pub fn address(context: &RequestContext, page: &Route) -> String {
    let query = context.query().unwrap_or_default();
    let names: &[&'static str] = match page {
        Route::LogoutConfirm => &["ui_locales", "post_logout_redirect_uri", "state"],
        _ => &["ui_locales"],
    };
    let client_id = context.client_id().map(|id| ("client_id", id));
    let others = names.iter().filter_map(|name| Some((*name, query.get(name)?)));
    let kept: Vec<_> = client_id.into_iter().chain(others).collect();
    with_query(&context.app.path(page), &kept)
}

/// The post-logout redirect URI with `state` that [`address`] wrote into this request, if the client has registered it.
fn return_to(context: &RequestContext) -> Option<String> {
    let query = context.query().ok()?;
    let catalog = context.app.core.catalog();
    let client = catalog.client(query.get("client_id")?)?;
    logout::return_to(&query, &client)
        .ok()?
        .filter(|_| client.enabled)
}

/// Sets the theme and languages of the client that [`address`] wrote into this request.
fn set_page_style(context: &RequestContext) {
    let query = context.query().unwrap_or_default();
    context.set_page_style_for(query.get("client_id"), query.get("ui_locales"));
}

/// Asks whether the user wants to sign out, or reads the answer. A browser without a session is not asked.
pub async fn confirm(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let form = context.unique_parameters()?;
    set_page_style(context);
    let (core, browser) = (&context.app.core, context.browser());
    if of_browser(core, &browser).await?.is_none() {
        return Ok(response::redirect_303(&address(context, &Route::LoggedOut)));
    }
    let live = signed_in(core, &browser, context.now).await?;
    let session = context.cookie(Cookie::Session).unwrap_or_default();
    let is_form = context.method() == Method::POST;
    let has_token = is_form && csrf::check(context, csrf::is_valid(form.get("csrf"), session, FORM))?;
    let confirmed = has_token && form.get("decision") == Some("logout");
    if confirmed {
        confirm_sign_out(core, &browser, context.now).await?;
        return Ok(done(context, return_to(context), true));
    }
    let page = LogoutConfirm {
        action: address(context, &Route::LogoutConfirm),
        csrf: csrf::token(session, FORM),
        user: live.map(|live| person(&live.user)),
    };
    Ok(context.page(StatusCode::OK, &page, None))
}

/// Redirects to the client, or to the page that says that the user is signed out. Removes the session cookie. Without a
/// session here, a cookie under its old name is the session of another service on this host, and stays.
pub fn done(context: &RequestContext, return_to: Option<String>, had_session: bool) -> HttpResponse {
    let location = return_to.unwrap_or_else(|| address(context, &Route::LoggedOut));
    let mut answer = response::redirect_303(&location);
    if had_session {
        context.remove_cookie(Cookie::Session, &mut answer);
    } else {
        context.remove_own_cookie(Cookie::Session, &mut answer);
    }
    answer
}

/// Says that the user is signed out.
pub fn logged_out(context: &RequestContext) -> HttpResponse {
    set_page_style(context);
    let page = LoggedOut {
        service: context.with_page_style(None, |theme, _| theme.product_name().to_owned()),
        application: context.application(),
        account: context.app.path(&Route::Account),
    };
    context.page(StatusCode::OK, &page, None)
}
