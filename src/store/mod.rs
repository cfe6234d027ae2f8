//! The database of the service.
//!
//! [`Store::read`] shows a consistent state. [`Store::write`] runs one closure as one transaction on the writer thread.
//! Typed tables ([`table`]) lie on the byte-level interface of [`engine`]. A refusal by the protocol is a value inside
//! `T` and is committed; only a [`StoreError`] rolls back.

pub mod address;
pub mod backup;
pub mod engine;
pub mod record;
pub mod records;
pub mod schema;
pub mod table;
pub mod tables;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

pub use self::address::Address;
use self::engine::redb::Redb;
use self::engine::writer;
use self::engine::writer::{Message, Write, Writer};
use self::engine::{Backend, FileId, Snapshot, Tx};
use self::schema::Schema;

const COMPACTED: &str = "the database is being compacted, and nothing else is done with it";
const HANGS: &str = "the disk does not answer: a write waits for it";

/// How often a reader tries again while the storage cannot be read.
const READ_RETRY: Duration = Duration::from_millis(1);
/// How often a compaction tries again while the database is being read.
const COMPACTION_RETRY: Duration = Duration::from_millis(100);
/// How long a compaction waits for reads.
const LONGEST_WAIT_FOR_READS: Duration = Duration::from_mins(1);

/// Why an operation on the store failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The queue of writes is full.
    #[error("the store is busy: too much is waiting, try again later")]
    Busy,
    /// A compaction needs a database that nobody reads.
    #[error("the database is being read, by a backup or an export: try again when that is done")]
    BeingRead,
    /// One operation on the storage takes too long.
    #[error("{0}: try again later")]
    Stalled(#[from] Stalled),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
    /// A row cannot be decoded.
    #[error("a row of table {table} is corrupt ({what}): restore a backup")]
    Corrupt {
        /// The table's name.
        table: &'static str,
        /// The problem, without content of the row.
        what: String,
    },
    /// A newer release wrote the row.
    #[error(
        "a row of table {table} has record version {found} and this release reads up to {supported}: install the newer release"
    )]
    NewerRecord {
        /// The table's name.
        table: &'static str,
        /// The version of the row.
        found: u8,
        /// The highest version that this release reads.
        supported: u8,
    },
    /// A record cannot be encoded.
    #[error("a record for table {table} cannot be encoded: {what}")]
    Unencodable {
        /// The table's name.
        table: &'static str,
        /// The problem.
        what: String,
    },
    /// A key or a value exceeds the limit of the engine.
    #[error("a row of {0} bytes is too large to be stored")]
    TooLarge(usize),
    /// The disk or the quota is full, or the file has reached the limit of the process.
    #[error(
        "no space is left where the database is kept, or none that the limit on the size of files (ulimit -f) lets it take: free some, writing resumes by itself"
    )]
    NoSpace,
    /// The disk refuses writes.
    #[error("the database cannot be written to: {0}")]
    ReadOnly(Arc<io::Error>),
    /// The disk failed in another way.
    #[error("the disk that the database is on failed: {0}")]
    Io(Arc<io::Error>),
    /// The database was reopened after a failure during the operation.
    #[error("interrupted by a failure of the disk that the database is on")]
    Interrupted,
    /// Another process opened the file while it was reopened.
    #[error("another process has taken the database: stop it")]
    Taken,
    /// The engine found a damaged file.
    #[error("the database is damaged ({0}): restore a backup")]
    Damaged(String),
    /// The transaction panicked and was rolled back.
    #[error("the transaction {0} panicked and was rolled back")]
    Panicked(&'static str),
}

impl StoreError {
    /// Whether every transaction fails with this error until the storage recovers.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Stalled(_)
            | Self::NoSpace
            | Self::ReadOnly(_)
            | Self::Io(_)
            | Self::Interrupted
            | Self::Taken => true,
            Self::Busy
            | Self::BeingRead
            | Self::Closed
            | Self::Corrupt { .. }
            | Self::NewerRecord { .. }
            | Self::Unencodable { .. }
            | Self::TooLarge(_)
            | Self::Damaged(_)
            | Self::Panicked(_) => false,
        }
    }
}

