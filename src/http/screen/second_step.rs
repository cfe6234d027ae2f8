//! What the two forms of the page for the second step share: one takes a code, one sets up a second factor.

use ::http::StatusCode;

use super::page_parts::mark;
use super::{address, browser_redirect, csrf, device_cookie};
use crate::flow::login::destination::BrowserRedirect;
use crate::flow::login::pending_sign_in::PendingSignIn;
use crate::flow::login::transaction::LoginContext;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::http::request::Parameters;
use crate::http::response::HttpResponse;
use crate::http::{cookie, error};
use crate::pages::second_factor::{SecondFactor, SecondFactorProblem};
use crate::route::Route;

/// A request to the page, and the sign-in that it belongs to.
pub(super) struct SecondStepRequest<'a> {
    pub(super) context: &'a RequestContext,
    pub(super) parameters: &'a Parameters,
    pub(super) login: &'a LoginContext,
    pub(super) proof: &'a str,
    pub(super) pending: &'a PendingSignIn,
}

impl SecondStepRequest<'_> {
    /// The address of the page.
    pub(super) fn address(&self) -> String {
        address::second_step(self.context, &self.login.sealed, self.proof)
    }

    /// Whether the form has the token of the page.
    pub(super) fn is_from_page(&self) -> Result<bool, HttpError> {
        csrf::is_from_page(self.context, self.parameters, &self.csrf_context())
    }

    /// The answer that completes both steps. The browser is known from then on.
    pub(super) fn finish(&self, redirect: BrowserRedirect) -> HttpResponse {
        let (context, pending) = (self.context, self.pending);
        let mut answer = browser_redirect::send(context, redirect);
        if pending.first.sends_notice {
            let limits = &context.app.limits;
            limits.charge_notice(pending.user.uuid.as_bytes(), context.now);
        }
        let known = device_cookie::issue(context, &pending.name(), &pending.user);
        cookie::append(&mut answer, known);
        answer
    }

    /// The page without what only one of the forms has.
    pub(super) fn page(&self, problem: Option<SecondFactorProblem>) -> SecondFactor {
        let (context, login) = (self.context, self.login);
        SecondFactor {
            action: context.app.path(&Route::SecondFactor),
            transaction: login.sealed.clone(),
            proof: self.proof.to_owned(),
            csrf: csrf::of_browser(context, &self.csrf_context()),
            mark: login.purpose.client().map(|client| mark(context, client)),
            user: self.pending.name().as_str().to_owned(),
            takes_code: true,
            is_recovery: false,
            setup: None,
            remember_days: None,
            other: None,
            passkey: None,
            loss: None,
            problem,
            retry_after: None,
            sign_in: address::sign_in(context, &login.sealed),
        }
    }

    pub(super) fn send(&self, page: &SecondFactor) -> HttpResponse {
        let status = match page.problem {
            Some(SecondFactorProblem::Throttled) => StatusCode::TOO_MANY_REQUESTS,
            Some(SecondFactorProblem::Expired) => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        };
        let mut answer = self.context.page(status, page, self.login.purpose.ui_locales());
        if let Some(seconds) = page.retry_after {
            error::set_retry_after(&mut answer, seconds);
        }
        answer
    }

    fn csrf_context(&self) -> String {
        format!("second-factor:{}", self.login.transaction.id)
    }
}
