//! The waist on redb: one file that belongs to one process, or the same thing in memory.

use std::cell::{OnceCell, RefCell};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use ::redb::backends::InMemoryBackend;
use ::redb::{
    Builder, CommitError, CompactionError, Database, DatabaseError, Durability, ReadOnlyTable,
    ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend, StorageError, Table, TableDefinition,
    TableError, TransactionError, WriteTransaction,
};

use super::{Backend, Snapshot, TableId, Tx, Verdict, Visit};
use crate::store::{OpenError, StoreError};

type Bytes = &'static [u8];

const COMPACTION_ATTEMPTS: usize = 100;
const INSPECTION_CACHE_BYTES: usize = 1 << 20;

/// Makes the database anew from where it is kept, as often as it has to be.
pub type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

enum State {
    Open(Database),
    Failed(StoreError),
    Closed,
}

/// A redb database that can be opened again after a failure.
pub struct Redb {
    opener: Opener,
    state: RwLock<State>,
}

impl Redb {
    /// Opens the database file, or makes it, readable for its owner only. `cache_bytes` bounds the page cache.
    pub fn open_file(path: &Path, cache_bytes: usize) -> Result<Self, OpenError> {
        let file = path.to_owned();
        Self::open(path, Box::new(move || open_file(&file, cache_bytes)))
    }

    /// Opens an empty database in memory.
    pub fn in_memory(cache_bytes: usize) -> Result<Self, OpenError> {
        let memory = Arc::new(InMemoryBackend::new());
        let opener = move || builder(cache_bytes).create_with_backend(Memory(Arc::clone(&memory)));
        Self::open(Path::new("memory"), Box::new(opener))
    }

    /// Opens whatever `opener` opens; `path` names it in errors.
    pub fn open(path: &Path, opener: Opener) -> Result<Self, OpenError> {
        let database = guarded(&opener).map_err(|error| refused(path, error))?;
        Ok(Self {
            opener,
            state: RwLock::new(State::Open(database)),
        })
    }

    fn with_database<T>(
        &self,
        begin: impl FnOnce(&Database) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Open(database) => guarded(|| begin(database)).map_err(transaction_failed),
            State::Failed(error) => Err(error.clone()),
            State::Closed => Err(StoreError::Closed),
        }
    }
}

impl Backend for Redb {
    fn read(&self, look: &mut dyn FnMut(&dyn Snapshot) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let transaction = self.with_database(ReadableDatabase::begin_read)?;
        look(&ReadSnapshot {
            transaction,
            tables: RefCell::new(Vec::new()),
        })
    }

    fn transact(&self, work: &mut dyn FnMut(&mut dyn Tx) -> Verdict) -> Result<(), StoreError> {
        let mut transaction = self.with_database(Database::begin_write)?;
        transaction
            .set_durability(Durability::Immediate)
            .map_err(|_| unexpected("durability"))?;
        transaction.set_two_phase_commit(true);
        transaction.set_quick_repair(true);
        let mut open = WriteTx::new(&transaction);
        let verdict = work(&mut open);
        drop(open);
        match verdict {
            Verdict::Commit => transaction.commit().map_err(commit_failed),
            Verdict::RollBack => transaction.abort().map_err(storage_failed),
        }
    }

    fn recover(&self) -> Result<(), StoreError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Closed) {
            return Err(StoreError::Closed);
        }
        // The old database must be gone before the new one is opened: it holds the lock on the file.
        *state = State::Failed(StoreError::Closed);
        match guarded(&self.opener) {
            Ok(database) => {
                *state = State::Open(database);
                Ok(())
            }
            Err(error) => {
                let error = reopen_failed(error);
                *state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    fn compact(&self) -> Result<bool, StoreError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let database = match &mut *state {
            State::Open(database) => database,
            State::Failed(error) => return Err(error.clone()),
            State::Closed => return Err(StoreError::Closed),
        };
        // No read can begin while the state is held for writing; those under way end within microseconds.
        for _ in 0..COMPACTION_ATTEMPTS {
            match database.compact() {
                Ok(moved) => return Ok(moved),
                Err(CompactionError::Storage(error)) => return Err(storage_failed(error)),
                Err(CompactionError::TransactionInProgress) => std::thread::yield_now(),
                Err(_) => return Err(unexpected("a savepoint")),
            }
        }
        Err(StoreError::Busy)
    }

    fn close(&self) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State::Closed;
    }
}

/// Shows a database file to `look` without changing it; `None` when there is no file or an empty one.
///
/// The file is locked against writers meanwhile. One whose process was killed is first repaired by the engine,
/// which keeps every row.
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
    let transaction = guarded(|| database.begin_read()).map_err(transaction_failed)?;
    look(&ReadSnapshot {
        transaction,
        tables: RefCell::new(Vec::new()),
    })
    .map(Some)
}

fn builder(cache_bytes: usize) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    builder
}

