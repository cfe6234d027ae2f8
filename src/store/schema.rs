//! The schema version of the store, and the upgrade of an older store.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[cfg(feature = "postgres")]
use super::Store;
use super::engine::redb::{INSPECTION_CACHE_BYTES, Redb, inspect, remove_file, sync_folder_of};
use super::engine::{Backend, CommitDecision, Snapshot, Tx};
use super::table::Table;
use super::{OpenError, StoreError};
use crate::files::{self, owner};

/// Named values about the store itself: the schema, and the values that the first start fixes. No release changes the
/// format of this table, so that an older release can see that the store is too new for it.
pub const META: Table<String, String> = Table::new(0, "meta");

pub(super) const SCHEMA: &str = "schema";

/// A step from one schema to the next. Runs inside the transaction that records the new version.
pub type Migration = fn(&mut dyn Tx) -> Result<(), StoreError>;

/// The schema of a release: the ordered list of its migrations. The first version is 1; every migration adds one.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    migrations: &'static [Migration],
}

impl Schema {
    /// The schema after `migrations`. New migrations are only appended.
    pub const fn new(migrations: &'static [Migration]) -> Self {
        Self { migrations }
    }

    /// The version that is recorded in the store.
    pub fn version(&self) -> u32 {
        u32::try_from(self.migrations.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1)
    }

    /// Checks a database file before it is opened for writing. A newer database is refused and not changed.
    pub fn inspect(&self, path: &Path) -> Result<(), OpenError> {
        inspect(path, |snapshot| self.migrations_from(stored(snapshot)?)).map(|_| ())
    }

    /// Copies a database of an earlier schema to a file beside it, which is named after the new schema:
    /// `idsvc.redb.before-v2`. Returns the path of the copy; none if no upgrade is needed.
    ///
    /// The database is open, and thereby locked, until the upgrade is done. If two processes of a new release start at
    /// once, one waits for the other or gives up, and neither changes the other's copy.
    pub fn copy_before_upgrade(&self, engine: &Redb, path: &Path) -> Result<Option<PathBuf>, OpenError> {
        if self.migrations_from(stored_in(engine)?)?.is_empty() {
            return Ok(None);
        }
        engine.remove_journal()?;
        let copy = copy_path(path, self.version());
        copy_file(path, &copy)?;
        tracing::info!(copy = %copy.display(), "the database was copied before its new schema");
        Ok(Some(copy))
    }

    /// Runs the missing migrations in one transaction, which changes everything or nothing.
    pub fn upgrade(&self, backend: &dyn Backend) -> Result<(), OpenError> {
        if stored_in(backend)? == Some(self.version()) {
            return Ok(());
        }
        let mut outcome = Ok(false);
        backend.transact(&mut |tx| {
            outcome = self.upgrade_in(tx);
            match outcome {
                Ok(true) => CommitDecision::Commit,
                _ => CommitDecision::RollBack,
            }
        })?;
        outcome.map(drop)
    }

    /// Runs the missing migrations inside a transaction. Returns whether the store had another schema.
    pub(super) fn upgrade_in(&self, tx: &mut dyn Tx) -> Result<bool, OpenError> {
        let found = stored(tx)?;
        if found == Some(self.version()) {
            return Ok(false);
        }
        for migration in self.migrations_from(found)? {
            migration(tx)?;
        }
        meta_put(tx, SCHEMA, &self.version().to_string())?;
        Ok(true)
    }

    /// Checks that a store on a server has this schema.
    #[cfg(feature = "postgres")]
    pub fn check(&self, store: &Store) -> Result<(), OpenError> {
        let found = store.read_blocking(|snapshot| meta_get(snapshot, SCHEMA))?;
        let found = found.and_then(|text| text.parse().ok());
        match found {
            Some(found) if self.migrations_from(Some(found))?.is_empty() => Ok(()),
            _ => Err(StoreError::NotSetUp.into()),
        }
    }

    /// Runs the missing migrations on a store on a server, in one transaction. Returns whether it had another schema.
    #[cfg(feature = "postgres")]
    pub fn migrate(&self, store: &Store) -> Result<bool, OpenError> {
        let schema = *self;
        store.write_blocking("migrate", move |tx| match schema.upgrade_in(tx) {
            Err(OpenError::Store(error)) => Err(error),
            upgraded => Ok(upgraded),
        })?
    }

    /// The missing migrations; none for a new store.
    fn migrations_from(&self, found: Option<u32>) -> Result<&'static [Migration], OpenError> {
        let Some(found) = found else { return Ok(&[]) };
        let done = usize::try_from(found.saturating_sub(1)).unwrap_or(usize::MAX);
        self.migrations.get(done..).ok_or(OpenError::Newer {
            found,
            supported: self.version(),
        })
    }
}

