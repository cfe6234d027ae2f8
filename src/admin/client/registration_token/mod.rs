//! Initial access tokens, with which clients register themselves (RFC 7591 section 1.2).

mod add;
mod list;
mod remove;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::add::AddRegistrationToken;
pub use self::list::ListRegistrationTokens;
pub use self::remove::RemoveRegistrationToken;
use crate::admin::SecretString;
use crate::clock::Timestamp;
use crate::oauth::registration::StoredInitialAccessToken;

/// A token as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrationTokenView {
    pub id: Uuid,
    /// The token itself, only in the answer of `add`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_access_token: Option<SecretString>,
    /// When it was added.
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// How many clients may still register with it; `None` for any number.
    pub uses_left: Option<u64>,
}

impl RegistrationTokenView {
    fn of(id: Uuid, stored: &StoredInitialAccessToken) -> Self {
        Self {
            id,
            initial_access_token: None,
            created_at: stored.created_at,
            expires_at: stored.expires_at,
            uses_left: stored.uses_left,
        }
    }
}
