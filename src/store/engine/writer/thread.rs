//! The thread: gathers a batch, runs it, answers, and tries a failed storage again.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Job, MaintenanceTask, Message, Meters, Pace};
use crate::store::StoreError;
use crate::store::engine::{Backend, Snapshot, TableId, Tx, Verdict, Visit};
use crate::store::schema::{META, meta_put};

/// What is written, and removed again, as proof that a storage that failed takes writes: as much as many small writes
/// together. Less would fit into what earlier transactions left free in the file, and prove nothing about a full disk.
pub(in crate::store::engine) const PROOF: &str = "proof";
const PROOF_BYTES: usize = 1_000_000;

/// How long nothing is written before the storage is settled.
const IDLE: Duration = Duration::from_secs(5);

/// Why nothing is written now.
pub(super) struct Failed {
    error: StoreError,
    /// Whether the storage was opened afresh since, so that it can be read.
    is_open: bool,
    retry_at: Instant,
}

/// What comes before it is proven that a storage that failed takes writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// It is opened afresh, and then a file beside it written.
    Reopened,
    /// A file beside it is written.
    Probed,
    /// Nothing: it has just taken one.
    Proof,
}

enum Attempt {
    Committed,
    Spoiled(usize, StoreError),
    Broken(StoreError),
}

pub(super) struct WriterThread {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) queue: Receiver<Message>,
    pub(super) meters: Arc<Meters>,
    pub(super) pace: Pace,
    pub(super) failed: Option<Failed>,
    /// Whether the storage was settled after the last write.
    pub(super) is_settled: bool,
}

impl WriterThread {
    pub(super) fn work(mut self) {
        self.forget_proof();
        while let Some(message) = self.next_message() {
            let (batch, task) = self.gather(message);
            self.meters.begin();
            self.run(batch);
            self.meters.end();
            match task {
                Some(MaintenanceTask::Compact(reply)) => {
                    // So that no more than the compaction itself counts as one.
                    self.settle();
                    self.meters.begin_to_compact();
                    let done = self.compact();
                    self.meters.end();
                    reply(done);
                }
                Some(MaintenanceTask::Measure(reply)) => {
                    // What was removed is free once that is in the file.
                    self.settle();
                    // This only reads, for as long as there is something to look at, and keeps no reader waiting.
                    reply(self.backend.spare());
                }
                None => {}
            }
        }
        self.meters.begin();
        self.backend.close();
        self.meters.end();
    }

    /// The writes that the next transaction is made of, and what is to be done after it.
    fn gather(&self, first: Message) -> (Vec<Box<dyn Job>>, Option<MaintenanceTask>) {
        let mut batch = Vec::new();
        let mut next = Some(first);
        // How many there were when others were last let go first.
        let mut known = 0;
        while let Some(message) = next {
            match message {
                Message::Write(job) => batch.push(job),
                Message::Maintenance(task) => return (batch, Some(task)),
            }
            if batch.len() >= self.pace.batch_max {
                break;
            }
            next = self.queued();
            if next.is_none() && known < batch.len() {
                known = batch.len();
                thread::yield_now();
                next = self.queued();
            }
        }
        (batch, None)
    }

    fn queued(&self) -> Option<Message> {
        self.queue.try_recv().ok().inspect(|_| self.taken())
    }

    fn taken(&self) {
        self.meters.queued.fetch_sub(1, Ordering::Relaxed);
    }

