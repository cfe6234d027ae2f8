//! Where everything that lasts is kept.
//!
//! [`Store::read`] looks at a consistent state; [`Store::write`] runs one closure as one transaction on the
//! writer thread. Tables are typed in [`table`] and live on the byte-level waist of [`backend`].
//! A refusal by the protocol is a value inside `T` and is committed; only a [`StoreError`] rolls back.

pub mod backup;
pub mod engine;
pub mod owner;
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
use std::time::Duration;

use tokio::sync::oneshot;

use self::engine::redb::Redb;
use self::engine::writer;
use self::engine::writer::{MaintenanceTask, Message, Pace, Write, Writer};
use self::engine::{Backend, FileId, Snapshot, Tx};
use self::schema::Schema;

const COMPACTED: &str = "the database is being compacted, and nothing else is done with it";
const HANGS: &str = "the disk does not answer: a write waits for it";

/// How often a reader looks whether the storage can be read again.
const GLANCE: Duration = Duration::from_millis(1);

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The queue of writes is full, or compaction found reads that do not end.
    #[error("the store is busy: too much is waiting, try again later")]
    Busy,
    /// The storage does not come back from what it is at.
    #[error("{0}: try again later")]
    Stalled(#[from] Stalled),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
    /// A row cannot be understood.
    #[error("a row of table {table} is corrupt ({what}): restore a backup")]
    Corrupt {
        /// The table's name.
        table: &'static str,
        /// What is wrong with the row; holds none of it.
        what: String,
    },
    /// A row was written by a release that knows more than this one.
    #[error(
        "a row of table {table} has record version {found} and this release reads up to {supported}: install the newer release"
    )]
    NewerRecord {
        /// The table's name.
        table: &'static str,
        /// The version that the row has.
        found: u8,
        /// The highest version that can be read.
        supported: u8,
    },
    /// A record cannot be written down.
    #[error("a record for table {table} cannot be encoded: {what}")]
    Unencodable {
        /// The table's name.
        table: &'static str,
        /// What is wrong with the record.
        what: String,
    },
    /// A key or a value is larger than the engine takes.
    #[error("a row of {0} bytes is too large to be stored")]
    TooLarge(usize),
    /// The disk or the quota is full, or the file is as large as the process may make one.
    #[error(
        "no space is left where the database is kept, or none that the limit on the size of files (ulimit -f) lets it take: free some, writing resumes by itself"
    )]
    NoSpace,
    /// The disk takes no writes.
    #[error("the database cannot be written to: {0}")]
    ReadOnly(Arc<io::Error>),
    /// The disk failed in another way.
    #[error("the disk that the database is on failed: {0}")]
    Io(Arc<io::Error>),
    /// The database was opened afresh after a failure while this was under way.
    #[error("interrupted by a failure of the disk that the database is on")]
    Interrupted,
    /// Another process took the file while it was opened afresh.
    #[error("another process has taken the database: stop it")]
    Taken,
    /// The engine found its file to be wrong.
    #[error("the database is damaged ({0}): restore a backup")]
    Damaged(String),
    /// The transaction of that name panicked and was rolled back.
    #[error("the transaction {0} panicked and was rolled back")]
    Panicked(&'static str),
}

