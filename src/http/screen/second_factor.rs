//! `GET` and `POST /second-factor`: the second step of a sign-in.

use ::http::Method;
use ::http::header::HeaderValue;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::login_context::LoginRequest;
use super::second_step::SecondStepRequest;
use super::{address, browser_redirect, device_cookie, enrol, login_context, passkey};
use crate::flow::FlowError;
use crate::flow::login::lost_factors;
use crate::flow::login::pending_sign_in;
use crate::flow::login::pending_sign_in::PendingSignIn;
use crate::flow::login::second_factor::{self, SecondStep};
use crate::http::context::RequestContext;
use crate::http::cookie::{self, Cookie};
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::oauth::login::LoginStep;
use crate::oauth::redirect_uri::with_query;
use crate::pages::second_factor::FactorLoss;
use crate::pages::{LoginProblem, PasskeyRequest, SecondFactor, SecondFactorProblem};
use crate::route::Route;

/// Shows the page, or checks the code. If the first step no longer counts, the browser goes back to it.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let query = context.query().unwrap_or_default();
    if context.method() != Method::POST && query.get("transaction").is_none() {
        return Ok(response::redirect_303(&context.app.path(&Route::Account)));
    }
    let LoginRequest {
        parameters, login, ..
    } = login_context::load(context).await?;
    if !login.accepts_authentication {
        return login_context::continue_login(context, &login).await;
    }
    let proof = parameters.get("proof").unwrap_or_default();
    // Another user may be signed in: then the proof of this one continues.
    let is_asked = matches!(login.step, LoginStep::SignIn | LoginStep::SecondStep);
    let signed_in = login.session.as_ref().map(|live| live.user.uuid);
    let pending = pending_sign_in::find(&context.app.core, &login, proof, context.now).await?;
    let pending = match pending {
        Some(pending) if is_asked || signed_in != Some(pending.user.uuid) => pending,
        _ if !is_asked => return login_context::continue_login(context, &login).await,
        _ => return Ok(response::redirect_303(&address::sign_in(context, &login.sealed))),
    };
    let request = SecondStepRequest {
        context,
        parameters: &parameters,
        login: &login,
        proof,
        pending: &pending,
    };
    if pending.needs_enrolment() {
        return enrol::respond(&request).await;
    }
    if context.method() != Method::POST {
        return Ok(draw(&request, None, None));
    }
    if !request.is_from_page()? {
        return Ok(draw(&request, Some(SecondFactorProblem::Expired), None));
    }
    if parameters.get("decision") == Some("none-left") {
        let (core, from) = (&context.app.core, context.client_address());
        let end = lost_factors::begin_wait(core, &pending, from, context.now).await?;
        let loss = end.map(|end| FactorLoss::Waiting(end.in_utc()));
        return Ok(request.send(&SecondFactor {
            loss,
            ..page(&request, None, None)
        }));
    }
    if parameters.get("passkey").is_some() {
        return submit_passkey(&request).await;
    }
    submit(&request).await
}

/// Checks the code. Codes fall under the limits of passwords.
async fn submit(request: &SecondStepRequest<'_>) -> Result<HttpResponse, HttpError> {
    let SecondStepRequest {
        context,
        parameters,
        login,
        pending,
        ..
    } = *request;
    let typed = parameters.get("code").unwrap_or_default();
    let (browser, now) = (context.browser(), context.now);
    let (from, name) = (context.client_address(), pending.name());
    let known = device_cookie::device_id(context, &name, Some(&pending.user));
    let known = known.as_ref().map(<[u8; 16]>::as_slice);
    let attempt = match context.app.limits.try_password(name.as_str(), known, from, now) {
        Ok(attempt) => attempt,
        Err(wait) => {
            context.log_refusal("throttled", "too many wrong codes");
            let problem = Some(SecondFactorProblem::Throttled);
            return Ok(draw(request, problem, Some(wait.seconds())));
        }
    };
    let step = second_factor::answer(context.browser_login(&browser, login), pending, typed, from).await?;
    Ok(match step {
        SecondStep::Done(redirect) => {
            let mut answer = request.finish(redirect);
            if parameters.get("remember").is_some() {
                cookie::append(&mut answer, remembered_cookie(context, pending));
            }
            answer
        }
        SecondStep::Redirected(redirect) => browser_redirect::send(context, redirect),
        SecondStep::Wrong => {
            attempt.count_failure();
            draw(request, Some(SecondFactorProblem::Wrong), None)
        }
        SecondStep::AtLimit => draw(request, Some(SecondFactorProblem::Limit), None),
        SecondStep::Expired => response::redirect_303(&address::sign_in(context, &login.sealed)),
    })
}

