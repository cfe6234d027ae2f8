//! `GET` and `POST /recover`, `/sign-up` and `/sign-in-by-mail`: a person types an address and gets a mail.

use ::http::Method;

use super::address_request::AddressRequest;
use super::login_context::LoginRequest;
use super::{browser_redirect, check_mail, link, login_context};
use crate::flow::login::transaction::LoginContext;
use crate::flow::one_time_link::request_mail::{
    AccountBegun, MailRequest, SignUpProblem, request_account, request_reset, request_sign_in,
};
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::identity::AuthenticationMethod;
use crate::identity::one_time_link::MailReason;
use crate::oauth::redirect_uri::with_query;
use crate::pages::AddressProblem;
use crate::route::Route;

/// Shows the page, or sends a mail.
pub async fn respond(context: &RequestContext, reason: MailReason) -> HttpResponse {
    let core = &context.app.core;
    let is_offered = match reason {
        MailReason::Reset => core.policy.sends_mail,
        MailReason::SignUp => core.policy.accounts.is_open(),
        MailReason::SignIn => core.policy.offers_email_sign_in(),
    };
    if !is_offered {
        return context.not_found();
    }
    let LoginRequest {
        parameters, login, ..
    } = match load(context).await {
        Ok(request) => request,
        Err(answer) => return *answer,
    };
    let form = AddressRequest::new(context, &login, reason);
    let typed = parameters.get("address");
    if context.method() != Method::POST {
        return form.draw(typed.or(login.purpose.login_hint()).unwrap_or_default(), None);
    }
    let recipient = match form.recipient(typed, parameters.get("csrf")) {
        Ok(recipient) => recipient,
        Err(answer) => return *answer,
    };
    let request = MailRequest {
        recipient,
        language: context.with_page_style(None, |_, locale| locale.tag().to_owned()),
    };
    let now = context.now;
    let begun = match reason {
        MailReason::Reset => {
            let mail = request_reset(core, &login, &request, now).await;
            mail.map(|mail| Ok(AccountBegun::MailSent(mail)))
        }
        MailReason::SignIn => {
            let mail = request_sign_in(core, &login, &request, now).await;
            mail.map(|mail| Ok(AccountBegun::MailSent(mail)))
        }
        MailReason::SignUp => request_account(core, &login, &request, now).await,
    };
    let problem = match begun {
        Ok(Ok(AccountBegun::MailSent(mail))) => {
            return response::redirect_303(&check_mail::address(context, &login, &mail));
        }
        Ok(Ok(AccountBegun::Link(secret))) => {
            return response::redirect_303(&link::address(context, &login.sealed, &secret));
        }
        Ok(Err(SignUpProblem::Closed | SignUpProblem::NotAllowed)) => AddressProblem::NotAllowed,
        Ok(Err(SignUpProblem::NoAddress)) => AddressProblem::NoAddress,
        Ok(Err(SignUpProblem::AtProvider)) => AddressProblem::AtProvider,
        Ok(Err(SignUpProblem::Taken)) => AddressProblem::Taken,
        Err(failure) => return error::failed_page(context, &failure),
    };
    form.draw(recipient, Some(problem))
}

/// The sign-in of a request for one of these pages. Without a transaction, as in a bookmark, an answer that leads to the
/// account page. If the application accepts no passwords, an answer that continues the sign-in.
pub(super) async fn load(context: &RequestContext) -> Result<LoginRequest, Box<HttpResponse>> {
    let query = context.query().unwrap_or_default();
    if context.method() != Method::POST && query.get("transaction").is_none() {
        return Err(Box::new(response::redirect_303(
            &context.app.path(&Route::Account),
        )));
    }
    let request = login_context::load(context).await?;
    if !request.login.purpose.accepts(&AuthenticationMethod::Password) {
        return Err(Box::new(
            login_context::continue_login(context, &request.login).await,
        ));
    }
    Ok(request)
}

/// The address of the sign-in page, also for a client that asked for a new account.
pub(super) fn sign_in_address(context: &RequestContext, login: &LoginContext) -> String {
    let page = browser_redirect::page_address(context, &Route::Login, &login.sealed);
    with_query(&page, &[("sign_in", "1")])
}
