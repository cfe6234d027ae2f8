//! What a user has allowed a client.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;

/// A consent, stored by user and client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// The scope values allowed so far, space-delimited (RFC 6749 section 3.3).
    pub scope: String,
    /// Which client of this identifier it was given to; see [`crate::oauth::Client::incarnation`].
    #[serde(default, skip_serializing_if = "Uuid::is_nil")]
    pub client_incarnation: Uuid,
    /// When the user last consented.
    pub given_at: Timestamp,
}