/// Signs in with a passkey of the same user, which is a whole sign-in.
async fn submit_passkey(request: &SecondStepRequest<'_>) -> Result<HttpResponse, HttpError> {
    let (context, pending) = (request.context, request.pending);
    let first = Some(&pending.first);
    match passkey::submit(context, request.login, request.parameters, first).await {
        Ok(mut answer) => {
            let known = device_cookie::issue(context, &pending.name(), &pending.user);
            cookie::append(&mut answer, known);
            Ok(answer)
        }
        Err(FlowError::Refused(refused)) => {
            let problem = match refused.problem {
                LoginProblem::Throttled => SecondFactorProblem::Throttled,
                LoginProblem::Expired => SecondFactorProblem::Expired,
                _ => SecondFactorProblem::Passkey,
            };
            Ok(draw(request, Some(problem), refused.retry_after))
        }
        Err(FlowError::Failed(failure)) => Err(failure.into()),
    }
}

/// What a passkey needs, if the user has one that is accepted here. The browser offers no passkeys of other users.
fn passkey_request(request: &SecondStepRequest<'_>) -> Option<PasskeyRequest> {
    if !request.pending.has_passkey() {
        return None;
    }
    let ids = request.pending.credential_ids();
    let known: Vec<_> = ids.map(|id| URL_SAFE_NO_PAD.encode(id)).collect();
    Some(PasskeyRequest {
        known: known.join(" "),
        ..passkey::request(request.context, request.login, request.address())?
    })
}

fn draw(
    request: &SecondStepRequest<'_>,
    problem: Option<SecondFactorProblem>,
    retry_after: Option<u64>,
) -> HttpResponse {
    request.send(&page(request, problem, retry_after))
}

/// What is offered to a user who has none of the factors any more.
fn loss(request: &SecondStepRequest<'_>) -> Option<FactorLoss> {
    let now = request.context.now;
    if let Some(end) = request.pending.user.factors_end(now) {
        return Some(FactorLoss::Waiting(end.in_utc()));
    }
    lost_factors::may_begin(request.pending, now).then_some(FactorLoss::Offered)
}

/// The page. `retry_after` is the number of seconds to wait, if there were too many attempts.
fn page(
    request: &SecondStepRequest<'_>,
    problem: Option<SecondFactorProblem>,
    retry_after: Option<u64>,
) -> SecondFactor {
    let pending = request.pending;
    let is_at_limit = problem == Some(SecondFactorProblem::Limit);
    let asked = request.parameters.get("recovery").is_some() || !pending.has_totp();
    let is_recovery = asked || is_at_limit && pending.has_recovery_codes();
    let here = request.address();
    let other = if is_recovery {
        pending.has_totp().then_some(here)
    } else {
        let has_codes = pending.has_recovery_codes();
        has_codes.then(|| with_query(&here, &[("recovery", "1")]))
    };
    SecondFactor {
        takes_code: pending.has_totp() || pending.has_recovery_codes(),
        is_recovery,
        remember_days: remember_days(request.context),
        other,
        passkey: passkey_request(request),
        loss: loss(request),
        retry_after,
        ..request.page(problem)
    }
}

/// For how many days the page offers to remember this browser.
fn remember_days(context: &RequestContext) -> Option<u64> {
    let lifetime = context.app.core.policy.accounts.remember_device;
    lifetime.map(|lifetime| lifetime.as_secs() / (24 * 3600))
}

/// The cookie that remembers this browser.
fn remembered_cookie(context: &RequestContext, pending: &PendingSignIn) -> Option<HeaderValue> {
    let core = &context.app.core;
    let marks = pending.remembered_in(core, &context.browser(), context.now)?;
    context.set_cookie(Cookie::RememberedUsers, &marks)
}
