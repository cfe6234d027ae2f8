//! A link of a mail that can be used, and the page for one that cannot.

use ::http::StatusCode;

use crate::flow::login::transaction::LoginContext;
use crate::flow::one_time_link::{LinkState, look_up};
use crate::http::context::RequestContext;
use crate::http::error::HttpError;
use crate::identity::LinkPurpose;
use crate::identity::one_time_link::{LinkEnd, RequestingSignIn};
use crate::pages::ErrorKind;
use crate::secret::{LinkSecret, Secret};
use crate::store::StoreError;

/// A link that can be used, and what it is for.
pub(super) struct OpenLink {
    pub(super) secret: Secret<LinkSecret>,
    pub(super) purpose: LinkPurpose,
    pub(super) requested_in: Option<RequestingSignIn>,
}

impl OpenLink {
    pub(super) async fn find(context: &RequestContext, token: &str) -> Result<Self, HttpError> {
        let Ok(secret) = Secret::<LinkSecret>::parse(token) else {
            return Err(void_page(context, &LinkState::Unknown));
        };
        match state(context, &secret).await? {
            LinkState::Usable(link) => Ok(Self {
                secret,
                purpose: link.purpose,
                requested_in: link.requested_in,
            }),
            state => Err(void_page(context, &state)),
        }
    }

    /// Whether a page of a sign-in leads to it, because the user must choose another password.
    pub(super) fn is_of_a_page(&self) -> bool {
        self.requested_in.is_some() && matches!(self.purpose, LinkPurpose::ResetPassword { email: None, .. })
    }
}

async fn state(context: &RequestContext, secret: &Secret<LinkSecret>) -> Result<LinkState, StoreError> {
    let store = &context.app.core.store;
    store
        .read(|snapshot| look_up(snapshot, secret, context.now))
        .await
}

/// The page for a link that cannot be used. It may have ended while its page was open, so it is looked up again.
pub(super) async fn link_void(context: &RequestContext, secret: &Secret<LinkSecret>) -> HttpError {
    match state(context, secret).await {
        Ok(state) => void_page(context, &state),
        Err(error) => error.into(),
    }
}

/// The page that says why a link cannot be used, as far as its holder may know.
fn void_page(context: &RequestContext, state: &LinkState) -> HttpError {
    let kind = match state {
        LinkState::Ended(LinkEnd::Used) => ErrorKind::LinkUsed,
        LinkState::Ended(LinkEnd::Revoked) => ErrorKind::InvitationRevoked,
        LinkState::Ended(LinkEnd::Replaced) => ErrorKind::InvitationReplaced,
        LinkState::Expired => ErrorKind::LinkExpired,
        LinkState::Usable(_) | LinkState::Unknown => ErrorKind::Link,
    };
    let details = match kind {
        ErrorKind::LinkUsed => "the link was used",
        ErrorKind::LinkExpired => "the link has expired",
        ErrorKind::InvitationRevoked => "the invitation was revoked",
        ErrorKind::InvitationReplaced => "a newer invitation has replaced this one",
        _ => "the link is unknown, or what it is for is no longer possible",
    };
    context.error_page(StatusCode::BAD_REQUEST, kind, details).into()
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
