//! The data directory of a node: the database is on a PostgreSQL server, and all nodes have the same master key.

use std::path::{Path, PathBuf};

use super::access::check_writers;
use super::lock::DirectoryLock;
use super::master_key::{MASTER_KEY, read_key, write_key};
use super::{DATABASE, DataDir, DataDirError, IfMissing, has_content, io_error, is_there, make_folder};
use crate::admin::installation::stored_fingerprint;
use crate::random::Random;
use crate::seal::Sealer;
use crate::store::engine::redb::journal_of;
use crate::store::{Address, MigrationOutcome, Options, Store};

/// Makes a data directory with a new master key, and with a database file unless the database is at `address`. Returns the
/// fingerprint of the key.
pub fn init(path: &Path, address: Option<&Address>, random: &Random) -> Result<String, DataDirError> {
    if path.exists() {
        check_writers(path)?;
    }
    let key_path = path.join(MASTER_KEY);
    if read_key(&key_path)?.is_some() {
        return Err(DataDirError::KeyPresent(key_path));
    }
    let Some(address) = address else {
        // A key without a database file would mean that the file was lost, so the file is made too.
        return Ok(DataDir::open(path, IfMissing::Create, random)?
            .sealer
            .fingerprint());
    };
    check_no_file(path, address)?;
    check_unsealed(path, address)?;
    make_folder(path)?;
    let key = Sealer::generate(random);
    write_key(path, &key, random).map_err(io_error(&key_path))?;
    Ok(Sealer::new(&key).fingerprint())
}

/// Checks that no master key belongs to the database. One that cannot be reached or has no tables may be set up later.
fn check_unsealed(path: &Path, address: &Address) -> Result<(), DataDirError> {
    let Ok(store) = connect(address, Options::default()) else {
        return Ok(());
    };
    match stored_fingerprint(&store)? {
        None => Ok(()),
        Some(_) => Err(DataDirError::NodeKeyElsewhere {
            path: path.to_owned(),
            address: address.to_string(),
        }),
    }
}

/// Checks that the directory has a master key and no database file, and locks it.
pub(super) fn lock(path: &Path, address: &Address) -> Result<DirectoryLock, DataDirError> {
    check_no_file(path, address)?;
    let key_path = path.join(MASTER_KEY);
    if read_key(&key_path)?.is_none() {
        return Err(DataDirError::NodeKeyMissing(key_path));
    }
    DirectoryLock::take(path)
}

/// Refuses a directory with a database file, so that no process runs on the wrong database.
pub(super) fn check_no_file(path: &Path, address: &Address) -> Result<(), DataDirError> {
    match database_file(path)? {
        None => Ok(()),
        Some(path) => Err(DataDirError::TwoDatabases {
            path,
            address: address.to_string(),
        }),
    }
}

/// The database file of a directory, or its journal, if there is one. The file may have been moved away without its
/// journal. After a kill, only the journal has the last writes.
pub(super) fn database_file(path: &Path) -> Result<Option<PathBuf>, DataDirError> {
    let database = path.join(DATABASE);
    if has_content(&database)? {
        return Ok(Some(database));
    }
    let journal = journal_of(&database);
    Ok(is_there(&journal)?.then_some(journal))
}

/// Sets up the database for this release, or upgrades it.
#[cfg(feature = "postgres")]
pub fn migrate(address: &Address) -> Result<MigrationOutcome, DataDirError> {
    Ok(Store::migrate(address)?)
}

/// Refuses the address, because this executable cannot use it.
#[cfg(not(feature = "postgres"))]
pub fn migrate(_: &Address) -> Result<MigrationOutcome, DataDirError> {
    Err(DataDirError::BuiltWithoutPostgres)
}

/// Connects to the database.
#[cfg(feature = "postgres")]
pub(super) fn connect(address: &Address, options: Options) -> Result<Store, DataDirError> {
    Ok(Store::connect(address, options)?)
}

/// Refuses the address, because this executable cannot use it.
#[cfg(not(feature = "postgres"))]
pub(super) fn connect(_: &Address, _: Options) -> Result<Store, DataDirError> {
    Err(DataDirError::BuiltWithoutPostgres)
}
