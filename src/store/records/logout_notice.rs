//! What waits to be told to a client about a session that has ended.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::store::record::Record;
#[cfg(doc)]
use crate::store::records::SessionClient;

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
    /// The host that it shares its place with; see [`SessionClient::host`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How many attempts have failed.
    pub failed_attempts: u32,
    /// When the session ended.
    pub created_at: Timestamp,
}

impl LogoutNotice {
    /// Whose turn it is: the host of clients that registered themselves, or the client.
    pub fn place(&self) -> &str {
        self.host.as_ref().unwrap_or(&self.client_id)
    }
}

impl Record for LogoutNotice {}
