//! The form of a page that asks for an address.

use ::http::StatusCode;

use super::{address, csrf};
use crate::flow::login::transaction::LoginContext;
use crate::http::context::RequestContext;
use crate::http::error::{self, HttpError};
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::identity::LoginName;
use crate::identity::one_time_link::MailReason;
use crate::pages::{AddressForm, AddressProblem, MailPurpose};
use crate::route::Route;

/// What the page of a mail is for.
pub(super) fn purpose_of(reason: MailReason) -> MailPurpose {
    match reason {
        MailReason::Reset => MailPurpose::Reset,
        MailReason::SignUp => MailPurpose::SignUp,
        MailReason::SignIn => MailPurpose::SignIn,
    }
}

/// The route of the page of a mail.
pub(super) fn route_of(reason: MailReason) -> Route {
    match reason {
        MailReason::Reset => Route::Recover,
        MailReason::SignUp => Route::SignUp,
        MailReason::SignIn => Route::SignInByMail,
    }
}

/// A form for an address, in a sign-in.
pub(super) struct AddressRequest<'a> {
    context: &'a RequestContext,
    login: &'a LoginContext,
    reason: MailReason,
}

impl<'a> AddressRequest<'a> {
    /// The form for a mail of this reason.
    pub(super) fn new(context: &'a RequestContext, login: &'a LoginContext, reason: MailReason) -> Self {
        Self {
            context,
            login,
            reason,
        }
    }

    /// The address that was typed, if the form is from this page and a mail may be sent; otherwise the page again.
    pub(super) fn recipient<'t>(&self, form: &'t Parameters) -> Result<&'t str, HttpError> {
        let context = self.context;
        let typed = form.get("address").unwrap_or_default().trim();
        let again = |problem| self.draw(typed, Some(problem));
        if !csrf::is_from_page(context, form, &self.csrf_context())? {
            return Err(again(AddressProblem::Expired).into());
        }
        let name = LoginName::new(typed);
        if !name.is_storable() {
            return Err(again(AddressProblem::NoAddress).into());
        }
        context.require_disk_for_record()?;
        let (limits, from, now) = (&context.app.limits, context.client_address(), context.now);
        let charged = match self.reason {
            MailReason::SignUp => limits.request_account(name.as_str(), from, now),
            MailReason::Reset | MailReason::SignIn => limits.request_mail(name.as_str(), from, now),
        };
        if let Err(wait) = charged {
            context.log_refusal("throttled", "too many mails were requested");
            let mut page = again(AddressProblem::Throttled);
            error::set_retry_after(&mut page, wait.seconds());
            return Err(page.into());
        }
        Ok(typed)
    }

    /// The page with the form.
    pub(super) fn draw(&self, address: &str, problem: Option<AddressProblem>) -> HttpResponse {
        let (context, login) = (self.context, self.login);
        let page = AddressForm {
            purpose: purpose_of(self.reason),
            action: context.app.path(&route_of(self.reason)),
            transaction: login.sealed.clone(),
            csrf: csrf::of_browser(context, &self.csrf_context()),
            address: address.chars().take(LoginName::LONGEST).collect(),
            problem,
            sign_in: address::sign_in(context, &login.sealed),
        };
        let status = match problem {
            Some(AddressProblem::Throttled) => StatusCode::TOO_MANY_REQUESTS,
            Some(AddressProblem::Expired) => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        };
        context.page(status, &page, login.purpose.ui_locales())
    }

    fn csrf_context(&self) -> String {
        format!("{}:{}", purpose_of(self.reason).kind(), self.login.transaction.id)
    }
}
