//! When a user was last seen.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::store::record::Record;

/// The days of the last sign-in and of the last use of a user, stored under the user's UUID: their first seconds in UTC.
/// There is no row before the first sign-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserActivity {
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub last_sign_in: Option<Timestamp>,
    #[serde(default, rename = "use", skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
}

impl UserActivity {
    /// The later one of each day.
    #[must_use]
    pub fn or_later(self, other: Self) -> Self {
        Self {
            last_sign_in: self.last_sign_in.max(other.last_sign_in),
            last_used: self.last_used.max(other.last_used),
        }
    }
}

impl Record for UserActivity {}
