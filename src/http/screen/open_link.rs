//! A link of a mail that can be used, and the page for one that cannot.

use ::http::StatusCode;

use crate::flow::login::transaction::LoginContext;
use crate::flow::one_time_link::find;
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::identity::LinkPurpose;
use crate::identity::one_time_link::RequestingSignIn;
use crate::pages::ErrorKind;
use crate::secret::{LinkSecret, Secret};

/// A link that can be used, and what it is for.
pub(super) struct OpenLink {
    pub(super) secret: Secret<LinkSecret>,
    pub(super) purpose: LinkPurpose,
    pub(super) requested_in: Option<RequestingSignIn>,
}

impl OpenLink {
    pub(super) async fn find(context: &RequestContext, token: &str) -> Result<Self, HttpError> {
        let secret = Secret::<LinkSecret>::parse(token).map_err(|_| link_void(context))?;
        let store = &context.app.core.store;
        let link = store
            .read(|snapshot| find(snapshot, &secret, context.now))
            .await?;
        let link = link.ok_or_else(|| link_void(context))?;
        Ok(Self {
            secret,
            purpose: link.purpose,
            requested_in: link.requested_in,
        })
    }

    /// Whether a page of a sign-in leads to it, because the user must choose another password.
    pub(super) fn is_of_a_page(&self) -> bool {
        self.requested_in.is_some() && matches!(self.purpose, LinkPurpose::ResetPassword { email: None, .. })
    }
}

/// The page for a link that cannot be used.
pub(super) fn link_void(context: &RequestContext) -> HttpError {
    let details = "the link has expired or was used";
    let page = context.error_page(StatusCode::BAD_REQUEST, ErrorKind::Link, details);
    page.into()
}

/// The page for the link of a notice that would undo nothing. The reader of the mail learns that the account has changed, and
/// not how.
pub(super) fn undoes_nothing(context: &RequestContext) -> HttpError {
    let details = "the link of a notice is void: a factor was added later, the address is another one, or the user is disabled";
    let page = context.error_page(StatusCode::BAD_REQUEST, ErrorKind::LinkUndoesNothing, details);
    page.into()
}

/// The CSRF context of the form of a link.
pub(super) fn form(login: &LoginContext) -> String {
    format!("link:{}", login.transaction.id)
}
