//! `GET` and `POST /second-factor`: the second step of a sign-in.

use ::http::header::HeaderValue;
use ::http::{Method, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::login_context::LoginRequest;
use super::request_mail::sign_in_address;
use super::{browser_redirect, csrf, device_cookie, enrol, login_context, mark, passkey};
use crate::flow::browser::Browser;
use crate::flow::login::remembered_device;
use crate::flow::login::second_factor::{self, PendingSignIn, SecondStep};
use crate::flow::login::transaction::{BrowserRedirect, LoginContext};
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::request::Parameters;
use crate::http::response::{self, HttpResponse};
use crate::oauth::login::LoginStep;
use crate::oauth::redirect_uri::with_query;
use crate::pages::{LoginProblem, PasskeyRequest, SecondFactor, SecondFactorProblem};
use crate::route::Route;

/// The address of the page in a sign-in.
pub(super) fn address(context: &RequestContext, sealed: &str, proof: &str) -> String {
    let page = browser_redirect::page_address(context, &Route::SecondFactor, sealed);
    with_query(&page, &[("proof", proof)])
}

/// A request to the page, and the sign-in that it belongs to.
struct SecondFactorRequest<'a> {
    login: &'a LoginContext,
    proof: &'a str,
    pending: &'a PendingSignIn,
    is_recovery: bool,
}

/// Shows the page, or checks the code. If the first step no longer counts, the browser goes back to it.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let query = context.query().unwrap_or_default();
    if context.method() != Method::POST && query.get("transaction").is_none() {
        return response::redirect_303(&context.app.path(&Route::Account));
    }
    let LoginRequest {
        parameters,
        browser,
        login,
    } = match login_context::load(context).await {
        Ok(request) => request,
        Err(page) => return *page,
    };
    if !login.accepts_authentication {
        return login_context::continue_login(context, &login).await;
    }
    let proof = parameters.get("proof").unwrap_or_default();
    // Another user may be signed in: then the proof of this one continues.
    let is_asked = matches!(login.step, LoginStep::SignIn | LoginStep::SecondStep);
    let signed_in = login.session.as_ref().map(|live| live.user.uuid);
    let pending = match second_factor::find(&context.app.core, &login, proof, context.now).await {
        Ok(Some(pending)) if is_asked || signed_in != Some(pending.user.uuid) => pending,
        Ok(_) if !is_asked => return login_context::continue_login(context, &login).await,
        Ok(_) => return response::redirect_303(&sign_in_address(context, &login)),
        Err(failure) => return error::failed_page(context, &failure),
    };
    if pending.needs_enrolment() {
        return enrol::respond(context, &parameters, (&login, proof), &pending).await;
    }
    let request = SecondFactorRequest {
        login: &login,
        proof,
        pending: &pending,
        is_recovery: parameters.get("recovery").is_some() || !pending.has_totp(),
    };
    if context.method() != Method::POST {
        return request.draw(context, None);
    }
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    if !csrf::is_valid(parameters.get("csrf"), cookie, &form(&login)) || !context.is_from_own_page() {
        return request.draw(context, Some(SecondFactorProblem::Expired));
    }
    if parameters.get("passkey").is_some() {
        return request.submit_passkey(context, &browser, &parameters).await;
    }
    request.submit(context, &parameters).await
}

