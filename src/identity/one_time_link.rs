//! Links that work once. They are sent by mail, so opening one shows access to the mailbox.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::identity::SecondFactor;
use crate::secret::{Digest, LinkSecret};

/// A link, stored under the hour in which it expires and its time-ordered id. An expired link is removed by that hour.
/// Until then, the row of a link that has ended says how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneTimeLink {
    pub digest: Digest<LinkSecret>,
    pub purpose: LinkPurpose,
    /// The code that can be typed instead; none if the link was not requested in a browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<LinkCode>,
    pub expires_at: Timestamp,
    /// The sign-in in which it was requested; none if it was not requested in a browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_in: Option<RequestingSignIn>,
    /// How it ended. Then it has no purpose: earlier releases know only that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<LinkEnd>,
}

/// How a link ended before it expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkEnd {
    /// It was used. Of an invitation: its address has got an account by a link.
    Used,
    /// The operator has revoked the invitation, or the user who had its address has lost it.
    Revoked,
    /// There is a newer invitation for the address.
    Replaced,
}

/// The sign-in in which a link was requested. If the link is opened in the same browser, the sign-in continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestingSignIn {
    /// The id of its login transaction.
    pub transaction: Uuid,
    /// The transaction, sealed. It opens only in the browser in which it began. None if the link was mailed: then a cookie has
    /// it. Links of earlier releases have it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
    /// The second step that the user answered in it, if a page of it leads to the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_factor: Option<SecondFactor>,
}

/// The key of a link in the store.
pub type LinkKey = (u32, Uuid);

/// The key of an open invitation in the store: half of the digest of its address, and its link.
pub type InvitationKey = (Uuid, LinkKey);

/// A mail that was requested on a page. The browser keeps it, sealed, to type the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedMail {
    pub link: LinkKey,
    /// The name or address that was typed.
    pub recipient: String,
    pub reason: MailReason,
}

/// What a person requests a mail for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailReason {
    /// A new password.
    Reset,
    /// A new account.
    SignUp,
    /// To sign in without a password.
    SignIn,
}

impl RequestedMail {
    /// The context that the mail of a login transaction is sealed with.
    pub fn sealing_context(transaction: Uuid) -> String {
        format!("login_transaction/{transaction}/requested_mail")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkPurpose {
    /// A new password for a user.
    ResetPassword {
        user: Uuid,
        /// The address that the link was sent to; none if the operator passes it on. The link is void if the user's
        /// address has changed.
        email: Option<String>,
        /// The fingerprint of the present password. The link is void if the password has changed.
        password: Option<[u8; 32]>,
    },
    CreateAccount(NewAccount),
    /// To sign a user in, in the sign-in in which it was requested.
    SignIn {
        user: Uuid,
        /// The address that the link was sent to. The link is void if the user's address has changed.
        email: String,
    },
    /// To undo what a notice says.
    SecureAccount {
        user: Uuid,
        /// The address that the notice was sent to.
        email: String,
        /// The address that replaced it, if the notice says that: then the link sets the address back. The link is void if
        /// the address of the user is another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaced_by: Option<String>,
        /// What the notice is about. None in links of earlier releases: they end all sessions and remove no factor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event: Option<NoticedEvent>,
    },
    /// Another e-mail address for a user. It was sent to the new one.
    ChangeEmail {
        user: Uuid,
        /// The session in which it was requested. The link is void if it has ended.
        session: Uuid,
        /// The present address. The link is void if it has changed.
        from: Option<String>,
        /// The new address.
        to: String,
    },
    /// Nothing: the link has ended. Or no user has the address that was typed, or the address of a new account belongs to a
    /// user: then the row counts the codes that are typed.
    Nothing,
}

impl LinkPurpose {
    /// The user whom the link lets in.
    pub fn user(&self) -> Option<Uuid> {
        match self {
            Self::ResetPassword { user, .. } | Self::SignIn { user, .. } => Some(*user),
            Self::SecureAccount { .. }
            | Self::ChangeEmail { .. }
            | Self::CreateAccount(_)
            | Self::Nothing => None,
        }
    }
}

/// The event that a notice is about, and that its link undoes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticedEvent {
    /// The link is void if a factor was added after that.
    pub at: Timestamp,
    /// The session in which it happened. Without one, the link ends all sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Uuid>,
    /// The factors that were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub factors: Vec<Uuid>,
}

impl NoticedEvent {
    /// An event that is not of one session.
    pub fn of_account(at: Timestamp) -> Self {
        Self {
            at,
            session: None,
            factors: Vec::new(),
        }
    }