impl StoreError {
    /// Whether the storage fails for every transaction alike, and may recover.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Stalled(_)
            | Self::NoSpace
            | Self::ReadOnly(_)
            | Self::Io(_)
            | Self::Interrupted
            | Self::Taken => true,
            Self::Busy
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

/// What the storage has been at for longer than [`Options::patience`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, for {} seconds so far", if *compacts { COMPACTED } else { HANGS }, lasts.as_secs())]
pub struct Stalled {
    /// For how long.
    pub lasts: Duration,
    /// Whether it is a compaction, which may last on a disk that works; else the disk hangs.
    pub compacts: bool,
}

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{} is in use by another process: stop that one first", path.display())]
    AlreadyOpen {
        /// The database file.
        path: PathBuf,
    },
    /// A newer release has upgraded it. The file is left as it was.
    #[error(
        "the database has schema {found} and this release knows up to {supported}: install the newer release, or restore the copy made before the upgrade"
    )]
    Newer {
        /// The schema that the file has.
        found: u32,
        /// The schema of this release.
        supported: u32,
    },
    /// It is no database, or a broken one.
    #[error("{} is damaged or not a database ({what}): restore a backup", path.display())]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The operating system refused.
    #[error("{} cannot be opened: {source}", path.display())]
    Io {
        /// The file that was asked for.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// It opened, but reading or upgrading it failed. An upgrade that failed has changed nothing.
    #[error("the database cannot be used: {0}")]
    Store(#[from] StoreError),
}

/// How to keep the store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many bytes of the file to keep in memory.
    pub cache_bytes: usize,
    /// How many writes may wait before [`StoreError::Busy`].
    pub queue_len: usize,
    /// How many writes may share one commit.
    pub batch_max: usize,
    /// How long a failed disk is left alone before it is tried again.
    pub retry_pause: Duration,
    /// How long a transaction may take before the disk counts as one that hangs.
    pub patience: Duration,
}

impl Default for Options {
    /// 24 MiB of cache, 4096 waiting writes, 512 to a commit, a second between retries,
    /// ten for a transaction.
    fn default() -> Self {
        Self {
            cache_bytes: 24 << 20,
            queue_len: 4096,
            batch_max: 512,
            retry_pause: Duration::from_secs(1),
            patience: writer::STALL_TIMEOUT,
        }
    }
}

/// What the store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commits, each of which waited for the disk.
    pub commits: u64,
    /// Writes that those commits held.
    pub transactions: u64,
    /// Commits that were begun anew without a write that had failed.
    pub reruns: u64,
    /// Commits that the disk did not take.
    pub failures: u64,
    /// The most writes that shared one commit.
    pub largest_batch: u64,
    /// Writes that wait now.
    pub queue_depth: u64,
}

/// The store. A clone is another handle of the same one; the last to be dropped closes it.
#[derive(Clone)]
pub struct Store {
    writer: Arc<Writer>,
    backend: Arc<dyn Backend>,
    copy: Option<Arc<Path>>,
}

