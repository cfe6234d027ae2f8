//! `GET` and `POST /check-mail`: a person types the code of a mail.

use ::http::{Method, StatusCode};

use super::address_request::page_of;
use super::login_context::LoginRequest;
use super::request_mail::{load, sign_in_address};
use super::{browser_redirect, confirm_link, csrf, link};
use crate::flow::login::transaction::LoginContext;
use crate::flow::one_time_link::check_code::{CodeCheck, check_code};
use crate::flow::one_time_link::request_mail::requested_mail;
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::identity::one_time_link::{MailReason, RequestedMail};
use crate::oauth::redirect_uri::with_query;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::pages::ErrorKind;
use crate::pages::check_mail::{CheckMail, CodeProblem};
use crate::route::Route;

/// The address of the page for a mail that was requested in this sign-in.
pub(super) fn address(context: &RequestContext, login: &LoginContext, mail: &str) -> String {
    let page = browser_redirect::page_address(context, &Route::CheckMail, &login.sealed);
    with_query(&page, &[("mail", mail)])
}

/// Shows the page, or checks the code.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    let LoginRequest {
        parameters, login, ..
    } = match load(context).await {
        Ok(request) => request,
        Err(answer) => return *answer,
    };
    let core = &context.app.core;
    let sealed = parameters.get("mail").unwrap_or_default();
    let Some(requested) = requested_mail(core, &login, sealed) else {
        let details = "the mail of this page was requested in another sign-in";
        return context.error_page(StatusCode::BAD_REQUEST, ErrorKind::Stale, details);
    };
    let draw_after = |problem, wait| draw(context, &login, (sealed, &requested), problem, wait);
    let draw = |problem| draw_after(problem, None);
    if context.method() != Method::POST {
        return draw(None);
    }
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    if !csrf::is_valid(parameters.get("csrf"), cookie, &form(&login)) || !context.is_from_own_page() {
        return draw(Some(CodeProblem::Expired));
    }
    let limits = &context.app.limits;
    if let Err(wait) = limits.type_code(context.client_address(), context.now) {
        context.log_refusal("throttled", "too many codes were typed");
        return draw_after(Some(CodeProblem::Throttled), Some(wait.seconds()));
    }
    let typed = parameters.get("code").unwrap_or_default();
    match check_code(core, &requested, typed, context.now).await {
        Ok(CodeCheck::Right(secret)) if requested.reason == MailReason::SignIn => {
            confirm_link::sign_in(context, &login, &secret).await
        }
        Ok(CodeCheck::Right(secret)) => {
            response::redirect_303(&link::address(context, &login.sealed, &secret))
        }
        Ok(CodeCheck::Wrong(user)) => {
            audit::record(&Event::SignInFailed {
                user,
                from: context.client_address(),
                client_id: login.purpose.audit_name(),
            });
            draw(Some(CodeProblem::Wrong))
        }
        Ok(CodeCheck::Void) => draw(Some(CodeProblem::Over)),
        Err(failure) => error::failed_page(context, &failure),
    }
}

fn draw(
    context: &RequestContext,
    login: &LoginContext,
    (sealed, requested): (&str, &RequestedMail),
    problem: Option<CodeProblem>,
    retry_after: Option<u64>,
) -> HttpResponse {
    let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
    let (purpose, again) = page_of(requested.reason);
    let again = browser_redirect::page_address(context, &again, &login.sealed);
    let page = CheckMail {
        purpose,
        action: context.app.path(&Route::CheckMail),
        transaction: login.sealed.clone(),
        mail: sealed.to_owned(),
        csrf: csrf::token(cookie, &form(login)),
        recipient: requested.recipient.clone(),
        problem,
        retry_after,
        sign_in: sign_in_address(context, login),
        again: with_query(&again, &[("address", &requested.recipient)]),
    };
    let status = match problem {
        Some(CodeProblem::Throttled) => StatusCode::TOO_MANY_REQUESTS,
        Some(CodeProblem::Expired) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    let mut answer = context.page(status, &page, login.purpose.ui_locales());
    if let Some(seconds) = retry_after {
        error::set_retry_after(&mut answer, seconds);
    }
    answer
}

fn form(login: &LoginContext) -> String {
    format!("code:{}", login.transaction.id)
}
