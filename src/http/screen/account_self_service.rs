//! The actions of the account page that change the profile, the address, or the account as a whole.

use ::http::StatusCode;
use ::http::header::{CONTENT_DISPOSITION, HeaderValue};

use super::account_action::ActionAnswer;
use super::{account_proof, logout};
use crate::flow::Failure;
use crate::flow::account::ActionResult;
use crate::flow::account::delete_account::delete_account;
use crate::flow::account::edit_profile::edit_profile;
use crate::flow::account::export_data::export_data;
use crate::flow::account::request_email::{EmailRequest, NewEmail, request_email};
use crate::http::context::{RequestContext, throttled};
use crate::http::request::Parameters;
use crate::http::response::{self, HttpResponse};
use crate::identity::{LoginName, User};
use crate::pages::{AccountNotice, SelfService};

/// An action that a form asks for.
pub(super) enum SelfServiceAction {
    Profile(Vec<(String, String)>),
    Email(NewEmail),
    Export,
    Delete(String),
}

impl SelfServiceAction {
    /// Reads a form with this value of `decision`.
    pub(super) fn read(context: &RequestContext, decision: &str, form: &Parameters) -> Option<Self> {
        let policy = &context.app.core.policy.accounts.self_service;
        let typed = |name: &str| form.get(name).unwrap_or_default().to_owned();
        match decision {
            "profile" => {
                // A field that the user emptied is read like a missing one, so the form names its fields.
                let fields = typed("fields");
                let names = fields
                    .split(' ')
                    .filter(|name| policy.claims.iter().any(|known| known == name));
                let values: Vec<_> = names.map(|name| (name.to_owned(), typed(name))).collect();
                (!values.is_empty()).then_some(Self::Profile(values))
            }
            "email" if policy.email => Some(Self::Email(NewEmail {
                email: typed("email").trim().to_owned(),
                language: context.with_page_style(None, |_, locale| locale.tag().to_owned()),
            })),
            "export" if policy.export => Some(Self::Export),
            "delete" if policy.deletion => Some(Self::Delete(typed("confirm"))),
            _ => None,
        }
    }

    pub(super) async fn perform(
        self,
        context: &RequestContext,
        form: &Parameters,
    ) -> Result<ActionResult<ActionAnswer>, Failure> {
        let (core, browser, now) = (&context.app.core, context.browser(), context.now);
        Ok(match self {
            Self::Profile(values) => edit_profile(core, &browser, values, now)
                .await?
                .map(|()| ActionAnswer::Notice(AccountNotice::ProfileEdited)),
            Self::Email(typed) => {
                let requested = change_email(context, typed, form).await?;
                requested.map(ActionAnswer::Notice)
            }
            Self::Export => export_data(core, &browser, now)
                .await?
                .map(|document| ActionAnswer::Http(Box::new(download(&document)))),
            Self::Delete(typed) => {
                let Some(proof) = account_proof::read(context, form).await? else {
                    return Ok(ActionResult::SignInRequired);
                };
                let deleted = delete_account(core, &browser, &typed, &proof, now).await?;
                deleted.map(|is_deleted| {
                    if is_deleted {
                        ActionAnswer::Http(Box::new(logout::done(context, None, true)))
                    } else {
                        ActionAnswer::Notice(AccountNotice::NotDeleted)
                    }
                })
            }
        })
    }
}

/// Sends a link to the new address, unless too many mails were requested or too many passwords were wrong.
async fn change_email(
    context: &RequestContext,
    typed: NewEmail,
    form: &Parameters,
) -> Result<ActionResult<AccountNotice>, Failure> {
    let (core, browser, now) = (&context.app.core, context.browser(), context.now);
    let Some(proof) = account_proof::read(context, form).await? else {
        return Ok(ActionResult::SignInRequired);
    };
    let (limits, from) = (&context.app.limits, context.client_address());
    context.require_disk_for_record()?;
    let name = LoginName::new(&typed.email);
    limits.request_mail(name.as_str(), from, now).map_err(throttled)?;
    let requested = request_email(core, &browser, typed, &proof, now).await?;
    Ok(requested.map(|result| match result {
        EmailRequest::Sent => AccountNotice::EmailRequested,
        EmailRequest::NoAddress => AccountNotice::NoAddress,
        EmailRequest::NotAllowed => AccountNotice::AddressNotAllowed,
    }))
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
    let value = |name: &str| user.editable_claim(name).unwrap_or_default().to_owned();
    let claims = policy.claims.iter().filter(|_| is_own);
    SelfService {
        claims: claims.map(|name| (name.clone(), value(name))).collect(),
        email: (is_own && policy.email).then(|| user.email.clone().unwrap_or_default()),
        changes_email: user.may_change_email(context.now),
        exports: policy.export,
        deletes: policy.deletion,
    }
}
