//! Which failures of transactions are logged. Of each kind one a minute is, because an outage fails every transaction alike.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::StoreError;
use crate::clock::uptime;

const PAUSE: Duration = Duration::from_mins(1);

/// When a failure of each kind was logged last.
#[derive(Debug, Default)]
pub(in crate::store) struct FailureLog(Mutex<HashMap<Discriminant<StoreError>, Logged>>);

#[derive(Debug)]
struct Logged {
    at: Duration,
    left_out: u64,
}

impl FailureLog {
    /// Decides whether this failure is logged. If so, returns how many of its kind were left out since the last one.
    pub(in crate::store) fn take(&self, error: &StoreError) -> Option<u64> {
        self.take_at(error, uptime())
    }

    fn take_at(&self, error: &StoreError, now: Duration) -> Option<u64> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Logged { at: now, left_out: 0 };
        let Some(logged) = kinds.get_mut(&discriminant(error)) else {
            kinds.insert(discriminant(error), fresh);
            return Some(0);
        };
        if now.saturating_sub(logged.at) < PAUSE {
            logged.left_out += 1;
            return None;
        }
        Some(std::mem::replace(logged, fresh).left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_of_each_kind_is_logged_a_minute_with_how_many_were_left_out() {
        let log = FailureLog::default();
        let second = Duration::from_secs(1);
        assert_eq!(log.take_at(&StoreError::Busy, second), Some(0));
        for now in 1..=59 {
            assert_eq!(log.take_at(&StoreError::Busy, second * now), None);
        }
        assert_eq!(log.take_at(&StoreError::NoSpace, second * 2), Some(0));
        assert_eq!(log.take_at(&StoreError::NoSpace, second * 61), None);
        assert_eq!(log.take_at(&StoreError::Busy, second * 61), Some(59));
        assert_eq!(log.take_at(&StoreError::Busy, second * 121), Some(0));
    }
}
