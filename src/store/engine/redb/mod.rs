//! The engine on redb: a file that belongs to one process, with a journal beside it, or a database in memory.
//!
//! redb is a copy-on-write B-tree: a write costs what it touches, each page up to the root, and two syncs to be durable. So a
//! batch is made durable by a journal beside the file ([`journal`]), with one write and one sync, and its rows are kept in
//! memory, above redb's. When half of the journal is full, and seconds after the last write, another thread writes all of them
//! to redb in one commit, each page that changed once, while the journal goes on in its other half. With 100,000 families and
//! 64 connections redb alone would take 22 to 28 µs more of processor time for a refresh, more than a third of it, and twice
//! the time of the disk; with one connection four times as much. A store that was closed is one file. Pages are larger than
//! what a C library's allocator is made for, so `main` brings another.

mod base;
mod errors;
mod journal;
mod live;
mod memory;
mod probe;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use ::redb::backends::InMemoryBackend;
use ::redb::{
    Builder, CompactionError, Database, DatabaseError, ReadableDatabase, TransactionError, WriteTransaction,
};

use self::base::{BaseSnapshot, call_redb, guarded};
use self::errors::{engine_failed, io_failed, refused, unexpected};
use self::journal::{Journal, LARGEST_COMMIT, Overlay, ReadSnapshot, WriteTx};
use self::memory::Memory;
use super::{Backend, CommitDecision, FileId, Snapshot, Tx};
use crate::files::{self, owner};
use crate::store::{OpenError, StoreError};

pub(in crate::store) use self::journal::remove_file;

const COMPACTION_ATTEMPTS: usize = 100;
/// The unit of [`MetadataExt::blocks`].
const BLOCK: u64 = 512;
/// The pages of the commit that is being written, and those that the one before it replaced.
const MAX_IN_TRANSIT: u64 = 2 * LARGEST_COMMIT;
/// The size of the page cache for a database that is only inspected.
pub const INSPECTION_CACHE_BYTES: usize = 1 << 20;

/// Opens the database. Called again for each reopening.
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
            Self::Open(database) => call_redb(|| begin(database)),
            Self::Failed(error) => Err(error.clone()),
            Self::Closed => Err(StoreError::Closed),
        }
    }
}

/// The state that the writer shares with the checkpoint thread.
struct Shared {
    state: RwLock<State>,
    overlay: Overlay,
    /// The bytes of all rows in redb's last commit.
    live_bytes: AtomicU64,
}

impl Shared {
    /// Begins a redb transaction.
    fn begin_write(&self) -> Result<WriteTransaction, StoreError> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.begin(Database::begin_write)
    }

    /// A snapshot of all committed rows.
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
    /// `None` for a database in memory.
    path: Option<PathBuf>,
}

/// The file that was opened last.
type Opened = Arc<Mutex<Option<FileId>>>;

impl Redb {
    /// Opens the database file, or creates it with mode 0600. `cache_bytes` bounds the page cache.
    pub fn open_file(path: &Path, cache_bytes: usize) -> Result<Self, OpenError> {
        let opened = Opened::default();
        let opener = file_opener(path, cache_bytes, Arc::clone(&opened))?;
        let engine = Self::open_with(path, opener, Journal::new(Some(path)))?;
        Ok(Self {
            opened,
            path: Some(path.to_owned()),
            ..engine
        })
    }

    /// Opens a database file without a journal: for a file that is filled and then moved into place.
    pub fn open_without_journal(path: &Path, cache_bytes: usize) -> Result<Self, OpenError> {
        Self::open(path, file_opener(path, cache_bytes, Opened::default())?)
    }

    /// Opens an empty database in memory.
    pub fn in_memory(cache_bytes: usize) -> Result<Self, OpenError> {
        let memory = Arc::new(InMemoryBackend::new());
        let opener = move || builder(cache_bytes).create_with_backend(Memory(Arc::clone(&memory)));
        Self::open(Path::new("memory"), Box::new(opener))
    }

    /// Opens the database of `opener`, without a journal. `path` names it in errors.
    pub fn open(path: &Path, opener: Opener) -> Result<Self, OpenError> {
        Self::open_with(path, opener, Journal::new(None))
    }