/// An operation on the storage that has taken [`Options::stall_timeout`] or longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, for {} seconds so far", if *is_compaction { COMPACTED } else { HANGS }, elapsed.as_secs())]
pub struct Stalled {
    /// Its duration so far.
    pub elapsed: Duration,
    /// Whether it is a compaction, which may take long on a working disk. Otherwise the disk hangs.
    pub is_compaction: bool,
}

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has opened the database.
    #[error("{} is in use by another process: stop that one first", path.display())]
    AlreadyOpen {
        /// The database file.
        path: PathBuf,
    },
    /// A newer release has upgraded the database. The file was not changed.
    #[error(
        "the database has schema {found} and this release knows up to {supported}: install the newer release, or restore the copy made before the upgrade"
    )]
    Newer {
        /// The schema of the file.
        found: u32,
        /// The schema of this release.
        supported: u32,
    },
    /// The file is not a database, or is damaged.
    #[error("{} is damaged or not a database ({what}): restore a backup", path.display())]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// The operating system refused.
    #[error("{} cannot be opened: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Reading or upgrading the open database failed. A failed upgrade changes nothing.
    #[error("the database cannot be used: {0}")]
    Store(#[from] StoreError),
}

/// The settings of the store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many bytes of the file are cached in memory.
    pub cache_bytes: usize,
    /// How many writes may wait before [`StoreError::Busy`].
    pub queue_len: usize,
    /// How many writes may share one commit.
    pub batch_max: usize,
    /// How long to wait before a failed disk is tried again.
    pub retry_pause: Duration,
    /// How long a transaction may take before the disk counts as hanging.
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
}

