//! The wrong passwords of a user in a row.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::store::record::Record;

/// How many wrong passwords in a row were checked for a user, stored under the user's UUID. There is no row before the
/// first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPasswords {
    /// How many.
    pub count: u32,
    /// When the last one was checked.
    pub last_failed_at: Timestamp,
}

impl FailedPasswords {
    /// The most that are counted (NIST SP 800-63B-4 section 3.2.2).
    pub const LIMIT: u32 = 100;

    /// Whether the password counts only in a known browser.
    pub fn is_at_limit(&self) -> bool {
        self.count >= Self::LIMIT
    }
}

impl Record for FailedPasswords {}
