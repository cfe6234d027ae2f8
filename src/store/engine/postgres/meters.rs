//! What the engine knows about itself and its server: counters, failures, and how new its catalog is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{Postgres, State};
use crate::clock::uptime;
use crate::store::{Stats, StoreError};

/// How long the catalog in memory may be used without an answer of the database.
const LONGEST_SILENCE: Duration = Duration::from_secs(3);
/// If the clocks of the node and the database differ by more, the log warns.
const REPORTED_SKEW: Duration = Duration::from_secs(5);
/// If they differ by more, the node is not ready.
const LARGEST_SKEW: Duration = Duration::from_mins(1);

/// The two kinds of calls. While a standby is away, fetches succeed and commits do not.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallKind {
    Fetch,
    Commit,
}

#[derive(Default)]
pub(super) struct Meters {
    commits: AtomicU64,
    transactions: AtomicU64,
    reruns: AtomicU64,
    failures: AtomicU64,
    largest_batch: AtomicU64,
    /// Whether the last fetch failed, and the last commit.
    fetches_fail: AtomicBool,
    commits_fail: AtomicBool,
    /// The latest time at which the catalog was asked for and found to be the newest, in milliseconds of [`uptime`].
    current_at: AtomicU64,
    /// By how many seconds the clock of this machine differs from the one of the database.
    clock_skew: AtomicU64,
}

impl Meters {
    /// Whether the last call of this kind failed.
    pub(super) fn fails(&self, kind: CallKind) -> &AtomicBool {
        match kind {
            CallKind::Fetch => &self.fetches_fail,
            CallKind::Commit => &self.commits_fail,
        }
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
        let skew = Duration::from_secs(self.state.meters.clock_skew.load(Ordering::Relaxed));
        if skew > LARGEST_SKEW {
            return Some(format!(
                "the clock of this machine and the one of the database differ by {} s: set both by NTP",
                skew.as_secs()
            ));
        }
        // Anyone may read this. The log has the cause.
        let meters = &self.state.meters;
        let fails =
            [CallKind::Fetch, CallKind::Commit].map(|kind| meters.fails(kind).load(Ordering::Relaxed));
        let answers = !fails.contains(&true) && self.is_current();
        (!answers).then(|| "the database does not answer".to_owned())
    }

    /// Whether the catalog in memory was the newest within the last seconds.
    pub(in crate::store) fn is_current(&self) -> bool {
        let current_at = Duration::from_millis(self.state.meters.current_at.load(Ordering::Relaxed));
        uptime().saturating_sub(current_at) < LONGEST_SILENCE
    }
}

impl State {
    /// Notes that the catalog in memory was the newest when the database was asked, at this [`uptime`].
    pub(super) fn note_current(&self, asked_at: Duration) {
        let asked_at = u64::try_from(asked_at.as_millis()).unwrap_or(u64::MAX);
        self.meters.current_at.fetch_max(asked_at, Ordering::Relaxed);
    }

    pub(super) fn note_answer(&self, kind: CallKind) {
        if self.meters.fails(kind).swap(false, Ordering::Relaxed) {
            tracing::warn!(calls = ?kind, "the database answers again");
        }
    }

    pub(super) fn note_clock(&self, skew: Duration) {
        let before = self.meters.clock_skew.swap(skew.as_secs(), Ordering::Relaxed);
        if before <= REPORTED_SKEW.as_secs() && skew > REPORTED_SKEW {
            tracing::warn!(
                seconds = skew.as_secs(),
                "the clock of this machine differs from the one of the database: set both by NTP"
            );
        }
    }

    pub(super) fn note_failure(&self, kind: CallKind, error: &StoreError) {
        self.meters.failures.fetch_add(1, Ordering::Relaxed);
        if error.is_outage() && !self.meters.fails(kind).swap(true, Ordering::Relaxed) {
            tracing::error!(calls = ?kind, %error, "the database cannot be used");
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
