//! An attempt to prove a password, as its limits see it.

use std::fmt::Debug;
use std::sync::Arc;

use super::buckets::{Buckets, Key, RetryAfter};
use crate::clock::Timestamp;

/// The wrong passwords of one account in a row. They are stored.
pub trait AccountFailures: Debug + Send + Sync {
    /// Gives an attempt its place in the row once its password is checked, and counts a wrong one. Calls `settled` with
    /// whether the place is within the limit; with `None` if that is not known.
    fn settle(&self, is_right: bool, settled: Box<dyn FnOnce(Option<bool>) + Send>);
}

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
    /// The failures of the account in the store. `None` if they do not matter.
    pub(super) account: Option<Arc<dyn AccountFailures>>,
    pub(super) now: Timestamp,
}

impl PasswordAttempt {
    /// The attempt of an operator, or of a user who has just proven the password.
    pub fn trusted() -> Self {
        Self::unlimited(true, Timestamp::from_seconds(0))
    }

    /// An attempt that no bucket counts.
    pub(super) fn unlimited(is_known: bool, now: Timestamp) -> Self {
        Self {
            is_known,
            rank: 0,
            subject: None,
            failures: Vec::new(),
            account: None,
            now,
        }
    }

    /// The same attempt. These failures of its account count as well.
    #[must_use]
    pub fn at_account(self, failures: Arc<dyn AccountFailures>) -> Self {
        Self {
            account: Some(failures),
            ..self
        }
    }

    /// Whether the password may be checked now. If not, the longest wait.
    pub fn may_check(&self) -> Result<(), RetryAfter> {
        let waits = self.failures.iter();
        let longest = waits.filter_map(|(buckets, key)| buckets.check(|| *key, self.now).err());
        longest.max().map_or(Ok(()), Err)
    }

    /// Charges a wrong password in memory.
    pub fn count_failure(&self) {
        for (buckets, key) in &self.failures {
            buckets.add(*key, self.now);
        }
    }

    /// Counts a wrong password for the account, in the store. Calls `settled` with whether the right one is accepted: if
    /// the account is at its limit, a known browser is needed. With `None` if that is not known.
    pub fn settle(&self, is_right: bool, settled: impl FnOnce(Option<bool>) + Send + 'static) {
        match &self.account {
            Some(failures) if !(is_right && self.is_known) => failures.settle(is_right, Box::new(settled)),
            _ => settled(Some(true)),
        }
    }
}
