//! The actions of the account page that change the profile, the address, or the account as a whole.

use ::http::StatusCode;
use ::http::header::{CONTENT_DISPOSITION, HeaderValue};

use super::logout;
use crate::flow::Failure;
use crate::flow::account::ActionResult;
use crate::flow::account::delete_account::delete_account;
use crate::flow::account::edit_profile::edit_profile;
use crate::flow::account::export_data::export_data;
use crate::flow::account::request_email::request_email;
use crate::http::context::RequestContext;
use crate::http::request::Parameters;
use crate::http::response::{self, HttpResponse};
use crate::identity::User;
use crate::pages::{AccountNotice, SelfService};

/// An action that a form asks for.
pub(super) enum SelfServiceAction {
    Profile(Vec<(String, String)>),
    Email(String),
    Export,
    Delete(String),
}

/// The answer to an action.
pub(super) enum SelfServiceResult {
    /// It was done, or refused: the section says so.
    Notice(AccountNotice),
    /// The answer itself.
    Answer(Box<HttpResponse>),
    /// The user has to sign in first, or again.
    SignInRequired,
}

impl SelfServiceAction {
    /// Reads a form with this value of `decision`.
    pub(super) fn read(context: &RequestContext, decision: &str, form: &Parameters) -> Option<Self> {
        let policy = &context.app.core.policy.accounts.self_service;
        let typed = |name: &str| form.get(name).unwrap_or_default().to_owned();
        match decision {
            "profile" => {
                // A field that the user emptied is read like a missing one.
                let claims = policy.claims.iter();
                Some(Self::Profile(
                    claims.map(|name| (name.clone(), typed(name))).collect(),
                ))
            }
            "email" if policy.email => Some(Self::Email(typed("email").trim().to_owned())),
            "export" if policy.export => Some(Self::Export),
            "delete" if policy.deletion => Some(Self::Delete(typed("confirm"))),
            _ => None,
        }
    }

    /// Does it.
    pub(super) async fn perform(self, context: &RequestContext) -> Result<SelfServiceResult, Failure> {
        let (core, browser, now) = (&context.app.core, context.browser(), context.now);
        Ok(match self {
            Self::Profile(values) => match edit_profile(core, &browser, values, now).await? {
                ActionResult::Done(()) => SelfServiceResult::Notice(AccountNotice::ProfileEdited),
                ActionResult::SignInRequired => SelfServiceResult::SignInRequired,
            },
            Self::Email(email) => {
                let limits = &context.app.limits;
                if limits
                    .request_mail(&email, context.client_address(), now)
                    .is_err()
                {
                    return Ok(SelfServiceResult::Notice(AccountNotice::Throttled));
                }
                let language = context.with_page_style(None, |_, locale| locale.tag().to_owned());
                match request_email(core, &browser, email, language, now).await? {
                    ActionResult::Done(true) => SelfServiceResult::Notice(AccountNotice::EmailRequested),
                    ActionResult::Done(false) => SelfServiceResult::Notice(AccountNotice::NoAddress),
                    ActionResult::SignInRequired => SelfServiceResult::SignInRequired,
                }
            }
            Self::Export => match export_data(core, &browser, now).await? {
                ActionResult::Done(document) => SelfServiceResult::Answer(Box::new(download(&document))),
                ActionResult::SignInRequired => SelfServiceResult::SignInRequired,
            },
            Self::Delete(typed) => match delete_account(core, &browser, typed, now).await? {
                ActionResult::Done(true) => SelfServiceResult::Answer(Box::new(logout::done(context, None))),
                ActionResult::Done(false) => SelfServiceResult::Notice(AccountNotice::NotDeleted),
                ActionResult::SignInRequired => SelfServiceResult::SignInRequired,
            },
        })
    }
}

/// The document as a file.
fn download(document: &serde_json::Value) -> HttpResponse {
    let mut answer = response::no_store(response::json(StatusCode::OK, document));
    answer.headers_mut().insert(
        CONTENT_DISPOSITION,
        HeaderValue::from_static("attachment; filename=\"account.json\""),
    );
    answer
}

/// What the page offers this user.
pub(super) fn offered(context: &RequestContext, user: &User) -> SelfService {
    let core = &context.app.core;
    let policy = &core.policy.accounts.self_service;
    let is_own = !user.comes_from_provider();
    let value = |name: &String| match name.as_str() {
        "phone_number" => user.phone_number.clone().unwrap_or_default(),
        name => {
            let value = user.claims.get(name).and_then(|value| value.as_str());
            value.unwrap_or_default().to_owned()
        }
    };
    let claims = policy.claims.iter().filter(|_| is_own);
    SelfService {
        claims: claims.map(|name| (name.clone(), value(name))).collect(),
        email: (is_own && policy.email).then(|| user.email.clone().unwrap_or_default()),
        exports: policy.export,
        deletes: policy.deletion,
    }
}
