//! Puts a backup into a data directory that holds no database.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::atomic_file;
use super::atomic_file::AtomicFile;
use super::lock::is_served;
use super::master_key;
use super::master_key::{MASTER_KEY, MasterKey};
use super::{DATABASE, DataDirError};
use crate::config::Settings;
use crate::data_dir;
use crate::flow::Catalog;
use crate::random::Random;
use crate::seal::Sealer;
use crate::store::Options;
use crate::store::backup::{self, BackupError, Header, Incoming};
use crate::store::engine::redb::journal_of;
use crate::store::schema::Schema;

/// Why nothing was restored. The directory is then as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is a database.
    #[error("{} is there already: a backup is restored where nothing is; name an empty directory with --data-dir, or stop the service and move the file away", .0.display())]
    NotEmpty(PathBuf),
    /// A service has the directory, even one whose database was moved away.
    #[error("a service runs on {}: stop it first", .0.display())]
    Served(PathBuf),
    /// Another process restores into the same directory.
    #[error("another restore into {} is under way: wait for its end", .0.display())]
    UnderWay(PathBuf),
    /// The key is nowhere.
    #[error("the master key is not in this backup, and there is none in {}: put it there, or name it with --master-key FILE (its fingerprint is {fingerprint})", path.display())]
    NoKey {
        /// Where it was looked for.
        path: PathBuf,
        /// Which it must be.
        fingerprint: String,
    },
    /// The key is another one.
    #[error("{} is another master key than the backup was made under (its fingerprint is {fingerprint}): use the one that belongs to it", path.display())]
    OtherKey {
        /// Where the other was found.
        path: PathBuf,
        /// Which it must be.
        fingerprint: String,
    },
    /// The backup cannot be used.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// What was restored cannot be read.
    #[error(transparent)]
    Core(#[from] crate::flow::OpenError),
}

/// Restores a backup into `directory`, brings it to this release's schema and opens it, before it takes its
/// place. The master key is looked for in `key_file`, in the directory and in the backup, in this order.
pub fn restore(
    directory: &Path,
    source: &mut dyn Read,
    key_file: Option<&Path>,
    random: &Random,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Header, RestoreError> {
    let database = directory.join(DATABASE);
    if fs::metadata(&database).is_ok_and(|found| found.len() != 0) {
        return Err(RestoreError::NotEmpty(database));
    }
    // Left by a process that was killed, it holds the last writes of a database that was moved away.
    let journal = journal_of(&database);
    if journal.exists() {
        return Err(RestoreError::NotEmpty(journal));
    }
    if is_served(directory)? {
        return Err(RestoreError::Served(directory.to_owned()));
    }
    let incoming = Incoming::open(source)?;
    let header = incoming.header().clone();
    let supported = Schema::CURRENT.version();
    if header.schema > supported {
        return Err(BackupError::Newer(format!(
            "schema {}, this one knows up to {supported}",
            header.schema
        ))
        .into());
    }
    let key = find_key(directory, key_file, &header)?;
    let sealer = Sealer::new(&key);
    let folder = Folder::make(directory)?;
    let alone = File::open(directory).map_err(data_dir::io_error(directory))?;
    // Not every file system has locks; on one without, nothing is swept.
    if matches!(alone.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(RestoreError::UnderWay(directory.to_owned()));
    }
    atomic_file::sweep(directory, |name, _| name.starts_with(DATABASE));
    let mut unfinished = AtomicFile::beside(&database, random);
    let mut rows = incoming.rows(sealer.backup_key());
    let store = backup::restore(
        unfinished.path(),
        &mut rows,
        Options::default(),
        &Schema::CURRENT,
        progress,
    )?;
    let issuer = header.issuer.clone().unwrap_or_default();
    Catalog::load(&store, &sealer, &Settings::default().policy(&issuer))?;
    store.close();
    let key_path = directory.join(MASTER_KEY);
    let is_key_new = !key_path.exists();
    if is_key_new {
        master_key::place_key(&key_path, &key, random).map_err(data_dir::io_error(&key_path))?;
    }
    if fs::metadata(&database).is_ok_and(|found| found.len() == 0) {
        fs::remove_file(&database).map_err(data_dir::io_error(&database))?;
    }
    if let Err(error) = unfinished.place(&database, false) {
        if is_key_new && error.kind() != io::ErrorKind::AlreadyExists {
            // The key of a database that is not there would be in the way of the next attempt's.
            let _ = fs::remove_file(&key_path);
        }
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => RestoreError::NotEmpty(database),
            _ => data_dir::io_error(&database)(error).into(),
        });
    }
    folder.keep();
    Ok(header)
}

fn find_key(directory: &Path, key_file: Option<&Path>, header: &Header) -> Result<MasterKey, RestoreError> {
    let own = directory.join(MASTER_KEY);
    let fingerprint = header.master_key_fingerprint.clone();
    // A key that lies in the directory is never replaced, so it must be the right one.
    for path in [Some(own.as_path()), key_file].into_iter().flatten() {
        match master_key::read_key(path)? {
            Some(key) if Sealer::new(&key).fingerprint() == fingerprint => return Ok(key),
            Some(_) => {
                return Err(RestoreError::OtherKey {
                    path: path.to_owned(),
                    fingerprint,
                });
            }
            None if Some(path) == key_file => {
                return Err(RestoreError::NoKey {
                    path: path.to_owned(),
                    fingerprint,
                });
            }
            None => {}
        }
    }
    let enclosed = header
        .master_key
        .as_ref()
        .and_then(|text| master_key::from_hex(text));
    enclosed
        .filter(|key| Sealer::new(key).fingerprint() == fingerprint)
        .ok_or(RestoreError::NoKey {
            path: own,
            fingerprint,
        })
}

/// The data directory, removed again when it was made here and nothing came of it.
struct Folder<'a> {
    path: &'a Path,
    is_kept: bool,
}

impl<'a> Folder<'a> {
    fn make(path: &'a Path) -> Result<Self, DataDirError> {
        let is_kept = path.exists();
        data_dir::make_folder(path)?;
        Ok(Self { path, is_kept })
    }

    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Folder<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            // Not if it has come to hold something.
            let _ = fs::remove_dir(self.path);
        }
    }
}
