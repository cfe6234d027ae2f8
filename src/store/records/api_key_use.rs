//! When an API key was last used.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::store::record::Record;

/// The last use of an API key, kept under the key's id, apart from the client that every request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyUse {
    /// When it was last used, to within the hour.
    pub last_used_at: Timestamp,
}

impl Record for ApiKeyUse {}
