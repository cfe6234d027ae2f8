//! The clients that a session has signed in.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::store::record::Record;

/// A client that a session has signed in and that has a back-channel logout URI. It is stored under the user, the session
/// and the client. It stays for some days after the end of the session, so that the operator sees whether the client was
/// told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClient {
    /// Which client of this identifier it is; see [`crate::oauth::Client::incarnation`].
    pub client_incarnation: Uuid,
    /// The host at which a client is told that registered itself. All its clients have one place in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When the session signed the client's user in first.
    pub signed_in_at: Timestamp,
    /// Whether the client was told that the session has ended. `None` before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logout: Option<LogoutStatus>,
}

/// Whether a client was told that a session has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogoutStatus {
    /// When the session ended.
    pub ended_at: Timestamp,
    /// When the client was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_at: Option<Timestamp>,
    /// When the notice was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up_at: Option<Timestamp>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl Record for SessionClient {}
