//! The writer thread: gathers a batch, runs it, sends the replies, and retries a failed storage.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Job, Message, Meters, Reply};
use crate::store::engine::{Backend, CommitDecision, Snapshot, TableId, Tx, Visit};
use crate::store::failure_log::FailureLog;
use crate::store::schema::{META, meta_put};
use crate::store::{Options, StoreError};

/// The row that is written and removed as proof that a failed storage takes writes again. It is as long as many small
/// writes together: a shorter row would fit into free pages of the file, and prove nothing about a full disk.
pub(in crate::store::engine) const PROOF: &str = "proof";
const PROOF_BYTES: usize = 1_000_000;

/// A checkpoint is made when nothing was written for this long.
const CHECKPOINT_DELAY: Duration = Duration::from_secs(5);

/// The failure that keeps the writer from writing.
pub(super) struct Failure {
    error: StoreError,
    /// Whether the storage was reopened since, so that it can be read.
    is_readable: bool,
    retry_at: Instant,
}

/// The steps of a recovery, in order. It begins at one of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecoveryStep {
    /// Opens the storage again.
    Reopen,
    /// Writes a file beside the storage.
    Probe,
    /// Writes to the storage itself.
    Prove,
}

enum BatchOutcome {
    Committed,
    /// The job at `index` failed, and the batch was rolled back.
    JobFailed {
        index: usize,
        error: StoreError,
    },
    StorageFailed(StoreError),
}

pub(super) struct WriterThread {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) queue: Receiver<Message>,
    pub(super) meters: Arc<Meters>,
    pub(super) options: Options,
    pub(super) failure: Option<Failure>,
    pub(super) failure_log: FailureLog,
    /// Whether a checkpoint was made after the last write.
    pub(super) is_checkpointed: bool,
}

struct Gathered {
    /// The writes of the next transaction.
    batch: Vec<Box<dyn Job>>,
    /// The compaction that follows it.
    compaction: Option<Reply<bool>>,
}

impl WriterThread {
    pub(super) fn run(mut self) {
        self.remove_leftover_proof();
        while let Some(message) = self.next_message() {
            let Gathered { batch, compaction } = self.gather(message);
            self.meters.begin();
            self.write(batch);
            self.meters.end();
            if let Some(reply) = compaction {
                // The checkpoint is not part of the compaction that the meters show.
                self.checkpoint();
                self.meters.begin_compaction();
                let moved = self.compact();
                self.meters.end();
                reply(moved);
            }
        }
        self.meters.begin();
        self.backend.close();
        self.meters.end();
    }

    fn gather(&self, first: Message) -> Gathered {
        let mut batch = Vec::new();
        let mut compaction = None;
        let mut next = Some(first);
        let mut len_at_last_yield = 0;
        while let Some(message) = next {
            match message {
                Message::Write(job) => batch.push(job),
                Message::Compact(reply) => {
                    compaction = Some(reply);
                    break;
                }
            }
            if batch.len() >= self.options.batch_max {
                break;
            }
            next = self.queued();
            if next.is_none() && len_at_last_yield < batch.len() {
                len_at_last_yield = batch.len();
                thread::yield_now();
                next = self.queued();
            }
        }
        Gathered { batch, compaction }
    }

    fn queued(&self) -> Option<Message> {
        self.queue.try_recv().ok().inspect(|_| self.count_dequeued())
    }

    fn count_dequeued(&self) {
        self.meters.queued.fetch_sub(1, Ordering::Relaxed);
    }

