//! The contract of every engine, tested on a file and in memory.

mod queue;

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use uuid::Uuid;

use super::writer::{Message, PROOF};
use crate::store::record::Record;
use crate::store::schema::{meta_get, meta_put};
use crate::store::table::Table;
use crate::store::{OpenError, Options, Store, StoreError};

const NOTES: Table<String, Note> = Table::new(1, "notes");
const BY_OWNER: Table<(String, Uuid), ()> = Table::new(2, "by_owner");
pub(super) const RAW: Table<String, String> = Table::new(3, "raw");

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    text: String,
    size: u64,
}

impl Record for Note {
    const VERSION: u8 = 3;
}

pub(super) fn note(text: &str) -> Note {
    Note {
        text: text.to_owned(),
        size: text.len() as u64,
    }
}

/// A temporary folder.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path("test.redb")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Runs a test of the contract that all engines keep.
fn on_every_engine(options: Options, test: impl Fn(Store)) {
    on_local_engines(options, &test);
    #[cfg(feature = "postgres")]
    test(super::postgres::tests::store(options));
}

/// Runs a test of what only an engine in this process does.
fn on_local_engines(options: Options, test: impl Fn(Store)) {
    test(Store::in_memory(options).unwrap());
    let folder = Folder::new();
    test(Store::open(&folder.file(), options).unwrap());
}

pub(super) fn put(store: &Store, key: &'static str, text: &'static str) -> Result<(), StoreError> {
    store.write_blocking("put", move |tx| NOTES.put(tx, key, &note(text)))
}

pub(super) fn get(store: &Store, key: &str) -> Option<Note> {
    store.read_blocking(|snapshot| NOTES.get(snapshot, key)).unwrap()
}

#[test]
fn what_was_put_is_read_until_it_is_removed() {
    on_every_engine(Options::default(), |store| {
        assert_eq!(get(&store, "a"), None);
        put(&store, "a", "one").unwrap();
        assert_eq!(get(&store, "a"), Some(note("one")));
        put(&store, "a", "two").unwrap();
        assert_eq!(get(&store, "a"), Some(note("two")));
        assert!(
            store
                .read_blocking(|snapshot| NOTES.contains(snapshot, "a"))
                .unwrap()
        );
        assert!(
            store
                .write_blocking("remove", |tx| NOTES.remove(tx, "a"))
                .unwrap()
        );
        assert!(
            !store
                .write_blocking("remove", |tx| NOTES.remove(tx, "a"))
                .unwrap()
        );
        assert_eq!(get(&store, "a"), None);
    });
}