    fn next_message(&mut self) -> Option<Message> {
        loop {
            let received = match &self.failed {
                None if self.is_settled => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                None => self.queue.recv_timeout(IDLE),
                Some(failed) => {
                    let wait = failed.retry_at.saturating_duration_since(Instant::now());
                    if wait.is_zero() {
                        let trial = if failed.is_open {
                            Trial::Probed
                        } else {
                            Trial::Reopened
                        };
                        self.meters.begin();
                        self.recover(trial);
                        self.meters.end();
                    }
                    self.queue.recv_timeout(wait.max(Duration::from_millis(1)))
                }
            };
            match received {
                Ok(message) => {
                    self.taken();
                    return Some(message);
                }
                Err(RecvTimeoutError::Timeout) => self.settle(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn settle(&mut self) {
        if self.failed.is_some() || self.is_settled {
            return;
        }
        self.is_settled = true;
        self.meters.begin();
        let done = catch_unwind(AssertUnwindSafe(|| self.backend.settle()));
        match done {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(&error),
            Err(_) => self.fail(&StoreError::Damaged("the engine panicked".to_owned())),
        }
        self.meters.end();
    }

    fn run(&mut self, mut batch: Vec<Box<dyn Job>>) {
        self.is_settled = false;
        if let Some(failed) = &self.failed {
            for job in batch.extract_if(.., |job| !job.makes_room()) {
                job.answer(Err(failed.error.clone()));
            }
        }
        while !batch.is_empty() {
            match self.attempt(&mut batch) {
                Attempt::Committed => {
                    let size = u64::try_from(batch.len()).unwrap_or(u64::MAX);
                    self.meters.commits.fetch_add(1, Ordering::Relaxed);
                    self.meters.writes.fetch_add(size, Ordering::Relaxed);
                    self.meters.largest_batch.fetch_max(size, Ordering::Relaxed);
                    for job in batch.drain(..) {
                        job.answer(Ok(()));
                    }
                    if self.failed.is_some() {
                        // There may be room for others inside the storage now, whatever the disk has.
                        self.recover(Trial::Proof);
                    }
                }
                Attempt::Spoiled(at, error) => {
                    self.meters.reruns.fetch_add(1, Ordering::Relaxed);
                    let job = batch.remove(at);
                    tracing::error!(transaction = job.name(), %error, "a write was rolled back");
                    job.answer(Err(error));
                }
                Attempt::Broken(error) => {
                    self.fail(&error);
                    for job in batch.drain(..) {
                        job.answer(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Runs the batch in one transaction. A write that fails before it changed anything spoils nothing, unless
    /// it met a damaged page: the engine may then refuse to commit.
    fn attempt(&self, batch: &mut [Box<dyn Job>]) -> Attempt {
        let mut outcome = Attempt::Committed;
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.backend.transact(&mut |tx| {
                for (at, job) in batch.iter_mut().enumerate() {
                    let mut watched = Watched {
                        tx: &mut *tx,
                        changed: false,
                    };
                    let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut watched)));
                    let error = match ran {
                        Ok(Ok(())) => continue,
                        Ok(Err(error)) if error.is_outage() => {
                            outcome = Attempt::Broken(error);
                            return Verdict::RollBack;
                        }
                        Ok(Err(error)) if !watched.changed && !matches!(error, StoreError::Damaged(_)) => {
                            continue;
                        }
                        Ok(Err(error)) => error,
                        Err(_) => StoreError::Panicked(job.name()),
                    };
                    outcome = Attempt::Spoiled(at, error);
                    return Verdict::RollBack;
                }
                Verdict::Commit
            })
        }));
        match (done, outcome) {
            (Ok(_), Attempt::Broken(error)) | (Ok(Err(error)), _) => Attempt::Broken(error),
            (Ok(Ok(())), outcome) => outcome,
            (Err(_), _) => Attempt::Broken(StoreError::Damaged("the engine panicked".to_owned())),
        }
    }

    fn fail(&mut self, error: &StoreError) {
        tracing::error!(%error, "the store cannot be written to");
        self.meters.failures.fetch_add(1, Ordering::Relaxed);
        self.meters.unwritable.store(true, Ordering::Relaxed);
        self.recover(Trial::Reopened);
    }

    /// Sees whether the storage takes writes again. What failed is opened afresh, once: it can then be read for as long
    /// as the disk fails, and is written to only when a file beside it could be, or room was made in it.
    fn recover(&mut self, trial: Trial) {
        let mut is_open = trial != Trial::Reopened;
        let tried = catch_unwind(AssertUnwindSafe(|| {
            if !is_open {
                self.reopen()?;
                is_open = true;
            }
            if trial != Trial::Proof {
                self.backend.probe()?;
            }
            is_open = false;
            self.prove().inspect_err(|_| is_open = self.reopen().is_ok())
        }));
        let error = match tried {
            Ok(Ok(())) => {
                tracing::warn!("the store can be written to again");
                self.meters.unwritable.store(false, Ordering::Relaxed);
                self.failed = None;
                return;
            }
            Ok(Err(error)) => error,
            Err(_) => StoreError::Damaged("the engine panicked".to_owned()),
        };
        self.failed = Some(Failed {
            error,
            is_open,
            retry_at: Instant::now() + self.pace.retry_pause,
        });
    }

    fn reopen(&self) -> Result<(), StoreError> {
        self.backend.recover()?;
        self.meters.reopenings.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Writes as much as shows that the storage takes writes, and removes it.
    fn prove(&self) -> Result<(), StoreError> {
        let filler = "0".repeat(PROOF_BYTES);
        self.commit(&|tx| meta_put(tx, PROOF, &filler))?;
        self.commit(&|tx| META.remove(tx, PROOF).map(|_| ()))
    }

    /// A process that was killed amid its proof has left it behind.
    fn forget_proof(&mut self) {
        let mut was_left = false;
        let _ = self.backend.read(&mut |snapshot| {
            was_left = META.contains(snapshot, PROOF)?;
            Ok(())
        });
        if was_left && let Err(error) = self.commit(&|tx| META.remove(tx, PROOF).map(|_| ())) {
            self.fail(&error);
        }
    }

    fn commit(&self, work: &dyn Fn(&mut dyn Tx) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let mut done = Ok(());
        self.backend.transact(&mut |tx| {
            done = work(tx);
            if done.is_ok() {
                Verdict::Commit
            } else {
                Verdict::RollBack
            }
        })?;
        done
    }

    fn compact(&mut self) -> Result<bool, StoreError> {
        if let Some(failed) = &self.failed {
            return Err(failed.error.clone());
        }
        let done = self.backend.compact();
        if let Err(error) = &done
            && !matches!(error, StoreError::Busy)
        {
            self.fail(error);
        }
        done
    }
}

/// Sees whether a write changed anything.
struct Watched<'a> {
    tx: &'a mut dyn Tx,
    changed: bool,
}

impl Snapshot for Watched<'_> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.tx.get(table, key)
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.tx.range(table, from, to, visit)
    }
}

impl Tx for Watched<'_> {
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.changed = true;
        self.tx.put(table, key, value)
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        self.changed = true;
        self.tx.remove(table, key)
    }
}