    fn next_message(&mut self) -> Option<Message> {
        loop {
            let received = match &self.failure {
                None if self.is_checkpointed => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                None => self.queue.recv_timeout(CHECKPOINT_DELAY),
                Some(failure) => {
                    let wait = failure.retry_at.saturating_duration_since(Instant::now());
                    if wait.is_zero() {
                        let first_step = if failure.is_readable {
                            RecoveryStep::Probe
                        } else {
                            RecoveryStep::Reopen
                        };
                        self.meters.begin();
                        self.recover(first_step);
                        self.meters.end();
                    }
                    self.queue.recv_timeout(wait.max(Duration::from_millis(1)))
                }
            };
            match received {
                Ok(message) => {
                    self.count_dequeued();
                    return Some(message);
                }
                Err(RecvTimeoutError::Timeout) => self.checkpoint(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn checkpoint(&mut self) {
        if self.failure.is_some() || self.is_checkpointed {
            return;
        }
        self.is_checkpointed = true;
        self.meters.begin();
        if let Err(error) = catch_panic(|| self.backend.checkpoint()) {
            self.fail(&error);
        }
        self.meters.end();
    }

    fn write(&mut self, mut batch: Vec<Box<dyn Job>>) {
        self.is_checkpointed = false;
        if let Some(failure) = &self.failure {
            for job in batch.extract_if(.., |job| !job.frees_space()) {
                job.reply(Err(failure.error.clone()));
            }
        }
        while !batch.is_empty() {
            match self.run_batch(&mut batch) {
                BatchOutcome::Committed => {
                    let size = u64::try_from(batch.len()).unwrap_or(u64::MAX);
                    self.meters.commits.fetch_add(1, Ordering::Relaxed);
                    self.meters.writes.fetch_add(size, Ordering::Relaxed);
                    self.meters.largest_batch.fetch_max(size, Ordering::Relaxed);
                    for job in batch.drain(..) {
                        job.reply(Ok(()));
                    }
                    if self.failure.is_some() {
                        // The file may have free pages now, even if the disk is still full.
                        self.recover(RecoveryStep::Prove);
                    }
                }
                BatchOutcome::JobFailed { index, error } => {
                    self.meters.reruns.fetch_add(1, Ordering::Relaxed);
                    let job = batch.remove(index);
                    if let Some(left_out) = self.failure_log.take(&error) {
                        let left_out = (left_out > 0).then_some(left_out);
                        tracing::error!(transaction = job.name(), %error, left_out, "a write was rolled back");
                    }
                    job.reply(Err(error));
                }
                BatchOutcome::StorageFailed(error) => {
                    self.fail(&error);
                    for job in batch.drain(..) {
                        job.reply(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// Runs the batch in one transaction. A write that fails before it changed anything does not fail the batch, unless
    /// it met a damaged page: the engine may then refuse to commit.
    fn run_batch(&self, batch: &mut [Box<dyn Job>]) -> BatchOutcome {
        let mut outcome = BatchOutcome::Committed;
        let committed = catch_panic(|| {
            self.backend.transact(&mut |tx| {
                for (index, job) in batch.iter_mut().enumerate() {
                    let mut tracker = ChangeTracker {
                        tx: &mut *tx,
                        changed: false,
                    };
                    let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut tracker)));
                    let error = match ran {
                        Ok(Ok(())) => continue,
                        Ok(Err(error)) if error.is_outage() => {
                            outcome = BatchOutcome::StorageFailed(error);
                            return CommitDecision::RollBack;
                        }
                        Ok(Err(error)) if !tracker.changed && !matches!(error, StoreError::Damaged(_)) => {
                            continue;
                        }
                        Ok(Err(error)) => error,
                        Err(_) => StoreError::Panicked(job.name()),
                    };
                    outcome = BatchOutcome::JobFailed { index, error };
                    return CommitDecision::RollBack;
                }
                CommitDecision::Commit
            })
        });
        match committed {
            Ok(()) => outcome,
            Err(error) => BatchOutcome::StorageFailed(error),
        }
    }

    fn fail(&mut self, error: &StoreError) {
        tracing::error!(%error, "the store cannot be written to");
        self.meters.failures.fetch_add(1, Ordering::Relaxed);
        self.meters.unwritable.store(true, Ordering::Relaxed);
        self.recover(RecoveryStep::Reopen);
    }

    /// Tries whether the storage takes writes again. A failed storage is reopened once, so that it can be read while the
    /// disk fails. It is written to only after a file beside it could be written, or after space was freed in it.
    fn recover(&mut self, first_step: RecoveryStep) {
        let mut is_readable = first_step != RecoveryStep::Reopen;
        let recovered = catch_panic(|| {
            if !is_readable {
                self.reopen()?;
                is_readable = true;
            }
            if first_step != RecoveryStep::Prove {
                self.backend.probe()?;
            }
            is_readable = false;
            self.prove().inspect_err(|_| is_readable = self.reopen().is_ok())
        });
        let Err(error) = recovered else {
            tracing::warn!("the store can be written to again");
            self.meters.unwritable.store(false, Ordering::Relaxed);
            self.failure = None;
            return;
        };
        self.failure = Some(Failure {
            error,
            is_readable,
            retry_at: Instant::now() + self.options.retry_pause,
        });
    }

    fn reopen(&self) -> Result<(), StoreError> {
        self.backend.recover()?;
        self.meters.reopenings.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Writes the proof row and removes it.
    fn prove(&self) -> Result<(), StoreError> {
        let filler = "0".repeat(PROOF_BYTES);
        self.commit(&|tx| meta_put(tx, PROOF, &filler))?;
        self.commit(&|tx| META.remove(tx, PROOF).map(|_| ()))
    }

    /// Removes the proof row that a killed process left.
    fn remove_leftover_proof(&mut self) {
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
        let mut outcome = Ok(());
        self.backend.transact(&mut |tx| {
            outcome = work(tx);
            if outcome.is_ok() {
                CommitDecision::Commit
            } else {
                CommitDecision::RollBack
            }
        })?;
        outcome
    }

    fn compact(&mut self) -> Result<bool, StoreError> {
        if let Some(failure) = &self.failure {
            return Err(failure.error.clone());
        }
        let compacted = self.backend.compact();
        if let Err(error) = &compacted
            && !matches!(error, StoreError::BeingRead)
        {
            self.fail(error);
        }
        compacted
    }
}

fn catch_panic<T>(work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(StoreError::Damaged("the engine panicked".to_owned())))
}

/// A transaction that records whether the write changed anything.
struct ChangeTracker<'a> {
    tx: &'a mut dyn Tx,
    changed: bool,
}

impl Snapshot for ChangeTracker<'_> {
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

impl Tx for ChangeTracker<'_> {
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.changed = true;
        self.tx.put(table, key, value)
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        self.changed = true;
        self.tx.remove(table, key)
    }
}
