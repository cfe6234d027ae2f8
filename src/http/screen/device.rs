//! `GET` and `POST /device`: a person types the code that a device shows, and decides about the device.

use std::net::IpAddr;

use ::http::{Method, StatusCode};

use super::account::moment;
use super::consent::scope_line;
use super::login::OTHER_USER;
use super::login_context::LoginRequest;
use super::{browser_redirect, csrf, login_context, mark, person};
use crate::clock::Timestamp;
use crate::flow::device::decide::{DecisionResult, decide, scope_for_consent};
use crate::flow::device::find::{begin_sign_in, find};
use crate::flow::login::session;
use crate::flow::login::session::LiveSession;
use crate::flow::login::transaction::LoginContext;
use crate::http::context::RequestContext;
use crate::http::cookie::{A_YEAR, Cookie};
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::oauth::Client;
use crate::oauth::device::{DeviceAuthorization, UserCode};
use crate::oauth::login::{LoginStep, ResolvedPurpose};
use crate::oauth::redirect_uri::with_query;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::pages::{Device, DeviceDecision, DeviceProblem};
use crate::route::Route;
use crate::secret::{BrowserCookie, Secret};

/// The most characters of a user code that the page repeats.
const MAX_USER_CODE: usize = 32;
/// The CSRF context of the form for the code.
const FORM: &str = "device";

/// Shows one of the two pages, or takes its form.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let parameters = match context.page_parameters() {
        Ok(parameters) => parameters,
        Err(page) => return *page,
    };
    if parameters.get("transaction").is_some() {
        return decision(context).await;
    }
    let typed = parameters.get("user_code").unwrap_or_default();
    if context.method() != Method::POST {
        return draw_form(context, typed, None, None);
    }
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let has_token = csrf::is_valid(parameters.get("csrf"), cookie, FORM);
    if has_token && let Some(page) = context.elsewhere_page() {
        return page;
    }
    if cookie.is_empty() || !has_token || !context.is_from_own_page() {
        return draw_form(context, typed, Some(DeviceProblem::Expired), None);
    }
    take_code(context, typed).await
}

/// Begins the sign-in for the device that shows this code. A wrong code is charged, a malformed one can be no guess.
async fn take_code(context: &RequestContext, typed: &str) -> HttpResponse {
    let Some(user_code) = UserCode::parse(typed) else {
        return draw_form(context, typed, Some(DeviceProblem::Wrong), None);
    };
    let (core, browser, from) = (&context.app.core, context.browser(), context.client_address());
    let user = match session::signed_in(core, &browser, context.now).await {
        Ok(live) => live.map(|live| live.user.uuid),
        Err(failure) => return error::failed_page(context, &failure),
    };
    let limits = &context.app.limits;
    let guesser = user.as_ref().map(|user| user.as_bytes().as_slice());
    let attempt = match limits.type_user_code(guesser, from, context.now) {
        Ok(attempt) => attempt,
        Err(wait) => {
            context.log_refusal("throttled", "too many wrong user codes");
            let problem = Some(DeviceProblem::Throttled);
            return draw_form(context, typed, problem, Some(wait.seconds()));
        }
    };
    match begin_sign_in(core, &browser, &user_code, context.now).await {
        Ok(Some(redirect)) => {
            attempt.refund(context.now);
            browser_redirect::send(context, redirect)
        }
        Ok(None) => {
            audit::record(&Event::UserCodeRefused { user, from });
            draw_form(context, typed, Some(DeviceProblem::Wrong), None)
        }
        Err(failure) => error::failed_page(context, &failure),
    }
}

/// Draws the form for the code. Its token needs a cookie, which a new browser gets with it.
fn draw_form(
    context: &RequestContext,
    typed: &str,
    problem: Option<DeviceProblem>,
    retry_after: Option<u64>,
) -> HttpResponse {
    let known = context
        .cookie(Cookie::Browser)
        .filter(|cookie| !cookie.is_empty());
    let fresh = match known {
        Some(_) => None,
        None => Some(Secret::<BrowserCookie>::generate(&[], &context.app.core.random)),
    };
    let cookie = known.or(fresh.as_ref().map(Secret::reveal)).unwrap_or_default();
    let page = Device {
        action: context.app.path(&Route::Device),
        csrf: csrf::token(cookie, FORM),
        user_code: typed.chars().take(MAX_USER_CODE).collect(),
        problem,
        retry_after,
    };
    let status = match problem {
        Some(DeviceProblem::Throttled) => StatusCode::TOO_MANY_REQUESTS,
        Some(DeviceProblem::Expired) => StatusCode::BAD_REQUEST,
        Some(DeviceProblem::Wrong | DeviceProblem::Over) | None => StatusCode::OK,
    };
    let mut answer = context.page(status, &page, None);
    if let Some(seconds) = retry_after {
        error::set_retry_after(&mut answer, seconds);
    }
    if let Some(secret) = fresh {
        let cookie = Cookie::Browser.set(secret.reveal(), Some(A_YEAR));
        browser_redirect::append_cookie(&mut answer, cookie);
    }
    answer
}

