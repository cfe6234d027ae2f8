//! The waist on redb: one file that belongs to one process, with a journal beside it, or the same thing in memory.

mod base;
mod errors;
mod journal;
mod memory;
mod probe;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use ::redb::backends::InMemoryBackend;
use ::redb::{
    Builder, CompactionError, Database, DatabaseError, ReadableDatabase, TransactionError, WriteTransaction,
};

use self::base::{BaseSnapshot, guarded};
use self::errors::{io_failed, refused, reopen_failed, storage_failed, transaction_failed, unexpected};
use self::journal::{Journal, Overlay, ReadSnapshot, WriteTx};
use self::memory::Memory;
use super::{Backend, FileId, Snapshot, Tx, Verdict};
use crate::store::owner;
use crate::store::{OpenError, StoreError};

const COMPACTION_ATTEMPTS: usize = 100;
/// What the operating system counts the room of a file in.
const BLOCK: u64 = 512;
/// The page cache of those who only look.
pub const INSPECTION_CACHE_BYTES: usize = 1 << 20;

/// Makes the database anew from where it is kept, as often as it has to be.
pub type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

enum State {
    Open(Database),
    Failed(StoreError),
    Closed,
}

impl State {
    fn begin<T>(
        &self,
        begin: impl FnOnce(&Database) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        match self {
            Self::Open(database) => guarded(|| begin(database)).map_err(transaction_failed),
            Self::Failed(error) => Err(error.clone()),
            Self::Closed => Err(StoreError::Closed),
        }
    }
}

/// What the writer shares with the thread that does a checkpoint.
struct Shared {
    state: RwLock<State>,
    overlay: Overlay,
}

impl Shared {
    /// Begins a transaction of redb's.
    fn begin_write(&self) -> Result<WriteTransaction, StoreError> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.begin(Database::begin_write)
    }

    /// One moment of everything that was committed.
    fn snapshot(&self, state: &State) -> Result<ReadSnapshot, StoreError> {
        self.overlay
            .snapshot(|| state.begin(ReadableDatabase::begin_read))
    }
}

/// A redb database that can be opened again after a failure.
pub struct Redb {
    opener: Opener,
    shared: Arc<Shared>,
    journal: Mutex<Journal>,
    opened: Opened,
    /// Where the file is, if it is one.
    path: Option<PathBuf>,
}

/// The file that an opener opened last.
type Opened = Arc<Mutex<Option<FileId>>>;

impl Redb {
    /// Opens the database file, or makes it, readable for its owner only. `cache_bytes` bounds the page cache.
    pub fn open_file(path: &Path, cache_bytes: usize) -> Result<Self, OpenError> {
        let opened = Opened::default();
        let opener = opener_of(path, cache_bytes, Arc::clone(&opened))?;
        let engine = Self::open_with(path, opener, Journal::new(Some(path)))?;
        Ok(Self {
            opened,
            path: Some(path.to_owned()),
            ..engine
        })
    }

    /// The same without a journal: for a file that is filled and then moved to its place.
    pub fn open_alone(path: &Path, cache_bytes: usize) -> Result<Self, OpenError> {
        Self::open(path, opener_of(path, cache_bytes, Opened::default())?)
    }

    /// Opens an empty database in memory.
    pub fn in_memory(cache_bytes: usize) -> Result<Self, OpenError> {
        let memory = Arc::new(InMemoryBackend::new());
        let opener = move || builder(cache_bytes).create_with_backend(Memory(Arc::clone(&memory)));
        Self::open(Path::new("memory"), Box::new(opener))
    }

    /// Opens whatever `opener` opens, without a journal; `path` names it in errors.
    pub fn open(path: &Path, opener: Opener) -> Result<Self, OpenError> {
        Self::open_with(path, opener, Journal::new(None))
    }

    fn open_with(path: &Path, opener: Opener, mut journal: Journal) -> Result<Self, OpenError> {
        let database = guarded(&opener).map_err(|error| refused(path, error))?;
        let overlay = Overlay::default();
        journal.replay(&database, &overlay).map_err(|error| match error {
            StoreError::Damaged(what) => OpenError::Damaged {
                path: path.to_owned(),
                what,
            },
            other => OpenError::Store(other),
        })?;
        Ok(Self {
            opener,
            shared: Arc::new(Shared {
                state: RwLock::new(State::Open(database)),
                overlay,
            }),
            journal: Mutex::new(journal),
            opened: Opened::default(),
            path: None,
        })
    }

    /// Brings the file up to date and removes the journal: until something is written the file is all there is. After an
    /// error the journal may be left, and needed.
    pub fn make_whole(&self) -> Result<(), StoreError> {
        self.journal().end(&self.shared)
    }

