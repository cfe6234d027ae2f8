//! `GET` and `POST /check-mail`: a person types the code of a mail.

use ::http::{Method, StatusCode};

use super::address_request::{purpose_of, route_of};
use super::login_context::LoginRequest;
use super::request_mail::load;
use super::{address, confirm_link, csrf};
use crate::flow::login::transaction::LoginContext;
use crate::flow::one_time_link::check_code::{CodeCheck, check_code};
use crate::flow::one_time_link::request_mail::requested_mail;
use crate::http::context::RequestContext;
use crate::http::error::{self, HttpError};
use crate::http::response::{self, HttpResponse};
use crate::identity::LoginName;
use crate::identity::one_time_link::{MailReason, RequestedMail};
use crate::oauth::redirect_uri::with_query;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::pages::ErrorKind;
use crate::pages::check_mail::{CheckMail, CodeProblem};
use crate::route::Route;
use crate::text;

/// A mail that was requested in a sign-in.
struct MailInSignIn<'a> {
    context: &'a RequestContext,
    login: &'a LoginContext,
    sealed: &'a str,
    requested: RequestedMail,
}

/// Shows the page, or checks the code.
pub async fn respond(context: &RequestContext) -> Result<HttpResponse, HttpError> {
    let LoginRequest {
        parameters, login, ..
    } = load(context).await?;
    let core = &context.app.core;
    let sealed = parameters.get("mail").unwrap_or_default();
    let Some(requested) = requested_mail(core, &login, sealed) else {
        let details = "the mail of this page was requested in another sign-in";
        return Ok(context.error_page(StatusCode::BAD_REQUEST, ErrorKind::Stale, details));
    };
    let mail = MailInSignIn {
        context,
        login: &login,
        sealed,
        requested,
    };
    if context.method() != Method::POST {
        return Ok(mail.draw(None, None));
    }
    if !csrf::is_from_page(context, &parameters, &form(&login))? {
        return Ok(mail.draw(Some(CodeProblem::Expired), None));
    }
    let (limits, from, now) = (&context.app.limits, context.client_address(), context.now);
    let recipient = LoginName::new(&mail.requested.recipient);
    let charged = limits
        .type_code(from, now)
        .and_then(|()| limits.guess_code(recipient.as_str(), from, now));
    let attempt = match charged {
        Ok(attempt) => attempt,
        Err(wait) => {
            context.log_refusal("throttled", "too many codes were typed");
            return Ok(mail.draw(Some(CodeProblem::Throttled), Some(wait.seconds())));
        }
    };
    let typed = parameters.get("code").unwrap_or_default();
    let check = check_code(core, &mail.requested, typed, now).await?;
    if matches!(check, CodeCheck::Right(_)) {
        attempt.refund(now);
    }
    match check {
        CodeCheck::Right(secret) if mail.requested.reason == MailReason::SignIn => {
            confirm_link::sign_in(context, &login, &secret).await
        }
        CodeCheck::Right(secret) => {
            let link = address::link(context, &login.sealed, &secret);
            Ok(response::redirect_303(&link))
        }
        CodeCheck::Wrong(user) => {
            audit::record(&Event::SignInFailed {
                user,
                from: context.client_address(),
                client_id: login.purpose.audit_name(),
            });
            Ok(mail.draw(Some(CodeProblem::Wrong), None))
        }
        CodeCheck::Void => Ok(mail.draw(Some(CodeProblem::Over), None)),
    }
}

impl MailInSignIn<'_> {
    /// Draws the page. `retry_after` is the number of seconds to wait, if there were too many attempts.
    fn draw(&self, problem: Option<CodeProblem>, retry_after: Option<u64>) -> HttpResponse {
        let (context, login, requested) = (self.context, self.login, &self.requested);
        let again = address::page(context, &route_of(requested.reason), &login.sealed);
        let page = CheckMail {
            purpose: purpose_of(requested.reason),
            action: context.app.path(&Route::CheckMail),
            transaction: login.sealed.clone(),
            mail: self.sealed.to_owned(),
            csrf: csrf::of_browser(context, &form(login)),
            recipient: text::readable_address(&requested.recipient).into_owned(),
            problem,
            retry_after,
            sign_in: address::sign_in(context, &login.sealed),
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
}

fn form(login: &LoginContext) -> String {
    format!("code:{}", login.transaction.id)
}