/// Shows the page for the decision, or takes the decision.
async fn decision(context: &RequestContext) -> HttpResponse {
    let LoginRequest {
        parameters,
        browser,
        login,
    } = match login_context::load(context).await {
        Ok(request) => request,
        Err(page) => return *page,
    };
    let (ResolvedPurpose::Device { device, client }, LoginStep::DecideDevice, Some(live)) =
        (&login.purpose, &login.step, &login.session)
    else {
        return login_context::continue_login(context, &login).await;
    };
    let core = &context.app.core;
    let authorization = match find(core, device).await {
        Ok(Some(authorization)) => authorization,
        Ok(None) => return draw_form(context, "", Some(DeviceProblem::Over), None),
        Err(failure) => return error::failed_page(context, &failure),
    };
    let result = match is_allowed(context, &parameters, &login, live) {
        Some(is_allowed) => match decide(core, &browser, (&login, device), is_allowed, context.now).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => return login_context::transaction_error(context, error),
            Err(failure) => return error::failed_page(context, &failure),
        },
        None => DecisionResult::of(&authorization, device.authorization, live.user.uuid, context.now),
    };
    let is_allowed = match result {
        DecisionResult::Pending => None,
        DecisionResult::Decided { is_allowed } => Some(is_allowed),
        DecisionResult::SignIn => return login_context::continue_login(context, &login).await,
        DecisionResult::Over => return draw_form(context, "", Some(DeviceProblem::Over), None),
    };
    let asked_at = Timestamp::of_id(device.authorization);
    draw_decision(
        context,
        (&login, live, client),
        (&authorization, asked_at),
        is_allowed,
    )
}

/// The answer of the form. `None` if it is not one, or if it did not come from the page for this user.
fn is_allowed(
    context: &RequestContext,
    parameters: &Parameters,
    login: &LoginContext,
    live: &LiveSession,
) -> Option<bool> {
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let has_token = csrf::is_valid(parameters.get("csrf"), cookie, &form(login, live));
    if context.method() != Method::POST || !has_token || !context.is_from_own_page() {
        return None;
    }
    match parameters.get("decision")? {
        "allow" => Some(true),
        "deny" => Some(false),
        _ => None,
    }
}

fn draw_decision(
    context: &RequestContext,
    (login, live, client): (&LoginContext, &LiveSession, &Client),
    (authorization, asked_at): (&DeviceAuthorization, Timestamp),
    is_allowed: Option<bool>,
) -> HttpResponse {
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let own_address = context.client_address().to_canonical();
    let address: IpAddr = authorization.address.to_canonical();
    let scope = scope_for_consent(authorization, client);
    let page = DeviceDecision {
        action: context.app.path(&Route::Device),
        transaction: login.sealed.clone(),
        csrf: csrf::token(cookie, &form(login, live)),
        mark: mark(context, client),
        unverified_by: client
            .registered_itself()
            .then(|| context.with_page_style(None, |theme, _| theme.product_name().to_owned())),
        user: person(&live.user),
        other_user: with_query(
            &context.app.path(&Route::Login),
            &[("transaction", login.sealed.as_str()), (OTHER_USER, "1")],
        ),
        user_code: authorization.user_code.to_string(),
        address: address.to_string(),
        own_address: (address != own_address).then(|| own_address.to_string()),
        asked_at: moment(asked_at, context.now),
        scopes: scope
            .iter()
            .map(|name| scope_line(context, Some(client), name))
            .collect(),
        is_allowed,
    };
    context.page(StatusCode::OK, &page, None)
}

/// The CSRF context of the form. It names the session: the decision does not count in another one.
fn form(login: &LoginContext, live: &LiveSession) -> String {
    format!("device:{}:{}", login.transaction.id, live.id)
}
