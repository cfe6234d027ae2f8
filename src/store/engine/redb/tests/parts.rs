//! A checkpoint is given to the engine in parts: what is left when one of them is the last.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

use crate::store::engine::redb::checkpoint::keep;
use crate::store::engine::redb::tests::*;
use crate::store::engine::{Backend, Snapshot, Tx};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn commit(engine: &Redb, mut work: impl FnMut(&mut dyn Tx)) {
    let committed = engine.transact(&mut |tx| {
        work(tx);
        Verdict::Commit
    });
    committed.unwrap();
}

fn rows_of(engine: &Redb) -> Rows {
    let mut rows = Rows::new();
    let mut look = |snapshot: &dyn Snapshot| {
        snapshot.range(RAW.id(), Bound::Unbounded, Bound::Unbounded, &mut |key, value| {
            rows.insert(key.to_vec(), value.to_vec());
            Ok(ControlFlow::Continue(()))
        })
    };
    engine.read(&mut look).unwrap();
    rows
}

/// Rows in the database, and in the journal alone what replaces some, removes some and adds some. All of them together.
fn fill(engine: &Redb) -> Rows {
    for key in 0..40_u8 {
        commit(engine, |tx| tx.put(RAW.id(), &[key], &[1; 2000]).unwrap());
    }
    engine.settle().unwrap();
    for key in (0..60_u8).step_by(2) {
        commit(engine, |tx| {
            tx.remove(RAW.id(), &[key + 1]).unwrap();
            tx.put(RAW.id(), &[key], &[2; 2000]).unwrap();
        });
    }
    let rows = rows_of(engine);
    assert_eq!(rows.len(), 30);
    rows
}

/// What the database file at `path` holds, without its journal and without being repaired.
fn alone(path: &Path) -> Rows {
    let engine = Builder::new()
        .set_repair_callback(::redb::RepairSession::abort)
        .open(path)
        .unwrap();
    let transaction = engine.begin_read().unwrap();
    let table = transaction.open_table(rows::raw_definition(RAW.id().name()));
    let found = table.unwrap();
    let found = found.range::<&[u8]>(..).unwrap().map(Result::unwrap);
    found
        .map(|(key, value)| (key.value().to_vec(), value.value().to_vec()))
        .collect()
}

#[test]
fn a_checkpoint_that_ends_after_any_of_its_parts_loses_nothing() {
    let mut parts = 0;
    loop {
        parts += 1;
        let folder = Folder::new();
        let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
        let expected = fill(&engine);
        let before = alone(&killed(&folder, "before.redb"));
        let given = Cell::new(0);
        let mut held = Vec::new();
        let ended = {
            let mut checkpoints = engine.checkpoints().unwrap();
            assert!(checkpoints.freeze(&engine.shared).unwrap());
            let held = std::cell::RefCell::new(&mut held);
            let first = engine.shared.begin_write().unwrap();
            engine.shared.overlay.write_still_to(first, 3, |part| {
                keep(part)?;
                given.set(given.get() + 1);
                assert_eq!(rows_of(&engine), expected);
                let state = engine.shared.state.read().unwrap();
                held.borrow_mut().push(engine.shared.look(&state)?);
                if given.get() == parts {
                    return Err(StoreError::Damaged("a page".to_owned()));
                }
                engine.shared.begin_write()
            })
        };
        if let Ok(last) = ended {
            assert!(parts > 10, "there were only {} parts", given.get());
            drop(last);
            return;
        }
        // Who looked at one of the parts goes on seeing what there was.
        for snapshot in held {
            let value = snapshot.get(RAW.id(), &[0]).unwrap();
            assert_eq!(value.as_ref(), expected.get(&[0][..]));
        }
        // Killed now, the file is as it was, and needs no repair; with its journal it is whole.
        let copy = killed(&folder, "killed.redb");
        assert_eq!(alone(&copy), before);
        assert_eq!(rows_of(&Redb::open_file(&copy, 1 << 20).unwrap()), expected);
        // The writer goes no further until the database is opened afresh, which may keep the parts that were given.
        let refused = engine.transact(&mut |_| Verdict::Commit);
        assert!(matches!(refused, Err(StoreError::Interrupted)), "{refused:?}");
        engine.recover().unwrap();
        assert_eq!(rows_of(&engine), expected);
        let copy = killed(&folder, "recovered.redb");
        assert_eq!(rows_of(&Redb::open_file(&copy, 1 << 20).unwrap()), expected);
        engine.settle().unwrap();
        assert_eq!(alone(&killed(&folder, "settled.redb")), expected);
    }
}

/// A disk that fails from a moment on.
#[derive(Clone, Debug)]
struct Failing {
    disk: Disk,
    /// How often it is still written to.
    left: Arc<AtomicUsize>,
    /// How often everything has had to be on it.
    synced: Arc<AtomicUsize>,
}

impl Failing {
    fn engine(&self, folder: &Folder) -> Redb {
        let medium = self.clone();
        let opener = move || {
            let mut builder = Builder::new();
            // Less than what the parts before have changed.
            builder.set_cache_size(64 << 10);
            builder.create_with_backend(medium.clone())
        };
        let journal = Journal::beside(&folder.file());
        fs::write(folder.file(), "its journal belongs to whom this does").unwrap();
        Redb::open_with(Path::new("disk"), Box::new(opener), Some(journal)).unwrap()
    }

    fn use_up(&self) -> io::Result<()> {
        let used = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        used.map(|_| ()).map_err(|_| io::ErrorKind::StorageFull.into())
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.use_up()?;
        self.disk.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.use_up()?;
        self.synced.fetch_add(1, Ordering::SeqCst);
        self.disk.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.use_up()?;
        self.disk.write(offset, data)
    }
}

#[test]
fn a_disk_that_fails_at_any_moment_of_a_checkpoint_loses_nothing() {
    let mut before_any_sync = 0;
    for writes in 0.. {
        let folder = Folder::new();
        let disk = Failing {
            disk: Disk::new(),
            left: Arc::new(AtomicUsize::new(usize::MAX)),
            synced: Arc::default(),
        };
        let engine = disk.engine(&folder);
        let expected = fill(&engine);
        disk.left.store(writes, Ordering::SeqCst);
        disk.synced.store(0, Ordering::SeqCst);
        let settled = engine.settle();
        let synced = disk.synced.load(Ordering::SeqCst);
        disk.left.store(usize::MAX, Ordering::SeqCst);
        if settled.is_ok() {
            assert_eq!(rows_of(&engine), expected);
            assert!(before_any_sync > 10, "{before_any_sync} of {writes} in a part");
            return;
        }
        before_any_sync += usize::from(synced == 0 && writes > 0);
        engine.recover().unwrap();
        assert_eq!(rows_of(&engine), expected, "after {writes} writes");
        engine.shut().unwrap();
        assert_eq!(rows_of(&disk.engine(&folder)), expected, "after {writes} writes");
    }
}