#[test]
fn a_transaction_sees_its_own_writes_and_nobody_else_does() {
    on_local_engines(Options::default(), |store| {
        let reader = store.clone();
        store
            .write_blocking("look", move |tx| {
                NOTES.put(tx, "a", &note("mine"))?;
                assert_eq!(NOTES.get(tx, "a")?, Some(note("mine")));
                assert_eq!(NOTES.count(tx)?, 1);
                assert_eq!(get(&reader, "a"), None);
                assert!(NOTES.remove(tx, "a")?);
                assert_eq!(NOTES.get(tx, "a")?, None);
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn a_snapshot_does_not_change_under_the_reader() {
    on_every_engine(Options::default(), |store| {
        put(&store, "a", "one").unwrap();
        let seen = store.stream(|snapshot| {
            put(&store, "a", "two").unwrap();
            put(&store, "b", "two").unwrap();
            Ok((NOTES.get(snapshot, "a")?, NOTES.count(snapshot)?))
        });
        assert_eq!(seen.unwrap(), (Some(note("one")), 1));
    });
}

#[test]
fn scans_are_ordered_bounded_and_go_on_where_they_ended() {
    on_every_engine(Options::default(), |store| {
        store
            .write_blocking("fill", |tx| {
                for key in ["d", "a", "c", "b", "e"] {
                    NOTES.put(tx, key, &note(key))?;
                }
                Ok(())
            })
            .unwrap();
        let keys = |from: Bound<&str>, to: Bound<&str>, limit| {
            let range = (from.map(str::to_owned), to.map(str::to_owned));
            let rows = store
                .read_blocking(|snapshot| NOTES.scan(snapshot, range.clone(), limit))
                .unwrap();
            rows.into_iter().map(|(key, _)| key).collect::<String>()
        };
        assert_eq!(keys(Bound::Unbounded, Bound::Unbounded, 9), "abcde");
        assert_eq!(keys(Bound::Unbounded, Bound::Unbounded, 2), "ab");
        assert_eq!(keys(Bound::Unbounded, Bound::Unbounded, 0), "");
        assert_eq!(keys(Bound::Excluded("b"), Bound::Unbounded, 2), "cd");
        assert_eq!(keys(Bound::Included("b"), Bound::Included("d"), 9), "bcd");
        assert_eq!(keys(Bound::Included("d"), Bound::Included("b"), 9), "");
        assert_eq!(keys(Bound::Excluded("b"), Bound::Excluded("b"), 9), "");
    });
}

#[test]
fn a_prefix_finds_the_rows_of_one_owner() {
    on_every_engine(Options::default(), |store| {
        let ids = [Uuid::from_u128(1), Uuid::from_u128(u128::MAX)];
        store
            .write_blocking("fill", move |tx| {
                for owner in ["al", "alice", "alice\0", "bob"] {
                    for id in ids {
                        BY_OWNER.put(tx, &(owner.to_owned(), id), &())?;
                    }
                }
                Ok(())
            })
            .unwrap();
        let rows = store
            .read_blocking(|snapshot| BY_OWNER.scan_prefix(snapshot, "alice", 9))
            .unwrap();
        assert_eq!(rows, ids.map(|id| (("alice".to_owned(), id), ())));
        let first = store.read_blocking(|snapshot| BY_OWNER.scan_prefix(snapshot, "al", 1));
        assert_eq!(first.unwrap(), [(("al".to_owned(), ids[0]), ())]);
    });
}

#[test]
fn a_panic_ends_one_write_and_not_the_writer() {
    on_every_engine(Options::default(), |store| {
        let panicked = store.write_blocking("clumsy", |tx| {
            NOTES.put(tx, "clumsy", &note("lost"))?;
            assert_eq!(NOTES.count(tx)?, 0, "one row was put");
            Ok(())
        });
        assert!(matches!(panicked, Err(StoreError::Panicked("clumsy"))));
        put(&store, "next", "kept").unwrap();
        assert_eq!(get(&store, "clumsy"), None);
        assert_eq!(get(&store, "next"), Some(note("kept")));
        assert!(store.is_writable());
    });
}

#[test]
fn compaction_keeps_every_row() {
    on_local_engines(Options::default(), |store| {
        let long = "x".repeat(4000);
        store
            .write_blocking("fill", move |tx| {
                (0..500).try_for_each(|n: u32| RAW.put(tx, &n.to_string(), &long))
            })
            .unwrap();
        store
            .write_blocking("empty", |tx| {
                (1..500).try_for_each(|n: u32| RAW.remove(tx, &n.to_string()).map(|_| ()))
            })
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(store.compact()).unwrap());
        assert_eq!(store.read_blocking(|snapshot| RAW.count(snapshot)).unwrap(), 1);
        put(&store, "after", "kept").unwrap();
    });
}

#[test]
fn a_compaction_waits_for_a_read_that_has_begun() {
    on_local_engines(Options::default(), |store| {
        put(&store, "first", "kept").unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let reader = store.clone();
        let reading = thread::spawn(move || {
            reader.read_blocking(|_| {
                begun.send(()).unwrap();
                ended.recv().unwrap();
                Ok(())
            })
        });
        has_begun.recv().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (sender, refused) = tokio::sync::oneshot::channel();
            let reply = Box::new(move |outcome| drop(sender.send(outcome)));
            let writer = &store.local().unwrap().writer;
            writer.submit(Message::Compact(reply)).unwrap();
            assert!(matches!(refused.await.unwrap(), Err(StoreError::BeingRead)));
            assert!(store.is_writable() && store.stats().failures == 0);
            let (compacted, ()) = tokio::join!(store.compact(), async { end.send(()).unwrap() });
            compacted.unwrap();
        });
        reading.join().unwrap().unwrap();
    });
}

#[test]
fn rows_of_other_versions_are_refused() {
    let store = Store::in_memory(Options::default()).unwrap();
    let stored = |bytes: &'static [u8]| {
        store
            .write_blocking("raw", move |tx| tx.put(NOTES.id(), b"a", bytes))
            .unwrap();
        store.read_blocking(|snapshot| NOTES.get(snapshot, "a"))
    };
    assert_eq!(
        stored(b"\x03\x82\xA4text\xA3new\xA4size\x03").unwrap(),
        Some(note("new"))
    );
    assert!(matches!(
        stored(b"\x04\x80"),
        Err(StoreError::NewerRecord {
            found: 4,
            supported: 3,
            ..
        })
    ));
    assert!(matches!(
        stored(b"\x02\x80"),
        Err(StoreError::Corrupt { table: "notes", .. })
    ));
    assert!(matches!(stored(b""), Err(StoreError::Corrupt { .. })));
    let followed = stored(b"\x03\x82\xA4text\xA3new\xA4size\x03\x03");
    assert!(matches!(followed, Err(StoreError::Corrupt { .. })));
    let quoting = stored(b"\x03\x82\xA4text\xA6s3cret\xA4size\xA6s3cret")
        .unwrap_err()
        .to_string();
    assert!(
        quoting.contains("notes") && !quoting.contains("s3cret"),
        "{quoting}"
    );
}

#[test]
fn a_second_opening_is_refused() {
    let folder = Folder::new();
    let store = Store::open(&folder.file(), Options::default()).unwrap();
    let refused = Store::open(&folder.file(), Options::default());
    assert!(matches!(refused, Err(OpenError::AlreadyOpen { .. })));
    put(&store, "a", "still works").unwrap();
    store.close();
    assert!(Store::open(&folder.file(), Options::default()).is_ok());
}

#[test]
fn a_proof_that_a_killed_process_left_is_removed() {
    let folder = Folder::new();
    let store = Store::open(&folder.file(), Options::default()).unwrap();
    store
        .write_blocking("proof", |tx| meta_put(tx, PROOF, "0000"))
        .unwrap();
    store.close();
    let store = Store::open(&folder.file(), Options::default()).unwrap();
    put(&store, "a", "after it").unwrap();
    assert_eq!(
        store.read_blocking(|snapshot| meta_get(snapshot, PROOF)).unwrap(),
        None
    );
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let _store = Store::open(&folder.file(), Options::default()).unwrap();
    assert_eq!(
        fs::metadata(folder.file()).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn other_files_and_broken_ones_are_refused() {
    let folder = Folder::new();
    let opened = |bytes: &[u8]| {
        fs::write(folder.file(), bytes).unwrap();
        Store::open(&folder.file(), Options::default())
    };
    assert!(matches!(opened(b"hello"), Err(OpenError::Damaged { .. })));
    assert!(matches!(opened(&[7; 10_000]), Err(OpenError::Damaged { .. })));
    let whole = Folder::new();
    let store = Store::open(&whole.file(), Options::default()).unwrap();
    put(&store, "a", "kept").unwrap();
    store.close();
    let bytes = fs::read(whole.file()).unwrap();
    for len in [100, 4096, 8192, bytes.len() / 2] {
        assert!(opened(&bytes[..len]).is_err(), "{len}");
    }
    let missing = Store::open(Path::new("/nowhere/at/all.redb"), Options::default());
    assert!(matches!(missing, Err(OpenError::Io { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_table_is_an_ordered_map(
        changes in prop::collection::vec((prop::collection::vec(0..4_u8, 0..4), any::<Option<u8>>()), 1..60),
        from in prop::collection::vec(0..4_u8, 0..3),
        to in prop::collection::vec(0..4_u8, 0..3),
    ) {
        let store = Store::in_memory(Options::default()).unwrap();
        let mut model = BTreeMap::new();
        for (key, value) in &changes {
            match value {
                Some(value) => model.insert(key.clone(), vec![*value]),
                None => model.remove(key),
            };
        }
        store.write_blocking("apply", move |tx| {
            for (key, value) in &changes {
                match value {
                    Some(value) => tx.put(RAW.id(), key, &[*value])?,
                    None => drop(tx.remove(RAW.id(), key)?),
                }
            }
            Ok(())
        }).unwrap();
        let mut seen = Vec::new();
        store.stream(|snapshot| snapshot.range(
            RAW.id(),
            Bound::Included(from.as_slice()),
            Bound::Excluded(to.as_slice()),
            &mut |key, value| {
                seen.push((key.to_vec(), value.to_vec()));
                Ok(ControlFlow::Continue(()))
            },
        )).unwrap();
        let expected: Vec<_> = model.into_iter().filter(|(key, _)| *key >= from && *key < to).collect();
        prop_assert_eq!(seen, expected);
    }
}
