//! `GET` and `POST /sign-in-by-mail`: a person requests a mail to sign in without a password.

use ::http::Method;

use super::check_mail;
use super::login_context::LoginRequest;
use super::recover::{AddressRequest, load, mail_request};
use crate::flow::one_time_link::request_mail::request_sign_in;
use crate::http::context::RequestContext;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::pages::MailPurpose;
use crate::route::Route;

/// Shows the page, or sends a mail.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    if !context.app.core.policy.offers_email_sign_in() {
        return context.not_found();
    }
    let LoginRequest {
        parameters, login, ..
    } = match load(context).await {
        Ok(request) => request,
        Err(answer) => return *answer,
    };
    let form = AddressRequest {
        purpose: MailPurpose::SignIn,
        page: Route::SignInByMail,
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
    match request_sign_in(&context.app.core, &login, &request, context.now).await {
        Ok(mail) => response::redirect_303(&check_mail::address(context, &login, &mail)),
        Err(failure) => error::failed_page(context, &failure),
    }
}
