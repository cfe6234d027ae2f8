//! `GET` and `POST /recover`, `/sign-up` and `/sign-in-by-mail`: a person types an address and gets a mail.

use ::http::Method;

use super::address_request::AddressRequest;
use super::login_context::LoginRequest;
use super::{address, kept_sign_in, login_context};
use crate::flow::FlowError;
use crate::flow::one_time_link::request_mail::{
    AccountBegun, MailRequest, SignUpProblem, request_account, request_reset, request_sign_in,
};
use crate::http::context::RequestContext;
use crate::http::cookie;
use crate::http::error::HttpError;
use crate::http::response::{self, HttpResponse};
use crate::identity::AuthenticationMethod;
use crate::identity::one_time_link::MailReason;
use crate::oauth::redirect_uri::with_query;
use crate::pages::AddressProblem;
use crate::route::Route;

/// Shows the page, or sends a mail.
pub async fn respond(context: &RequestContext, reason: MailReason) -> Result<HttpResponse, HttpError> {
    let core = &context.app.core;
    let is_offered = match reason {
        MailReason::Reset => core.policy.sends_mail,
        MailReason::SignUp => core.policy.accounts.is_open(),
        MailReason::SignIn => core.policy.offers_email_sign_in(),
    };
    if !is_offered {
        return Ok(context.not_found());
    }
    let LoginRequest {
        parameters, login, ..
    } = load(context).await?;
    let form = AddressRequest::new(context, &login, reason);
    let typed = parameters.get("address");
    if context.method() != Method::POST {
        return Ok(form.draw(typed.or(login.purpose.login_hint()).unwrap_or_default(), None));
    }
    let recipient = form.recipient(&parameters)?;
    let request = MailRequest {
        recipient,
        language: context.with_page_style(None, |_, locale| locale.tag().to_owned()),
    };
    let now = context.now;
    let begun = match reason {
        MailReason::Reset => Ok(AccountBegun::MailSent(
            request_reset(core, &login, &request, now).await?,
        )),
        MailReason::SignIn => Ok(AccountBegun::MailSent(
            request_sign_in(core, &login, &request, now).await?,
        )),
        MailReason::SignUp => request_account(core, &login, &request, now).await,
    };
    let problem = match begun {
        Ok(AccountBegun::MailSent(mail)) => {
            let page = address::page(context, &Route::CheckMail, &login.sealed);
            let mut answer = response::redirect_303(&with_query(&page, &[("mail", &mail)]));
            for cookie in kept_sign_in::keep_for_mail(context, &login) {
                cookie::append(&mut answer, Some(cookie));
            }
            return Ok(answer);
        }
        Ok(AccountBegun::Link(secret)) => {
            let link = address::link(context, &login.sealed, &secret);
            return Ok(response::redirect_303(&link));
        }
        Err(FlowError::Refused(SignUpProblem::Closed | SignUpProblem::NotAllowed)) => {
            AddressProblem::NotAllowed
        }
        Err(FlowError::Refused(SignUpProblem::NoAddress)) => AddressProblem::NoAddress,
        Err(FlowError::Refused(SignUpProblem::AtProvider)) => AddressProblem::AtProvider,
        Err(FlowError::Refused(SignUpProblem::Taken)) => AddressProblem::Taken,
        Err(FlowError::Failed(failure)) => return Err(failure.into()),
    };
    Ok(form.draw(recipient, Some(problem)))
}

/// The sign-in of a request for one of these pages. Without a transaction, as in a bookmark, the browser goes to the account
/// page. If the application accepts no passwords, the sign-in continues.
pub(super) async fn load(context: &RequestContext) -> Result<LoginRequest, HttpError> {
    let query = context.query().unwrap_or_default();
    if context.method() != Method::POST && query.get("transaction").is_none() {
        return Err(response::redirect_303(&context.app.path(&Route::Account)).into());
    }
    let request = login_context::load(context).await?;
    if !request.login.purpose.accepts(&AuthenticationMethod::Password) {
        return Err(login_context::continue_login(context, &request.login)
            .await?
            .into());
    }
    Ok(request)
}
