//! How many users and live sessions there are, for the metrics.
//!
//! All rows are read for it, so a background task counts them before the last count is ten minutes old, and a collector gets
//! the last count. Of several nodes, the one with the lease counts.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Core;
use crate::clock::uptime;
use crate::observe::readings::UserCounts;
use crate::store::StoreError;
use crate::store::tables::{SESSIONS, USERS};

/// An older count is not reported.
const LONGEST_AGE: Duration = Duration::from_mins(10);
/// A count of this age is replaced. The task looks every minute, and the count itself takes a while.
const REPLACED_AFTER: Duration = Duration::from_mins(8);

#[derive(Clone, Copy, Debug)]
pub struct Census {
    pub users: UserCounts,
    /// Sessions that have not expired.
    pub sessions: u64,
    /// The [`uptime`] at which the count began.
    begun: Duration,
}

#[derive(Default)]
pub(super) struct LastCensus(Mutex<Option<Census>>);

impl LastCensus {
    fn within(&self, age: Duration) -> Option<Census> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|census| uptime().saturating_sub(census.begun) < age)
    }

    fn set(&self, last: Option<Census>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }
}

/// The last count of this node, at most ten minutes old.
pub fn last(core: &Core) -> Option<Census> {
    core.last_census.within(LONGEST_AGE)
}

/// Whether it is time to count again.
pub fn is_due(core: &Core) -> bool {
    core.last_census.within(REPLACED_AFTER).is_none()
}

/// Forgets the last count: another node counts now.
pub fn forget(core: &Core) {
    core.last_census.set(None);
}

/// Reads all users and sessions, and keeps the count. Blocks.
pub fn take(core: &Core) -> Result<(), StoreError> {
    let (now, lifetimes) = (core.clock.now(), core.policy.lifetimes.session);
    let mut census = Census {
        users: UserCounts::default(),
        sessions: 0,
        begun: uptime(),
    };
    core.store.stream(|snapshot| {
        let users = &mut census.users;
        USERS.visit(snapshot, .., |_, user| {
            let count = match (user.is_anonymous(), user.enabled) {
                (true, _) => &mut users.anonymous,
                (false, true) => &mut users.enabled,
                (false, false) => &mut users.disabled,
            };
            *count += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        SESSIONS.visit(snapshot, .., |_, session| {
            census.sessions += u64::from(session.is_live(lifetimes, now));
            Ok(ControlFlow::Continue(()))
        })
    })?;
    core.last_census.set(Some(census));
    Ok(())
}
