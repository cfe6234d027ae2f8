//! The bytes of all rows are known without a walk.

use std::ops::Bound;
use std::ops::ControlFlow;

use super::*;
use crate::random::Random;
use crate::store::engine::redb::base::definition;
use crate::store::engine::redb::live::{most_taken_by, row_bytes};

fn counted_by_walking(engine: &Redb) -> u64 {
    let mut bytes = 0;
    let counted = engine.read(&mut |snapshot| {
        snapshot.range(RAW.id(), Bound::Unbounded, Bound::Unbounded, &mut |key, value| {
            bytes += row_bytes(key.len(), value.len());
            Ok(ControlFlow::Continue(()))
        })
    });
    counted.unwrap();
    u64::try_from(bytes).unwrap()
}

fn commit(engine: &Redb, work: &dyn Fn(&mut dyn Tx)) {
    let committed = engine.transact(&mut |tx| {
        work(tx);
        CommitDecision::Commit
    });
    committed.unwrap();
}

fn below(bound: u64) -> u64 {
    u64::from_be_bytes(Random::system().bytes()) % bound
}

#[test]
fn the_bytes_of_all_rows_are_counted_with_each_commit_and_stay_right_after_a_crash() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    commit(&engine, &|tx| tx.put(RAW.id(), b"first", b"row").unwrap());
    // The first commit counts what redb needs for its pages, too.
    let excess = engine.live_bytes() - counted_by_walking(&engine);
    assert!(excess < 2_000, "{excess}");
    for round in 0..60_u8 {
        commit(&engine, &|tx| {
            for _ in 0..30 {
                let key = [u8::try_from(below(200)).unwrap()];
                match below(3) {
                    0 => _ = tx.remove(RAW.id(), &key).unwrap(),
                    _ => tx
                        .put(
                            RAW.id(),
                            &key,
                            &vec![round; usize::try_from(below(3000)).unwrap()],
                        )
                        .unwrap(),
                }
            }
        });
        if round % 10 == 9 {
            engine.recover().unwrap();
        }
        engine.checkpoint().unwrap();
        assert_eq!(engine.live_bytes(), counted_by_walking(&engine) + excess);
    }
    let live_bytes = engine.live_bytes();
    drop(engine);
    let reopened = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    assert_eq!(reopened.live_bytes(), live_bytes);
}

/// Rows of many lengths, of which most are removed at random, leave pages that are as empty as redb lets them be.
#[test]
fn rows_take_no_more_of_the_file_than_three_times_their_bytes() {
    const SLACK: u64 = 1 << 20;
    for length in [8, 60, 700, 1_500, 4_000, 70_000] {
        let folder = Folder::new();
        let engine = Redb::open_file(&folder.file(), 8 << 20).unwrap();
        let rows: u64 = (6_000_000 / (length + 40)).min(30_000);
        let value = vec![1; usize::try_from(length).unwrap()];
        for first in (0..rows).step_by(2_000) {
            commit(&engine, &|tx| {
                for number in first..rows.min(first + 2_000) {
                    let key = [below(u64::MAX).to_be_bytes(), number.to_be_bytes()].concat();
                    tx.put(RAW.id(), &key, &value).unwrap();
                }
            });
        }
        for kept in [2, 3, 10] {
            commit(&engine, &|tx| {
                let mut keys = Vec::new();
                tx.range(RAW.id(), Bound::Unbounded, Bound::Unbounded, &mut |key, _| {
                    keys.push(key.to_vec());
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
                for key in keys.iter().filter(|_| below(kept) > 0) {
                    tx.remove(RAW.id(), key).unwrap();
                }
            });
            // The pages that a commit replaces are free after the next one.
            for _ in 0..2 {
                commit(&engine, &|tx| tx.put(RAW.id(), b"last", &[1]).unwrap());
                engine.checkpoint().unwrap();
            }
            let used = engine.allocated_bytes() - walked_unused(&engine);
            let most = most_taken_by(engine.live_bytes()) + SLACK;
            assert!(
                used <= most,
                "rows of {length}: {used} are used, at most {most} expected"
            );
            assert!(engine.unused_bytes() <= walked_unused(&engine));
        }
    }
}

#[test]
fn a_database_that_is_mostly_empty_has_room_in_its_file() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 8 << 20).unwrap();
    let long = vec![1; 1 << 20];
    let change = |change: &dyn Fn(&mut dyn Tx, u8)| {
        (0..80).for_each(|key| commit(&engine, &|tx| change(tx, key)));
        engine.checkpoint().unwrap();
    };
    change(&|tx, key| tx.put(RAW.id(), &[key], &long).unwrap());
    assert_eq!(engine.unused_bytes(), 0);
    change(&|tx, key| _ = tx.remove(RAW.id(), &[key]).unwrap());
    let unused = engine.unused_bytes();
    assert!(unused > 30 << 20, "{unused}");
    assert!(unused <= walked_unused(&engine));
}

/// A larger database costs a commit no more, and asking for its size costs nothing.
#[test]
fn neither_a_commit_nor_a_look_at_the_room_reads_more_of_a_larger_database() {
    let read_by_a_commit = |rows: u32| {
        let disk = Disk::new();
        let opener = {
            let disk = disk.clone();
            move || {
                let mut uncached = Builder::new();
                uncached.set_cache_size(0).create_with_backend(disk.clone())
            }
        };
        let engine = Redb::open(Path::new("disk"), Box::new(opener)).unwrap();
        commit(&engine, &|tx| {
            (0..rows).for_each(|key| tx.put(RAW.id(), &key.to_be_bytes(), &[1; 500]).unwrap());
        });
        let before = disk.read_bytes.load(Ordering::SeqCst);
        assert!(engine.live_bytes() > u64::from(rows) * 500);
        engine.unused_bytes();
        assert_eq!(disk.read_bytes.load(Ordering::SeqCst), before);
        commit(&engine, &|tx| tx.put(RAW.id(), b"key", b"value").unwrap());
        disk.read_bytes.load(Ordering::SeqCst) - before
    };
    let (small, large) = (read_by_a_commit(500), read_by_a_commit(50_000));
    assert!(large < small + 200_000, "{small}, then {large} of 25 MB");
}

/// So no request waits for the walk.
#[test]
fn a_database_of_an_earlier_release_is_counted_when_it_is_opened() {
    let folder = Folder::new();
    let database = Database::create(folder.file()).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut table = transaction.open_table(definition(RAW.id().name())).unwrap();
    for key in 0..100_u8 {
        table.insert([key].as_slice(), [1; 1000].as_slice()).unwrap();
    }
    drop(table);
    transaction.commit().unwrap();
    drop(database);
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    let (counted, walked) = (engine.live_bytes(), counted_by_walking(&engine));
    assert!(
        (walked..walked * 11 / 10).contains(&counted),
        "{counted}, {walked}"
    );
    engine.recover().unwrap();
    assert_eq!(engine.live_bytes(), counted);
    commit(&engine, &|tx| _ = tx.remove(RAW.id(), &[0]).unwrap());
    assert_eq!(
        engine.live_bytes(),
        counted - u64::try_from(row_bytes(1, 1000)).unwrap()
    );
}
