//! The engine on PostgreSQL, which several nodes share.
//!
//! No transaction is open while a closure runs. A closure runs over rows that are known, at first none. The rows that it
//! missed are fetched, and it runs again. Each fetch gets all rows of the closure anew, in one snapshot, so the last run
//! saw a consistent state. Then its writes are committed, if what it has read is still unchanged ([`commit`]).
//!
//! Requests of many closures share a call. Each kind of call has a few connections, which take what has queued up while
//! they were busy.
//!
//! The clients, keys and other records of the catalog are in the memory of every node. They have a generation, which
//! comes with every fetch. A commit says with which generation it ran, and is refused if that is not the newest one.

mod catalog;
mod commit;
mod connection;
mod errors;
mod fetch;
mod load;
mod poll;
mod queue;
mod rows;
mod setup;
mod sql;
mod stream;
mod tls;
mod view;

#[cfg(test)]
pub(super) mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use self::catalog::CatalogState;
use self::commit::{Commit, Committed};
use self::connection::{Connection, ConnectionSettings};
use self::fetch::{Fetch, Fetched};
pub use self::load::DatabaseLoad;
use self::queue::{Queue, queue};
use self::rows::{KnownRows, Reads, Wanted, Writes};
use self::view::View;
use super::Snapshot;
use super::writer::Job;
use crate::store::Address;
use crate::store::{CatalogReader, OpenError, Options, Stats, StoreError};

const THREAD_NAME: &str = "store";
/// The connections that fetch, and those that commit.
const FETCHING: usize = 2;
const COMMITTING: usize = 2;
/// For how long a transaction runs again because another one has changed what it read.
const ATTEMPTS_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause after the first conflict, and after many.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// How often a closure may ask for further rows. One that reads row after row needs a round for each.
const MAX_ROUNDS: u32 = 200;
/// How long the database may be silent before its catalog may have changed.
const LONGEST_SILENCE: Duration = Duration::from_secs(3);
/// A node whose clock differs from the one of the database by more is reported, and then gets no requests.
const REPORTED_SKEW: Duration = Duration::from_secs(5);
const LARGEST_SKEW: Duration = Duration::from_mins(1);
/// How long a store that is closed waits for its transactions.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A store on PostgreSQL.
pub(in crate::store) struct Postgres {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    state: Arc<State>,
}

/// What the connections, the transactions and the handles of the store share.
struct State {
    fetches: Queue<Fetch>,
    commits: Queue<Commit>,
    catalog: CatalogState,
    settings: ConnectionSettings,
    opened: Instant,
    /// How long a fetch or a commit may take, sent again if its answer was lost.
    timeout: Duration,
    /// When the catalog was known to be the newest, in milliseconds after `opened`.
    current_at: AtomicU64,
    /// By how many seconds the clock of this machine differs from the one of the database.
    clock_skew: AtomicU64,
    is_closed: AtomicBool,
    running: AtomicU64,
    meters: Meters,
}

#[derive(Default)]
struct Meters {
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
    /// Connects. The database may have no tables yet.
    pub(in crate::store) fn connect(address: &Address, options: Options) -> Result<Self, OpenError> {
        let settings = address.connection_settings()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(THREAD_NAME)
            .enable_all()
            .build()
            .map_err(|error| OpenError::Store(StoreError::Io(Arc::new(error))))?;
        let handle = runtime.handle().clone();
        let (fetches, wanted) = queue(options.queue_len);
        let (commits, committing) = queue(options.queue_len);
        let random = settings.random.clone();
        let state = Arc::new(State {
            fetches,
            commits,
            catalog: CatalogState::default(),
            settings,
            opened: Instant::now(),
            timeout: options.stall_timeout,
            current_at: AtomicU64::new(0),
            clock_skew: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            running: AtomicU64::new(0),
            meters: Meters::default(),
        });
        let store = Self {
            runtime: Mutex::new(Some(runtime)),
            handle,
            state,
        };
        // The first connection shows what is wrong with the address, without a second attempt.
        store.wait_for(|state| async move { state.settings.connect().await.map(drop) })?;
        let connection = || Connection::new(store.state.settings.clone());
        for _ in 0..FETCHING {
            let task = fetch::run(connection(), wanted.clone(), Arc::clone(&store.state));
            store.handle.spawn(task);
        }
        for _ in 0..COMMITTING {
            let state = Arc::clone(&store.state);
            let task = commit::run(connection(), committing.clone(), state, random.clone());
            store.handle.spawn(task);
        }
        store
            .handle
            .spawn(poll::run(connection(), Arc::clone(&store.state)));
        Ok(store)
    }

