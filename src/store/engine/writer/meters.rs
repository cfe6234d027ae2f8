//! What the writer counts, and since when it has been doing what it does now.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::store::Stalled;

/// What the writer has done so far, counted since the store was opened.
#[derive(Debug)]
pub struct Meters {
    /// When it was opened.
    opened: Instant,
    /// How long one transaction may take.
    patience: Duration,
    /// When what is done now was begun: milliseconds after it was opened, and one more; zero while nothing is done.
    begun: AtomicU64,
    /// Whether that is a compaction.
    compacts: AtomicBool,
    /// Transactions of the engine that were committed.
    pub commits: AtomicU64,
    /// Writes that were answered out of those commits.
    pub writes: AtomicU64,
    /// Transactions of the engine that were begun anew because one write in them failed.
    pub reruns: AtomicU64,
    /// Transactions that the storage failed to take.
    pub failures: AtomicU64,
    /// How often the storage was opened afresh, and can be read since.
    pub reopenings: AtomicU64,
    /// The most writes that ever shared one commit.
    pub largest_batch: AtomicU64,
    /// Writes that wait now.
    pub queued: AtomicU64,
    /// Whether the last commit failed and none has succeeded since.
    pub unwritable: AtomicBool,
}

impl Meters {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            opened: Instant::now(),
            patience,
            begun: AtomicU64::default(),
            compacts: AtomicBool::default(),
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

    fn elapsed(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn begin(&self) {
        self.begun.store(self.elapsed() + 1, Ordering::Relaxed);
    }

    pub(super) fn begin_to_compact(&self) {
        self.compacts.store(true, Ordering::Relaxed);
        self.begin();
    }

    pub(super) fn end(&self) {
        self.begun.store(0, Ordering::Relaxed);
        self.compacts.store(false, Ordering::Relaxed);
    }

    /// What the storage has not come back from, if that is longer than anybody has patience for.
    pub fn stalled(&self) -> Option<Stalled> {
        let begun = self.begun.load(Ordering::Relaxed).checked_sub(1)?;
        let lasts = Duration::from_millis(self.elapsed().saturating_sub(begun));
        (lasts >= self.patience).then(|| Stalled {
            lasts,
            compacts: self.compacts.load(Ordering::Relaxed),
        })
    }
}
