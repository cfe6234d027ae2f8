//! The wrong passwords and codes of a user in a row.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::store::record::Record;

/// How many wrong passwords in a row were checked for a user, stored under the user's UUID. There is no row before the
/// first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPasswords {
    /// How many.
    pub count: u32,
    /// How many wrong codes of the second step there were in a row. The right password does not reset them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub second_step: u32,
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

    /// Whether only a recovery code counts in the second step.
    pub fn is_second_step_at_limit(&self) -> bool {
        self.second_step >= Self::LIMIT
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Record for FailedPasswords {}
