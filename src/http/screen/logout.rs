//! `/logout/confirm` and `/logged-out`.

use ::http::header::SET_COOKIE;
use ::http::{Method, StatusCode};

use super::{csrf, person};
use crate::flow::sessions::{of_browser, signed_in};
use crate::flow::sign_out::confirm_sign_out;
use crate::http::call::Call;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::{self, Answer};
use crate::oauth::redirect_uri::with_query;
use crate::page::{LoggedOut, LogoutConfirm};
use crate::route::Route;

const FORM: &str = "logout";

/// The address of a page of a sign-out, in the languages that were asked for (OpenID Connect RP-Initiated Logout
/// 1.0 section 2).
pub fn address(call: &Call, page: &Route) -> String {
    let path = call.app.path(page);
    let query = call.query().unwrap_or_default();
    match query.get("ui_locales") {
        Some(ui_locales) => with_query(&path, &[("ui_locales", ui_locales)]),
        None => path,
    }
}

/// Asks whether the user wants to sign out, or takes the answer. Where the browser has no session there is nothing
/// to ask.
pub async fn confirm(call: &Call) -> Answer {
    let form = match call.page_parameters() {
        Ok(form) => form,
        Err(page) => return *page,
    };
    let browser = call.browser();
    let core = &call.app.core;
    let live = match of_browser(core, &browser) {
        Ok(Some(_)) => signed_in(core, &browser, call.now),
        Ok(None) => return response::redirect_303(&address(call, &Route::LoggedOut)),
        Err(failure) => Err(failure),
    };
    let live = match live {
        Ok(live) => live,
        Err(failure) => return error::failed_page(call, &failure),
    };
    let cookie = call.cookie(Cookie::Session).unwrap_or_default();
    let confirmed = call.method() == Method::POST
        && call.is_from_own_page()
        && form.get("decision") == Some("logout")
        && csrf::is_valid(form.get("csrf"), cookie, FORM);
    if !confirmed {
        let page = LogoutConfirm {
            action: address(call, &Route::LogoutConfirm),
            csrf: csrf::token(cookie, FORM),
            user: live.map(|live| person(&live.user)),
        };
        return call.page(StatusCode::OK, &page, None);
    }
    match confirm_sign_out(core, &browser, call.now).await {
        Ok(()) => done(call, None),
        Err(failure) => error::failed_page(call, &failure),
    }
}

/// To the client, or to the page that says so; the browser forgets the session.
pub fn done(call: &Call, return_to: Option<String>) -> Answer {
    let location = return_to.unwrap_or_else(|| address(call, &Route::LoggedOut));
    let mut answer = response::redirect_303(&location);
    answer
        .headers_mut()
        .extend(Cookie::Session.removal().map(|cookie| (SET_COOKIE, cookie)));
    answer
}

/// Says that the user is signed out.
pub fn logged_out(call: &Call) -> Answer {
    call.page(StatusCode::OK, &LoggedOut {}, None)
}
