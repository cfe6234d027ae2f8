//! What a user has allowed a client.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// A consent, stored by user and client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// The scope values allowed so far, space-delimited (RFC 6749 section 3.3).
    pub scope: String,
    /// When the user last consented.
    pub given_at: Timestamp,
}