/// The recorded version; `None` in a new store.
pub fn stored(snapshot: &dyn Snapshot) -> Result<Option<u32>, StoreError> {
    let corrupt = |what: &str| StoreError::Corrupt {
        table: META.id().name(),
        what: what.to_owned(),
    };
    match meta_get(snapshot, SCHEMA)? {
        None if META.count(snapshot)? == 0 => Ok(None),
        None => Err(corrupt("the schema is missing")),
        Some(text) => match text.parse() {
            Ok(version) if version > 0 => Ok(Some(version)),
            _ => Err(corrupt("the schema is not a positive number")),
        },
    }
}

/// The recorded version of an engine.
pub(super) fn stored_in(backend: &dyn Backend) -> Result<Option<u32>, StoreError> {
    let mut found = None;
    backend.read(&mut |snapshot| {
        found = stored(snapshot)?;
        Ok(())
    })?;
    Ok(found)
}

/// A named value about the store.
pub fn meta_get(snapshot: &dyn Snapshot, name: &str) -> Result<Option<String>, StoreError> {
    META.get(snapshot, name)
}

/// Sets a named value about the store.
pub fn meta_put(tx: &mut dyn Tx, name: &str, value: &str) -> Result<(), StoreError> {
    META.put(tx, name, &value.to_owned())
}

fn copy_path(path: &Path, version: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".before-v{version}"));
    PathBuf::from(name)
}

/// Copies through a temporary file. An interrupted copy therefore never replaces a complete one, and a failed copy is
/// removed. The copy of an open file looks like the file of a killed process: opening and closing it once repairs it, and
/// shows that it can be opened.
fn copy_file(from: &Path, to: &Path) -> Result<(), OpenError> {
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let io_failed = |source| OpenError::Io {
        path: to.to_owned(),
        source,
    };
    let copied = write_copy(from, &partial)
        .map_err(io_failed)
        .and_then(|()| Ok(Redb::open_without_journal(&partial, INSPECTION_CACHE_BYTES)?.shut()?))
        .and_then(|()| fs::rename(&partial, to).map_err(io_failed));
    if copied.is_err() {
        let _ = fs::remove_file(&partial);
    }
    copied?;
    sync_folder_of(to).map_err(io_failed)
}

