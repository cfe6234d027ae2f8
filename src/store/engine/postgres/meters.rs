//! What the engine knows about itself and its server: counters, failures, and how new its catalog is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Postgres, State};
use crate::store::{Stats, StoreError};

/// How long the database may be silent before its catalog may have changed.
const LONGEST_SILENCE: Duration = Duration::from_secs(3);
/// A node whose clock differs from the one of the database by more is reported, and then gets no requests.
const REPORTED_SKEW: Duration = Duration::from_secs(5);
const LARGEST_SKEW: Duration = Duration::from_mins(1);

#[derive(Default)]
pub(super) struct Meters {
    commits: AtomicU64,
    transactions: AtomicU64,
    reruns: AtomicU64,
    failures: AtomicU64,
    largest_batch: AtomicU64,
    /// The last failure, until the database answers again.
    failure: Mutex<Option<StoreError>>,
}

impl Meters {
    fn failure(&self) -> MutexGuard<'_, Option<StoreError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Postgres {
    pub(in crate::store) fn stats(&self) -> Stats {
        let meters = &self.state.meters;
        let queued = self.state.fetches.depth() + self.state.commits.depth();
        Stats {
            commits: meters.commits.load(Ordering::Relaxed),
            transactions: meters.transactions.load(Ordering::Relaxed),
            reruns: meters.reruns.load(Ordering::Relaxed),
            failures: meters.failures.load(Ordering::Relaxed),
            largest_batch: meters.largest_batch.load(Ordering::Relaxed),
            queue_depth: u64::try_from(queued).unwrap_or(u64::MAX),
        }
    }

    /// Why this node should get no requests, if it should not.
    pub(in crate::store) fn problem(&self) -> Option<String> {
        let skew = Duration::from_secs(self.state.clock_skew.load(Ordering::Relaxed));
        if skew > LARGEST_SKEW {
            return Some(format!(
                "the clock of this machine and the one of the database differ by {} s: set both by NTP",
                skew.as_secs()
            ));
        }
        // Anyone may read this. The log has the cause.
        let answers = self.state.meters.failure().is_none() && self.is_current();
        (!answers).then(|| "the database does not answer".to_owned())
    }

    /// Whether the catalog was known to be the newest in the last seconds.
    pub(in crate::store) fn is_current(&self) -> bool {
        let current = Duration::from_millis(self.state.current_at.load(Ordering::Relaxed));
        self.state.opened.elapsed().saturating_sub(current) < LONGEST_SILENCE
    }
}

impl State {
    pub(super) fn note_current(&self) {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.current_at.store(now, Ordering::Relaxed);
    }

    pub(super) fn note_answer(&self) {
        if self.meters.failure().take().is_some() {
            tracing::warn!("the database answers again");
        }
    }

    pub(super) fn note_clock(&self, skew: Duration) {
        let before = self.clock_skew.swap(skew.as_secs(), Ordering::Relaxed);
        if before <= REPORTED_SKEW.as_secs() && skew > REPORTED_SKEW {
            tracing::warn!(
                seconds = skew.as_secs(),
                "the clock of this machine differs from the one of the database: set both by NTP"
            );
        }
    }

    pub(super) fn note_failure(&self, error: &StoreError) {
        self.meters.failures.fetch_add(1, Ordering::Relaxed);
        if error.is_outage() && self.meters.failure().replace(error.clone()).is_none() {
            tracing::error!(%error, "the database cannot be used");
        }
    }

    pub(super) fn note_rerun(&self) {
        self.meters.reruns.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_commit(&self, transactions: usize) {
        let size = u64::try_from(transactions).unwrap_or(u64::MAX);
        self.meters.commits.fetch_add(1, Ordering::Relaxed);
        self.meters.transactions.fetch_add(size, Ordering::Relaxed);
        self.meters.largest_batch.fetch_max(size, Ordering::Relaxed);
    }
}
