//! Restores a backup into a data directory without a database.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::atomic_file::{self, AtomicFile};
use super::lock::is_served;
use super::master_key::{self, MASTER_KEY, MasterKey};
use super::{DATABASE, DataDirError};
use crate::data_dir;
use crate::files::Folder;
use crate::flow::Catalog;
use crate::random::Random;
use crate::seal::Sealer;
use crate::store::Options;
use crate::store::backup::{self, BackupError, BackupReader, Header};
use crate::store::engine::redb::journal_of;
use crate::store::schema::Schema;

/// Why nothing was restored. The directory is unchanged then.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The directory holds a database.
    #[error("{} is there already: a backup is restored where nothing is; name an empty directory with --data-dir, or stop the service and move the file away", .0.display())]
    NotEmpty(PathBuf),
    /// A service uses the directory. Its database may have been moved away.
    #[error("a service runs on {}: stop it first", .0.display())]
    Served(PathBuf),
    /// Another process restores into the same directory.
    #[error("another restore into {} is under way: wait for its end", .0.display())]
    UnderWay(PathBuf),
    /// The master key is missing.
    #[error("the master key is not in this backup, and there is none in {}: put it there, or name it with --master-key FILE (its fingerprint is {fingerprint})", path.display())]
    NoKey {
        /// The path where the key was expected.
        path: PathBuf,
        /// The fingerprint of the required key.
        fingerprint: String,
    },
    /// The directory or the file holds another key.
    #[error("{} is another master key than the backup was made under (its fingerprint is {fingerprint}): use the one that belongs to it", path.display())]
    OtherKey {
        /// The path of the other key.
        path: PathBuf,
        /// The fingerprint of the required key.
        fingerprint: String,
    },
    /// The backup cannot be used.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The restored data cannot be read.
    #[error(transparent)]
    Core(#[from] crate::flow::OpenError),
}

/// Checks that a directory has no database and no running service. Returns the path that its database will have.
pub fn check_target(directory: &Path) -> Result<PathBuf, RestoreError> {
    let database = directory.join(DATABASE);
    if data_dir::has_content(&database)? {
        return Err(RestoreError::NotEmpty(database));
    }
    // The database may have been moved away without its journal. After a kill, only the journal holds the last writes, so
    // nothing is restored beside it.
    let journal = journal_of(&database);
    if data_dir::is_there(&journal)? {
        return Err(RestoreError::NotEmpty(journal));
    }
    if is_served(directory)? {
        return Err(RestoreError::Served(directory.to_owned()));
    }
    Ok(database)
}

/// Restores a backup to a temporary file, upgrades it to the schema of this release and opens it. Then it is moved into
/// `directory`. The master key comes from the directory, `key_file` or the backup, in this order.
pub fn restore(
    directory: &Path,
    source: &mut dyn Read,
    key_file: Option<&Path>,
    random: &Random,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Header, RestoreError> {
    let database = check_target(directory)?;
    let incoming = BackupReader::open(source)?;
    let header = incoming.header().clone();
    let supported = Schema::CURRENT.version();
    if header.schema > supported {
        let versions = format!("schema {}, this one knows up to {supported}", header.schema);
        return Err(BackupError::Newer(versions).into());
    }
    let key = find_key(directory, key_file, &header)?;
    let sealer = Sealer::new(&key);
    let target = TargetFolder::create(directory)?;
    let directory_lock = File::open(directory).map_err(data_dir::io_error(directory))?;
    // Without locks in the file system, nothing is swept.
    if matches!(directory_lock.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(RestoreError::UnderWay(directory.to_owned()));
    }
    let folder = Folder::open(directory).map_err(data_dir::io_error(directory))?;
    atomic_file::sweep(&folder, |name, _| name.starts_with(DATABASE));
    let mut unfinished = AtomicFile::new(&folder, DATABASE, random);
    let mut rows = incoming.rows(sealer.backup_key());
    let store = backup::restore(
        &unfinished.path(),
        &mut rows,
        Options::default(),
        &Schema::CURRENT,
        progress,
    )?;
    Catalog::load_blocking(&store, &sealer)?;
    store.close();
    let key_path = directory.join(MASTER_KEY);
    let is_key_new = !data_dir::is_there(&key_path)?;
    if is_key_new {
        master_key::write_key(directory, &key, random).map_err(data_dir::io_error(&key_path))?;
    }
    if data_dir::is_there(&database)? && !data_dir::has_content(&database)? {
        fs::remove_file(&database).map_err(data_dir::io_error(&database))?;
    }
    if let Err(error) = unfinished.place(DATABASE, false) {
        if is_key_new && error.kind() != io::ErrorKind::AlreadyExists {
            // A key without its database would make the next restore fail.
            let _ = fs::remove_file(&key_path);
        }
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => RestoreError::NotEmpty(database),
            _ => data_dir::io_error(&database)(error).into(),
        });
    }
    target.keep();
    Ok(header)
}

fn find_key(directory: &Path, key_file: Option<&Path>, header: &Header) -> Result<MasterKey, RestoreError> {
    let own = directory.join(MASTER_KEY);
    let fingerprint = header.master_key_fingerprint.clone();
    // A key in the directory is never replaced, so it must be the right one.
    for path in [Some(own.as_path()), key_file].into_iter().flatten() {
        let found = if path == own {
            master_key::read_key(path)
        } else {
            master_key::parse_key(path, File::open(path))
        };
        match found? {
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

/// The data directory. If it was created here and the restore fails, it is removed again.
struct TargetFolder<'a> {
    path: &'a Path,
    is_kept: bool,
}

impl<'a> TargetFolder<'a> {
    fn create(path: &'a Path) -> Result<Self, DataDirError> {
        let is_kept = path.exists();
        data_dir::make_folder(path)?;
        Ok(Self { path, is_kept })
    }

    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for TargetFolder<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            // Fails if the directory is not empty.
            let _ = fs::remove_dir(self.path);
        }
    }
}
