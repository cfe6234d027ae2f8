//! The data directory: the database, its master key, and the values that the first start fixes.

pub mod access;
pub mod atomic_file;
pub mod disk;
pub mod lock;
pub mod master_key;
pub mod node;
pub mod restore;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use self::access::{check_writers, chmod_command, close_file, close_to_group};
use self::lock::DirectoryLock;
use self::master_key::{MASTER_KEY, read_key, read_or_create_key, sealer_of};
use crate::admin::installation;
use crate::clock::Timestamp;
use crate::control;
use crate::files::{self, Folder};
use crate::random::Random;
use crate::seal::Sealer;
use crate::store::address::BUILT_WITHOUT;
use crate::store::engine::redb::journal_of;
use crate::store::{self, Address, Options, Store, StoreError};

/// The file name of the database.
pub const DATABASE: &str = "idsvc.redb";
/// The folder of the backups in the data directory.
pub const BACKUPS: &str = "backups";
pub const BACKUP_ENDING: &str = ".backup";
/// The ending that encrypted backups have after [`BACKUP_ENDING`].
pub const ENCRYPTED_ENDING: &str = ".age";

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// The directory holds no data, and the caller may not create any.
    #[error("{} holds no data yet: start the service, or name its data directory with --data-dir", .0.display())]
    Absent(PathBuf),
    /// The operating system refused.
    #[error("{} cannot be used: {source}{}", path.display(), remedy(path, source))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Users outside the group of the directory can write to it.
    #[error(
        "{folder} can be written to by everybody ({mode:03o}), who could replace what is in it: chmod {right:03o} {folder}, or name a folder in it, which the service makes for itself: --data-dir {below}",
        folder = path.display(),
        right = mode & 0o700,
        below = path.join("idsvc").display()
    )]
    WritableByOthers {
        /// The directory.
        path: PathBuf,
        mode: u32,
    },
    /// A group that this process is not in can write to the directory.
    #[error(
        "{folder} can be written to by its group {group} ({mode:03o}), who could replace what is in it: chmod {right:03o} {folder}, or run this in that group (in a pod: securityContext.fsGroup: {group})",
        folder = path.display(),
        right = mode & 0o755
    )]
    WritableByGroup {
        /// The directory.
        path: PathBuf,
        mode: u32,
        /// The number of its group.
        group: u32,
    },
    /// The directory belongs to a user who is neither root nor the one that runs the process.
    #[error(
        "{folder} belongs to user {owner}, and this process runs as user {user}: run it as the owner (in a pod: securityContext.runAsUser: {owner}) or as root, or give the directory to this user with chown -R {user} {folder}",
        folder = path.display()
    )]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// The numbers of the owner and of this process.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// The group can write to the directory, and something in it belongs to a user who may be any member of the group.
    #[error(
        "{entry} belongs to user {owner}, and a group can write to the folder that it is in: a member of the group may have put it there. Look at it. If it belongs to this service, chown -Rh {user} {entry}, or run this as user {owner} (in a pod: securityContext.runAsUser: {owner}). Otherwise remove it",
        entry = path.display()
    )]
    ForeignEntry {
        /// The file, folder or link.
        path: PathBuf,
        /// The numbers of its owner and of the user of this process.
        owner: u32,
        user: u32,
    },
    /// The database is missing, but the key is not.
    #[error(
        "{} is missing (or empty) but master.key is there: put the database back; to start anew remove master.key; if the data is in PostgreSQL set store.url",
        .0.display()
    )]
    DatabaseMissing(PathBuf),
    /// The database is missing, but the journal of a killed process is not.
    #[error(
        "{} holds the last writes of a database that is not there: put the database back; to start anew remove it",
        .0.display()
    )]
    JournalAlone(PathBuf),
    /// The key is missing, but the database is not.
    #[error(
        "{} is missing, and what the database keeps secret cannot be read without it: put it back from where it was saved, or restore a backup together with its key",
        .0.display()
    )]
    KeyMissing(PathBuf),
    /// The key file is malformed.
    #[error("{} is not a master key (64 hexadecimal digits): put it back from where it was saved", .0.display())]
    KeyMalformed(PathBuf),
    /// The key belongs to another database.
    #[error(
        "{} is not the key that this database was sealed with: put back the one that belongs to it",
        .0.display()
    )]
    KeyForeign(PathBuf),
    /// A node has no key. Only [`node::init`] makes one, because all nodes must have the same.
    #[error("{} is missing: copy it from another node, or run idsvc init on the first node", .0.display())]
    NodeKeyMissing(PathBuf),
    /// The key of a node is not the one of the database.
    #[error("{} is not the key that {address} was sealed with: copy it from a node that uses this database", path.display())]
    NodeKeyForeign {
        /// The path of the key.
        path: PathBuf,
        /// The database, without its password.
        address: String,
    },
    /// The directory has a key already.
    #[error(
        "{} is there already and is kept: for another node, copy it into the data directory there, with mode 600 and the user of the service as its owner",
        .0.display()
    )]
    KeyPresent(PathBuf),
    /// There are two databases.
    #[error(
        "{file} is there, and store.url is {address}: only one of them may have the data. To stay with the file, remove store.url. To move to PostgreSQL, run idsvc backup without store.url, move the file away, and run idsvc restore with store.url",
        file = path.display()
    )]
    TwoDatabases {
        /// The database file, or its journal.
        path: PathBuf,
        /// The other database, without its password.
        address: String,
    },
    /// The executable has no client for PostgreSQL.
    #[error("{BUILT_WITHOUT}")]
    BuiltWithoutPostgres,
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] store::OpenError),
    /// The clients or keys cannot be read.
    #[error(transparent)]
    Core(#[from] crate::flow::OpenError),
    /// The database cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The configured base URL is not the one of the first start.
    #[error(
        "base_url is {configured}, but this service was set up as {stored}: its tokens and clients name that issuer. Set base_url back, or accept that access tokens issued before are refused and clients are configured anew, with idsvc config set-issuer {configured} --i-know --data-dir {}",
        data_dir.display()
    )]
    IssuerChanged {
        /// The data directory.
        data_dir: PathBuf,
        /// The issuer in the settings.
        configured: String,
        /// The issuer that the first start fixed.
        stored: String,
    },
    /// The configured base URL is not that of the nodes that run.
    #[error(
        "base_url is {configured}, but the nodes that use this database run as {stored}: set base_url to that. To change it, stop all nodes first"
    )]
    NodeIssuerDiffers {
        /// The issuer in the settings.
        configured: String,
        /// The issuer of the other nodes.
        stored: String,
    },
    /// A node has a new key, and the database has data.
    #[error(
        "{address} has data already, which a new master key cannot open: copy master.key from a node that uses this database into {folder}, with mode 600 and the user of the service as its owner",
        folder = path.display()
    )]
    NodeKeyElsewhere {
        /// The data directory.
        path: PathBuf,
        /// The database, without its password.
        address: String,
    },
    /// The development server was started on the data of a real service.
    #[error(
        "this data directory was set up without --dev, and the development server would add an example client and user to it: name another with --data-dir"
    )]
    NotForDevelopment,
    /// The control socket cannot be checked.
    #[error(transparent)]
    Control(#[from] control::client::ControlError),
    /// No issuer is configured or stored.
    #[error("this service has no address yet: set base_url (IDSVC_BASE_URL) or start it once")]
    NoIssuer,
}