impl SecondFactorRequest<'_> {
    /// Checks the code. Codes fall under the limits of passwords.
    async fn submit(&self, context: &RequestContext, form: &Parameters) -> HttpResponse {
        let typed = form.get("code").unwrap_or_default();
        let (core, browser, now) = (&context.app.core, context.browser(), context.now);
        let (from, name) = (context.client_address(), self.pending.name());
        let known = device_cookie::device_id(context, &name, Some(&self.pending.user));
        let known = known.as_ref().map(<[u8; 16]>::as_slice);
        let attempt = match context.app.limits.try_password(name.as_str(), known, from, now) {
            Ok(attempt) => attempt,
            Err(wait) => {
                context.log_refusal("throttled", "too many wrong codes");
                return self.draw_after(
                    context,
                    Some(SecondFactorProblem::Throttled),
                    Some(wait.seconds()),
                );
            }
        };
        match second_factor::answer(core, &browser, self.login, self.pending, (typed, from), now).await {
            Ok(SecondStep::Done(redirect)) => {
                let mut answer = finish(context, redirect, self.pending);
                if form.get("remember").is_some() {
                    let cookie = remembered_cookie(context, self.pending);
                    browser_redirect::append_cookie(&mut answer, cookie);
                }
                answer
            }
            Ok(SecondStep::Refused(redirect)) => browser_redirect::send(context, redirect),
            Ok(SecondStep::Wrong) => {
                attempt.count_failure();
                self.draw(context, Some(SecondFactorProblem::Wrong))
            }
            Ok(SecondStep::AtLimit) => self.draw(context, Some(SecondFactorProblem::Limit)),
            Ok(SecondStep::Expired) => response::redirect_303(&sign_in_address(context, self.login)),
            Err(failure) => error::failed_page(context, &failure),
        }
    }

    /// Signs in with a passkey of the same user, which is a whole sign-in.
    async fn submit_passkey(
        &self,
        context: &RequestContext,
        browser: &Browser,
        form: &Parameters,
    ) -> HttpResponse {
        let (pending, first) = (self.pending, &self.pending.first);
        let refused = match passkey::submit(context, browser, self.login, form, Some(first)).await {
            Ok(Ok(mut answer)) => {
                let cookie = device_cookie::issue(context, &pending.name(), &pending.user);
                browser_redirect::append_cookie(&mut answer, cookie);
                return answer;
            }
            Ok(Err(refused)) => refused,
            Err(failure) => return error::failed_page(context, &failure),
        };
        let problem = match refused.problem {
            LoginProblem::Throttled => SecondFactorProblem::Throttled,
            LoginProblem::Expired => SecondFactorProblem::Expired,
            _ => SecondFactorProblem::Passkey,
        };
        self.draw_after(context, Some(problem), refused.retry_after)
    }

    /// What a passkey needs, if the user has one that is accepted here. The browser offers no passkeys of other users.
    fn passkey(&self, context: &RequestContext) -> Option<PasskeyRequest> {
        if !self.pending.has_passkey() {
            return None;
        }
        let here = address(context, &self.login.sealed, self.proof);
        let ids = self.pending.credential_ids().map(|id| URL_SAFE_NO_PAD.encode(id));
        Some(PasskeyRequest {
            known: ids.collect::<Vec<_>>().join(" "),
            ..passkey::request(context, self.login, here)?
        })
    }

    fn draw(&self, context: &RequestContext, problem: Option<SecondFactorProblem>) -> HttpResponse {
        self.draw_after(context, problem, None)
    }

    /// Draws the page. `retry_after` is the number of seconds to wait, if there were too many attempts.
    fn draw_after(
        &self,
        context: &RequestContext,
        problem: Option<SecondFactorProblem>,
        retry_after: Option<u64>,
    ) -> HttpResponse {
        let purpose = &self.login.purpose;
        let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
        let here = address(context, &self.login.sealed, self.proof);
        let is_at_limit = problem == Some(SecondFactorProblem::Limit);
        let is_recovery = self.is_recovery || is_at_limit && self.pending.has_recovery_codes();
        let other = if is_recovery {
            self.pending.has_totp().then_some(here)
        } else {
            let has_codes = self.pending.has_recovery_codes();
            has_codes.then(|| with_query(&here, &[("recovery", "1")]))
        };
        let page = SecondFactor {
            action: context.app.path(&Route::SecondFactor),
            transaction: self.login.sealed.clone(),
            proof: self.proof.to_owned(),
            csrf: csrf::token(cookie, &form(self.login)),
            mark: purpose.client().map(|client| mark(context, client)),
            user: self.pending.name().as_str().to_owned(),
            takes_code: self.pending.has_totp() || self.pending.has_recovery_codes(),
            is_recovery,
            setup: None,
            remember_days: remember_days(context),
            other,
            passkey: self.passkey(context),
            problem,
            retry_after,
            sign_in: sign_in_address(context, self.login),
        };
        let status = match problem {
            Some(SecondFactorProblem::Throttled) => StatusCode::TOO_MANY_REQUESTS,
            Some(SecondFactorProblem::Expired) => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        };
        let mut answer = context.page(status, &page, self.login.purpose.ui_locales());
        if let Some(seconds) = retry_after {
            error::set_retry_after(&mut answer, seconds);
        }
        answer
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
    let marks = remembered_device::remember(core, &context.browser(), pending, context.now)?;
    Cookie::RememberedUsers.set(&marks, core.policy.accounts.remember_device)
}

/// The answer that completes both steps. The browser is known from then on.
pub(super) fn finish(
    context: &RequestContext,
    redirect: BrowserRedirect,
    pending: &PendingSignIn,
) -> HttpResponse {
    let mut answer = browser_redirect::send(context, redirect);
    let user = &pending.user;
    if pending.first.sends_notice {
        let limits = &context.app.limits;
        limits.charge_notice(user.uuid.as_bytes(), context.now);
    }
    let cookie = device_cookie::issue(context, &pending.name(), user);
    browser_redirect::append_cookie(&mut answer, cookie);
    answer
}

pub(super) fn form(login: &LoginContext) -> String {
    format!("second-factor:{}", login.transaction.id)
}
