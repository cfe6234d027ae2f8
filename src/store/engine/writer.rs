//! The one thread that writes.
//!
//! It takes everything that is queued, runs it in one transaction, commits once and then answers all. While
//! one commit waits for the disk the next batch gathers, so the load itself decides how many writes share
//! a sync; nothing ever waits for a batch to fill. The writer only lets those go first who share its processor,
//! for as long as that brings more.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use super::{Backend, Snapshot, TableId, Tx, Verdict, Visit};
use crate::store::schema::{META, meta_put};
use crate::store::{Stalled, StoreError};

/// What is written, and removed again, as proof that a storage that failed takes writes: as much as many small writes
/// together. Less would fit into what earlier transactions left free in the file, and prove nothing about a full disk.
pub(in crate::store::engine) const PROOF: &str = "proof";
const PROOF_BYTES: usize = 1_000_000;

/// How long nothing is written before the storage is settled.
const IDLE: Duration = Duration::from_secs(5);

/// How long the storage may take over one transaction before it counts as one that hangs: a frozen file system, or
/// a network's that does not answer, returns no error.
pub(in crate::store) const PATIENCE: Duration = Duration::from_secs(10);

/// Whom to tell what came of it.
type Reply<T> = Box<dyn FnOnce(Result<T, StoreError>) + Send>;

/// Something for the writer to do.
pub enum Order {
    /// To run in the next transaction.
    Write(Box<dyn Job>),
    /// To do between two transactions.
    Errand(Errand),
}

/// What concerns the storage as a whole.
pub enum Errand {
    /// To compact it, and say whether anything moved.
    Compact(Reply<bool>),
    /// To say how much of it holds nothing.
    Measure(Reply<u64>),
}

/// One queued write: the work, what came of it, and whom to tell.
pub trait Job: Send {
    /// What the transaction is called in the log.
    fn name(&self) -> &'static str;

    /// Whether it makes room, so that it is to be tried where nothing else is.
    fn makes_room(&self) -> bool;

    /// Does the work and remembers its outcome. Called again when the transaction had to be begun anew.
    fn run(&mut self, tx: &mut dyn Tx) -> Result<(), StoreError>;

    /// Hands out the remembered outcome, or the error that kept it from being committed.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A write whose outcome goes to `reply`.
pub struct Write<T, F, R> {
    name: &'static str,
    makes_room: bool,
    work: F,
    reply: R,
    outcome: Result<T, StoreError>,
}

impl<T, F, R> Write<T, F, R> {
    /// A write that has not been run.
    pub fn new(name: &'static str, work: F, reply: R) -> Self {
        Self {
            name,
            makes_room: false,
            work,
            reply,
            outcome: Err(StoreError::Closed),
        }
    }

    /// The same as one that makes room.
    #[must_use]
    pub fn to_make_room(self) -> Self {
        Self {
            makes_room: true,
            ..self
        }
    }
}

impl<T, F, R> Job for Write<T, F, R>
where
    T: Send,
    F: Fn(&mut dyn Tx) -> Result<T, StoreError> + Send,
    R: FnOnce(Result<T, StoreError>) + Send,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn makes_room(&self) -> bool {
        self.makes_room
    }

    fn run(&mut self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        self.outcome = (self.work)(tx);
        self.outcome.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let this = *self;
        (this.reply)(committed.and(this.outcome));
    }
}

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
    fn new(patience: Duration) -> Self {
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

    fn begin(&self) {
        self.begun.store(self.elapsed() + 1, Ordering::Relaxed);
    }

    fn begin_to_compact(&self) {
        self.compacts.store(true, Ordering::Relaxed);
        self.begin();
    }

    fn end(&self) {
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

/// How the writer works.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many writes may wait.
    pub queue_len: usize,
    /// How many writes may share one commit.
    pub batch_max: usize,
    /// How long to leave a failed storage alone before it is tried again.
    pub retry_pause: Duration,
    /// How long a transaction may take before the storage counts as one that hangs.
    pub patience: Duration,
}

/// The writer thread's handle: the entrance of its queue.
pub struct Writer {
    queue: RwLock<Option<SyncSender<Order>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    meters: Arc<Meters>,
}

impl Writer {
    /// Starts the thread. It closes `backend` when it ends.
    pub fn start(backend: Arc<dyn Backend>, pace: Pace) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(pace.queue_len.max(1));
        let meters = Arc::new(Meters::new(pace.patience));
        let desk = Desk {
            backend,
            queue: receiver,
            meters: Arc::clone(&meters),
            pace,
            failed: None,
            // A process that was killed may have left something to settle.
            is_settled: false,
        };
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || desk.work())?;
        Ok(Self {
            queue: RwLock::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
            meters,
        })
    }

    /// Queues an order. [`StoreError::Busy`] when the queue is full, [`StoreError::Stalled`] when the storage hangs,
    /// [`StoreError::Closed`] after [`Writer::close`].
    pub fn submit(&self, order: Order) -> Result<(), StoreError> {
        let queue = self.queue.read().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = queue.as_ref() else {
            return Err(StoreError::Closed);
        };
        if let Some(stalled) = self.meters.stalled() {
            return Err(stalled.into());
        }
        self.meters.queued.fetch_add(1, Ordering::Relaxed);
        sender.try_send(order).map_err(|refused| {
            self.meters.queued.fetch_sub(1, Ordering::Relaxed);
            match refused {
                TrySendError::Full(_) => StoreError::Busy,
                TrySendError::Disconnected(_) => StoreError::Closed,
            }
        })
    }

    /// What the writer counts.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Takes no more orders, waits until those in the queue are done, and ends the thread.
    pub fn close(&self) {
        drop(self.queue.write().unwrap_or_else(PoisonError::into_inner).take());
        let handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A write may own the last handle of the store; the thread that drops it cannot wait for itself.
        if let Some(handle) = handle.filter(|handle| handle.thread().id() != thread::current().id())
            && handle.join().is_err()
        {
            tracing::error!("the store's writer thread ended in a panic");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

struct Failed {
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

struct Desk {
    backend: Arc<dyn Backend>,
    queue: Receiver<Order>,
    meters: Arc<Meters>,
    pace: Pace,
    failed: Option<Failed>,
    /// Whether the storage was settled after the last write.
    is_settled: bool,
}

impl Desk {
    fn work(mut self) {
        self.forget_proof();
        while let Some(order) = self.next_order() {
            let (batch, errand) = self.gather(order);
            self.meters.begin();
            self.run(batch);
            self.meters.end();
            match errand {
                Some(Errand::Compact(reply)) => {
                    // So that no more than the compaction itself counts as one.
                    self.settle();
                    self.meters.begin_to_compact();
                    let done = self.compact();
                    self.meters.end();
                    reply(done);
                }
                Some(Errand::Measure(reply)) => {
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
    fn gather(&self, first: Order) -> (Vec<Box<dyn Job>>, Option<Errand>) {
        let mut batch = Vec::new();
        let mut next = Some(first);
        // How many there were when others were last let go first.
        let mut known = 0;
        while let Some(order) = next {
            match order {
                Order::Write(job) => batch.push(job),
                Order::Errand(errand) => return (batch, Some(errand)),
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

    fn queued(&self) -> Option<Order> {
        self.queue.try_recv().ok().inspect(|_| self.taken())
    }

    fn taken(&self) {
        self.meters.queued.fetch_sub(1, Ordering::Relaxed);
    }

    fn next_order(&mut self) -> Option<Order> {
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
                Ok(order) => {
                    self.taken();
                    return Some(order);
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