/// An open data directory.
pub struct DataDir {
    path: PathBuf,
    /// The database.
    pub store: Store,
    /// The sealer under the master key.
    pub sealer: Sealer,
    /// The lock on the directory if the database is not in it. The caller keeps it as long as the store.
    pub lock: Option<DirectoryLock>,
}

/// The path of the socket where a running server accepts commands.
pub fn control_socket(data_dir: &Path) -> PathBuf {
    data_dir.join(control::SOCKET)
}

/// Turns an error of the operating system into one that names the path.
pub(crate) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> DataDirError {
    let path = path.to_owned();
    move |source| DataDirError::Io { path, source }
}

/// The hint for an error of the operating system; empty if none is known.
fn remedy(path: &Path, error: &io::Error) -> String {
    if files::is_of_link(error) {
        return ": put what it leads to in its place".to_owned();
    }
    let known = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let command = chmod_command(path).or_else(|| chmod_command(path.parent()?));
            if let Some(command) = command {
                return format!(": {command}");
            }
            ": run this as the user that owns the data directory, or as root"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ": free some space there",
        io::ErrorKind::FileTooLarge => ": raise the limit on the size of files (ulimit -f, LimitFSIZE)",
        io::ErrorKind::ReadOnlyFilesystem => ": make it writable, or name another directory with --data-dir",
        _ => "",
    };
    known.to_owned()
}

fn store_error(error: store::OpenError) -> DataDirError {
    match error {
        store::OpenError::Io { path, source } if !remedy(&path, &source).is_empty() => {
            DataDirError::Io { path, source }
        }
        error => DataDirError::Open(error),
    }
}

/// What happens if there is no data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMissing {
    /// The directory, the database and the master key are created.
    Create,
    /// The directory cannot be opened.
    Refuse,
}

impl DataDir {
    /// Opens the directory with the database in it.
    pub fn open(path: &Path, if_missing: IfMissing, random: &Random) -> Result<Self, DataDirError> {
        Self::open_caching(path, None, if_missing, Options::default().cache_bytes, random)
    }

    /// Opens the data directory, and the database at `address` or else in the directory. At most `cache_bytes` of the
    /// database file are cached in memory. With an address, nothing is created.
    pub fn open_caching(
        path: &Path,
        address: Option<&Address>,
        if_missing: IfMissing,
        cache_bytes: usize,
        random: &Random,
    ) -> Result<Self, DataDirError> {
        if path.exists() {
            check_writers(path)?;
            close_to_group(path);
        }
        let options = Options {
            cache_bytes,
            ..Options::default()
        };
        let Some(address) = address else {
            let store = open_file(path, if_missing, options)?;
            return Self::with_key(path, store, None, random);
        };
        let lock = node::lock(path, address)?;
        let store = node::connect(address, options)?;
        Self::with_key(path, store, Some(lock), random).map_err(|error| match error {
            DataDirError::KeyForeign(path) => DataDirError::NodeKeyForeign {
                path,
                address: address.to_string(),
            },
            error => error,
        })
    }