/// Writes a copy that belongs to the owner of the original. Removes the rest of an interrupted copy first.
fn write_copy(from: &Path, to: &Path) -> io::Result<()> {
    remove_file(to)?;
    let mut copy = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)?;
    owner::chown_like(&copy, from)?;
    io::copy(&mut files::open_to_read(from)?, &mut copy)?;
    copy.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::sync::Mutex;

    use super::*;
    use crate::store::engine::redb::journal_of;
    use crate::store::engine::tests::Folder;
    use crate::store::{Options, Store};

    const COUNTS: Table<String, u32> = Table::new(1, "counts");
    const FIRST: Schema = Schema::new(&[]);
    const SECOND: Schema = Schema::new(&[count_up]);
    const UNLUCKY: Schema = Schema::new(&[count_up, refuse]);

    impl crate::store::record::Record for u32 {}

    fn count_up(tx: &mut dyn Tx) -> Result<(), StoreError> {
        let count = COUNTS.get(tx, "upgrades")?.unwrap_or(0);
        COUNTS.put(tx, "upgrades", &(count + 1))
    }

    fn refuse(_: &mut dyn Tx) -> Result<(), StoreError> {
        Err(StoreError::Corrupt {
            table: "counts",
            what: "a test says so".to_owned(),
        })
    }

    fn open(path: &Path, schema: &Schema) -> Result<Store, OpenError> {
        Store::open_with(path, Options::default(), schema)
    }

    /// Copies the files as a process that is killed now leaves them.
    fn copy_of_killed(folder: &Folder) -> PathBuf {
        let copy = folder.path("killed.redb");
        fs::copy(folder.file(), &copy).unwrap();
        fs::copy(journal_of(&folder.file()), journal_of(&copy)).unwrap();
        copy
    }

    fn count(store: &Store) -> Option<u32> {
        store
            .read_blocking(|snapshot| COUNTS.get(snapshot, "upgrades"))
            .unwrap()
    }

    fn version(store: &Store) -> Option<u32> {
        store.read_blocking(stored).unwrap()
    }

    #[test]
    fn a_new_store_takes_no_steps_and_is_not_copied() {
        let folder = Folder::new();
        let store = open(&folder.file(), &SECOND).unwrap();
        assert_eq!((version(&store), count(&store)), (Some(2), None));
        assert!(!copy_path(&folder.file(), 2).exists());
    }

    #[test]
    fn an_older_store_is_copied_and_then_brought_up_once() {
        let folder = Folder::new();
        let store = open(&folder.file(), &FIRST).unwrap();
        store
            .write_blocking("count", |tx| COUNTS.put(tx, "upgrades", &10))
            .unwrap();
        store.close();
        for _ in 0..2 {
            let store = open(&folder.file(), &SECOND).unwrap();
            assert_eq!((version(&store), count(&store)), (Some(2), Some(11)));
            store.close();
        }
        let copy = copy_path(&folder.file(), 2);
        let mode = fs::metadata(&copy).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "the copy is as confidential as the store");
        let copy = open(&copy, &FIRST).unwrap();
        assert_eq!((version(&copy), count(&copy)), (Some(1), Some(10)));
    }

    /// Otherwise a second process of the new release would replace the copy by one of its own.
    #[test]
    fn nobody_else_has_the_store_between_its_copy_and_its_new_schema() {
        static FOUND: Mutex<Vec<bool>> = Mutex::new(Vec::new());
        static PATH: Mutex<Option<PathBuf>> = Mutex::new(None);
        fn look(tx: &mut dyn Tx) -> Result<(), StoreError> {
            let path = PATH.lock().unwrap().clone().unwrap();
            let other = open(&path, &SECOND);
            let is_locked = matches!(other, Err(OpenError::AlreadyOpen { .. }));
            FOUND
                .lock()
                .unwrap()
                .push(is_locked && copy_path(&path, 2).exists());
            META.count(tx).map(drop)
        }
        let folder = Folder::new();
        open(&folder.file(), &FIRST).unwrap().close();
        *PATH.lock().unwrap() = Some(folder.file());
        let before = fs::metadata(folder.file()).unwrap().ino();
        let engine = Redb::open_file(&folder.file(), INSPECTION_CACHE_BYTES).unwrap();
        assert!(matches!(
            open(&folder.file(), &SECOND),
            Err(OpenError::AlreadyOpen { .. })
        ));
        assert!(
            !copy_path(&folder.file(), 2).exists(),
            "the loser has copied what it has not"
        );
        drop(engine);
        open(&folder.file(), &Schema::new(&[look])).unwrap().close();
        assert_eq!(*FOUND.lock().unwrap(), [true]);
        assert_eq!(fs::metadata(folder.file()).unwrap().ino(), before);
        assert!(open(&copy_path(&folder.file(), 2), &FIRST).is_ok());
    }

    /// Root may run the first command of a new release.
    #[test]
    fn the_copy_belongs_to_whom_the_store_belongs_to() {
        let folder = Folder::new();
        open(&folder.file(), &FIRST).unwrap().close();
        let owner = |path: &Path| fs::metadata(path).unwrap().uid();
        if owner(&folder.file()) == 0 {
            chown(folder.file(), Some(64_242), Some(64_243)).unwrap();
        }
        open(&folder.file(), &SECOND).unwrap().close();
        assert_eq!(owner(&copy_path(&folder.file(), 2)), owner(&folder.file()));
    }

    #[test]
    fn the_copy_of_a_store_whose_process_was_killed_is_whole() {
        let folder = Folder::new();
        let store = open(&folder.file(), &FIRST).unwrap();
        for count in 0..5 {
            store
                .write_blocking("count", move |tx| COUNTS.put(tx, "upgrades", &count))
                .unwrap();
        }
        let killed = copy_of_killed(&folder);
        assert_eq!(count(&open(&killed, &SECOND).unwrap()), Some(5));
        assert_eq!(count(&open(&copy_path(&killed, 2), &FIRST).unwrap()), Some(4));
    }

    #[test]
    fn an_upgrade_that_fails_changes_nothing() {
        let folder = Folder::new();
        open(&folder.file(), &FIRST).unwrap().close();
        let refused = open(&folder.file(), &UNLUCKY);
        assert!(matches!(
            refused,
            Err(OpenError::Store(StoreError::Corrupt { .. }))
        ));
        let store = open(&folder.file(), &FIRST).unwrap();
        assert_eq!((version(&store), count(&store)), (Some(1), None));
    }

    #[test]
    fn a_newer_store_is_refused_and_not_touched() {
        let folder = Folder::new();
        open(&folder.file(), &SECOND).unwrap().close();
        let before = fs::read(folder.file()).unwrap();
        let refused = open(&folder.file(), &FIRST);
        assert!(matches!(
            refused,
            Err(OpenError::Newer {
                found: 2,
                supported: 1
            })
        ));
        assert!(fs::read(folder.file()).unwrap() == before);
        assert!(open(&folder.file(), &SECOND).is_ok());
    }

    #[test]
    fn a_newer_store_whose_process_was_killed_is_refused_and_loses_nothing() {
        let folder = Folder::new();
        let running = open(&folder.file(), &SECOND).unwrap();
        running
            .write_blocking("count", |tx| COUNTS.put(tx, "upgrades", &7))
            .unwrap();
        let killed = copy_of_killed(&folder);
        assert!(matches!(open(&killed, &FIRST), Err(OpenError::Newer { .. })));
        assert_eq!(count(&open(&killed, &SECOND).unwrap()), Some(7));
    }

    #[test]
    fn a_store_without_its_schema_is_not_taken_for_a_new_one() {
        let folder = Folder::new();
        let store = open(&folder.file(), &FIRST).unwrap();
        store
            .write_blocking("forget", |tx| {
                META.remove(tx, SCHEMA)?;
                meta_put(tx, "issuer", "https://id.example")
            })
            .unwrap();
        store.close();
        let refused = open(&folder.file(), &FIRST);
        assert!(matches!(
            refused,
            Err(OpenError::Store(StoreError::Corrupt { table: "meta", .. }))
        ));
    }
}
