//! The database of the service.
//!
//! [`Store::read`] shows a consistent state. [`Store::write`] runs one closure as one transaction.
//! Typed tables ([`table`]) lie on the byte-level interface of [`engine`]. What the closure of a write returns decides
//! what becomes of its changes: a value and a refusal are committed, a failure rolls back ([`TxError`]).
//!
//! Keys are time-ordered, so that new rows land side by side and expired ones are a range at the other end. A sweep needs no
//! index of expiry times: it walks the old end of each table and passes over rows that still live. Records are `MessagePack`
//! behind a version byte ([`record`]): with the names of members, as JSON has them, so that a shape can grow, and half as
//! long, which is half the pages that a change reads, checks, writes and syncs. A released shape is never edited. A backup is
//! one loop over all tables except those of sign-ins, device authorizations, links, leases, the outbox and logout notices
//! ([`backup`]), and [`schema`] upgrades a file before anything listens, after copying it.

pub mod address;
pub mod backup;
mod catalog_reader;
#[cfg(feature = "postgres")]
pub mod catalog_use;
pub mod engine;
mod error;
mod failure_log;
mod file_size;
mod local;
pub mod login_names;
mod message_pack;
pub mod page;
pub mod record;
pub mod records;
pub mod schema;
mod server_warning;
mod shared;
mod shared_clock;
pub mod table;
pub mod tables;
mod upgrades;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

pub use self::address::Address;
pub use self::catalog_reader::{CatalogReader, CatalogUpdate, ChangedRows};
#[cfg(feature = "postgres")]
use self::catalog_use::{CatalogUse, UsedClients};
#[cfg(feature = "postgres")]
pub use self::engine::postgres::DatabaseLoad;
#[cfg(feature = "postgres")]
use self::engine::postgres::Postgres;
use self::engine::redb::Redb;
use self::engine::writer;
use self::engine::writer::{Job, Message, Write, Writer};
use self::engine::{Backend, FileId, Snapshot, Tx};
pub use self::error::{OpenError, Stalled, StoreError, TransactionError, TxError, unless_refused};
use self::local::Local;
use self::schema::Schema;
pub use self::server_warning::{MigrationOutcome, ServerWarning};
pub use self::shared_clock::ClockState;

/// The settings of the store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many bytes of the file are cached in memory.
    pub cache_bytes: usize,
    /// How many writes may wait before [`StoreError::Busy`].
    pub queue_len: usize,
    /// How many writes may share one commit; on a server at most 128.
    pub batch_max: usize,
    /// How long to wait before a failed disk is tried again.
    pub retry_pause: Duration,
    /// How long a transaction may take before the disk counts as hanging, and how long one on a server may take.
    pub stall_timeout: Duration,
}

impl Default for Options {
    /// 24 MiB of cache, 4096 waiting writes, 512 writes in a commit, a second between retries, ten seconds for a
    /// transaction.
    fn default() -> Self {
        Self {
            cache_bytes: 24 << 20,
            queue_len: 4096,
            batch_max: 512,
            retry_pause: Duration::from_secs(1),
            stall_timeout: writer::STALL_TIMEOUT,
        }
    }
}

/// The counters of the store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commits. Each one waited for the disk.
    pub commits: u64,
    /// Writes in those commits.
    pub transactions: u64,
    /// Commits that were rerun without a failed write.
    pub reruns: u64,
    /// Commits that failed.
    pub failures: u64,
    /// The largest number of writes in one commit.
    pub largest_batch: u64,
    /// Writes in the queue now.
    pub queue_depth: u64,
    /// How often a read or a write waited for rows of a server.
    pub fetches: u64,
}

/// What the rows are kept in.
#[derive(Clone)]
enum Engine {
    /// A file that only this process uses, or memory.
    Local(Local),
    /// A database server that several nodes use.
    #[cfg(feature = "postgres")]
    Shared(Arc<Postgres>),
}

