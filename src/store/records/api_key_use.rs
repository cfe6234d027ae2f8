//! The last use of an API key.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::store::record::Record;

/// The last use of an API key, stored under the key's id. It is apart from the client's record, which every request
/// reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyUse {
    /// When it was last used, to within the hour.
    pub last_used_at: Timestamp,
}

impl Record for ApiKeyUse {}