    /// Adds the master key. The first process that opens the store fixes the key's fingerprint.
    fn with_key(
        path: &Path,
        store: Store,
        lock: Option<DirectoryLock>,
        random: &Random,
    ) -> Result<Self, DataDirError> {
        let fingerprint = if let Some(stored) = installation::stored_fingerprint(&store)? {
            stored
        } else {
            let key = read_or_create_key(path, random)?;
            installation::fix_fingerprint(&store, &Sealer::new(&key).fingerprint())?
        };
        Ok(Self {
            path: path.to_owned(),
            store,
            sealer: sealer_of(path, &fingerprint)?,
            lock,
        })
    }

    /// Claims the directory for the development server. Fails if a real service has used it.
    pub fn claim_for_development(&self) -> Result<(), DataDirError> {
        if installation::is_for_development(&self.store)? {
            return Ok(());
        }
        match installation::stored_issuer(&self.store)? {
            Some(_) => Err(DataDirError::NotForDevelopment),
            None => Ok(installation::put_development(&self.store)?),
        }
    }

    /// Fixes the issuer at the first start. Later it fails unless `configured` is equal, byte for byte.
    pub fn fix_or_check_issuer(&self, configured: &str) -> Result<(), DataDirError> {
        let stored = self.fixed_issuer_or(Some(configured))?;
        if stored == configured {
            return Ok(());
        }
        if self.store.other_nodes_blocking()? > 0 {
            return Err(DataDirError::NodeIssuerDiffers {
                configured: configured.to_owned(),
                stored,
            });
        }
        Err(DataDirError::IssuerChanged {
            data_dir: self.path.clone(),
            configured: configured.to_owned(),
            stored,
        })
    }

    /// The fixed issuer. If none is fixed yet, fixes and returns `configured`.
    pub fn fixed_issuer_or(&self, configured: Option<&str>) -> Result<String, DataDirError> {
        if let Some(stored) = installation::stored_issuer(&self.store)? {
            return Ok(stored);
        }
        let configured = configured.ok_or(DataDirError::NoIssuer)?;
        Ok(installation::fix_issuer(&self.store, configured)?)
    }
}

/// Opens the database file of a directory, or creates it.
///
/// The key is created after the database, under the lock of the database. A key without a database therefore means
/// that the database was lost, not that the first start was interrupted.
fn open_file(path: &Path, if_missing: IfMissing, options: Options) -> Result<Store, DataDirError> {
    let database = path.join(DATABASE);
    let has_key = read_key(&path.join(MASTER_KEY))?.is_some();
    if !has_content(&database)? {
        let journal = journal_of(&database);
        if has_key {
            return Err(DataDirError::DatabaseMissing(database));
        }
        if is_there(&journal)? {
            return Err(DataDirError::JournalAlone(journal));
        }
        if if_missing == IfMissing::Refuse {
            return Err(DataDirError::Absent(path.to_owned()));
        }
    }
    make_folder(path)?;
    let store = Store::open(&database, options).map_err(store_error)?;
    files::open_to_read(&database)
        .and_then(|file| close_file(&file))
        .map_err(io_error(&database))?;
    Ok(store)
}

/// Whether the file exists and is not empty. A link is not empty.
fn has_content(path: &Path) -> Result<bool, DataDirError> {
    let found = files::metadata_of(path).map_err(io_error(path))?;
    Ok(found.is_some_and(|found| found.len() != 0))
}

/// Whether there is a file or a link of that name.
fn is_there(path: &Path) -> Result<bool, DataDirError> {
    let found = files::metadata_of(path).map_err(io_error(path))?;
    Ok(found.is_some())
}

/// Creates a missing data directory with mode 0700. One that others can write to is refused.
pub fn make_folder(path: &Path) -> Result<(), DataDirError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| match fs::read_link(path) {
            Ok(target) if !path.exists() => io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "it is a symbolic link to {}, which is not there",
                    target.display()
                ),
            ),
            _ => error,
        })
        .map_err(io_error(path))?;
    check_writers(path)
}

/// Opens a folder in a data directory. A missing one is created, and the directory too.
pub fn make_folder_in(data_dir: &Path, name: &str) -> Result<Folder, DataDirError> {
    make_folder(data_dir)?;
    let path = data_dir.join(name);
    Folder::create_below(data_dir, &path, 0o700).map_err(io_error(&path))
}

/// The name of a backup at this time: `idsvc-20260102T030405Z.backup`, or `….backup.age`.
pub fn backup_name(stem: &str, now: Timestamp, is_encrypted: bool) -> String {
    let moment = now.rfc3339().replace(['-', ':'], "");
    let encrypted = if is_encrypted { ENCRYPTED_ENDING } else { "" };
    format!("{stem}-{moment}{BACKUP_ENDING}{encrypted}")
}
