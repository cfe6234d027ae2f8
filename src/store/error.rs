//! Why an operation on the store failed, and why a store cannot be opened.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const COMPACTED: &str = "the database is being compacted, and nothing else is done with it";
const HANGS: &str = "the disk does not answer: a write waits for it";

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
    /// The database failed during the operation, so its result is not known.
    #[error("interrupted by a failure of the database: the change may have been stored or not")]
    Interrupted,
    /// Another process opened the file while it was reopened.
    #[error("another process has taken the database: stop it")]
    Taken,
    /// The engine found a damaged file.
    #[error("the database is damaged ({0}): restore a backup")]
    Damaged(String),
    /// The database server cannot be reached, or does not answer.
    #[error("the database cannot be reached: {0}: try again later")]
    Unreachable(String),
    /// After a failover, the old primary takes writes again.
    #[error("{0}: stop the old primary, or make it a standby, so that nothing is served from it")]
    OldPrimary(String),
    /// The database stores commits, and answers none until a standby has it too.
    #[error(
        "commits wait for a synchronous standby: start it, or take it out of synchronous_standby_names if this is the newest primary"
    )]
    StandbyAwaited,
    /// A session of another program has locked a table of the database.
    #[error("the table {0} of the database is locked: end the session that has locked it")]
    Locked(&'static str),
    /// The database server has no tables of this release.
    #[error("the database is not set up for this release: run idsvc migrate")]
    NotSetUp,
    /// The database server refused a call for another reason.
    #[error("the database server refused: {0}")]
    Refused(String),
    /// The database server does not let the user of the connection do something.
    #[error(
        "the database server refused: {0}: the role in store.url needs GRANT USAGE ON SCHEMA idsvc and GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA idsvc, and the owner of the database grants both. migrate and restore need the owner"
    )]
    Forbidden(String),
    /// A transaction or a look reads more rows, one after the other, than one may.
    #[error("too many rows are read one after the other")]
    Unbounded,
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
            | Self::Taken
            | Self::Forbidden(_)
            | Self::Unreachable(_)
            | Self::OldPrimary(_)
            | Self::StandbyAwaited
            | Self::Locked(_)
            | Self::NotSetUp
            | Self::Refused(_) => true,
            Self::Busy
            | Self::BeingRead
            | Self::Closed
            | Self::Corrupt { .. }
            | Self::NewerRecord { .. }
            | Self::Unencodable { .. }
            | Self::TooLarge(_)
            | Self::Damaged(_)
            | Self::Unbounded
            | Self::Panicked(_) => false,
        }
    }
}

/// Why a transaction does not return what it was asked for.
#[derive(Clone, Debug)]
pub enum TxError<R> {
    /// The answer is no. What was written before it is committed, so that revoking a family when a token is replayed needs
    /// no special path.
    Refused(R),
    /// The store failed. What was written is rolled back.
    Failed(StoreError),
}

impl<R> From<StoreError> for TxError<R> {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// What a transaction or a read returned, or `None` if it refused.
pub fn unless_refused<T, R>(decided: Result<T, TxError<R>>) -> Result<Option<T>, StoreError> {
    match decided {
        Ok(value) => Ok(Some(value)),
        Err(TxError::Refused(_)) => Ok(None),
        Err(TxError::Failed(error)) => Err(error),
    }
}

/// The error of a closure that runs as a transaction: [`StoreError`] if it cannot refuse, else [`TxError`].
pub trait TransactionError: From<StoreError> {
    /// The failure that rolls the transaction back. `None` for a refusal.
    fn failure(&self) -> Option<&StoreError>;
}

impl TransactionError for StoreError {
    fn failure(&self) -> Option<&StoreError> {
        Some(self)
    }
}

impl<R> TransactionError for TxError<R> {
    fn failure(&self) -> Option<&StoreError> {
        match self {
            Self::Refused(_) => None,
            Self::Failed(error) => Some(error),
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
    /// A backup is restored only where nothing is.
    #[error("the database {0} has data already: restore into an empty database")]
    NotEmpty(String),
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
