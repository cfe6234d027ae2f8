//! Files that a killed process or a damaged disk leaves, and snapshots during writes.

mod checkpoints;
mod format;

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::file::LENGTH;
use super::path_beside as journal_of;
use crate::store::engine::redb::Redb;
use crate::store::engine::tests::{Folder, RAW};
use crate::store::engine::{Backend, CommitDecision, Snapshot, Tx};
use crate::store::{OpenError, Options, Store, StoreError};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn write(
    engine: &Redb,
    verdict: CommitDecision,
    work: &mut dyn FnMut(&mut dyn Tx),
) -> Result<(), StoreError> {
    engine.transact(&mut |tx| {
        work(tx);
        verdict
    })
}

fn put(engine: &Redb, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    write(engine, CommitDecision::Commit, &mut |tx| {
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

/// An engine that starts a checkpoint after `max_rows` rows.
fn engine_of(folder: &Folder, max_rows: usize) -> Redb {
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    engine.journal().max_rows = max_rows;
    engine
}

fn rows_of(engine: &Redb) -> Rows {
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

/// Checks that a snapshot shows `expected` before and after `during`.
fn snapshot_lasts(engine: &Redb, expected: &Rows, during: &mut dyn FnMut()) {
    let read = engine.read(&mut |snapshot| {
        assert_eq!(&all(snapshot)?, expected);
        during();
        assert_eq!(&all(snapshot)?, expected, "a snapshot changed");
        for (key, value) in expected {
            assert_eq!(snapshot.get(RAW.id(), key)?.as_ref(), Some(value));
        }
        Ok(())
    });
    read.unwrap();
}

/// Copies the files as a process that is killed now leaves them.
fn killed(folder: &Folder, name: &str) -> PathBuf {
    let copy = folder.path(name);
    let files = || [folder.file(), journal_of(&folder.file())].map(|file| fs::read(file).ok());
    let mut found = files();
    loop {
        let again = files();
        if again == found {
            break;
        }
        found = again;
    }
    let [database, journal] = found;
    fs::write(&copy, database.unwrap()).unwrap();
    if let Some(journal) = journal {
        fs::write(journal_of(&copy), journal).unwrap();
    }
    copy
}

fn killed_again(database: &Path) -> PathBuf {
    let again = database.with_extension("again");
    fs::copy(database, &again).unwrap();
    match fs::copy(journal_of(database), journal_of(&again)) {
        Ok(_) => {}
        Err(_) => drop(fs::remove_file(journal_of(&again))),
    }
    again
}

fn open(path: &Path) -> Result<Store, OpenError> {
    Store::open(path, Options::default())
}

fn fill(store: &Store, key: u32, text: &str) {
    let text = text.to_owned();
    store
        .write_blocking("fill", move |tx| RAW.put(tx, &key.to_string(), &text))
        .unwrap();
}

fn rows(store: &Store) -> Rows {
    store.read_blocking(all).unwrap()
}

/// A store with two writes in the database file and `journaled` writes in the journal only.
fn store_with_journal(folder: &Folder, journaled: u32) -> Store {
    let store = open(&folder.file()).unwrap();
    for key in 0..2 {
        fill(&store, key, "durable");
    }
    for key in 2..2 + journaled {
        fill(&store, key, "journaled");
    }
    store
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rows_survive_a_kill_after_any_writes(
        max_rows in 1..12_u8,
        steps in prop::collection::vec((0..10_u8, 0..30_u8, any::<u16>()), 1..90),
    ) {
        let folder = Folder::new();
        let mut engine = engine_of(&folder, usize::from(max_rows));
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
                    write(&engine, CommitDecision::Commit, removed).unwrap();
                    model.remove(&key);
                }
                4 => write(&engine, CommitDecision::RollBack, &mut |tx| {
                    tx.put(RAW.id(), &key, &value).unwrap();
                    assert_eq!(tx.get(RAW.id(), &key).unwrap().as_ref(), Some(&value));
                }).unwrap(),
                5 => engine.checkpoint().unwrap(),
                6 => {
                    // A batch that is too long for a record. Its changes are seen before the commit.
                    let long = value.repeat(200_000);
                    write(&engine, CommitDecision::Commit, &mut |tx| {
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
                    // A transaction sees its own changes over the committed rows.
                    let (low, high) = (key.clone(), vec![key[0].saturating_add(value[0] % 16)]);
                    let (from, to) = (bound(value[0], &low), bound(value[1], &high));
                    write(&engine, CommitDecision::Commit, &mut |tx| {
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
                    snapshot_lasts(&engine, &before, &mut || {
                        for at in 0..=max_rows {
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
                    engine = engine_of(&folder, usize::from(max_rows));
                }
            }
            prop_assert_eq!(&rows_of(&engine), &model);
        }
    }
}

#[test]
fn a_store_that_is_closed_is_one_file_and_holds_everything() {
    let folder = Folder::new();
    store_with_journal(&folder, 5).close();
    assert!(!journal_of(&folder.file()).exists());
    let store = open(&folder.file()).unwrap();
    assert_eq!(rows(&store).len(), 7);
    fill(&store, 100, "one write wants no journal");
    store.close();
    assert!(!journal_of(&folder.file()).exists());
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_answered() {
    let folder = Folder::new();
    let store = open(&folder.file()).unwrap();
    for written in 0..20 {
        let copy = killed(&folder, &format!("killed-{written}.redb"));
        // Twice: a second kill before the first write changes nothing.
        for _ in 0..2 {
            let revived = open(&copy).unwrap();
            assert_eq!(rows(&revived), rows(&store), "{written}");
            let again = killed_again(&copy);
            assert_eq!(rows(&open(&again).unwrap()), rows(&store), "{written}");
        }
        let revived = open(&copy).unwrap();
        fill(&revived, 1000, "goes on");
        revived.close();
        assert_eq!(rows(&open(&copy).unwrap()).len(), rows(&store).len() + 1);
        fill(&store, written, "answered");
    }
}

#[test]
fn a_full_journal_and_a_batch_too_long_for_it_go_to_the_database() {
    let folder = Folder::new();
    let store = store_with_journal(&folder, 1);
    let long = "x".repeat(100_000);
    for key in 0..120 {
        fill(&store, 100 + key, &long);
    }
    let all = long.clone();
    store
        .write_blocking("bulk", move |tx| {
            (300..315).try_for_each(|key: u32| RAW.put(tx, &key.to_string(), &all))
        })
        .unwrap();
    fill(&store, 400, "after it");
    let length = fs::metadata(journal_of(&folder.file())).unwrap().len();
    assert_eq!(length, LENGTH as u64);
    assert_eq!(
        rows(&open(&killed(&folder, "killed.redb")).unwrap()),
        rows(&store)
    );
}

#[test]
fn a_database_at_rest_does_without_its_journal() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    let change = |key: &[u8]| put(&engine, key, b"value").unwrap();
    (0..5).for_each(|key: u8| change(&[key]));
    let overtaken = fs::read(journal_of(&folder.file())).unwrap();
    engine.checkpoint().unwrap();
    change(b"newer");
    engine.checkpoint().unwrap();
    fs::write(journal_of(&folder.file()), overtaken).unwrap();
    let revived = Redb::open_file(&killed(&folder, "killed.redb"), 1 << 20).unwrap();
    assert!(rows_of(&revived).contains_key(b"newer".as_slice()));
}

#[test]
fn the_writer_settles_the_database_when_nothing_is_written() {
    let folder = Folder::new();
    let store = store_with_journal(&folder, 3);
    let settled = loop {
        let copy = killed(&folder, "killed.redb");
        fs::write(journal_of(&copy), vec![0; LENGTH]).unwrap();
        if let Ok(revived) = open(&copy)
            && rows(&revived).len() == 5
        {
            break revived;
        }
        std::thread::yield_now();
    };
    assert_eq!(rows(&settled), rows(&store));
}

#[test]
fn a_last_record_that_is_not_whole_was_never_answered() {
    let folder = Folder::new();
    let store = store_with_journal(&folder, 3);
    let copy = killed(&folder, "killed.redb");
    let whole = fs::read(journal_of(&copy)).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let mut torn = whole;
    torn[end] ^= 1;
    fs::write(journal_of(&copy), torn).unwrap();
    assert_eq!(rows(&open(&copy).unwrap()).len(), rows(&store).len() - 1);
}

#[test]
fn a_journal_that_is_missing_or_damaged_is_said_and_not_passed_over() {
    let folder = Folder::new();
    let _store = store_with_journal(&folder, 3);
    let copy = killed(&folder, "killed.redb");
    let mut damaged = fs::read(journal_of(&copy)).unwrap();
    damaged[40] ^= 1;
    fs::write(journal_of(&copy), &damaged).unwrap();
    let refused = |words: &str| match open(&copy) {
        Err(error @ OpenError::Damaged { .. }) => assert!(error.to_string().contains(words), "{error}"),
        other => panic!("{:?}", other.err()),
    };
    refused("journal is not what was written");
    fs::write(journal_of(&copy), &damaged[..LENGTH - 1]).unwrap();
    refused("journal is not what was written");
    fs::remove_file(journal_of(&copy)).unwrap();
    refused("journal is missing");
}

#[test]
fn a_database_whose_journal_cannot_be_written_goes_on_without() {
    let folder = Folder::new();
    fs::create_dir(journal_of(&folder.file())).unwrap();
    let store = open(&folder.file()).unwrap();
    for key in 0..10 {
        fill(&store, key, "kept");
    }
    assert!(store.is_writable());
    let copy = folder.path("killed.redb");
    fs::copy(folder.file(), &copy).unwrap();
    assert_eq!(rows(&open(&copy).unwrap()), rows(&store));
}

#[test]
fn what_is_opened_afresh_lets_go_of_a_journal_that_may_be_another() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    let change = |key: u8| put(&engine, &[key], b"value").unwrap();
    (0..5).for_each(change);
    engine.recover().unwrap();
    change(5);
    fs::remove_file(journal_of(&folder.file())).unwrap();
    (6..10).for_each(change);
    let revived = Redb::open_file(&killed(&folder, "killed.redb"), 1 << 20).unwrap();
    assert_eq!(rows_of(&revived).len(), 10);
}

#[test]
fn a_link_where_the_journal_will_be_leads_nowhere() {
    let folder = Folder::new();
    let elsewhere = folder.path("elsewhere");
    fs::write(&elsewhere, "not ours").unwrap();
    std::os::unix::fs::symlink(&elsewhere, journal_of(&folder.file())).unwrap();
    let _store = store_with_journal(&folder, 3);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "not ours");
    assert!(
        fs::symlink_metadata(journal_of(&folder.file()))
            .unwrap()
            .is_file()
    );
}

#[test]
fn a_process_that_lost_the_database_leaves_the_journal_of_the_next() {
    let folder = Folder::new();
    let loser = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    fs::rename(folder.file(), folder.path("away.redb")).unwrap();
    assert!(loser.recover().is_err(), "its lock is gone");
    fs::rename(folder.path("away.redb"), folder.file()).unwrap();
    let store = store_with_journal(&folder, 3);
    assert!(loser.recover().is_err(), "another has it");
    assert!(loser.shut().is_err());
    assert!(journal_of(&folder.file()).exists());
    assert_eq!(
        rows(&open(&killed(&folder, "killed.redb")).unwrap()),
        rows(&store)
    );
}

#[test]
fn a_refusal_that_writes_nothing_waits_for_no_disk() {
    let folder = Folder::new();
    let store = store_with_journal(&folder, 1);
    let before = fs::read(journal_of(&folder.file())).unwrap();
    store.write_blocking("refuse", |tx| RAW.get(tx, "9")).unwrap();
    assert!(fs::read(journal_of(&folder.file())).unwrap() == before);
}

#[test]
fn what_was_replayed_is_in_the_database_once_it_has_settled() {
    let folder = Folder::new();
    let engine = engine_of(&folder, 1000);
    (0..9).for_each(|key| put(&engine, &[key], b"answered").unwrap());
    let copy = killed(&folder, "killed.redb");
    let revived = Redb::open_file(&copy, 1 << 20).unwrap();
    assert_eq!(rows_of(&revived).len(), 9);
    revived.checkpoint().unwrap();
    drop(revived);
    fs::remove_file(journal_of(&copy)).unwrap();
    assert_eq!(rows_of(&Redb::open_file(&copy, 1 << 20).unwrap()).len(), 9);
}
