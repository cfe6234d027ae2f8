//! The one look at the engine that all who read share: for how long, and what it must not hold up.

use crate::store::engine::redb::{ReadSnapshot, Redb};
use crate::store::engine::tests::{Folder, RAW};
use crate::store::engine::{Backend, Snapshot, Tx, Verdict};

const LARGE: usize = 100_000;
const LARGE_ROWS: u8 = 50;

fn look(engine: &Redb) -> ReadSnapshot {
    engine.shared.look(&engine.shared.state.read().unwrap()).unwrap()
}

fn commit(engine: &Redb, mut work: impl FnMut(&mut dyn Tx)) {
    let done = engine.transact(&mut |tx| {
        work(tx);
        Verdict::Commit
    });
    done.unwrap();
}

fn put(engine: &Redb, value: &[u8]) {
    commit(engine, |tx| tx.put(RAW.id(), b"row", value).unwrap());
}

fn row(snapshot: &dyn Snapshot) -> Vec<u8> {
    snapshot.get(RAW.id(), b"row").unwrap().unwrap()
}

/// What is written to the journal is above the look; what the engine commits ends it, whichever way it comes to that.
#[test]
fn all_who_read_share_a_look_until_the_engine_commits() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    put(&engine, b"directly");
    let first = look(&engine);
    assert!(first.shares_with(&look(&engine)));
    put(&engine, b"directly, the journal begins");
    let second = look(&engine);
    assert!(!second.shares_with(&first));
    put(&engine, b"journaled");
    let third = look(&engine);
    assert!(third.shares_with(&second));
    engine.settle().unwrap();
    let fourth = look(&engine);
    assert!(!fourth.shares_with(&third));
    engine.recover().unwrap();
    let fifth = look(&engine);
    assert!(!fifth.shares_with(&fourth));
    let shown = [first, second, third, fourth, fifth].map(|snapshot| row(&snapshot));
    let expected: [&[u8]; 5] = [
        b"directly",
        b"directly, the journal begins",
        b"journaled",
        b"journaled",
        b"journaled",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn without_a_journal_each_commit_ends_it() {
    let engine = Redb::in_memory(1 << 20).unwrap();
    for value in [b"one", b"two", b"six"] {
        put(&engine, value);
        assert_eq!(row(&look(&engine)), value);
        assert!(look(&engine).shares_with(&look(&engine)));
    }
}

/// Whatever ends a transaction of the engine's: a commit, giving up, nothing to commit, or only counting.
#[test]
fn it_is_shared_again_after_each_transaction_of_the_engines() {
    let folder = Folder::new();
    let engine = Redb::open_alone(&folder.file(), 1 << 20).unwrap();
    put(&engine, b"value");
    let is_shared = || look(&engine).shares_with(&look(&engine));
    for verdict in [Verdict::RollBack, Verdict::Commit] {
        let mut was_shared = true;
        let read_only = &mut |_: &mut dyn Tx| {
            was_shared = is_shared();
            verdict
        };
        engine.transact(read_only).unwrap();
        assert!(!was_shared && is_shared());
    }
    engine.spare().unwrap();
    assert!(is_shared());
    engine.compact().unwrap();
    assert!(is_shared());
}

/// Else who reads while rows are removed would keep their room for one commit more: on a full disk, the one that needs it.
#[test]
fn what_a_commit_removes_is_free_at_its_end_whoever_has_read_meanwhile() {
    let folder = Folder::new();
    let open = || Redb::open_file(&folder.file(), 1 << 20).unwrap();
    let used = |engine: &Redb| engine.taken() - engine.spare().unwrap();
    let large = vec![7; LARGE];
    commit(&open(), |tx| {
        for key in 0..LARGE_ROWS {
            tx.put(RAW.id(), &[key], &large).unwrap();
        }
    });
    // The first commit is no journal's.
    let engine = open();
    let before = used(&engine);
    commit(&engine, |tx| {
        for key in 0..LARGE_ROWS {
            assert!(tx.remove(RAW.id(), &[key]).unwrap());
            let seen = look(&engine).get(RAW.id(), &[key]).unwrap();
            assert!(seen.is_some_and(|row| row == large));
        }
    });
    let freed = before.saturating_sub(used(&engine));
    assert!(
        freed >= u64::from(LARGE_ROWS) * LARGE as u64,
        "{freed} of {before}"
    );
}
