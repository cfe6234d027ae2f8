//! How many users and live sessions there are, for the metrics.
//!
//! Counting reads all rows. A background task does it every eight minutes, and a collector gets the last count. Of several
//! nodes, the one with the lease counts.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Core;
use super::grant_policy::has_lost_provider;
use crate::clock::uptime;
use crate::observe::readings::UserCounts;
use crate::store::StoreError;
use crate::store::page::Page;
use crate::store::tables::{SESSIONS, USERS};

/// An older count is not reported.
const LONGEST_AGE: Duration = Duration::from_mins(10);
/// A count of this age is replaced. The task looks every minute, and the count itself takes a while.
const REPLACED_AFTER: Duration = Duration::from_mins(8);

#[derive(Clone, Copy, Debug)]
pub struct Census {
    pub users: UserCounts,
    /// Live sessions, as `session list` shows them.
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

/// Reads all users and sessions, a page at a time, and keeps the count. Blocks.
pub fn take(core: &Core) -> Result<(), StoreError> {
    let (now, lifetimes) = (core.clock.now(), core.policy.lifetimes.session);
    let mut census = Census {
        users: UserCounts::default(),
        sessions: 0,
        begun: uptime(),
    };
    let users = &mut census.users;
    Page::visit_all(
        &core.store,
        USERS,
        |_, _, user| Ok(Some(user)),
        |user| {
            let count = match (user.is_anonymous(), user.enabled) {
                (true, _) => &mut users.anonymous,
                (false, true) => &mut users.enabled,
                (false, false) => &mut users.disabled,
            };
            *count += 1;
        },
    )?;
    Page::visit_all(
        &core.store,
        SESSIONS,
        |snapshot, _, session| {
            let is_live = session.is_live(lifetimes, now) && !has_lost_provider(snapshot, &session.factor)?;
            Ok(is_live.then_some(()))
        },
        |()| census.sessions += 1,
    )?;
    core.last_census.set(Some(census));
    Ok(())
}
