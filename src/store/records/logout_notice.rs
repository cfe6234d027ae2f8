//! What waits to be told to a client about a session that has ended.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::store::record::Record;

/// A logout notice, stored under the time of its next attempt in seconds and its time-ordered id. It has no secret:
/// the logout token is made when it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogoutNotice {
    /// The user, who may have been removed since.
    pub user: Uuid,
    pub session: Uuid,
    /// The client that is told.
    pub client_id: String,
    /// Which client of this identifier it is; see [`crate::oauth::Client::incarnation`].
    pub client_incarnation: Uuid,
    /// How many attempts have failed.
    pub failed_attempts: u32,
    /// When the session ended.
    pub created_at: Timestamp,
}

impl Record for LogoutNotice {}