/// A handle of the store. Clones share the store; dropping the last one closes it.
#[derive(Clone)]
pub struct Store {
    writer: Arc<Writer>,
    backend: Arc<dyn Backend>,
    pre_upgrade_copy: Option<Arc<Path>>,
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
        Ok(Self {
            pre_upgrade_copy: copy.map(Arc::from),
            ..Self::on(Arc::new(engine), options, schema)?
        })
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
        schema.upgrade(&*backend)?;
        let writer = Writer::start(Arc::clone(&backend), options).map_err(|source| OpenError::Io {
            path: PathBuf::from("store-writer thread"),
            source,
        })?;
        Ok(Self {
            writer: Arc::new(writer),
            backend,
            pre_upgrade_copy: None,
        })
    }

    /// Runs `work` as one transaction and returns once it is on the disk.
    ///
    /// `name` names the transaction in the log. `work` may run more than once, and runs to its end even if the caller no
    /// longer waits. An error from `work` rolls back only its own writes. After an error of the storage the change may
    /// have been kept: [`Store::reopenings`] says when to read it again.
    pub async fn write<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, StoreError> + Send + 'static,
    {
        self.ask(|reply| Message::Write(Box::new(Write::new(name, work, reply))))
            .await
    }

    /// Like [`Store::write`], for work that removes far more than it adds. It is tried even while the disk is full.
    pub async fn make_room<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, StoreError> + Send + 'static,
    {
        self.ask(|reply| Message::Write(Box::new(Write::new(name, work, reply).freeing_space())))
            .await
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

    /// Like [`Store::write`], for callers that do not wait. The writer thread calls `reply` with the outcome.
    /// [`Store::close`] waits for the write.
    pub fn enqueue<T, F, R>(&self, name: &'static str, work: F, reply: R) -> Result<(), StoreError>
    where
        T: Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, StoreError> + Send + 'static,
        R: FnOnce(Result<T, StoreError>) + Send + 'static,
    {
        self.writer
            .submit(Message::Write(Box::new(Write::new(name, work, reply))))
    }

    /// Shows `look` a consistent state, which has every write that was answered before.
    ///
    /// `look` may run more than once. Waits while the storage is compacted or reopened. Fails with
    /// [`StoreError::Stalled`] once that has taken [`Options::stall_timeout`].
    pub async fn read<T>(
        &self,
        look: impl Fn(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            if let Some(result) = self.try_read(&look)? {
                return result;
            }
            tokio::time::sleep(READ_RETRY).await;
        }
    }

    /// Like [`Store::read`], for callers that may block: the command line and start-up.
    pub fn read_blocking<T>(
        &self,
        look: impl Fn(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            if let Some(result) = self.try_read(&look)? {
                return result;
            }
            thread::sleep(READ_RETRY);
        }
    }

    /// Shows a consistent state to a look at whole tables, such as a backup. Blocks. `look` runs once.
    pub fn stream<T>(
        &self,
        look: impl FnOnce(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut look = Some(look);
        let mut result = Err(StoreError::Closed);
        loop {
            let shown = self.backend.read(&mut |snapshot| {
                if let Some(look) = look.take() {
                    result = look(snapshot);
                }
                Ok(())
            });
            match shown {
                Ok(()) => return result,
                Err(StoreError::Busy) => self.check_stall()?,
                Err(error) => return Err(error),
            }
            thread::sleep(READ_RETRY);
        }
    }

    /// The result of `look`; `None` if the storage cannot be read at this moment.
    fn try_read<T>(
        &self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<Option<Result<T, StoreError>>, StoreError> {
        let mut result = None;
        let shown = self.backend.read(&mut |snapshot| {
            result = Some(look(snapshot));
            Ok(())
        });
        match shown {
            Ok(()) => Ok(result),
            Err(StoreError::Busy) => self.check_stall().map(|()| None),
            Err(error) => Err(error),
        }
    }

    fn check_stall(&self) -> Result<(), StoreError> {
        self.stalled().map_or(Ok(()), |stalled| Err(stalled.into()))
    }

    /// The path of the copy that was made before this opening upgraded the database.
    pub fn pre_upgrade_copy(&self) -> Option<&Path> {
        self.pre_upgrade_copy.as_deref()
    }

    /// The open file; none for a store in memory.
    pub fn file(&self) -> Option<FileId> {
        self.backend.file()
    }

    /// Whether writes can be expected to succeed: false after a failed commit until the next one succeeds, and while the
    /// disk hangs.
    pub fn is_writable(&self) -> bool {
        !self.writer.meters().unwritable.load(Ordering::Relaxed) && self.stalled().is_none()
    }

    /// The current operation, once it has taken [`Options::stall_timeout`]. Until it ends, every further write fails with
    /// [`StoreError::Stalled`] at once, and during a compaction every read too.
    pub fn stalled(&self) -> Option<Stalled> {
        self.writer.meters().stalled()
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        let meters = self.writer.meters();
        Stats {
            commits: meters.commits.load(Ordering::Relaxed),
            transactions: meters.writes.load(Ordering::Relaxed),
            reruns: meters.reruns.load(Ordering::Relaxed),
            failures: meters.failures.load(Ordering::Relaxed),
            largest_batch: meters.largest_batch.load(Ordering::Relaxed),
            queue_depth: meters.queued.load(Ordering::Relaxed),
        }
    }

    /// How often the storage was reopened after a failure. A write that failed may be visible since then. A cache of rows
    /// must therefore be read again when this number has grown.
    pub fn reopenings(&self) -> u64 {
        self.writer.meters().reopenings.load(Ordering::Acquire)
    }

    /// Returns free space in the file to the disk. Returns whether there was any. Reads and writes wait during that, or
    /// fail with [`StoreError::Stalled`]. It waits for reads that have begun, such as a backup, for up to a minute.
    ///
    /// # Errors
    /// [`StoreError::BeingRead`] if the database is still being read then.
    pub async fn compact(&self) -> Result<bool, StoreError> {
        let begun = Instant::now();
        loop {
            match self.ask(Message::Compact).await {
                Err(StoreError::BeingRead) if begun.elapsed() < LONGEST_WAIT_FOR_READS => {
                    tokio::time::sleep(COMPACTION_RETRY).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// The bytes of the disk that are allocated to the file; 0 in memory.
    pub fn allocated_bytes(&self) -> u64 {
        self.backend.allocated_bytes()
    }

    /// The bytes of all rows, as of the last checkpoint. Reads no row.
    pub fn live_bytes(&self) -> u64 {
        self.backend.live_bytes()
    }

    /// The bytes that the file can still take without growing; 0 in memory. The number may be too small: rows may take
    /// three times their bytes, so of a large file whose rows have a sixth of its bytes half is unused.
    pub fn unused_bytes(&self) -> u64 {
        self.backend.unused_bytes()
    }

    /// Finishes the queued writes, then closes the file and releases the lock on it, for every handle. Blocks.
    pub fn close(self) {
        self.writer.close();
    }

    /// Sends a message to the writer and waits for its reply.
    async fn ask<T: Send + 'static>(
        &self,
        message: impl FnOnce(writer::Reply<T>) -> Message,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let reply = Box::new(move |outcome| drop(sender.send(outcome)));
        self.writer.submit(message(reply))?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }
}