    /// Makes the file whole and releases it.
    pub fn shut(&self) -> Result<(), StoreError> {
        let ended = self.make_whole();
        *self.state_mut() = State::Closed;
        ended
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.shared.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Redb {
    fn read(&self, look: &mut dyn FnMut(&dyn Snapshot) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let state = match self.shared.state.try_read() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(StoreError::Busy),
        };
        let snapshot = self.shared.snapshot(&state)?;
        drop(state);
        look(&snapshot)
    }

    fn transact(&self, work: &mut dyn FnMut(&mut dyn Tx) -> Verdict) -> Result<(), StoreError> {
        let mut journal = self.journal();
        journal.poll_checkpoint(&self.shared)?;
        let state = self.shared.state.read().unwrap_or_else(PoisonError::into_inner);
        let before = self.shared.snapshot(&state)?;
        drop(state);
        let mut open = WriteTx::new(before);
        let verdict = work(&mut open);
        let changes = open.into_changes();
        if verdict == Verdict::RollBack || changes.is_empty() {
            return Ok(());
        }
        journal.commit(&self.shared, changes)
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.journal().catch_up(&self.shared)
    }

    fn recover(&self) -> Result<(), StoreError> {
        let mut journal = self.journal();
        // What came of a checkpoint under way is seen when the database is opened.
        let _ = journal.join();
        let mut state = self.state_mut();
        if matches!(*state, State::Closed) {
            return Err(StoreError::Closed);
        }
        // The old database must be gone before the new one is opened: it holds the lock on the file.
        *state = State::Failed(StoreError::Closed);
        let reopened = guarded(&self.opener).map_err(reopen_failed).and_then(|database| {
            journal.replay(&database, &self.shared.overlay)?;
            Ok(database)
        });
        match reopened {
            Ok(database) => {
                *state = State::Open(database);
                Ok(())
            }
            Err(error) => {
                *state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    fn probe(&self) -> Result<(), StoreError> {
        self.path
            .as_deref()
            .map_or(Ok(()), |path| probe::write_beside(path).map_err(io_failed))
    }

    fn taken(&self) -> u64 {
        // What the file is long is no measure: there is nothing behind what has never been written.
        let found = self.path.as_deref().map(std::fs::metadata);
        found.map_or(0, |found| found.map_or(0, |found| found.blocks() * BLOCK))
    }

    fn spare(&self) -> Result<u64, StoreError> {
        let transaction = self.shared.begin_write()?;
        let stats = guarded(|| transaction.stats()).map_err(storage_failed)?;
        drop(transaction);
        let used = stats.allocated_pages().saturating_mul(stats.page_size() as u64);
        Ok(self.taken().saturating_sub(used))
    }

    fn file(&self) -> Option<FileId> {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compact(&self) -> Result<bool, StoreError> {
        self.settle()?;
        let mut state = self.state_mut();
        let database = match &mut *state {
            State::Open(database) => database,
            State::Failed(error) => return Err(error.clone()),
            State::Closed => return Err(StoreError::Closed),
        };
        for _ in 0..COMPACTION_ATTEMPTS {
            match guarded(|| database.compact()) {
                Ok(moved) => return Ok(moved),
                Err(CompactionError::Storage(error)) => return Err(storage_failed(error)),
                Err(CompactionError::TransactionInProgress) => std::thread::yield_now(),
                Err(_) => return Err(unexpected("a savepoint")),
            }
        }
        Err(StoreError::Busy)
    }

    fn close(&self) {
        if let Err(error) = self.shut() {
            tracing::warn!(%error, "the database is closed with its journal beside it");
        }
    }
}

/// Shows a database file to `look` without changing it; `None` when there is no file or an empty one.
///
/// The file is locked against writers meanwhile. One whose process was killed is first repaired by the engine,
/// which keeps every row; what is only in its journal is not seen, and the schema never is only there.
pub fn inspect<T>(
    path: &Path,
    look: impl FnOnce(&dyn Snapshot) -> Result<T, OpenError>,
) -> Result<Option<T>, OpenError> {
    match std::fs::metadata(path) {
        Ok(found) if found.len() == 0 => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(OpenError::Io {
                path: path.to_owned(),
                source,
            });
        }
    }
    let engine = builder(INSPECTION_CACHE_BYTES);
    let opened = guarded(|| match engine.open_read_only(path) {
        Err(DatabaseError::RepairAborted) => {
            drop(engine.open(path)?);
            engine.open_read_only(path)
        }
        other => other,
    });
    let database = opened.map_err(|error| refused(path, error))?;
    let begin = || guarded(|| database.begin_read()).map_err(transaction_failed);
    look(&BaseSnapshot::new(begin()?)).map(Some)
}

/// Where the journal of the database at `path` is, when there is one.
pub fn journal_of(path: &Path) -> PathBuf {
    journal::path_beside(path)
}

fn builder(cache_bytes: usize) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    builder
}

/// Makes the file if it is not there. One that goes missing later is not made again.
fn opener_of(path: &Path, cache_bytes: usize, opened: Opened) -> Result<Opener, OpenError> {
    let existed = path.exists();
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false);
    let made = owner::open_or_make(path, &options, owner::folder_of(path))
        .and_then(|_| if existed { Ok(()) } else { sync_folder_of(path) });
    made.map_err(|source| OpenError::Io {
        path: path.to_owned(),
        source,
    })?;
    let path = path.to_owned();
    let may_be_new = AtomicBool::new(true);
    Ok(Box::new(move || {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let found = file.metadata()?;
        if !may_be_new.load(Ordering::Relaxed) && found.len() == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let database = builder(cache_bytes).create_file(file)?;
        *opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(FileId::of(&found));
        may_be_new.store(false, Ordering::Relaxed);
        Ok(database)
    }))
}

/// Makes the entry of a new file in its folder durable.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(owner::folder_of(path))?.sync_all()
}