/// A handle of the store. Clones share the store; dropping the last one closes it.
#[derive(Clone)]
pub struct Store {
    engine: Engine,
}

impl Store {
    /// Opens or creates the database file and upgrades it to the schema of this release.
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        Self::open_with(path, options, &Schema::CURRENT)
    }

    /// Opens or creates the database file and upgrades it to `schema`.
    pub fn open_with(path: &Path, options: Options, schema: &Schema) -> Result<Self, OpenError> {
        schema.inspect(path)?;
        let engine = Redb::open_file(path, options.cache_bytes)?;
        let copy = schema.copy_before_upgrade(&engine, path)?;
        Self::start(Arc::new(engine), options, schema, copy)
    }

    /// Opens an empty store in memory. It is gone when the last handle is dropped.
    pub fn in_memory(options: Options) -> Result<Self, OpenError> {
        Self::on(
            Arc::new(Redb::in_memory(options.cache_bytes)?),
            options,
            &Schema::CURRENT,
        )
    }

    /// Upgrades the content of an engine to `schema` and starts the writer on it.
    pub fn on(backend: Arc<dyn Backend>, options: Options, schema: &Schema) -> Result<Self, OpenError> {
        Self::start(backend, options, schema, None)
    }

    fn start(
        backend: Arc<dyn Backend>,
        options: Options,
        schema: &Schema,
        copy: Option<PathBuf>,
    ) -> Result<Self, OpenError> {
        schema.upgrade(&*backend)?;
        let writer = Writer::start(Arc::clone(&backend), options).map_err(|source| OpenError::Io {
            path: PathBuf::from("store-writer thread"),
            source,
        })?;
        Ok(Self {
            engine: Engine::Local(Local {
                writer: Arc::new(writer),
                backend,
                pre_upgrade_copy: copy.map(Arc::from),
            }),
        })
    }

    /// Connects to a database that [`Store::migrate`] has set up. Blocks.
    #[cfg(feature = "postgres")]
    pub fn connect(address: &Address, options: Options) -> Result<Self, OpenError> {
        let store = Self {
            engine: Engine::Shared(Arc::new(Postgres::connect(address, options)?)),
        };
        Schema::CURRENT.check(&store)?;
        Ok(store)
    }

    /// Sets up a database for this release, or upgrades it. Nodes of an earlier release may run, and so may another
    /// migration. Blocks.
    #[cfg(feature = "postgres")]
    pub fn migrate(address: &Address) -> Result<MigrationOutcome, OpenError> {
        let postgres = Arc::new(Postgres::connect(address, Options::default())?);
        let store = Self {
            engine: Engine::Shared(Arc::clone(&postgres)),
        };
        // The functions of a newer release are not replaced.
        match Schema::CURRENT.check(&store) {
            Ok(()) | Err(OpenError::Store(StoreError::NotSetUp)) => {}
            Err(error) => return Err(error),
        }
        let is_created = postgres.set_up()?;
        let is_upgraded = Schema::CURRENT.migrate(&store)?;
        let warnings = postgres.server_warnings_blocking()?;
        store.close();
        Ok(MigrationOutcome {
            is_changed: is_created || is_upgraded,
            warnings,
        })
    }

    /// Runs `work` as one transaction and returns once it is stored.
    ///
    /// `name` names the transaction in the log. `work` may run more than once, and runs to its end even if the caller no
    /// longer waits. A refusal by `work` is committed with all that was written before it. A failure of `work` rolls back
    /// only its own writes. After an error of the storage the change may have been kept: [`Store::reopenings`] says when
    /// to read it again.
    pub async fn write<T, E, F>(&self, name: &'static str, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: TransactionError + Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, E> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        #[cfg(feature = "postgres")]
        let catalog_use = CatalogUse::unconfirmed();
        #[cfg(feature = "postgres")]
        let work = self.with_checked_catalog(catalog_use.clone(), work);
        self.enqueue(name, work, move |outcome| drop(sender.send(outcome)))?;
        let outcome = receiver.await.unwrap_or_else(|_| Err(StoreError::Closed.into()));
        #[cfg(feature = "postgres")]
        if let Some(catalog_use) = catalog_use {
            catalog_use.end_write().await;
        }
        outcome
    }

    /// Lets a transaction of the current request fail if what the request has used of the catalog is another one now.
    #[cfg(feature = "postgres")]
    fn with_checked_catalog<T, E, F>(
        &self,
        catalog_use: Option<Arc<CatalogUse>>,
        work: F,
    ) -> impl Fn(&mut dyn Tx) -> Result<T, E> + use<T, E, F>
    where
        E: TransactionError,
        F: Fn(&mut dyn Tx) -> Result<T, E>,
    {
        let checked = catalog_use.map(|catalog_use| (catalog_use, self.clone()));
        move |tx| match &checked {
            // The request is dropped before it gets this.
            Some((catalog_use, store)) if !catalog_use.check(store) => Err(StoreError::Closed.into()),
            Some((catalog_use, _)) => {
                catalog_use.pass_on();
                work(tx)
            }
            None => work(tx),
        }
    }

    /// Like [`Store::write`], for work that removes far more than it adds. It is tried even while the disk is full.
    pub async fn make_room<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, StoreError> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let reply = move |outcome| drop(sender.send(outcome));
        self.submit(Box::new(Write::new(name, work, reply).freeing_space()))?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Like [`Store::write`], for callers that may block: the command line and start-up.
    pub fn write_blocking<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, StoreError> + Send + 'static,
    {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.enqueue(name, work, move |outcome| drop(sender.send(outcome)))?;
        receiver.recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Like [`Store::write`], for callers that do not wait. `reply` is called with the outcome, on a thread of the store.
    /// [`Store::close`] waits for the write.
    pub fn enqueue<T, E, F, R>(&self, name: &'static str, work: F, reply: R) -> Result<(), StoreError>
    where
        T: Send + 'static,
        E: TransactionError + Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, E> + Send + 'static,
        R: FnOnce(Result<T, E>) + Send + 'static,
    {
        self.submit(Box::new(Write::new(name, work, reply)))
    }

    /// Like [`Store::enqueue`]. A server commits the transaction even if it writes nothing.
    pub fn enqueue_with_commit<T, E, F, R>(
        &self,
        name: &'static str,
        work: F,
        reply: R,
    ) -> Result<(), StoreError>
    where
        T: Send + 'static,
        E: TransactionError + Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, E> + Send + 'static,
        R: FnOnce(Result<T, E>) + Send + 'static,
    {
        self.submit(Box::new(Write::new(name, work, reply).always_committing()))
    }

    fn submit(&self, job: Box<dyn Job>) -> Result<(), StoreError> {
        match &self.engine {
            Engine::Local(local) => local.writer.submit(Message::Write(job)),
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.submit(job),
        }
    }

    /// Shows `look` a consistent state, which has every write that was answered before.
    ///
    /// `look` may run more than once. Waits while the storage is compacted or reopened. Fails with
    /// [`StoreError::Stalled`] once that has taken [`Options::stall_timeout`].
    pub async fn read<T, E: From<StoreError>>(
        &self,
        look: impl Fn(&dyn Snapshot) -> Result<T, E>,
    ) -> Result<T, E> {
        match &self.engine {
            Engine::Local(local) => local.read(&look).await,
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => {
                let read = postgres.read(&look).await?;
                // A refusal may come from an older catalog, too. Without an answer of the database, nothing is known of the
                // newest one.
                if read.has_asked
                    && let Some(catalog_use) = CatalogUse::unconfirmed()
                {
                    catalog_use.check(self);
                    catalog_use.confirm().await;
                }
                read.value
            }
        }
    }

    /// Like [`Store::read`], for callers that may block: the command line and start-up.
    pub fn read_blocking<T>(
        &self,
        look: impl Fn(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &self.engine {
            Engine::Local(local) => local.stream(look),
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.read_blocking(&look),
        }
    }

    /// Shows a consistent state to a look at whole tables, such as a backup. Blocks. `look` runs once.
    pub fn stream<T>(
        &self,
        look: impl FnOnce(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &self.engine {
            Engine::Local(local) => local.stream(look),
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.stream(look),
        }
    }

    /// The number of the catalog in memory, which grows when any node changes the catalog. 0 for a store of one process.
    #[cfg(feature = "postgres")]
    fn catalog_generation(&self) -> i64 {
        match &self.engine {
            Engine::Local(_) => 0,
            Engine::Shared(postgres) => postgres.catalog_generation(),
        }
    }

    /// Whether any of these clients, or anything else of the catalog in memory, was changed after this generation.
    #[cfg(feature = "postgres")]
    fn catalog_has_changed_since(&self, generation: i64, used: &UsedClients) -> bool {
        match &self.engine {
            Engine::Local(_) => false,
            Engine::Shared(postgres) => postgres.catalog_has_changed_since(generation, used),
        }
    }

    /// What a request that begins now knows of its catalog: nothing yet.
    #[cfg(feature = "postgres")]
    pub fn catalog_use(&self) -> Arc<CatalogUse> {
        CatalogUse::new(self.catalog_generation())
    }

    /// Whether what is in memory is known to be as new as the database: always, unless the store is shared and its server
    /// is silent, or does not answer commits.
    pub fn is_current(&self) -> bool {
        match &self.engine {
            Engine::Local(_) => true,
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.is_current(),
        }
    }

    /// The engine of this process. `None` if several nodes share the store.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(clippy::unnecessary_wraps, reason = "every store is local then")
    )]
    fn local(&self) -> Option<&Local> {
        match &self.engine {
            Engine::Local(local) => Some(local),
            #[cfg(feature = "postgres")]
            Engine::Shared(_) => None,
        }
    }

    /// Whether the store is on a server, so that other nodes may use it.
    pub fn is_shared(&self) -> bool {
        self.local().is_none()
    }

    /// The path of the copy that was made before this opening upgraded the database.
    pub fn pre_upgrade_copy(&self) -> Option<&Path> {
        self.local()?.pre_upgrade_copy.as_deref()
    }

    /// The open file; none for a store in memory or on a server.
    pub fn file(&self) -> Option<FileId> {
        self.local()?.backend.file()
    }

    /// Whether writes can be expected to succeed.
    pub fn is_writable(&self) -> bool {
        self.problem().is_none()
    }

    /// Why writes cannot be expected to succeed, if so: after a failed commit until the next one succeeds, and while the
    /// disk hangs.
    pub fn problem(&self) -> Option<String> {
        match &self.engine {
            Engine::Local(local) => {
                let meters = local.writer.meters();
                let fails = meters.unwritable.load(Ordering::Relaxed) || meters.stalled().is_some();
                fails.then(|| "the store cannot be written to".to_owned())
            }
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.problem(),
        }
    }

    /// The current operation, once it has taken [`Options::stall_timeout`]. Until it ends, every further write fails with
    /// [`StoreError::Stalled`] at once, and during a compaction every read too.
    pub fn stalled(&self) -> Option<Stalled> {
        self.local()?.writer.meters().stalled()
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        match &self.engine {
            Engine::Local(local) => local.writer.meters().stats(),
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.stats(),
        }
    }

    /// How often the storage was reopened after a failure. A write that failed may be visible since then. A cache of rows
    /// must therefore be read again when this number has grown.
    pub fn reopenings(&self) -> u64 {
        let reopenings = |local: &Local| local.writer.meters().reopenings.load(Ordering::Acquire);
        self.local().map_or(0, reopenings)
    }

    /// Finishes the queued writes, then closes the store for every handle and releases the lock on its file. Blocks.
    pub fn close(self) {
        match &self.engine {
            Engine::Local(local) => local.writer.close(),
            #[cfg(feature = "postgres")]
            Engine::Shared(postgres) => postgres.close(),
        }
    }
}
