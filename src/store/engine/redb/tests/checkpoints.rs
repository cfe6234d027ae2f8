//! Checkpoints while others read and write: what is seen, what comes back after a kill, and what a bad disk does.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::redb::Builder;
use proptest::prelude::*;

use super::{Disk, killed, killed_again, open, place, store_with_journal, wait, written};
use crate::store::StoreError;
use crate::store::engine::redb::journal;
use crate::store::engine::redb::journal::{Found, Journal, Place};
use crate::store::engine::redb::{Redb, journal_of};
use crate::store::engine::tests::{Folder, RAW};
use crate::store::engine::{Backend, Snapshot, Tx, Verdict};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn write(engine: &Redb, verdict: Verdict, work: &mut dyn FnMut(&mut dyn Tx)) -> Result<(), StoreError> {
    engine.transact(&mut |tx| {
        work(tx);
        verdict
    })
}

fn put(engine: &Redb, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    write(engine, Verdict::Commit, &mut |tx| {
        tx.put(RAW.id(), key, value).unwrap();
    })
}

fn between(snapshot: &dyn Snapshot, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Rows, StoreError> {
    let mut rows = Rows::new();
    snapshot.range(RAW.id(), from, to, &mut |key, value| {
        assert!(
            rows.last_key_value()
                .is_none_or(|(last, _)| last.as_slice() < key)
        );
        rows.insert(key.to_vec(), value.to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(rows)
}

fn all(snapshot: &dyn Snapshot) -> Result<Rows, StoreError> {
    between(snapshot, Bound::Unbounded, Bound::Unbounded)
}

/// An engine whose checkpoints have so many changes.
fn engine_of(folder: &Folder, most: usize) -> Redb {
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    engine.checkpoints().unwrap().limit(most);
    engine
}

/// One on a disk that can be made to fail, with a journal that cannot.
fn engine_on(disk: &Disk, folder: &Folder, most: usize) -> Redb {
    let medium = disk.clone();
    let opener = move || Builder::new().create_with_backend(medium.clone());
    let journal = Journal::beside(&folder.file());
    fs::write(folder.file(), "its journal belongs to whom this does").unwrap();
    let engine = Redb::open_with(Path::new("disk"), Box::new(opener), Some(journal)).unwrap();
    engine.checkpoints().unwrap().limit(most);
    engine
}

fn rows(engine: &Redb) -> Rows {
    let mut rows = Rows::new();
    let read = engine.read(&mut |snapshot| {
        rows = all(snapshot)?;
        Ok(())
    });
    read.unwrap();
    rows
}

fn bound(kind: u8, key: &[u8]) -> Bound<&[u8]> {
    match kind % 3 {
        0 => Bound::Unbounded,
        1 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn is_within(key: &[u8], from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    RangeBounds::<[u8]>::contains(&(from, to), key)
}

/// What one of those who read saw, and has to see for as long as it looks.
fn held(engine: &Redb, expected: &Rows, meanwhile: &mut dyn FnMut()) {
    let read = engine.read(&mut |snapshot| {
        assert_eq!(&all(snapshot)?, expected);
        meanwhile();
        assert_eq!(&all(snapshot)?, expected, "a snapshot changed");
        for (key, value) in expected {
            assert_eq!(snapshot.get(RAW.id(), key)?.as_ref(), Some(value));
        }
        Ok(())
    });
    read.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_written_and_whenever_it_is_killed_the_same_rows_come_back(
        most in 1..12_u8,
        steps in prop::collection::vec((0..10_u8, 0..30_u8, any::<u16>()), 1..90),
    ) {
        let folder = Folder::new();
        let mut engine = engine_of(&folder, usize::from(most));
        let mut model = Rows::new();
        for (number, (step, key, value)) in steps.into_iter().enumerate() {
            let (key, value) = (vec![key], value.to_be_bytes().to_vec());
            match step {
                0..=2 => {
                    put(&engine, &key, &value).unwrap();
                    model.insert(key, value);
                }
                3 => {
                    let removed = &mut |tx: &mut dyn Tx| {
                        assert_eq!(tx.remove(RAW.id(), &key).unwrap(), model.contains_key(&key));
                    };
                    write(&engine, Verdict::Commit, removed).unwrap();
                    model.remove(&key);
                }
                4 => write(&engine, Verdict::RollBack, &mut |tx| {
                    tx.put(RAW.id(), &key, &value).unwrap();
                    assert_eq!(tx.get(RAW.id(), &key).unwrap().as_ref(), Some(&value));
                }).unwrap(),
                5 => engine.settle().unwrap(),
                6 => {
                    // More than a record holds, of which some is seen to be changed before it is known to be too much.
                    let long = value.repeat(200_000);
                    write(&engine, Verdict::Commit, &mut |tx| {
                        tx.remove(RAW.id(), &key).unwrap();
                        for at in 100..103 {
                            tx.put(RAW.id(), &[at], &long).unwrap();
                        }
                        assert_eq!(tx.get(RAW.id(), &key).unwrap(), None);
                        assert_eq!(tx.get(RAW.id(), &[100]).unwrap().as_ref(), Some(&long));
                    }).unwrap();
                    model.remove(&key);
                    model.extend((100..103).map(|at| (vec![at], long.clone())));
                }
                7 => {
                    // Between its own changes and those of others a transaction sees the same as everybody.
                    let (low, high) = (key.clone(), vec![key[0].saturating_add(value[0] % 16)]);
                    let (from, to) = (bound(value[0], &low), bound(value[1], &high));
                    write(&engine, Verdict::Commit, &mut |tx| {
                        tx.put(RAW.id(), &high, &value).unwrap();
                        tx.remove(RAW.id(), &low).unwrap();
                        let mut expected = model.clone();
                        expected.insert(high.clone(), value.clone());
                        expected.remove(&low);
                        expected.retain(|key, _| is_within(key, from, to));
                        assert_eq!(between(&*tx, from, to).unwrap(), expected);
                    }).unwrap();
                    model.insert(high.clone(), value.clone());
                    model.remove(&low);
                }
                8 => {
                    let before = model.clone();
                    held(&engine, &before, &mut || {
                        for at in 0..=most {
                            put(&engine, &[at], &value).unwrap();
                            model.insert(vec![at], value.clone());
                        }
                    });
                }
                _ => {
                    let copy = killed(&folder, &format!("killed-{number}.redb"));
                    drop(engine);
                    fs::copy(&copy, folder.file()).unwrap();
                    if fs::copy(journal_of(&copy), journal_of(&folder.file())).is_err() {
                        drop(fs::remove_file(journal_of(&folder.file())));
                    }
                    engine = engine_of(&folder, usize::from(most));
                }
            }
            prop_assert_eq!(&rows(&engine), &model);
        }
    }

    #[test]
    fn records_count_from_a_place_on_in_whatever_part_of_the_file_they_are(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 2..8),
        cut in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
    ) {
        let (bytes, records) = written(place(7, 0), &contents);
        // The later ones lie at the beginning, as after a turn.
        let cut = cut.index(contents.len());
        let (first, second) = bytes.split_at(records[cut].start);
        let turned = [second, first].concat();
        let from = from.index(contents.len());
        let read = journal::records(&turned, place(7, from as u64)).unwrap();
        prop_assert_eq!(read.contents.as_slice(), &contents[from..]);
        prop_assert!(read.end <= turned.len());
        let kept = journal::records(&turned[..read.end], place(7, from as u64)).unwrap();
        prop_assert_eq!(kept, read);
        // One is missing, and a later one is not.
        let after = Place { number: contents.len() as u64 + 1, ..place(7, 0) };
        let mut with_gap = turned;
        journal::write_record(after, b"later", &mut with_gap);
        prop_assert_eq!(journal::records(&with_gap, place(7, from as u64)), None);
    }
}

#[test]
fn what_was_overtaken_hides_nothing_though_it_is_whole_by_chance() {
    let mark = place(7, 0).mark.0[0];
    // Its last byte is alone on the second page, and is what every record begins with.
    let mut content = vec![1; 4096 - journal::HEAD_LEN];
    content.push(mark);
    let (mut bytes, _) = written(place(7, 3), &[content]);
    let (newer, _) = written(place(7, 4), &[b"counts".to_vec()]);
    bytes.splice(4096.., newer);
    let read = journal::records(&bytes, place(7, 4)).unwrap();
    assert_eq!(read.contents, [b"counts"]);
}

#[test]
fn a_place_is_kept_as_earlier_releases_kept_a_mark() {
    let beginning = place(7, 0);
    assert_eq!(beginning.to_bytes(), [7; 16]);
    for place in [beginning, place(8, 1), place(9, u64::MAX)] {
        assert_eq!(Place::from_bytes(&place.to_bytes()), Some(place));
    }
    for length in [0, 15, 17, 25] {
        assert_eq!(Place::from_bytes(&vec![7; length]), None);
    }
    assert_eq!(journal::records(&[], beginning), Some(Found::default()));
}

/// Two rows are always written together, and whoever reads finds them the same, whatever is committed meanwhile.
#[test]
fn nobody_sees_half_of_a_transaction_while_checkpoints_come_and_go() {
    let folder = Folder::new();
    let engine = Arc::new(engine_of(&folder, 3));
    // So many that a checkpoint has parts.
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
            write(&engine, Verdict::Commit, &mut |tx| {
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
        assert_eq!(rows(&engine).len(), usize::from(key) + 1);
    }
    while !disk.keeps_waiting.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    disk.hangs.store(false, Ordering::SeqCst);
    engine.shut().unwrap();
    let engine = engine_on(&disk, &folder, 16);
    assert_eq!(rows(&engine).len(), 24);
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
            assert_eq!(rows(&engine), kept);
            if number > 200 {
                return;
            }
        };
        assert!(
            matches!(failed, StoreError::ReadOnly(_) | StoreError::Interrupted),
            "{failed:?}"
        );
        // It may have been kept all the same: the engine has said no after the journal had it.
        disk.takes_no_writes.store(false, Ordering::SeqCst);
        engine.recover().unwrap();
        let found = rows(&engine);
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
    // Whoever does not open it afresh is refused.
    assert!(matches!(put(&engine, b"", b""), Err(StoreError::Interrupted)));
    assert!(matches!(engine.settle(), Err(StoreError::Interrupted)));
    assert!(engine.make_whole().is_err());
    for _ in 0..3 {
        engine.recover().unwrap();
        let found = rows(&engine).len();
        assert!(found >= usize::from(answered), "{found} of {answered}");
        assert!(matches!(put(&engine, b"", b""), Err(StoreError::NoSpace)));
    }
    disk.cannot_grow.store(false, Ordering::SeqCst);
    engine.recover().unwrap();
    put(&engine, b"", b"").unwrap();
    let all = rows(&engine);
    drop(engine);
    fs::remove_file(journal_of(&folder.file())).unwrap();
    let engine = engine_on(&disk, &folder, 4);
    assert!(
        rows(&engine) == all && all.len() > usize::from(answered),
        "the database holds all"
    );
}

#[test]
fn what_was_replayed_is_in_the_database_once_it_has_settled() {
    let folder = Folder::new();
    let engine = engine_of(&folder, 1000);
    (0..9).for_each(|key| put(&engine, &[key], b"answered").unwrap());
    let copy = killed(&folder, "killed.redb");
    let revived = Redb::open_file(&copy, 1 << 20).unwrap();
    assert_eq!(rows(&revived).len(), 9);
    revived.settle().unwrap();
    drop(revived);
    fs::remove_file(journal_of(&copy)).unwrap();
    assert_eq!(rows(&Redb::open_file(&copy, 1 << 20).unwrap()).len(), 9);
}

#[test]
fn what_a_file_holds_is_measured_with_what_was_replayed() {
    let folder = Folder::new();
    let store = store_with_journal(&folder, 5);
    let copy = killed(&folder, "killed.redb");
    let revived = open(&copy).unwrap();
    wait(revived.spare()).unwrap();
    let again = killed_again(&copy);
    fs::remove_file(journal_of(&again)).unwrap();
    assert_eq!(super::rows(&open(&again).unwrap()), super::rows(&store));
}

#[test]
fn a_journal_grows_to_take_what_has_found_no_room() {
    let folder = Folder::new();
    let engine = engine_of(&folder, 1000);
    let long = vec![1; 300_000];
    (0..6).for_each(|key| put(&engine, &[key], &long).unwrap());
    let copy = killed(&folder, "killed.redb");
    let journal = fs::read(journal_of(&copy)).unwrap();
    assert!(
        journal.windows(1000).any(|bytes| bytes == &long[..1000]),
        "{}",
        journal.len()
    );
    assert_eq!(rows(&Redb::open_file(&copy, 1 << 20).unwrap()).len(), 6);
}