fn open_file(path: &PathBuf, cache_bytes: usize) -> Result<Database, DatabaseError> {
    let existed = path.exists();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    let database = builder(cache_bytes).create_file(file)?;
    if !existed {
        sync_folder_of(path)?;
    }
    Ok(database)
}

/// Makes the entry of a new file in its folder durable.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn definition(table: TableId) -> TableDefinition<'static, Bytes, Bytes> {
    TableDefinition::new(table.name())
}

/// A table that was looked for, and what there was.
type SeenTable = (TableId, Option<ReadOnlyTable<Bytes, Bytes>>);

struct ReadSnapshot {
    transaction: ReadTransaction,
    tables: RefCell<Vec<SeenTable>>,
}

impl ReadSnapshot {
    fn with_table<T>(
        &self,
        table: TableId,
        look: impl FnOnce(&ReadOnlyTable<Bytes, Bytes>) -> Result<T, StorageError>,
    ) -> Result<Option<T>, StoreError> {
        let mut tables = self.tables.borrow_mut();
        if !tables.iter().any(|(id, _)| *id == table) {
            let opened = match guarded(|| self.transaction.open_table(definition(table))) {
                Ok(opened) => Some(opened),
                Err(TableError::TableDoesNotExist(_)) => None,
                Err(error) => return Err(table_failed(error)),
            };
            tables.push((table, opened));
        }
        match tables.iter().find(|(id, _)| *id == table) {
            Some((_, Some(opened))) => guarded(|| look(opened)).map(Some).map_err(storage_failed),
            _ => Ok(None),
        }
    }
}

impl Snapshot for ReadSnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.with_table(table, |opened| {
            Ok(opened.get(key)?.map(|value| value.value().to_vec()))
        })?;
        Ok(found.flatten())
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        if is_empty(from, to) {
            return Ok(());
        }
        match self.with_table(table, |opened| opened.range::<&[u8]>((from, to)))? {
            Some(rows) => visit_rows(rows, visit),
            None => Ok(()),
        }
    }
}

struct WriteTx<'txn> {
    transaction: &'txn WriteTransaction,
    tables: Vec<OnceCell<Table<'txn, Bytes, Bytes>>>,
}

impl<'txn> WriteTx<'txn> {
    fn new(transaction: &'txn WriteTransaction) -> Self {
        let mut tables = Vec::new();
        tables.resize_with(TableId::LIMIT, OnceCell::new);
        Self { transaction, tables }
    }

    fn table(&self, table: TableId) -> Result<&Table<'txn, Bytes, Bytes>, StoreError> {
        let cell = self
            .tables
            .get(table.index())
            .ok_or_else(|| unexpected("the table's index"))?;
        if let Some(opened) = cell.get() {
            return Ok(opened);
        }
        let opened = guarded(|| self.transaction.open_table(definition(table))).map_err(table_failed)?;
        Ok(cell.get_or_init(|| opened))
    }

    fn table_mut(&mut self, table: TableId) -> Result<&mut Table<'txn, Bytes, Bytes>, StoreError> {
        self.table(table)?;
        let cell = self.tables.get_mut(table.index()).and_then(OnceCell::get_mut);
        cell.ok_or_else(|| unexpected("the table's index"))
    }
}

impl Snapshot for WriteTx<'_> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let opened = self.table(table)?;
        guarded(|| Ok(opened.get(key)?.map(|value| value.value().to_vec()))).map_err(storage_failed)
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        if is_empty(from, to) {
            return Ok(());
        }
        let opened = self.table(table)?;
        let rows = guarded(|| opened.range::<&[u8]>((from, to))).map_err(storage_failed)?;
        visit_rows(rows, visit)
    }
}

impl Tx for WriteTx<'_> {
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let opened = self.table_mut(table)?;
        guarded(|| opened.insert(key, value).map(|_| ())).map_err(storage_failed)
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        let opened = self.table_mut(table)?;
        guarded(|| Ok(opened.remove(key)?.is_some())).map_err(storage_failed)
    }
}

fn visit_rows(mut rows: ::redb::Range<'_, Bytes, Bytes>, visit: &mut Visit<'_>) -> Result<(), StoreError> {
    let mut next = || {
        guarded(|| {
            let row = rows.next().transpose()?;
            // A damaged page may show only here.
            if let Some((key, value)) = &row {
                let _ = (key.value(), value.value());
            }
            Ok(row)
        })
    };
    while let Some((key, value)) = next().map_err(storage_failed)? {
        if visit(key.value(), value.value())? == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(())
}

/// Asks the engine for something that makes it read pages: a damaged one can make it panic.
fn guarded<T, E: From<StorageError>>(ask: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(ask))
        .unwrap_or_else(|_| Err(StorageError::Corrupted("the engine panicked over a page".to_owned()).into()))
}

fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}

/// Memory that outlives the database in it, so that it can be opened again as a file can.
#[derive(Debug)]
struct Memory(Arc<InMemoryBackend>);

impl StorageBackend for Memory {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        StorageBackend::read(&*self.0, offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        StorageBackend::write(&*self.0, offset, data)
    }
}