    /// Runs a future on the store's thread and waits for it. Any thread may call this.
    fn wait_for<T, F>(&self, future: impl FnOnce(Arc<State>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::sync_channel(1);
        let future = future(Arc::clone(&self.state));
        self.handle.spawn(async move { drop(sender.send(future.await)) });
        receiver.recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Shows `look` a consistent state.
    pub(in crate::store) async fn read<T>(
        &self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.state.read(look).await
    }

    /// Like [`Self::read`], and blocks.
    pub(in crate::store) fn read_blocking<T>(
        &self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut read = RepeatedRead::default();
        loop {
            match read.run(look) {
                Ok(result) => return result,
                Err(wanted) => {
                    let fetched = self.wait_for(|state| async move { state.fetch(wanted?).await })?;
                    read.known = fetched.known;
                }
            }
        }
    }

    /// Runs a transaction. It runs to its end even if nobody waits for it.
    pub(in crate::store) fn submit(&self, job: Box<dyn Job>) -> Result<(), StoreError> {
        if self.state.is_closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        self.state.running.fetch_add(1, Ordering::AcqRel);
        let state = Arc::clone(&self.state);
        self.handle.spawn(async move {
            let counted = CountedRun(&state);
            state.run(job).await;
            drop(counted);
        });
        Ok(())
    }

    /// Reads the catalog into memory by `reader`, now and whenever it has changed.
    pub(in crate::store) fn follow_catalog(&self, reader: CatalogReader) -> Result<(), StoreError> {
        self.state.catalog.set_reader(reader);
        self.wait_for(|state| async move { state.reload_catalog().await })
    }

    /// Reads the catalog again.
    pub(in crate::store) async fn reload_catalog(&self) -> Result<(), StoreError> {
        self.state.reload_catalog().await
    }

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

    /// Refuses further transactions, waits for those that run, and closes the connections. Blocks.
    pub(in crate::store) fn close(&self) {
        self.state.is_closed.store(true, Ordering::Release);
        let begun = Instant::now();
        while self.state.running.load(Ordering::Acquire) > 0 && begun.elapsed() < CLOSE_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.shut_down();
    }

    fn shut_down(&self) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A transaction may own the last handle of the store. It runs on the store's thread, which cannot wait for it.
        if std::thread::current().name() == Some(THREAD_NAME) {
            self.shut_down();
        } else {
            self.close();
        }
    }
}

/// Counts a transaction while it runs.
struct CountedRun<'a>(&'a State);

impl Drop for CountedRun<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A look that is repeated until all its rows are known.
#[derive(Default)]
struct RepeatedRead {
    known: KnownRows,
    wanted: Wanted,
    rounds: u32,
}

impl RepeatedRead {
    /// The result of `look`, or the rows that have to be known first.
    fn run<T>(
        &mut self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<Result<T, StoreError>, Result<Wanted, StoreError>> {
        let view = View::new(&self.known);
        let result = look(&view);
        let (reads, _) = view.into_parts();
        if !reads.has_missed() {
            return Ok(result);
        }
        Err(self.add_missing(reads))
    }

    /// All rows that were read or missed so far. They are fetched together, so that they are of one snapshot.
    fn add_missing(&mut self, reads: Reads) -> Result<Wanted, StoreError> {
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            return Err(StoreError::Unbounded);
        }
        self.wanted.keys.extend(reads.missed.keys);
        for (place, limit) in reads.missed.ranges {
            self.wanted.ranges.insert(place, limit);
        }
        Ok(self.wanted.clone())
    }
}

impl State {
    async fn read<T>(&self, look: &impl Fn(&dyn Snapshot) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut read = RepeatedRead::default();
        loop {
            match read.run(look) {
                Ok(result) => return result,
                Err(wanted) => read.known = self.fetch(wanted?).await?.known,
            }
        }
    }

