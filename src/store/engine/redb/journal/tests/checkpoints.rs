//! Checkpoints while others read and write, and on disks that fail.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ::redb::{Builder, StorageBackend};

use crate::store::engine::redb::journal::tests::*;
use crate::store::engine::redb::journal::{CHECKPOINT_TARGET, Journal, MAX_ROWS, MIN_ROWS};
use crate::store::engine::redb::tests::Disk;

/// An engine on a disk that can be made to fail, with a journal that cannot.
fn engine_on(disk: &Disk, folder: &Folder, max_rows: usize) -> Redb {
    let medium = disk.clone();
    let opener = move || Builder::new().create_with_backend(medium.clone());
    fs::write(folder.file(), "its owner owns the journal").unwrap();
    let journal = Journal::new(Some(&folder.file()));
    let engine = Redb::open_with(Path::new("disk"), Box::new(opener), journal).unwrap();
    engine.journal().max_rows = max_rows;
    engine
}

/// Rows that are always written together are equal in every snapshot, during commits and checkpoints too.
#[test]
fn nobody_sees_half_of_a_transaction_while_checkpoints_come_and_go() {
    let folder = Folder::new();
    let engine = Arc::new(engine_of(&folder, 3));
    let keys: [_; 8] = std::array::from_fn(|key| [b'a' + u8::try_from(key).unwrap()]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reads = (0..3).map(|_| {
            scope.spawn(|| {
                let (mut last, mut seen) = (0, 0);
                while !is_over.load(Ordering::Relaxed) {
                    let read = engine.read(&mut |snapshot| {
                        let found = keys.map(|key| snapshot.get(RAW.id(), &key).unwrap());
                        let all = all(snapshot)?;
                        let [first, ..] = &found;
                        assert!(found.iter().all(|value| value == first));
                        assert!(all.values().all(|value| Some(value) == first.as_ref()));
                        let now = first
                            .as_deref()
                            .map_or(0, |value| u32::from_be_bytes(value.try_into().unwrap()));
                        assert!(now >= last, "what was seen is gone again");
                        (last, seen) = (now, seen + 1);
                        Ok(())
                    });
                    read.unwrap();
                }
                seen
            })
        });
        let reads: Vec<_> = reads.collect();
        for number in 1..=600_u32 {
            write(&engine, CommitDecision::Commit, &mut |tx| {
                for key in keys {
                    tx.put(RAW.id(), &key, &number.to_be_bytes()).unwrap();
                }
            })
            .unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(reads.into_iter().all(|read| read.join().unwrap() > 0));
    });
}

#[test]
fn a_checkpoint_that_waits_for_its_disk_keeps_nobody_else_waiting() {
    let (disk, folder) = (Disk::new(), Folder::new());
    let engine = engine_on(&disk, &folder, 16);
    for key in 0..2 {
        put(&engine, &[key], b"durable").unwrap();
    }
    disk.hangs.store(true, Ordering::SeqCst);
    for key in 2..24 {
        put(&engine, &[key], b"journaled").unwrap();
        assert_eq!(rows_of(&engine).len(), usize::from(key) + 1);
    }
    while !disk.keeps_waiting.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    disk.hangs.store(false, Ordering::SeqCst);
    engine.shut().unwrap();
    let engine = engine_on(&disk, &folder, 16);
    assert_eq!(rows_of(&engine).len(), 24);
}

#[test]
fn a_checkpoint_that_fails_is_said_to_the_next_write_and_loses_nothing() {
    let (disk, folder) = (Disk::new(), Folder::new());
    let engine = engine_on(&disk, &folder, 4);
    let mut kept = Rows::new();
    let mut number = 0_u8;
    for round in 0..6_u8 {
        let failed = loop {
            disk.takes_no_writes.store(number % 11 > 5, Ordering::SeqCst);
            number += 1;
            match put(&engine, &[number], &[round]) {
                Ok(()) => _ = kept.insert(vec![number], vec![round]),
                Err(error) => break error,
            }
            assert_eq!(rows_of(&engine), kept);
            if number > 200 {
                return;
            }
        };
        assert!(
            matches!(failed, StoreError::ReadOnly(_) | StoreError::Interrupted),
            "{failed:?}"
        );
        // The failed write may have been kept: the engine may fail after the journal took the record.
        disk.takes_no_writes.store(false, Ordering::SeqCst);
        engine.recover().unwrap();
        let found = rows_of(&engine);
        let is_kept = kept.iter().all(|(key, value)| found.get(key) == Some(value));
        assert!(is_kept && found.len() <= kept.len() + 1, "{found:?} for {kept:?}");
        kept = found;
    }
}

