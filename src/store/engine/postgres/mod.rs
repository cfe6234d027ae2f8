//! The engine on PostgreSQL, which several nodes share.
//!
//! No transaction is open while a closure runs. A closure runs over rows that are known, at first none. The rows that it
//! missed are fetched, and it runs again. Each fetch gets all rows of the closure anew, in one snapshot, so the last run
//! saw a consistent state. Then its writes are committed, if what it has read is still unchanged ([`commit`]).
//!
//! Requests of many closures share a call. Each kind of call has one connection. It takes what has queued up while it was
//! busy. A read or a transaction has one deadline for all its calls. A call that is not answered in time is cancelled on
//! the server.
//!
//! The clients, keys and other records of the catalog are in the memory of every node. They have a generation, which
//! comes with every fetch, together with the changes since the one in memory. A commit says with which generation it ran
//! and which clients it used. It is refused if any of these, or any other record of the catalog, has changed since.

mod catalog;
mod changes;
mod commit;
mod connection;
mod errors;
mod faulty_tables;
mod fetch;
mod hosts;
mod load;
mod meters;
mod node_clock;
mod poll;
mod queue;
mod rows;
mod server_settings;
mod setup;
mod sql;
mod stream;
mod tls;
mod transaction;
mod view;

#[cfg(test)]
pub(super) mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

use self::catalog::CatalogState;
use self::commit::Commit;
use self::connection::{Connection, ConnectionSettings};
use self::faulty_tables::FaultyTables;
use self::fetch::Fetch;
pub use self::load::DatabaseLoad;
use self::meters::{CallKind, Meters};
use self::node_clock::NodeClock;
use self::queue::{Queue, queue};
use self::transaction::{ReadResult, RepeatedRead};
use super::Snapshot;
use super::writer::Job;
use crate::clock::{SharedClock, uptime};
use crate::store::catalog_use::{CatalogUse, UsedClients};
use crate::store::failure_log::FailureLog;
use crate::store::{Address, CatalogReader, OpenError, Options, StoreError};

const THREAD_NAME: &str = "store";
/// The connections of a store: one fetches, one commits and one polls. With more of each, batches are smaller, and each
/// transaction takes more processor time. The cleanup of a node, long looks and locked tables take one more for a while.
const CONNECTIONS: usize = 3;
/// How long a node that starts waits for its first commit. Then it goes on, and commits count as hanging.
const FIRST_COMMIT_TIMEOUT: Duration = Duration::from_secs(4);
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
    faulty_tables: FaultyTables,
    settings: ConnectionSettings,
    /// How long a read or a transaction may take.
    timeout: Duration,
    /// How many transactions may share a commit.
    batch_max: usize,
    is_closed: AtomicBool,
    running: AtomicU64,
    meters: Meters,
    failure_log: FailureLog,
    unknown_log: FailureLog,
    clock: Arc<SharedClock>,
    node_clock: NodeClock,
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
            faulty_tables: FaultyTables::default(),
            settings,
            timeout: options.stall_timeout,
            batch_max: options.batch_max.clamp(1, commit::BATCH_LIMIT),
            is_closed: AtomicBool::new(false),
            running: AtomicU64::new(0),
            meters: Meters::new(),
            failure_log: FailureLog::default(),
            unknown_log: FailureLog::default(),
            clock: Arc::default(),
            node_clock: NodeClock::default(),
        });
        let store = Self {
            runtime: Mutex::new(Some(runtime)),
            handle,
            state,
        };
        store.state.note_current(uptime());
        // The first connection shows what is wrong with the address, without a second attempt.
        store.wait_for(|state| async move {
            state.settings.check_hosts().await?;
            state.settings.connect().await.map(drop)
        })?;
        let connection = || Connection::new(store.state.settings.clone());
        let fetching = fetch::run(connection(), wanted, Arc::clone(&store.state));
        let committing = commit::run(connection(), committing, Arc::clone(&store.state), random);
        store.handle.spawn(fetching);
        store.handle.spawn(committing);
        store
            .handle
            .spawn(poll::run(connection(), Arc::clone(&store.state)));
        Ok(store)
    }

    /// The clock of this machine, corrected to the time that the nodes share.
    pub(in crate::store) fn clock(&self) -> Arc<SharedClock> {
        Arc::clone(&self.state.clock)
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
    pub(in crate::store) async fn read<T, E>(
        &self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, E>,
    ) -> Result<ReadResult<Result<T, E>>, StoreError> {
        self.state.read(look).await
    }

    /// Like [`Self::read`], and blocks.
    pub(in crate::store) fn read_blocking<T>(
        &self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let deadline = self.state.deadline();
        let mut read = RepeatedRead::default();
        loop {
            match read.run(look) {
                Ok(result) => return result,
                Err(wanted) => {
                    let fetched =
                        self.wait_for(|state| async move { state.fetch(wanted?, deadline).await })?;
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
        let request = CatalogUse::unconfirmed();
        self.handle.spawn(async move {
            let counted = CountedRun(&state);
            state.run(job, request).await;
            drop(counted);
        });
        Ok(())
    }

    /// Reads the catalog into memory by `reader`, now and whenever it has changed.
    pub(in crate::store) fn follow_catalog(&self, reader: CatalogReader) -> Result<(), StoreError> {
        self.state.catalog.set_reader(reader);
        self.wait_for(|state| async move { state.load_catalog().await })
    }

    /// Reads what has changed in the catalog.
    pub(in crate::store) async fn reload_catalog(&self) -> Result<(), StoreError> {
        self.state.reload_catalog().await
    }

    /// Commits once. Notes it as a failure if that takes too long.
    pub(in crate::store) async fn try_commit(&self) {
        let state = Arc::clone(&self.state);
        let committed = self.handle.spawn(async move { state.commit_nothing().await });
        if timeout(FIRST_COMMIT_TIMEOUT, committed).await.is_err() {
            self.state
                .note_failure(CallKind::Commit, &self.state.settings.silence_of_call());
        }
    }

    /// The generation of the catalog in memory.
    pub(in crate::store) fn catalog_generation(&self) -> i64 {
        self.state.catalog.generation()
    }

    pub(in crate::store) fn catalog_has_changed_since(&self, generation: i64, used: &UsedClients) -> bool {
        self.state.catalog.has_changed_since(generation, used)
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
