//! `GET` and `POST /device`: a person types the code that a device shows, and decides about the device.

use ::http::{Method, StatusCode};

use super::login_context::LoginRequest;
use super::page_parts::{application_pages, mark, moment, person, scope_lines, unverified_by};
use super::{address, browser_redirect, csrf, login_context};
use crate::clock::Timestamp;
use crate::flow::device::decide::{DecisionResult, decide, scope_for_consent};
use crate::flow::device::find::{begin_sign_in, find};
use crate::flow::login::session;
use crate::flow::login::session::LiveSession;
use crate::flow::login::transaction::LoginContext;
use crate::http::context::RequestContext;
use crate::http::cookie::{self, Cookie};
use crate::http::error::{self, HttpError};
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::oauth::Client;
use crate::oauth::device::{DeviceAuthorization, UserCode};
use crate::oauth::login::{DeviceLogin, LoginStep, ResolvedPurpose};
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
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let parameters = context.unique_parameters()?;
    if parameters.get("transaction").is_some() {
        return decision(context).await;
    }
    let typed = parameters.get("user_code").unwrap_or_default();
    if context.method() != Method::POST {
        return Ok(draw_form(context, typed, None, None));
    }
    let has_token = csrf::has_token(context, &parameters, FORM);
    let has_cookie = context.cookie(Cookie::Browser).is_some();
    if !csrf::check(context, has_cookie && has_token)? {
        return Ok(draw_form(context, typed, Some(DeviceProblem::Expired), None));
    }
    take_code(context, typed).await
}

/// Begins the sign-in for the device that shows this code. A wrong code is charged, a malformed one can be no guess.
async fn take_code(context: &RequestContext, typed: &str) -> Result<HttpResponse, HttpError> {
    let Some(user_code) = UserCode::parse(typed) else {
        return Ok(draw_form(context, typed, Some(DeviceProblem::Wrong), None));
    };
    let (core, browser, from) = (&context.app.core, context.browser(), context.client_address());
    let live = session::signed_in(core, &browser, context.now).await?;
    let user = live.map(|live| live.user.uuid);
    let limits = &context.app.limits;
    let guesser = user.as_ref().map(|user| user.as_bytes().as_slice());
    let attempt = match limits.type_user_code(guesser, from, context.now) {
        Ok(attempt) => attempt,
        Err(wait) => {
            context.log_refusal("throttled", "too many wrong user codes");
            let problem = Some(DeviceProblem::Throttled);
            return Ok(draw_form(context, typed, problem, Some(wait.seconds())));
        }
    };
    let Some(redirect) = begin_sign_in(core, &browser, &user_code, context.now).await? else {
        audit::record(&Event::UserCodeRefused { user, from });
        return Ok(draw_form(context, typed, Some(DeviceProblem::Wrong), None));
    };
    attempt.refund(context.now);
    Ok(browser_redirect::send(context, redirect))
}

/// Draws the form for the code. Its token needs a cookie, which a new browser gets with it.
fn draw_form(
    context: &RequestContext,
    typed: &str,
    problem: Option<DeviceProblem>,
    retry_after: Option<u64>,
) -> HttpResponse {
    let known = context.cookie(Cookie::Browser);
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
        cookie::append(&mut answer, context.set_cookie(Cookie::Browser, secret.reveal()));
    }
    answer
}

/// The sign-in for a device, in which the user decides.
struct Decision<'a> {
    context: &'a RequestContext,
    login: &'a LoginContext,
    device: &'a DeviceLogin,
    client: &'a Client,
    live: &'a LiveSession,
}

/// Shows the page for the decision, or takes the decision.
async fn decision(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let LoginRequest {
        parameters,
        browser,
        login,
    } = login_context::load(context).await?;
    let (ResolvedPurpose::Device { device, client }, LoginStep::DecideDevice, Some(live)) =
        (&login.purpose, &login.step, &login.session)
    else {
        return login_context::continue_login(context, &login).await;
    };
    let core = &context.app.core;
    let Some(authorization) = find(core, device).await? else {
        return Ok(draw_form(context, "", Some(DeviceProblem::Over), None));
    };
    let decision = Decision {
        context,
        login: &login,
        device,
        client,
        live,
    };
    let result = match decision.is_allowed(&parameters)? {
        Some(is_allowed) => decide(context.browser_login(&browser, &login), device, is_allowed).await?,
        None => DecisionResult::of(&authorization, device.authorization, live.user.uuid, context.now),
    };
    match result {
        DecisionResult::Pending => Ok(decision.draw(&authorization, None)),
        DecisionResult::Decided { is_allowed } => Ok(decision.draw(&authorization, Some(is_allowed))),
        DecisionResult::SignIn => login_context::continue_login(context, &login).await,
        DecisionResult::Over => Ok(draw_form(context, "", Some(DeviceProblem::Over), None)),
    }
}

impl Decision<'_> {
    /// The answer of the form. `None` if it is not one, or if it did not come from the page for this user.
    fn is_allowed(&self, parameters: &Parameters) -> Result<Option<bool>, HttpError> {
        let is_form = self.context.method() == Method::POST;
        if !is_form || !csrf::is_from_page(self.context, parameters, &self.csrf_context())? {
            return Ok(None);
        }
        Ok(match parameters.get("decision") {
            Some("allow") => Some(true),
            Some("deny") => Some(false),
            _ => None,
        })
    }

    fn draw(&self, authorization: &DeviceAuthorization, is_allowed: Option<bool>) -> HttpResponse {
        let (context, login, client) = (self.context, self.login, self.client);
        let own_address = context.client_address().to_canonical();
        let address = authorization.address.to_canonical();
        let asked_at = Timestamp::of_id(self.device.authorization);
        let page = DeviceDecision {
            action: context.app.path(&Route::Device),
            transaction: login.sealed.clone(),
            csrf: csrf::of_browser(context, &self.csrf_context()),
            mark: mark(context, client),
            unverified_by: unverified_by(context, client),
            pages: application_pages(client),
            user: person(&self.live.user),
            other_user: address::other_user(context, &login.sealed),
            user_code: self.user_code(authorization),
            address: address.to_string(),
            own_address: (address != own_address).then(|| own_address.to_string()),
            asked_at: moment(asked_at, context.now),
            scopes: scope_lines(context, Some(client), &scope_for_consent(authorization, client)),
            is_allowed,
        };
        context.page(StatusCode::OK, &page, None)
    }

    /// The code as the device shows it, so that the user can compare.
    fn user_code(&self, authorization: &DeviceAuthorization) -> String {
        let typed = self.device.user_code.clone();
        let user_code = typed.or_else(|| authorization.user_code.in_the_clear());
        user_code.map(|code| code.to_string()).unwrap_or_default()
    }

    /// The CSRF context of the form. It names the session: the decision does not count in another one.
    fn csrf_context(&self) -> String {
        format!("device:{}:{}", self.login.transaction.id, self.live.id)
    }
}