#[test]
fn what_could_not_be_written_is_seen_for_as_long_as_that_lasts_and_written_then() {
    let (disk, folder) = (Disk::new(), Folder::new());
    let engine = engine_on(&disk, &folder, 1000);
    let long = vec![1; 50_000];
    let mut answered = 0;
    let failed = loop {
        disk.cannot_grow.store(answered > 2, Ordering::SeqCst);
        match put(&engine, &[answered], &long) {
            Ok(()) => answered += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, StoreError::NoSpace), "{failed:?}");
    // The engine refuses writes until it is reopened.
    assert!(matches!(put(&engine, b"", b""), Err(StoreError::Interrupted)));
    assert!(matches!(engine.checkpoint(), Err(StoreError::Interrupted)));
    assert!(engine.remove_journal().is_err());
    for _ in 0..3 {
        engine.recover().unwrap();
        let found = rows_of(&engine).len();
        assert!(found >= usize::from(answered), "{found} of {answered}");
        assert!(matches!(put(&engine, b"", b""), Err(StoreError::NoSpace)));
    }
    disk.cannot_grow.store(false, Ordering::SeqCst);
    engine.recover().unwrap();
    put(&engine, b"", b"").unwrap();
    let all = rows_of(&engine);
    drop(engine);
    fs::remove_file(journal_of(&folder.file())).unwrap();
    let engine = engine_on(&disk, &folder, 4);
    assert!(
        rows_of(&engine) == all && all.len() > usize::from(answered),
        "the database holds all"
    );
}

/// Writes rows to the database, and to the journal only such as replace, remove and add some. Returns the result.
fn fill(engine: &Redb) -> Rows {
    for key in 0..40_u8 {
        put(engine, &[key], &[1; 2000]).unwrap();
    }
    engine.checkpoint().unwrap();
    for key in (0..60_u8).step_by(2) {
        write(engine, CommitDecision::Commit, &mut |tx| {
            tx.remove(RAW.id(), &[key + 1]).unwrap();
            tx.put(RAW.id(), &[key], &[2; 2000]).unwrap();
        })
        .unwrap();
    }
    let rows = rows_of(engine);
    assert_eq!(rows.len(), 30);
    rows
}

/// A disk that fails after some writes.
#[derive(Clone, Debug)]
struct Failing {
    disk: Disk,
    /// The number of writes before it fails.
    left: Arc<AtomicUsize>,
}

impl Failing {
    fn engine(&self, folder: &Folder) -> Redb {
        let medium = self.clone();
        let opener = move || {
            let mut builder = Builder::new();
            // A cache that is smaller than the changes of a checkpoint.
            builder.set_cache_size(64 << 10);
            builder.create_with_backend(medium.clone())
        };
        fs::write(folder.file(), "its owner owns the journal").unwrap();
        let journal = Journal::new(Some(&folder.file()));
        Redb::open_with(Path::new("disk"), Box::new(opener), journal).unwrap()
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
        self.disk.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.use_up()?;
        self.disk.write(offset, data)
    }
}

#[test]
fn a_disk_that_fails_at_any_moment_of_a_checkpoint_loses_nothing() {
    for writes in 0.. {
        let folder = Folder::new();
        let disk = Failing {
            disk: Disk::new(),
            left: Arc::new(AtomicUsize::new(usize::MAX)),
        };
        let engine = disk.engine(&folder);
        let expected = fill(&engine);
        disk.left.store(writes, Ordering::SeqCst);
        let settled = engine.checkpoint();
        disk.left.store(usize::MAX, Ordering::SeqCst);
        if settled.is_ok() {
            assert_eq!(rows_of(&engine), expected);
            assert!(writes > 10, "only {writes} writes");
            return;
        }
        engine.recover().unwrap();
        assert_eq!(rows_of(&engine), expected, "after {writes} writes");
        engine.shut().unwrap();
        assert_eq!(rows_of(&disk.engine(&folder)), expected, "after {writes} writes");
    }
}

#[test]
fn the_size_of_a_checkpoint_follows_the_speed_of_the_disk() {
    let mut journal = Journal::new(None);
    let mut took = |duration| {
        journal.checkpoint_thread = Some(std::thread::spawn(move || Ok(duration)));
        journal.join().unwrap();
        journal.max_rows
    };
    assert_eq!(took(CHECKPOINT_TARGET * 2), MAX_ROWS / 2);
    assert_eq!(took(CHECKPOINT_TARGET / 2), MAX_ROWS / 2);
    for _ in 0..20 {
        took(CHECKPOINT_TARGET * 2);
    }
    assert_eq!(took(CHECKPOINT_TARGET * 2), MIN_ROWS);
    for _ in 0..20 {
        took(CHECKPOINT_TARGET / 8);
    }
    assert_eq!(took(CHECKPOINT_TARGET / 8), MAX_ROWS);
}