    /// Fetches rows. If the catalog has changed, it is read first.
    async fn fetch(&self, wanted: Wanted) -> Result<Fetched, StoreError> {
        let fetched = self.fetch_rows(wanted).await?;
        self.catch_up(fetched.generation).await?;
        Ok(fetched)
    }

    async fn fetch_rows(&self, wanted: Wanted) -> Result<Fetched, StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.fetches.put(Fetch {
            wanted,
            reply: sender,
            deadline: Instant::now() + self.timeout,
        })?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn commit(&self, generation: i64, reads: Reads, writes: Writes) -> Result<Committed, StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.commits.put(Commit {
            generation,
            reads,
            writes,
            reply: sender,
        })?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Runs a transaction until it is committed, or fails.
    async fn run(&self, mut job: Box<dyn Job>) {
        let begun = Instant::now();
        let mut read = RepeatedRead::default();
        let mut conflicts = 0;
        let outcome = loop {
            let generation = self.catalog.generation();
            let mut view = View::new(&read.known);
            let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut view)));
            let (reads, writes) = view.into_parts();
            if reads.has_missed() {
                let wanted = match read.add_missing(reads) {
                    Ok(wanted) => wanted,
                    Err(error) => break Err(error),
                };
                match self.fetch(wanted).await {
                    Ok(fetched) => read.known = fetched.known,
                    Err(error) => break Err(error),
                }
                continue;
            }
            match ran {
                Err(_) => break Err(StoreError::Panicked(job.name())),
                // The job has the error as its outcome.
                Ok(Err(_)) => break Ok(()),
                Ok(Ok(())) if writes.is_empty() => break Ok(()),
                Ok(Ok(())) => {}
            }
            let retry = match self.commit(generation, reads, writes).await {
                Ok(Committed::Yes) => break Ok(()),
                Ok(Committed::Conflict) => {
                    self.pause_after(conflicts).await;
                    conflicts += 1;
                    self.fetch(read.wanted.clone()).await
                }
                Ok(Committed::CatalogChanged) => match self.replace_catalog(generation).await {
                    Ok(()) => self.fetch(read.wanted.clone()).await,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            self.note_rerun();
            match retry {
                Ok(_) if begun.elapsed() > ATTEMPTS_TIMEOUT => break Err(StoreError::Busy),
                Ok(fetched) => read.known = fetched.known,
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = &outcome {
            tracing::error!(transaction = job.name(), %error, "a write was rolled back");
        }
        job.reply(outcome);
    }

    /// Waits after so many conflicts in a row, longer each time, so that transactions on one row do not meet again.
    async fn pause_after(&self, conflicts: u32) {
        let longest = LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.saturating_pow(conflicts));
        let [share] = self.settings.random.bytes();
        tokio::time::sleep(longest.mul_f32(f32::from(share) / 255.0)).await;
    }

    fn note_current(&self) {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.current_at.store(now, Ordering::Relaxed);
    }

    fn note_answer(&self) {
        if self.meters.failure().take().is_some() {
            tracing::warn!("the database answers again");
        }
    }

    fn note_clock(&self, skew: Duration) {
        let before = self.clock_skew.swap(skew.as_secs(), Ordering::Relaxed);
        if before <= REPORTED_SKEW.as_secs() && skew > REPORTED_SKEW {
            tracing::warn!(
                seconds = skew.as_secs(),
                "the clock of this machine differs from the one of the database: set both by NTP"
            );
        }
    }

    fn note_failure(&self, error: &StoreError) {
        self.meters.failures.fetch_add(1, Ordering::Relaxed);
        if error.is_outage() && self.meters.failure().replace(error.clone()).is_none() {
            tracing::error!(%error, "the database cannot be used");
        }
    }

    fn note_rerun(&self) {
        self.meters.reruns.fetch_add(1, Ordering::Relaxed);
    }

    fn note_commit(&self, transactions: usize) {
        let size = u64::try_from(transactions).unwrap_or(u64::MAX);
        self.meters.commits.fetch_add(1, Ordering::Relaxed);
        self.meters.transactions.fetch_add(size, Ordering::Relaxed);
        self.meters.largest_batch.fetch_max(size, Ordering::Relaxed);
    }
}
