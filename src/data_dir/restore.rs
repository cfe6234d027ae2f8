//! Restores a backup into a data directory without a database, or into an empty database on a server.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::atomic_file::{self, AtomicFile, IfExists};
use super::lock::is_served;
use super::master_key::{self, MASTER_KEY, MasterKey};
use super::{DATABASE, DataDirError, node};
use crate::data_dir;
use crate::files::Folder;
use crate::flow::Catalog;
use crate::random::Random;
use crate::seal::Sealer;
#[cfg(feature = "postgres")]
use crate::store::DatabaseLoad;
use crate::store::backup::{self, BackupError, BackupReader, Header, Rows};
use crate::store::schema::Schema;
use crate::store::{Address, Options};

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

/// Checks that a directory has no running service, and that there is no database: neither in the directory nor, with an
/// address, on the server.
pub fn check_target(directory: &Path, address: Option<&Address>) -> Result<(), RestoreError> {
    match address {
        Some(address) => node::check_no_file(directory, address)?,
        None => {
            if let Some(found) = node::database_file(directory)? {
                return Err(RestoreError::NotEmpty(found));
            }
        }
    }
    if is_served(directory)? {
        return Err(RestoreError::Served(directory.to_owned()));
    }
    match address {
        Some(address) => check_empty(address),
        None => Ok(()),
    }
}

/// Restores a backup into the database at `address`, or else into `directory`, and upgrades it to the schema of this
/// release. The master key comes from the directory, `key_file` or the backup, in this order.
pub fn restore(
    directory: &Path,
    address: Option<&Address>,
    source: &mut dyn Read,
    key_file: Option<&Path>,
    random: &Random,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<Header, RestoreError> {
    check_target(directory, address)?;
    let incoming = BackupReader::open(source)?;
    let mut header = incoming.header().clone();
    let supported = Schema::CURRENT.version();
    if header.schema > supported {
        let versions = format!("schema {}, this one knows up to {supported}", header.schema);
        return Err(BackupError::Newer(versions).into());
    }
    let key = find_key(directory, key_file, &header)?;
    let target = TargetFolder::create(directory)?;
    let directory_lock = File::open(directory).map_err(data_dir::io_error(directory))?;
    // Without locks in the file system, nothing is swept.
    if matches!(directory_lock.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(RestoreError::UnderWay(directory.to_owned()));
    }
    let sealer = Sealer::new(&key);
    let mut rows = incoming.rows(sealer.backup_key());
    match address {
        Some(address) => load(&target, address, &mut rows, &key, random, progress)?,
        None => restore_file(&target, &mut rows, &key, random, progress)?,
    }
    target.keep();
    header.rows = Some(rows.progress().read);
    Ok(header)
}

/// Restores to a temporary file and opens it. Then it is moved into the directory.
fn restore_file(
    target: &TargetFolder<'_>,
    rows: &mut Rows<&mut dyn Read>,
    key: &MasterKey,
    random: &Random,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<(), RestoreError> {
    let database = target.path.join(DATABASE);
    let folder = Folder::open(target.path).map_err(data_dir::io_error(target.path))?;
    atomic_file::sweep(&folder, |name, _| name.starts_with(DATABASE));
    let mut unfinished = AtomicFile::new(&folder, DATABASE, random);
    let store = backup::restore(
        &unfinished.path(),
        rows,
        Options::default(),
        &Schema::CURRENT,
        progress,
    )?;
    Catalog::load_blocking(&store, &Sealer::new(key), usize::MAX)?;
    store.close();
    let is_key_new = target.keep_key(key, random)?;
    if data_dir::is_there(&database)? && !data_dir::has_content(&database)? {
        fs::remove_file(&database).map_err(data_dir::io_error(&database))?;
    }
    if let Err(error) = unfinished.place(DATABASE, IfExists::Refuse) {
        if is_key_new && error.kind() != io::ErrorKind::AlreadyExists {
            // A key without its database would make the next restore fail.
            let _ = fs::remove_file(target.path.join(MASTER_KEY));
        }
        return Err(match error.kind() {
            io::ErrorKind::AlreadyExists => RestoreError::NotEmpty(database),
            _ => data_dir::io_error(&database)(error).into(),
        });
    }
    Ok(())
}

/// Restores into a database on a server, in one transaction. The key is in the directory before the commit.
#[cfg(feature = "postgres")]
fn load(
    target: &TargetFolder<'_>,
    address: &Address,
    rows: &mut Rows<&mut dyn Read>,
    key: &MasterKey,
    random: &Random,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<(), RestoreError> {
    let load = backup::load(address, rows, &Schema::CURRENT, progress)?;
    Catalog::check(&load, &Sealer::new(key))?;
    target.keep_key(key, random)?;
    Ok(load.commit().map_err(BackupError::from)?)
}

#[cfg(not(feature = "postgres"))]
fn load(
    _: &TargetFolder<'_>,
    _: &Address,
    _: &mut Rows<&mut dyn Read>,
    _: &MasterKey,
    _: &Random,
    _: &mut dyn FnMut(u64, Option<u64>),
) -> Result<(), RestoreError> {
    Err(DataDirError::BuiltWithoutPostgres.into())
}

#[cfg(feature = "postgres")]
fn check_empty(address: &Address) -> Result<(), RestoreError> {
    Ok(DatabaseLoad::check(address).map_err(BackupError::from)?)
}

#[cfg(not(feature = "postgres"))]
fn check_empty(_: &Address) -> Result<(), RestoreError> {
    Err(DataDirError::BuiltWithoutPostgres.into())
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

    /// Writes the master key, unless there is one. Returns whether it did.
    fn keep_key(&self, key: &MasterKey, random: &Random) -> Result<bool, DataDirError> {
        let path = self.path.join(MASTER_KEY);
        if data_dir::is_there(&path)? {
            return Ok(false);
        }
        master_key::write_key(self.path, key, random).map_err(data_dir::io_error(&path))?;
        Ok(true)
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
