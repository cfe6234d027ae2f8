//! An attempt to prove a password, as its limits see it.

use std::sync::Arc;

use super::buckets::{Buckets, Key, RetryAfter};
use crate::clock::Timestamp;

/// A password that was typed, from its arrival to the result of the check.
///
/// Only a wrong password is charged, and only when it has been found wrong. Attempts with the same `subject` are
/// checked one after the other, so that each of them sees the failures of those before it.
#[derive(Clone, Debug)]
pub struct PasswordAttempt {
    /// Whether it comes from an operator, from a session, or from a browser in which the user signed in before.
    pub is_known: bool,
    /// How much its network has tried and failed lately. The lowest rank is checked first.
    pub rank: u64,
    /// The name or browser whose failures are counted. `None` if none are.
    pub subject: Option<u64>,
    pub(super) failures: Vec<(Arc<Buckets>, Key)>,
    pub(super) now: Timestamp,
}

impl PasswordAttempt {
    /// The attempt of an operator, or of a user who has just proven the password.
    pub fn trusted() -> Self {
        Self {
            is_known: true,
            ..Self::unlimited(Timestamp::from_seconds(0))
        }
    }

    pub(super) fn unlimited(now: Timestamp) -> Self {
        Self {
            is_known: false,
            rank: 0,
            subject: None,
            failures: Vec::new(),
            now,
        }
    }

    /// Whether the password may be checked now. If not, the longest wait.
    pub fn may_check(&self) -> Result<(), RetryAfter> {
        let waits = self.failures.iter();
        let longest = waits.filter_map(|(buckets, key)| buckets.check(|| *key, self.now).err());
        longest.max().map_or(Ok(()), Err)
    }

    /// Charges a wrong password.
    pub fn count_failure(&self) {
        for (buckets, key) in &self.failures {
            buckets.add(*key, self.now);
        }
    }
}
