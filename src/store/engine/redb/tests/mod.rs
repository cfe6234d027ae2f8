//! The engine on failing disks.

mod hangs;
mod live;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ::redb::StorageBackend;

use crate::store::engine::redb::*;
use crate::store::engine::tests::{Folder, RAW, get, note, put};
use crate::store::engine::writer::PROOF;
use crate::store::schema::{Schema, meta_get, meta_put};
use crate::store::{Options, Store};

/// A disk in memory that can be made to fail.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    memory: Arc<InMemoryBackend>,
    pub(super) takes_no_writes: Arc<AtomicBool>,
    pub(super) cannot_grow: Arc<AtomicBool>,
    pub(super) hangs: Arc<AtomicBool>,
    /// Whether a write is waiting while the disk hangs.
    pub(super) keeps_waiting: Arc<AtomicBool>,
    pub(super) read_bytes: Arc<AtomicUsize>,
}

impl Disk {
    pub(super) fn new() -> Self {
        Self {
            memory: Arc::new(InMemoryBackend::new()),
            takes_no_writes: Arc::default(),
            cannot_grow: Arc::default(),
            hangs: Arc::default(),
            keeps_waiting: Arc::default(),
            read_bytes: Arc::default(),
        }
    }

    fn store(&self) -> Store {
        self.store_with(Options::default().stall_timeout)
    }

    fn store_with(&self, stall_timeout: Duration) -> Store {
        let disk = self.clone();
        let opener = move || Builder::new().create_with_backend(disk.clone());
        let engine = Redb::open(Path::new("disk"), Box::new(opener)).unwrap();
        let options = Options {
            retry_pause: Duration::ZERO,
            stall_timeout,
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
        self.read_bytes.fetch_add(out.len(), Ordering::SeqCst);
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
        while self.hangs.load(Ordering::SeqCst) {
            self.keeps_waiting.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.takes_no_writes.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        StorageBackend::write(&*self.memory, offset, data)
    }
}

/// The unused bytes of the file, by a walk over all tables.
fn walked_unused(engine: &Redb) -> u64 {
    let transaction = engine.shared.begin_write().unwrap();
    let stats = transaction.stats().unwrap();
    let used = stats.allocated_pages() * stats.page_size() as u64;
    engine.allocated_bytes().saturating_sub(used)
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

/// Waits for a future that another thread completes.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn what_makes_room_is_done_on_a_full_disk_and_others_go_on_in_that_room() {
    let disk = Disk::new();
    let store = disk.store();
    let long = "x".repeat(50_000);
    let refused = (0..10_000).find_map(|n: u32| {
        disk.cannot_grow.store(n > 100, Ordering::SeqCst);
        let long = long.clone();
        let write = store.write_blocking("fill", move |tx| RAW.put(tx, &n.to_string(), &long));
        write.err().map(|error| (n, error))
    });
    let (count, error) = refused.unwrap();
    assert!(matches!(error, StoreError::NoSpace), "{error:?}");
    for n in 0..count {
        wait(store.make_room("sweep", move |tx| RAW.remove(tx, &n.to_string()))).unwrap();
    }
    assert!(store.is_writable());
    put(&store, "a", "after").unwrap();
    assert_eq!(get(&store, "a"), Some(note("after")));
}

/// An engine in memory that counts probes and reopenings.
struct CountingEngine {
    engine: Redb,
    disk: Disk,
    refuses: AtomicBool,
    probes: AtomicUsize,
    reopenings: AtomicUsize,
}

impl CountingEngine {
    fn on(disk: &Disk) -> Arc<Self> {
        let medium = disk.clone();
        let opener = move || Builder::new().create_with_backend(medium.clone());
        Arc::new(Self {
            engine: Redb::open(Path::new("disk"), Box::new(opener)).unwrap(),
            disk: disk.clone(),
            refuses: AtomicBool::new(false),
            probes: AtomicUsize::new(0),
            reopenings: AtomicUsize::new(0),
        })
    }

    fn store(self: &Arc<Self>) -> Store {
        let options = Options {
            retry_pause: Duration::ZERO,
            ..Options::default()
        };
        Store::on(Arc::<Self>::clone(self), options, &Schema::CURRENT).unwrap()
    }
}

impl Backend for CountingEngine {
    fn read(&self, look: &mut dyn FnMut(&dyn Snapshot) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.engine.read(look)
    }

    fn transact(&self, work: &mut dyn FnMut(&mut dyn Tx) -> CommitDecision) -> Result<(), StoreError> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(StoreError::NoSpace);
        }
        self.engine.transact(work)
    }

    fn checkpoint(&self) -> Result<(), StoreError> {
        self.engine.checkpoint()
    }

    fn recover(&self) -> Result<(), StoreError> {
        self.reopenings.fetch_add(1, Ordering::SeqCst);
        self.engine.recover()
    }

    fn probe(&self) -> Result<(), StoreError> {
        self.probes.fetch_add(1, Ordering::SeqCst);
        if self.disk.cannot_grow.load(Ordering::SeqCst) {
            return Err(StoreError::NoSpace);
        }
        Ok(())
    }

    fn compact(&self) -> Result<bool, StoreError> {
        self.engine.compact()
    }

    fn close(&self) {
        self.engine.close();
    }
}

