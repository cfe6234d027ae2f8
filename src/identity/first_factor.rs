//! What a browser keeps of a sign-in between its first and its second step.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::identity::{AuthenticationMethod, UpstreamToken, User};
use crate::password::PasswordHash;

/// What a user has proven in a sign-in that waits for the second step. The browser keeps it, sealed for the login
/// transaction, which is bound to the browser.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FirstFactor {
    pub user: Uuid,
    /// The name that the user typed; none if the user typed none.
    pub name: Option<String>,
    /// How the user authenticated.
    pub factor: AuthenticationMethod,
    /// When, if that is known.
    pub auth_time: Option<Timestamp>,
    /// Whether a provider was asked to authenticate the user again.
    pub was_asked_anew: bool,
    /// The access token of the provider.
    pub upstream_token: Option<UpstreamToken>,
    /// Identifies the password that the user had then.
    pub password: Option<[u8; 32]>,
    /// To how many accounts at providers the user was linked then.
    #[serde(default)]
    pub links: usize,
    pub proven_at: Timestamp,
    /// Whether the user gets a notice of a new browser once the session begins.
    pub sends_notice: bool,
    /// Whether the user may be offered a passkey once the session begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_passkey_offer: bool,
}

impl FirstFactor {
    /// How long the second step may take.
    pub const LIFETIME: Duration = Duration::from_mins(10);

    pub fn sealing_context(transaction: Uuid) -> String {
        format!("login_transaction/{transaction}/first_factor")
    }

    /// Whether it still counts: it is recent, the user is enabled, and the password is the same. After a sign-in at a provider,
    /// the user must have as many links as then.
    pub fn is_valid(&self, user: &User, now: Timestamp) -> bool {
        let is_recent = now < self.proven_at + Self::LIFETIME && !self.proven_at.is_ahead_of(now);
        let password = user.password.as_ref().map(PasswordHash::fingerprint);
        let is_linked = self.factor.provider().is_none() || user.identities.len() == self.links;
        is_recent && is_linked && user.enabled && user.uuid == self.user && password == self.password
    }
}
