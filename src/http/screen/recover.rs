//! `GET` and `POST /recover`: a person who forgot the password requests a mail.

use ::http::{Method, StatusCode};

use super::login_context::LoginRequest;
use super::{browser_redirect, check_mail, csrf, login_context};
use crate::flow::login::transaction::LoginContext;
use crate::flow::one_time_link::request_mail::{MailRequest, request_reset};
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::{self, HttpResponse};
use crate::identity::{AuthenticationMethod, LoginName};
use crate::oauth::redirect_uri::with_query;
use crate::pages::{AddressForm, AddressProblem, MailPurpose};
use crate::route::Route;

/// Shows the page, or sends a mail. Without a transaction, as in a bookmark, the address leads to the account page.
pub async fn respond(context: &RequestContext) -> HttpResponse {
    if !context.app.core.policy.sends_mail {
        return context.not_found();
    }
    let LoginRequest {
        parameters, login, ..
    } = match load(context).await {
        Ok(request) => request,
        Err(answer) => return *answer,
    };
    let form = AddressRequest {
        purpose: MailPurpose::Reset,
        page: Route::Recover,
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
    match request_reset(&context.app.core, &login, &request, context.now).await {
        Ok(mail) => response::redirect_303(&check_mail::address(context, &login, &mail)),
        Err(failure) => error::failed_page(context, &failure),
    }
}

/// The sign-in of a request for one of these pages. Without a transaction, an answer that leads to the account page. If
/// the application accepts no passwords, an answer that continues the sign-in.
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

/// A mail in the language of the page.
pub(super) fn mail_request<'a>(context: &RequestContext, recipient: &'a str) -> MailRequest<'a> {
    MailRequest {
        recipient,
        language: context.with_page_style(None, |_, locale| locale.tag().to_owned()),
    }
}

/// A page that asks for an address, and the form on it.
pub(super) struct AddressRequest {
    /// What the mail is for.
    pub(super) purpose: MailPurpose,
    /// The page.
    pub(super) page: Route,
}

impl AddressRequest {
    /// The address that was typed, if the form is from this page and a mail may be sent; otherwise the page again.
    pub(super) fn recipient<'a>(
        &self,
        context: &RequestContext,
        login: &LoginContext,
        typed: Option<&'a str>,
        token: Option<&str>,
    ) -> Result<&'a str, Box<HttpResponse>> {
        let typed = typed.unwrap_or_default().trim();
        let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
        let again = |problem| Box::new(self.draw(context, login, typed, Some(problem)));
        if !csrf::is_valid(token, cookie, &self.form(login)) || !context.is_from_own_page() {
            return Err(again(AddressProblem::Expired));
        }
        let name = LoginName::new(typed);
        if !name.is_storable() {
            return Err(again(AddressProblem::NoAddress));
        }
        if let Err(failure) = context.require_disk_for_record() {
            return Err(Box::new(error::failed_page(context, &failure)));
        }
        let limits = &context.app.limits;
        if let Err(wait) = limits.request_mail(name.as_str(), context.client_address(), context.now) {
            context.log_refusal("throttled", "too many mails were requested");
            let mut page = again(AddressProblem::Throttled);
            error::set_retry_after(&mut page, wait.seconds());
            return Err(page);
        }
        Ok(typed)
    }

    pub(super) fn draw(
        &self,
        context: &RequestContext,
        login: &LoginContext,
        address: &str,
        problem: Option<AddressProblem>,
    ) -> HttpResponse {
        let cookie = context.cookie(Cookie::Browser).unwrap_or_default();
        let page = AddressForm {
            purpose: self.purpose,
            action: context.app.path(&self.page),
            transaction: login.sealed.clone(),
            csrf: csrf::token(cookie, &self.form(login)),
            address: address.chars().take(LoginName::LONGEST).collect(),
            problem,
            sign_in: sign_in_address(context, login),
        };
        let status = match problem {
            Some(AddressProblem::Throttled) => StatusCode::TOO_MANY_REQUESTS,
            Some(AddressProblem::Expired) => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        };
        context.page(status, &page, login.purpose.ui_locales())
    }

    fn form(&self, login: &LoginContext) -> String {
        format!("{}:{}", self.purpose.kind(), login.transaction.id)
    }
}