    fn open_with(path: &Path, opener: Opener, mut journal: Journal) -> Result<Self, OpenError> {
        let database = guarded(&opener).map_err(|error| refused(path, error))?;
        let live_bytes = live::read_or_count(&database).map_err(OpenError::Store)?;
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
                live_bytes: AtomicU64::new(live_bytes),
            }),
            journal: Mutex::new(journal),
            opened: Opened::default(),
            path: None,
        })
    }

    /// Writes all rows to the database file and removes the journal. The next write may start a journal again. After an
    /// error the journal may still be there, and needed.
    pub fn remove_journal(&self) -> Result<(), StoreError> {
        self.journal().remove(&self.shared)
    }

    /// Removes the journal and releases the file.
    pub fn shut(&self) -> Result<(), StoreError> {
        let removed = self.remove_journal();
        *self.state_mut() = State::Closed;
        removed
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

    fn transact(&self, work: &mut dyn FnMut(&mut dyn Tx) -> CommitDecision) -> Result<(), StoreError> {
        let mut journal = self.journal();
        journal.poll_checkpoint(&self.shared)?;
        let state = self.shared.state.read().unwrap_or_else(PoisonError::into_inner);
        let before = self.shared.snapshot(&state)?;
        drop(state);
        let mut open = WriteTx::new(before);
        let verdict = work(&mut open);
        let changes = open.into_changes();
        if verdict == CommitDecision::RollBack || changes.is_empty() {
            return Ok(());
        }
        journal.commit(&self.shared, changes)
    }

    fn checkpoint(&self) -> Result<(), StoreError> {
        self.journal().checkpoint(&self.shared)
    }

    fn recover(&self) -> Result<(), StoreError> {
        let mut journal = self.journal();
        // Replaying the journal shows whether the checkpoint succeeded.
        let _ = journal.join();
        let mut state = self.state_mut();
        if matches!(*state, State::Closed) {
            return Err(StoreError::Closed);
        }
        // The old database holds the lock on the file, so it is dropped before the new one is opened.
        *state = State::Failed(StoreError::Closed);
        let reopened = call_redb(&self.opener).and_then(|database| {
            journal.replay(&database, &self.shared.overlay)?;
            if let Some(live_bytes) = live::read(&database)? {
                self.shared.live_bytes.store(live_bytes, Ordering::Relaxed);
            }
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
        match &self.path {
            Some(path) => probe::write_beside(path).map_err(io_failed),
            None => Ok(()),
        }
    }

    fn allocated_bytes(&self) -> u64 {
        // The length of the file is no measure: parts that were never written take no blocks.
        match self.path.as_deref().map(std::fs::metadata) {
            Some(Ok(metadata)) => metadata.blocks() * BLOCK,
            Some(Err(_)) | None => 0,
        }
    }

    fn live_bytes(&self) -> u64 {
        self.shared.live_bytes.load(Ordering::Relaxed)
    }

    fn unused_bytes(&self) -> u64 {
        let taken = live::most_taken_by(self.live_bytes()).saturating_add(MAX_IN_TRANSIT);
        self.allocated_bytes().saturating_sub(taken)
    }

    fn file(&self) -> Option<FileId> {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compact(&self) -> Result<bool, StoreError> {
        self.checkpoint()?;
        let mut state = self.state_mut();
        let database = match &mut *state {
            State::Open(database) => database,
            State::Failed(error) => return Err(error.clone()),
            State::Closed => return Err(StoreError::Closed),
        };
        for _ in 0..COMPACTION_ATTEMPTS {
            match guarded(|| database.compact()) {
                Ok(moved) => return Ok(moved),
                Err(CompactionError::Storage(error)) => return Err(engine_failed(error)),
                Err(CompactionError::TransactionInProgress) => std::thread::yield_now(),
                Err(_) => return Err(unexpected("a savepoint")),
            }
        }
        Err(StoreError::BeingRead)
    }

    fn close(&self) {
        if let Err(error) = self.shut() {
            tracing::warn!(%error, "the database is closed with its journal beside it");
        }
    }
}

/// Shows a database file to `look` without changing it. `None` if the file is missing or empty.
///
/// The file is locked against writers during that. If its process was killed, redb repairs it first and keeps every row.
/// Rows that are only in the journal are not seen; the schema is always in the file.
pub fn inspect<T>(
    path: &Path,
    look: impl FnOnce(&dyn Snapshot) -> Result<T, OpenError>,
) -> Result<Option<T>, OpenError> {
    let found = files::open_to_read(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let file = match found {
        Ok((0, _)) => return Ok(None),
        Ok((_, file)) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(OpenError::Io {
                path: path.to_owned(),
                source,
            });
        }
    };
    let engine = builder(INSPECTION_CACHE_BYTES);
    // The library opens a path only, and would follow a link that was put there by now.
    let safe_path = files::path_of(&file, path);
    let opened = guarded(|| match engine.open_read_only(&safe_path) {
        Err(DatabaseError::RepairAborted) => {
            let file = files::open(path, OpenOptions::new().read(true).write(true))?;
            drop(engine.create_file(file)?);
            engine.open_read_only(&safe_path)
        }
        other => other,
    });
    let database = opened.map_err(|error| refused(path, error))?;
    let transaction = call_redb(|| database.begin_read())?;
    look(&BaseSnapshot::new(transaction)).map(Some)
}

/// The path of the journal of the database at `path`.
pub fn journal_of(path: &Path) -> PathBuf {
    journal::path_beside(path)
}

fn builder(cache_bytes: usize) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    builder
}

/// Creates the file if it is missing. The returned opener does not create it again.
fn file_opener(path: &Path, cache_bytes: usize, opened: Opened) -> Result<Opener, OpenError> {
    let existed = path.symlink_metadata().is_ok();
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false);
    let created = owner::open_or_create(path, &options, owner::folder_of(path))
        .and_then(|_| if existed { Ok(()) } else { sync_folder_of(path) });
    created.map_err(|source| OpenError::Io {
        path: path.to_owned(),
        source,
    })?;
    let path = path.to_owned();
    let may_be_new = AtomicBool::new(true);
    Ok(Box::new(move || {
        let file = files::open(&path, OpenOptions::new().read(true).write(true))?;
        let metadata = file.metadata()?;
        if !may_be_new.load(Ordering::Relaxed) && metadata.len() == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let database = builder(cache_bytes).create_file(file)?;
        *opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(FileId::of(&metadata));
        may_be_new.store(false, Ordering::Relaxed);
        Ok(database)
    }))
}

/// Makes the directory entry of a new file durable.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(owner::folder_of(path))?.sync_all()
}
