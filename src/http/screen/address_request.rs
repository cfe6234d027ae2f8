//! The form of a page that asks for an address.

use ::http::StatusCode;

use super::csrf;
use super::request_mail::sign_in_address;
use crate::flow::login::transaction::LoginContext;
use crate::http::context::RequestContext;
use crate::http::cookie::Cookie;
use crate::http::error;
use crate::http::response::HttpResponse;
use crate::identity::LoginName;
use crate::identity::one_time_link::MailReason;
use crate::pages::{AddressForm, AddressProblem, MailPurpose};
use crate::route::Route;

/// What the page of a mail is for, and its route.
pub(super) fn page_of(reason: MailReason) -> (MailPurpose, Route) {
    match reason {
        MailReason::Reset => (MailPurpose::Reset, Route::Recover),
        MailReason::SignUp => (MailPurpose::SignUp, Route::SignUp),
        MailReason::SignIn => (MailPurpose::SignIn, Route::SignInByMail),
    }
}

/// A form for an address, in a sign-in.
pub(super) struct AddressRequest<'a> {
    context: &'a RequestContext,
    login: &'a LoginContext,
    purpose: MailPurpose,
    page: Route,
}

impl<'a> AddressRequest<'a> {
    /// The form for a mail of this reason.
    pub(super) fn new(context: &'a RequestContext, login: &'a LoginContext, reason: MailReason) -> Self {
        let (purpose, page) = page_of(reason);
        Self {
            context,
            login,
            purpose,
            page,
        }
    }

    /// The address that was typed, if the form is from this page and a mail may be sent; otherwise the page again.
    pub(super) fn recipient<'t>(
        &self,
        typed: Option<&'t str>,
        token: Option<&str>,
    ) -> Result<&'t str, Box<HttpResponse>> {
        let context = self.context;
        let typed = typed.unwrap_or_default().trim();
        let again = |problem| Box::new(self.draw(typed, Some(problem)));
        if !csrf::is_valid(token, self.cookie(), &self.form()) || !context.is_from_own_page() {
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

    /// The page with the form.
    pub(super) fn draw(&self, address: &str, problem: Option<AddressProblem>) -> HttpResponse {
        let (context, login) = (self.context, self.login);
        let page = AddressForm {
            purpose: self.purpose,
            action: context.app.path(&self.page),
            transaction: login.sealed.clone(),
            csrf: csrf::token(self.cookie(), &self.form()),
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

    fn cookie(&self) -> &str {
        self.context.cookie(Cookie::Browser).unwrap_or_default()
    }

    fn form(&self) -> String {
        format!("{}:{}", self.purpose.kind(), self.login.transaction.id)
    }
}