fn unexpected(what: &str) -> StoreError {
    StoreError::Damaged(format!("the engine refused {what}"))
}

fn io_failed(error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StoreError::NoSpace
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            StoreError::ReadOnly(Arc::new(error))
        }
        _ => StoreError::Io(Arc::new(error)),
    }
}

fn storage_failed(error: StorageError) -> StoreError {
    match error {
        StorageError::Io(error) => io_failed(error),
        StorageError::Corrupted(what) => StoreError::Damaged(what),
        StorageError::ValueTooLarge(bytes) => StoreError::TooLarge(bytes),
        StorageError::PreviousIo | StorageError::DatabaseClosed => StoreError::Interrupted,
        other => StoreError::Damaged(other.to_string()),
    }
}

fn transaction_failed(error: TransactionError) -> StoreError {
    match error {
        TransactionError::Storage(error) => storage_failed(error),
        other => StoreError::Damaged(other.to_string()),
    }
}

fn table_failed(error: TableError) -> StoreError {
    match error {
        TableError::Storage(error) => storage_failed(error),
        other => StoreError::Damaged(other.to_string()),
    }
}

fn commit_failed(error: CommitError) -> StoreError {
    match error {
        CommitError::Storage(error) => storage_failed(error),
        other => StoreError::Damaged(other.to_string()),
    }
}

fn reopen_failed(error: DatabaseError) -> StoreError {
    match error {
        DatabaseError::Storage(error) => storage_failed(error),
        DatabaseError::DatabaseAlreadyOpen => StoreError::Taken,
        other => StoreError::Damaged(other.to_string()),
    }
}

fn refused(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::AlreadyOpen { path },
        DatabaseError::Storage(StorageError::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
            OpenError::Io { path, source }
        }
        other => OpenError::Damaged {
            path,
            what: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::store::backend::tests::{RAW, get, note, put};
    use crate::store::schema::Schema;
    use crate::store::{Options, Store};

    /// A disk in memory that can be made to fail.
    #[derive(Clone, Debug)]
    struct Disk {
        memory: Arc<InMemoryBackend>,
        takes_no_writes: Arc<AtomicBool>,
        cannot_grow: Arc<AtomicBool>,
    }

    impl Disk {
        fn new() -> Self {
            Self {
                memory: Arc::new(InMemoryBackend::new()),
                takes_no_writes: Arc::default(),
                cannot_grow: Arc::default(),
            }
        }

        fn store(&self) -> Store {
            let disk = self.clone();
            let opener = move || Builder::new().create_with_backend(disk.clone());
            let engine = Redb::open(Path::new("disk"), Box::new(opener)).unwrap();
            let options = Options {
                retry_pause: Duration::ZERO,
                ..Options::default()
            };
            Store::on(Arc::new(engine), options, &Schema::CURRENT).unwrap()
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.memory.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            StorageBackend::read(&*self.memory, offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            if self.cannot_grow.load(Ordering::SeqCst) && len > self.memory.len()? {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.memory.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.memory.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            if self.takes_no_writes.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ReadOnlyFilesystem.into());
            }
            StorageBackend::write(&*self.memory, offset, data)
        }
    }

    #[test]
    fn a_full_disk_refuses_what_needs_room_and_nothing_is_lost() {
        let disk = Disk::new();
        let store = disk.store();
        put(&store, "a", "before").unwrap();
        disk.cannot_grow.store(true, Ordering::SeqCst);
        let long = "x".repeat(50_000);
        let refused = (0..10_000).find_map(|n: u32| {
            let long = long.clone();
            store
                .write_blocking("fill", move |tx| RAW.put(tx, &n.to_string(), &long))
                .err()
        });
        assert!(matches!(refused, Some(StoreError::NoSpace)), "{refused:?}");
        assert_eq!(store.stats().failures, 1);
        assert_eq!(get(&store, "a"), Some(note("before")));
        disk.cannot_grow.store(false, Ordering::SeqCst);
        while put(&store, "a", "after").is_err() {}
        assert!(store.is_writable());
        store.close();
        assert_eq!(get(&disk.store(), "a"), Some(note("after")));
    }

    #[test]
    fn a_disk_that_takes_no_writes_is_used_again_once_it_does() {
        let disk = Disk::new();
        let store = disk.store();
        put(&store, "a", "before").unwrap();
        disk.takes_no_writes.store(true, Ordering::SeqCst);
        assert!(matches!(put(&store, "a", "lost"), Err(StoreError::ReadOnly(_))));
        assert!(!store.is_writable());
        assert!(put(&store, "a", "lost").unwrap_err().is_outage());
        disk.takes_no_writes.store(false, Ordering::SeqCst);
        while !store.is_writable() {
            std::thread::yield_now();
        }
        assert_eq!(get(&store, "a"), Some(note("before")));
        put(&store, "a", "after").unwrap();
        assert_eq!(get(&store, "a"), Some(note("after")));
    }
}
