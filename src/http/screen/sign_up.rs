//! `GET` and `POST /sign-up`: a person begins an account.

use ::http::Method;

use super::login_context::LoginRequest;
use super::recover::{AddressRequest, load, mail_request};
use super::{check_mail, link};
use crate::flow::one_time_link::request_mail::{AccountBegun, SignUpProblem, request_account};
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::pages::{AddressProblem, MailPurpose};
use crate::route::Route;

/// Shows the page, or sends a mail.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    if !context.app.core.policy.accounts.is_open() {
        return context.not_found();
    }
    let LoginRequest {
        parameters, login, ..
    } = match load(context).await {
        Ok(request) => request,
        Err(answer) => return *answer,
    };
    let form = AddressRequest {
        purpose: MailPurpose::SignUp,
        page: Route::SignUp,
    };
    if context.method() != Method::POST {
        let address = parameters.get("address").or(login.purpose.login_hint());
        return form.draw(context, &login, address.unwrap_or_default(), None);
    }
    let recipient = match form.recipient(context, &login, parameters.get("address"), parameters.get("csrf")) {
        Ok(recipient) => recipient,
        Err(answer) => return *answer,
    };
    let request = mail_request(context, recipient);
    let problem = match request_account(&context.app.core, &login, &request, context.now).await {
        Ok(Ok(AccountBegun::MailSent(mail))) => {
            return response::redirect_303(&check_mail::address(context, &login, &mail));
        }
        Ok(Ok(AccountBegun::Link(secret))) => {
            return response::redirect_303(&link::address(context, &login.sealed, &secret));
        }
        Ok(Err(problem)) => problem,
        Err(failure) => return error::failed_page(context, &failure),
    };
    let problem = match problem {
        SignUpProblem::Closed | SignUpProblem::NotAllowed => AddressProblem::NotAllowed,
        SignUpProblem::NoAddress => AddressProblem::NoAddress,
        SignUpProblem::AtProvider => AddressProblem::AtProvider,
        SignUpProblem::Taken => AddressProblem::Taken,
    };
    form.draw(context, &login, recipient, Some(problem))
}