impl Store {
    /// Opens the database file, or makes it, and brings it to this release's schema.
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        Self::open_with(path, options, &Schema::CURRENT)
    }

    /// Opens the database file with a schema of one's own.
    pub fn open_with(path: &Path, options: Options, schema: &Schema) -> Result<Self, OpenError> {
        schema.inspect(path)?;
        let engine = Redb::open_file(path, options.cache_bytes)?;
        let copy = schema.keep_copy(&engine, path)?;
        Ok(Self {
            copy: copy.map(Arc::from),
            ..Self::on(Arc::new(engine), options, schema)?
        })
    }

    /// Opens an empty store in memory, by the same code. It is gone when the last handle is dropped.
    pub fn in_memory(options: Options) -> Result<Self, OpenError> {
        Self::on(
            Arc::new(Redb::in_memory(options.cache_bytes)?),
            options,
            &Schema::CURRENT,
        )
    }

    /// Starts the writer on an engine and brings what is in it to `schema`.
    pub fn on(backend: Arc<dyn Backend>, options: Options, schema: &Schema) -> Result<Self, OpenError> {
        schema.bring_up(&*backend)?;
        let Options {
            queue_len,
            batch_max,
            retry_pause,
            patience,
            ..
        } = options;
        let pace = Pace {
            queue_len,
            batch_max,
            retry_pause,
            patience,
        };
        let writer = Writer::start(Arc::clone(&backend), pace).map_err(|source| OpenError::Io {
            path: PathBuf::from("store-writer thread"),
            source,
        })?;
        Ok(Self {
            writer: Arc::new(writer),
            backend,
            copy: None,
        })
    }

    /// Runs `work` as one transaction and returns once it is on the disk.
    ///
    /// `name` says in the log what was written. `work` may run more than once, and runs to its end even when
    /// the caller no longer waits. An error from it rolls back what it wrote and nothing else. After
    /// an error of the storage itself the change may or may not have been kept: [`Store::reopenings`] says when to look.
    pub async fn write<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, outcome) = answer();
        self.writer
            .submit(Message::Write(Box::new(Write::new(name, work, reply))))?;
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// [`Store::write`] for work that removes far more than it adds: it is tried while the disk is full, too.
    pub async fn make_room<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, outcome) = answer();
        let write = Write::new(name, work, reply).to_make_room();
        self.writer.submit(Message::Write(Box::new(write)))?;
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// [`Store::write`] for callers that may block: the command line, and start-up.
    pub fn write_blocking<T, F>(&self, name: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&mut dyn Tx) -> Result<T, StoreError> + Send + 'static,
    {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let reply = move |outcome| drop(sender.send(outcome));
        self.writer
            .submit(Message::Write(Box::new(Write::new(name, work, reply))))?;
        receiver.recv().unwrap_or(Err(StoreError::Closed))
    }

    /// Shows `look` the last committed state. Synchronous: a few rows take microseconds. What is done to the storage as a
    /// whole is waited for until it has lasted for [`Options::patience`]; from then on this is [`StoreError::Stalled`] at
    /// once: no thread that serves requests waits for a disk that hangs.
    pub fn read<T>(
        &self,
        look: impl FnOnce(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut look = Some(look);
        let mut seen = Err(StoreError::Closed);
        loop {
            let shown = self.backend.read(&mut |snapshot| {
                if let Some(look) = look.take() {
                    seen = look(snapshot);
                }
                Ok(())
            });
            match shown {
                Ok(()) => return seen,
                Err(StoreError::Busy) => {}
                Err(error) => return Err(error),
            }
            if let Some(stalled) = self.stalled() {
                return Err(stalled.into());
            }
            thread::sleep(GLANCE);
        }
    }

    /// Where the data is kept as an earlier release left it, if this opening has brought it up.
    pub fn copy(&self) -> Option<&Path> {
        self.copy.as_deref()
    }

    /// The file that is open; none of a store in memory.
    pub fn file(&self) -> Option<FileId> {
        self.backend.file()
    }

    /// Whether writes can be expected to succeed: false from a failed commit until one has succeeded again, and while
    /// the disk hangs.
    pub fn is_writable(&self) -> bool {
        !self.writer.meters().unwritable.load(Ordering::Relaxed) && self.stalled().is_none()
    }

    /// What the storage has not come back from, once that is longer than [`Options::patience`]. Until it does, every
    /// further write is [`StoreError::Stalled`] at once, and during a compaction every read.
    pub fn stalled(&self) -> Option<Stalled> {
        self.writer.meters().stalled()
    }

    /// What has been done so far.
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

    /// How often the disk was opened afresh after an error. What was written before may be there since although it was
    /// answered with that error, so whoever remembers what is in the store reads it again when this has grown.
    pub fn reopenings(&self) -> u64 {
        self.writer.meters().reopenings.load(Ordering::Acquire)
    }

    /// Gives free space in the file back and says whether there was any. Reads and writes wait meanwhile, or are
    /// [`StoreError::Stalled`].
    pub async fn compact(&self) -> Result<bool, StoreError> {
        let (reply, outcome) = answer();
        self.writer
            .submit(Message::Maintenance(MaintenanceTask::Compact(Box::new(reply))))?;
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// How many bytes of the disk the file has taken; 0 in memory.
    pub fn taken(&self) -> u64 {
        self.backend.taken()
    }

    /// How many bytes of the disk the file has taken that hold nothing; 0 in memory. Writes wait while everything in the
    /// file is looked at.
    pub async fn spare(&self) -> Result<u64, StoreError> {
        let (reply, outcome) = answer();
        self.writer
            .submit(Message::Maintenance(MaintenanceTask::Measure(Box::new(reply))))?;
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Finishes what is queued, then closes the file and releases the lock on it, for every handle. Blocks.
    pub fn close(self) {
        self.writer.close();
    }
}

/// Where an outcome goes, and where it is waited for.
fn answer<T: Send + 'static>() -> (impl FnOnce(Outcome<T>) + Send + 'static, Awaited<T>) {
    let (sender, receiver) = oneshot::channel();
    (move |outcome| drop(sender.send(outcome)), receiver)
}

type Outcome<T> = Result<T, StoreError>;
type Awaited<T> = oneshot::Receiver<Outcome<T>>;