    /// The same event, in this session.
    #[must_use]
    pub fn in_session(self, session: Uuid) -> Self {
        Self {
            session: Some(session),
            ..self
        }
    }

    /// The same event, in which these factors were added.
    #[must_use]
    pub fn adding(self, factors: Vec<Uuid>) -> Self {
        Self { factors, ..self }
    }
}

/// A new account, before its user chooses a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAccount {
    /// The address.
    pub email: String,
    /// Whether the link was sent to it, so that opening the link proves it.
    pub is_verified: bool,
    /// Whether the operator invited the person.
    pub is_invited: bool,
    /// The groups of the user, chosen by the operator who invited the person.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<Uuid>,
    /// The client that the person is invited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Who invited the person, as the audit names an administrator. None in invitations of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_by: Option<String>,
}

/// Six digits that replace a link in the browser in which it was requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCode {
    /// The digits, sealed with [`LinkCode::context`], base64url.
    pub sealed: String,
    /// How many more codes may be typed.
    pub tries_left: u8,
}

impl LinkCode {
    /// How many codes may be tried for one mail.
    pub const TRIES: u8 = 5;

    /// The context that the code of a link is sealed with.
    pub fn context(link: Uuid) -> String {
        format!("one_time_links/{link}")
    }
}

impl OneTimeLink {
    /// How long a link lasts that a person requested.
    pub const REQUESTED_LIFETIME: Duration = Duration::from_hours(1);
    /// How long a link lasts that the operator requested for a user.
    pub const OPERATOR_LIFETIME: Duration = Duration::from_hours(24);
    /// How long an invitation lasts.
    pub const INVITATION_LIFETIME: Duration = Duration::from_hours(7 * 24);

    /// How long the link of a notice lasts.
    pub const NOTICE_LIFETIME: Duration = Duration::from_hours(7 * 24);

    /// Whether it was sent or passed on to a person. Otherwise a page of this sign-in leads to it, and it is of no use in
    /// another one.
    pub fn was_mailed_or_requested_in(&self, transaction: Uuid) -> bool {
        let requested_in = self.requested_in.as_ref();
        let is_mailed = !matches!(self.purpose, LinkPurpose::ResetPassword { email: None, .. });
        is_mailed || requested_in.is_none_or(|sign_in| sign_in.transaction == transaction)
    }

    /// Whether it can be used with this secret. `id` is its time-ordered id.
    pub fn is_valid(&self, id: Uuid, secret: Digest<LinkSecret>, now: Timestamp) -> bool {
        self.digest == secret && self.is_live(id, now) && self.purpose != LinkPurpose::Nothing
    }

    /// The same link, which has ended. Nothing is left of what it was for.
    #[must_use]
    pub fn ended(self, end: LinkEnd) -> Self {
        Self {
            purpose: LinkPurpose::Nothing,
            code: None,
            requested_in: None,
            ended: Some(end),
            ..self
        }
    }

    /// The new account, if the link is an invitation that has not ended.
    pub fn invitation(&self) -> Option<&NewAccount> {
        match &self.purpose {
            LinkPurpose::CreateAccount(new) if new.is_invited => Some(new),
            _ => None,
        }
    }

    pub fn has_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }

    /// Whether it lasts until now. One that was made while the clock was ahead does not count
    /// ([`Timestamp::is_ahead_of`]).
    pub fn is_live(&self, id: Uuid, now: Timestamp) -> bool {
        !self.has_expired(now) && !Timestamp::of_id(id).is_ahead_of(now)
    }
}