#[test]
fn a_store_that_cannot_be_written_to_is_read_for_as_long_as_that_lasts() {
    let disk = Disk::new();
    let engine = CountingEngine::on(&disk);
    let store = engine.store();
    put(&store, "a", "before").unwrap();
    disk.cannot_grow.store(true, Ordering::SeqCst);
    let long = "x".repeat(10 << 20);
    let refused = store.write_blocking("fill", move |tx| RAW.put(tx, "fill", &long));
    assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
    while engine.probes.load(Ordering::SeqCst) < 20 {
        assert_eq!(get(&store, "a"), Some(note("before")));
    }
    assert_eq!(
        engine.reopenings.load(Ordering::SeqCst),
        1,
        "opening it afresh interrupts reads"
    );
    assert!(put(&store, "a", "lost").is_err() && !store.is_writable());
    disk.cannot_grow.store(false, Ordering::SeqCst);
    while !store.is_writable() {
        std::thread::yield_now();
    }
    put(&store, "a", "after").unwrap();
    assert_eq!(get(&store, "a"), Some(note("after")));
}

#[test]
fn a_proof_that_cannot_be_removed_is_not_passed_over() {
    let disk = Disk::new();
    let store = disk.store();
    store
        .write_blocking("proof", |tx| meta_put(tx, PROOF, "0000"))
        .unwrap();
    store.close();
    let engine = CountingEngine::on(&disk);
    engine.refuses.store(true, Ordering::SeqCst);
    let store = engine.store();
    while store.is_writable() {
        std::thread::yield_now();
    }
    engine.refuses.store(false, Ordering::SeqCst);
    while !store.is_writable() {
        std::thread::yield_now();
    }
    assert_eq!(
        store.read_blocking(|snapshot| meta_get(snapshot, PROOF)).unwrap(),
        None
    );
}

#[test]
fn what_a_file_has_taken_and_holds_nothing_is_given_back() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    let change = |change: &dyn Fn(&mut dyn Tx)| {
        let changed = engine.transact(&mut |tx| {
            change(tx);
            CommitDecision::Commit
        });
        changed.unwrap();
        engine.checkpoint().unwrap();
    };
    let long = vec![1; 100_000];
    change(&|tx| (0..50).for_each(|key| tx.put(RAW.id(), &[key], &long).unwrap()));
    change(&|tx| tx.put(RAW.id(), b"last", b"stays").unwrap());
    let (allocated, unused) = (engine.allocated_bytes(), walked_unused(&engine));
    assert!(
        allocated > 5_000_000 && unused < 1_000_000,
        "{unused} of {allocated} are unused"
    );
    change(&|tx| (0..50).for_each(|key| _ = tx.remove(RAW.id(), &[key]).unwrap()));
    let unused = walked_unused(&engine);
    assert!(
        unused > 4_000_000,
        "{unused} of {} are unused",
        engine.allocated_bytes()
    );
    assert!(engine.compact().unwrap());
    assert!(
        engine.allocated_bytes() < 2_000_000,
        "{} are taken",
        engine.allocated_bytes()
    );
    let seen = engine.read(&mut |snapshot| {
        assert!(snapshot.get(RAW.id(), b"last")?.is_some());
        Ok(())
    });
    seen.unwrap();
}

#[test]
fn a_disk_is_asked_by_a_file_that_nobody_finds() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    let before = fs::metadata(folder.file()).unwrap().len();
    fs::write(folder.path("test.redb.probe"), "left by a killed process").unwrap();
    engine.probe().unwrap();
    assert!(!folder.path("test.redb.probe").exists());
    assert_eq!(fs::metadata(folder.file()).unwrap().len(), before);
    fs::create_dir(folder.path("test.redb.probe")).unwrap();
    engine.probe().unwrap_err();
}

#[test]
fn a_database_that_goes_missing_is_not_made_anew() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    fs::rename(folder.file(), folder.path("away.redb")).unwrap();
    assert!(engine.recover().is_err());
    assert!(!folder.file().exists());
    fs::rename(folder.path("away.redb"), folder.file()).unwrap();
    engine.recover().unwrap();
}

/// The next commit on a full disk needs that space. A read during the removal must not hold it back.
#[test]
fn what_a_commit_removes_is_free_once_it_is_committed() {
    const ROWS: u8 = 50;
    const LENGTH: usize = 100_000;
    let folder = Folder::new();
    let commit = |engine: &Redb, work: &dyn Fn(&mut dyn Tx, u8)| {
        let committed = engine.transact(&mut |tx| {
            (0..ROWS).for_each(|key| work(tx, key));
            CommitDecision::Commit
        });
        committed.unwrap();
    };
    let open = || Redb::open_file(&folder.file(), 1 << 20).unwrap();
    let used = |engine: &Redb| engine.allocated_bytes() - walked_unused(engine);
    let large = vec![7; LENGTH];
    commit(&open(), &|tx, key| tx.put(RAW.id(), &[key], &large).unwrap());
    // The first commit goes to redb directly.
    let engine = open();
    let before = used(&engine);
    commit(&engine, &|tx, key| {
        assert!(tx.remove(RAW.id(), &[key]).unwrap());
        let read = engine.read(&mut |snapshot| {
            assert!(snapshot.get(RAW.id(), &[key])?.is_some());
            Ok(())
        });
        read.unwrap();
    });
    let freed = before.saturating_sub(used(&engine));
    assert!(freed >= u64::from(ROWS) * LENGTH as u64, "{freed} of {before}");
}
