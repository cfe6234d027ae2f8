//! The writer's counters, and the start of its current operation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::store::{Stalled, Stats};

/// What the writer has done since the store was opened.
#[derive(Debug)]
pub struct Meters {
    opened: Instant,
    /// The longest time that one transaction may take.
    stall_timeout: Duration,
    /// The start of the current operation, in milliseconds after `opened` plus one. Zero while the writer is idle.
    operation_start: AtomicU64,
    /// Whether the current operation is a compaction.
    is_compacting: AtomicBool,
    /// Committed transactions.
    pub commits: AtomicU64,
    /// Writes in those transactions.
    pub writes: AtomicU64,
    /// Transactions that were rerun because one of their writes failed.
    pub reruns: AtomicU64,
    /// Transactions that the storage failed to commit.
    pub failures: AtomicU64,
    /// How often the storage was reopened after a failure.
    pub reopenings: AtomicU64,
    /// The largest number of writes in one commit.
    pub largest_batch: AtomicU64,
    /// Writes in the queue now.
    pub queued: AtomicU64,
    /// Whether the last commit failed.
    pub unwritable: AtomicBool,
}

impl Meters {
    pub(super) fn new(stall_timeout: Duration) -> Self {
        Self {
            opened: Instant::now(),
            stall_timeout,
            operation_start: AtomicU64::default(),
            is_compacting: AtomicBool::default(),
            commits: AtomicU64::default(),
            writes: AtomicU64::default(),
            reruns: AtomicU64::default(),
            failures: AtomicU64::default(),
            reopenings: AtomicU64::default(),
            largest_batch: AtomicU64::default(),
            queued: AtomicU64::default(),
            unwritable: AtomicBool::default(),
        }
    }

    fn elapsed_millis(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn begin(&self) {
        self.operation_start
            .store(self.elapsed_millis() + 1, Ordering::Relaxed);
    }

    pub(super) fn begin_compaction(&self) {
        self.is_compacting.store(true, Ordering::Relaxed);
        self.begin();
    }

    pub(super) fn end(&self) {
        self.operation_start.store(0, Ordering::Relaxed);
        self.is_compacting.store(false, Ordering::Relaxed);
    }

    /// The current operation, if it has taken the stall timeout or longer.
    pub fn stalled(&self) -> Option<Stalled> {
        let start = self.operation_start.load(Ordering::Relaxed).checked_sub(1)?;
        let elapsed = Duration::from_millis(self.elapsed_millis().saturating_sub(start));
        (elapsed >= self.stall_timeout).then(|| Stalled {
            elapsed,
            is_compaction: self.is_compacting.load(Ordering::Relaxed),
        })
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        Stats {
            commits: self.commits.load(Ordering::Relaxed),
            transactions: self.writes.load(Ordering::Relaxed),
            reruns: self.reruns.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            largest_batch: self.largest_batch.load(Ordering::Relaxed),
            queue_depth: self.queued.load(Ordering::Relaxed),
            fetches: 0,
        }
    }
}
