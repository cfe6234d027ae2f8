//! Keys of refresh tokens, sealed under the master key.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::store::record::Record;

/// A key from which refresh tokens are derived, as it is stored under its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefreshKeyRecord {
    /// When it was made.
    pub created_at: Timestamp,
    /// The 32 bytes of the key, sealed with the context `refresh_keys/{number}`, base64url.
    pub sealed: String,
}

impl Record for RefreshKeyRecord {}
