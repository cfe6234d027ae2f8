//! The engine on disks that fail, and its journal when the process or the file does.

mod checkpoints;
mod hangs;
mod looks;
mod parts;

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ::redb::StorageBackend;
use proptest::prelude::*;

use super::journal::{Found, Place};
use crate::store::engine::redb::*;
use crate::store::engine::tests::{Folder, RAW, get, note, put};
use crate::store::engine::writer::PROOF;
use crate::store::schema::{Schema, meta_get, meta_put};
use crate::store::{Options, Store};

/// A disk in memory that can be made to fail.
#[derive(Clone, Debug)]
struct Disk {
    memory: Arc<InMemoryBackend>,
    takes_no_writes: Arc<AtomicBool>,
    cannot_grow: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
    /// Whether a write waits because it hangs.
    keeps_waiting: Arc<AtomicBool>,
}

impl Disk {
    fn new() -> Self {
        Self {
            memory: Arc::new(InMemoryBackend::new()),
            takes_no_writes: Arc::default(),
            cannot_grow: Arc::default(),
            hangs: Arc::default(),
            keeps_waiting: Arc::default(),
        }
    }

    fn store(&self) -> Store {
        self.store_with(Options::default().patience)
    }

    fn store_with(&self, patience: Duration) -> Store {
        let disk = self.clone();
        let opener = move || Builder::new().create_with_backend(disk.clone());
        let engine = Redb::open(Path::new("disk"), Box::new(opener)).unwrap();
        let options = Options {
            retry_pause: Duration::ZERO,
            patience,
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

/// Waits for a future that another thread brings about.
fn wait<T>(future: impl Future<Output = T>) -> T {
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

/// A store in memory whose disk is asked beside it.
struct Beside {
    engine: Redb,
    disk: Disk,
    refuses: AtomicBool,
    asked: AtomicUsize,
    opened: AtomicUsize,
}

impl Beside {
    fn on(disk: &Disk) -> Arc<Self> {
        let medium = disk.clone();
        let opener = move || Builder::new().create_with_backend(medium.clone());
        Arc::new(Self {
            engine: Redb::open(Path::new("disk"), Box::new(opener)).unwrap(),
            disk: disk.clone(),
            refuses: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
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

impl Backend for Beside {
    fn read(&self, look: &mut dyn FnMut(&dyn Snapshot) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.engine.read(look)
    }

    fn transact(&self, work: &mut dyn FnMut(&mut dyn Tx) -> Verdict) -> Result<(), StoreError> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(StoreError::NoSpace);
        }
        self.engine.transact(work)
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.engine.settle()
    }

    fn recover(&self) -> Result<(), StoreError> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.engine.recover()
    }

    fn probe(&self) -> Result<(), StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
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
    let beside = Beside::on(&disk);
    let store = beside.store();
    put(&store, "a", "before").unwrap();
    disk.cannot_grow.store(true, Ordering::SeqCst);
    let long = "x".repeat(10 << 20);
    let refused = store.write_blocking("fill", move |tx| RAW.put(tx, "fill", &long));
    assert!(matches!(refused, Err(StoreError::NoSpace)), "{refused:?}");
    while beside.asked.load(Ordering::SeqCst) < 20 {
        assert_eq!(get(&store, "a"), Some(note("before")));
    }
    assert_eq!(
        beside.opened.load(Ordering::SeqCst),
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
    let beside = Beside::on(&disk);
    beside.refuses.store(true, Ordering::SeqCst);
    let store = beside.store();
    while store.is_writable() {
        std::thread::yield_now();
    }
    beside.refuses.store(false, Ordering::SeqCst);
    while !store.is_writable() {
        std::thread::yield_now();
    }
    assert_eq!(store.read(|snapshot| meta_get(snapshot, PROOF)).unwrap(), None);
}

#[test]
fn what_a_file_has_taken_and_holds_nothing_is_known_and_given_back() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    let change = |change: &dyn Fn(&mut dyn Tx)| {
        let changed = engine.transact(&mut |tx| {
            change(tx);
            Verdict::Commit
        });
        changed.unwrap();
        engine.settle().unwrap();
    };
    let long = vec![1; 100_000];
    change(&|tx| (0..50).for_each(|key| tx.put(RAW.id(), &[key], &long).unwrap()));
    change(&|tx| tx.put(RAW.id(), b"last", b"stays").unwrap());
    let (taken, spare) = (engine.taken(), engine.spare().unwrap());
    assert!(
        taken > 5_000_000 && spare < 1_000_000,
        "{spare} of {taken} hold nothing"
    );
    change(&|tx| (0..50).for_each(|key| _ = tx.remove(RAW.id(), &[key]).unwrap()));
    let spare = engine.spare().unwrap();
    assert!(spare > 4_000_000, "{spare} of {} hold nothing", engine.taken());
    assert!(engine.compact().unwrap());
    assert!(engine.taken() < 2_000_000, "{} are taken", engine.taken());
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

/// How a process that is killed now leaves its files: as they are at one moment.
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

fn open(path: &Path) -> Result<Store, OpenError> {
    Store::open(path, Options::default())
}

fn fill(store: &Store, key: u32, text: &str) {
    let text = text.to_owned();
    store
        .write_blocking("fill", move |tx| RAW.put(tx, &key.to_string(), &text))
        .unwrap();
}

fn rows(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    store
        .read(|snapshot| {
            snapshot.range(RAW.id(), Bound::Unbounded, Bound::Unbounded, &mut |key, value| {
                rows.insert(key.to_vec(), value.to_vec());
                Ok(ControlFlow::Continue(()))
            })
        })
        .unwrap();
    rows
}

/// So many writes are in the database file, and after them so many are in the journal only.
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
        // Twice: what is killed again before it wrote anything is no worse for it.
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

fn killed_again(database: &Path) -> PathBuf {
    let again = database.with_extension("again");
    fs::copy(database, &again).unwrap();
    match fs::copy(journal_of(database), journal_of(&again)) {
        Ok(_) => {}
        Err(_) => drop(fs::remove_file(journal_of(&again))),
    }
    again
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
    assert_eq!(length, 8 << 20, "it grows no longer");
    assert_eq!(
        rows(&open(&killed(&folder, "killed.redb")).unwrap()),
        rows(&store)
    );
}

#[test]
fn a_journal_that_is_replayed_gives_back_what_it_does_not_need() {
    let folder = Folder::new();
    let store = store_with_journal(&folder, 1);
    let long = "x".repeat(100_000);
    for key in 0..120 {
        fill(&store, 100 + key, &long);
    }
    let copy = killed(&folder, "killed.redb");
    let length = |database: &Path| fs::metadata(journal_of(database)).unwrap().len();
    assert_eq!(length(&copy), 8 << 20);
    let revived = open(&copy).unwrap();
    assert!(length(&copy) < 8 << 20, "{}", length(&copy));
    assert_eq!(rows(&revived), rows(&store));
    let again = killed_again(&copy);
    assert_eq!(
        rows(&open(&again).unwrap()),
        rows(&store),
        "nothing that is needed went with it"
    );
}

#[test]
fn a_database_at_rest_does_without_its_journal() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    let change = |key: &[u8]| {
        engine
            .transact(&mut |tx| {
                tx.put(RAW.id(), key, b"value").unwrap();
                Verdict::Commit
            })
            .unwrap();
    };
    (0..5).for_each(|key: u8| change(&[key]));
    let overtaken = fs::read(journal_of(&folder.file())).unwrap();
    engine.settle().unwrap();
    change(b"newer");
    engine.settle().unwrap();
    fs::write(journal_of(&folder.file()), overtaken).unwrap();
    let revived = Redb::open_file(&killed(&folder, "killed.redb"), 1 << 20).unwrap();
    revived
        .read(&mut |snapshot| {
            assert!(snapshot.get(RAW.id(), b"newer")?.is_some());
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_writer_settles_the_database_when_nothing_is_written() {
    let folder = Folder::new();
    let store = store_with_journal(&folder, 3);
    let settled = loop {
        let copy = killed(&folder, "killed.redb");
        fs::write(journal_of(&copy), vec![0; 256 << 10]).unwrap();
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
    fs::write(journal_of(&copy), damaged).unwrap();
    let refused = |words: &str| match open(&copy) {
        Err(error @ OpenError::Damaged { .. }) => assert!(error.to_string().contains(words), "{error}"),
        other => panic!("{:?}", other.err()),
    };
    refused("journal is not what was written");
    fs::write(journal_of(&copy), "").unwrap();
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
    let change = |key: u8| {
        let written = engine.transact(&mut |tx| {
            tx.put(RAW.id(), &[key], b"value").unwrap();
            Verdict::Commit
        });
        written.unwrap();
    };
    (0..5).for_each(change);
    engine.recover().unwrap();
    change(5);
    fs::remove_file(journal_of(&folder.file())).unwrap();
    (6..10).for_each(change);
    let revived = Redb::open_file(&killed(&folder, "killed.redb"), 1 << 20).unwrap();
    let mut found = 0;
    let count = revived.read(&mut |snapshot| {
        snapshot.range(RAW.id(), Bound::Unbounded, Bound::Unbounded, &mut |_, _| {
            found += 1;
            Ok(ControlFlow::Continue(()))
        })
    });
    count.unwrap();
    assert_eq!(found, 10);
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
fn a_database_that_goes_missing_is_not_made_anew() {
    let folder = Folder::new();
    let engine = Redb::open_file(&folder.file(), 1 << 20).unwrap();
    fs::rename(folder.file(), folder.path("away.redb")).unwrap();
    assert!(engine.recover().is_err());
    assert!(!folder.file().exists());
    fs::rename(folder.path("away.redb"), folder.file()).unwrap();
    engine.recover().unwrap();
}

#[test]
fn whoever_has_lost_the_database_leaves_the_journal_of_the_next() {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn of_a_journal_that_was_cut_the_beginning_is_read(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let place = place(7, 0);
        let (bytes, records) = written(place, &contents);
        let cut = cut.index(bytes.len());
        let whole = records.iter().filter(|record| record.end <= cut).count();
        let mut padded = bytes[..cut].to_vec();
        padded.resize(bytes.len() + 100, 0);
        // Content that ends in zeros may be whole before its end.
        let read = journal::records(&padded, place).unwrap().contents;
        prop_assert!(read.len() >= whole && read == contents[..read.len()]);
        prop_assert_eq!(journal::records(&padded, self::place(8, 0)), Some(Found::default()));
    }

    #[test]
    fn a_record_that_changed_is_damage_unless_it_is_the_last(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 1..6),
        hit in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let place = place(7, 0);
        let (mut bytes, records) = written(place, &contents);
        let hit = hit.index(records.len());
        let record = records[hit].clone();
        bytes[record.start + at.index(record.len())] ^= flip;
        let expected = (hit == contents.len() - 1).then(|| contents[..hit].to_vec());
        let read = journal::records(&bytes, place).map(|found| found.contents);
        prop_assert_eq!(read, expected.as_deref().map(|kept| kept.iter().map(Vec::as_slice).collect()));
    }
}

fn place(mark: u8, number: u64) -> Place {
    let mark = journal::Mark([mark; 16]);
    Place { mark, number }
}

/// The bytes of a journal with these records, and where each of them is.
fn written(place: Place, contents: &[Vec<u8>]) -> (Vec<u8>, Vec<Range<usize>>) {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    for (number, content) in (place.number..).zip(contents) {
        let start = bytes.len();
        journal::write_record(Place { number, ..place }, content, &mut bytes);
        records.push(start..start + journal::HEAD_LEN + content.len());
    }
    (bytes, records)
}
