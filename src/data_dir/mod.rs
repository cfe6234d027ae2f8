//! The data directory: the database, the master key that its secrets are sealed under, and what is fixed at
//! the first start.

pub mod atomic_file;
pub mod disk;

pub mod restore;

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use self::atomic_file::AtomicFile;
use crate::admin::installation;
use crate::control;
use crate::hex;
use crate::random::Random;
use crate::seal::Sealer;
use crate::store::engine::redb::journal_of;
use crate::store::{self, Options, Store, StoreError, owner};

/// The database's name in the data directory.
pub const DATABASE: &str = "idsvc.redb";
/// The name of the key that the secrets in the database are sealed under.
pub const MASTER_KEY: &str = "master.key";
/// The folder of the backups that stay in the data directory.
pub const BACKUPS: &str = "backups";
const KEY_BYTES: usize = 32;

/// How long another process is waited for that has the data but for a moment: a command, or a service that starts or ends.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// There is none yet, and this is not the moment to make one.
    #[error("{} holds no data yet: start the service, or name its data directory with --data-dir", .0.display())]
    Absent(PathBuf),
    /// The operating system refused.
    #[error("{} cannot be used: {source}{}", path.display(), remedy(path, source))]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// The key is there, the database is not.
    #[error(
        "{} is missing (or empty) but master.key is there: put the database back; to start anew remove master.key",
        .0.display()
    )]
    DatabaseMissing(PathBuf),
    /// A process that was killed left the journal, and the database is not there.
    #[error(
        "{} holds the last writes of a database that is not there: put the database back; to start anew remove it",
        .0.display()
    )]
    JournalAlone(PathBuf),
    /// The database is there, the key is not.
    #[error(
        "{} is missing, and what the database keeps secret cannot be read without it: put it back from where it was saved, or restore a backup together with its key",
        .0.display()
    )]
    KeyMissing(PathBuf),
    /// The key's file holds something else.
    #[error("{} is not a master key (64 hexadecimal digits): put it back from where it was saved", .0.display())]
    KeyMalformed(PathBuf),
    /// The key belongs to another database.
    #[error(
        "{} is not the key that this database was sealed with: put back the one that belongs to it",
        .0.display()
    )]
    KeyForeign(PathBuf),
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] store::OpenError),
    /// Clients and keys cannot be read.
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
        /// Where the service keeps its data.
        data_dir: PathBuf,
        /// What the settings say.
        configured: String,
        /// What the first start fixed.
        stored: String,
    },
    /// The development server was pointed at the data of a real service.
    #[error(
        "this data directory was set up without --dev, and the development server would add an example client and user to it: name another with --data-dir"
    )]
    NotForDevelopment,
    /// Whether a service has it cannot be found out.
    #[error(transparent)]
    Control(#[from] control::client::ControlError),
    /// Nobody has said what the issuer is.
    #[error("this service has no address yet: set base_url (IDSVC_BASE_URL) or start it once")]
    NoIssuer,
}

/// An open data directory.
pub struct DataDir {
    path: PathBuf,
    /// The database.
    pub store: Store,
    /// Encryption under the master key.
    pub sealer: Sealer,
}

/// Where a running server listens for commands.
pub fn control_socket(data_dir: &Path) -> PathBuf {
    data_dir.join(control::SOCKET)
}

/// The error of a file or folder that the operating system refused.
pub(crate) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> DataDirError {
    let path = path.to_owned();
    move |source| DataDirError::Io { path, source }
}

/// What to do about an error of the operating system, where that is known.
fn remedy(path: &Path, error: &io::Error) -> String {
    let known = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let closed = [Some(path), path.parent()]
                .into_iter()
                .flatten()
                .find_map(reopening);
            match closed {
                Some(command) => return format!(": {command}"),
                None => ": run this as the user that owns the data directory, or as root",
            }
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ": free some space there",
        io::ErrorKind::FileTooLarge => ": raise the limit on the size of files (ulimit -f, LimitFSIZE)",
        io::ErrorKind::ReadOnlyFilesystem => ": make it writable, or name another directory with --data-dir",
        _ => "",
    };
    known.to_owned()
}

/// The command by which the user that this process runs as opens a file or folder of its own that it has closed to itself.
pub(crate) fn reopening(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    let (wanted, mode) = if found.is_dir() {
        (Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK, "700")
    } else {
        (Access::READ_OK | Access::WRITE_OK, "600")
    };
    let is_closed = accessat(CWD, path, wanted, AtFlags::EACCESS) == Err(Errno::ACCESS);
    (is_closed && found.uid() == geteuid().as_raw()).then(|| format!("chmod {mode} {}", path.display()))
}

fn store_error(error: store::OpenError) -> DataDirError {
    match error {
        store::OpenError::Io { path, source } if !remedy(&path, &source).is_empty() => {
            DataDirError::Io { path, source }
        }
        error => DataDirError::Open(error),
    }
}

/// The sentence about a data directory that others than its owner can get into.
pub fn exposure(path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o077 != 0).then(|| {
        format!(
            "the data directory is open to other users: chmod 700 {}",
            path.display()
        )
    })
}

/// Whether a service has the data directory that takes commands.
pub fn is_served(data_dir: &Path) -> Result<bool, DataDirError> {
    Ok(control::client::is_there(&control_socket(data_dir))?)
}

/// Opens a data directory by `open` when it is this process's turn. Nothing comes of it once `is_over` says that there
/// is nothing to wait for, as where a service has the directory.
pub fn in_turn<T>(
    is_over: impl Fn() -> Result<bool, DataDirError>,
    open: impl Fn() -> Result<T, DataDirError>,
) -> Result<Option<T>, DataDirError> {
    let begun = Instant::now();
    while !is_over()? {
        match open() {
            Err(DataDirError::Open(store::OpenError::AlreadyOpen { .. })) if begun.elapsed() < PATIENCE => {
                thread::sleep(PAUSE);
            }
            opened => return opened.map(Some),
        }
    }
    Ok(None)
}

impl DataDir {
    /// Opens the directory; makes it, the database and the master key when `may_create` and there are none.
    ///
    /// The key is made once there is a database, and under its lock. So a key without a database is never
    /// what a start left behind that was cut off: the database was lost.
    pub fn open(path: &Path, may_create: bool, random: &Random) -> Result<Self, DataDirError> {
        let (database, key_file) = (path.join(DATABASE), path.join(MASTER_KEY));
        let mut key = read_key(&key_file)?;
        let has_database = match fs::metadata(&database) {
            Ok(found) => found.len() != 0,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(io_error(&database)(error)),
        };
        if !has_database && key.is_some() {
            return Err(DataDirError::DatabaseMissing(database));
        }
        let journal = journal_of(&database);
        if !has_database && journal.exists() {
            return Err(DataDirError::JournalAlone(journal));
        }
        if !has_database && !may_create {
            return Err(DataDirError::Absent(path.to_owned()));
        }
        make_folder(path)?;
        let store = Store::open(&database, Options::default()).map_err(store_error)?;
        fs::set_permissions(&database, Permissions::from_mode(0o600)).map_err(io_error(&database))?;
        let fingerprint = installation::stored_fingerprint(&store)?;
        if key.is_none() {
            key = read_key(&key_file)?;
        }
        let sealer = if let Some(stored) = fingerprint {
            fitting(key_file, key, &stored)?
        } else {
            let key = match key {
                Some(key) => key,
                None => make_key(&key_file, random)?,
            };
            let sealer = Sealer::new(&key);
            installation::put_fingerprint(&store, &sealer.fingerprint())?;
            sealer
        };
        Ok(Self {
            path: path.to_owned(),
            store,
            sealer,
        })
    }

    /// Claims the directory for the development server: a new one, or one that was its own before.
    pub fn settle_development(&self) -> Result<(), DataDirError> {
        if installation::is_for_development(&self.store)? {
            return Ok(());
        }
        match installation::stored_issuer(&self.store)? {
            Some(_) => Err(DataDirError::NotForDevelopment),
            None => Ok(installation::put_development(&self.store)?),
        }
    }

    /// Fixes the issuer the first time, compares it byte for byte afterwards.
    pub fn settle_issuer(&self, configured: &str) -> Result<(), DataDirError> {
        let stored = self.issuer_or(Some(configured))?;
        if stored == configured {
            return Ok(());
        }
        Err(DataDirError::IssuerChanged {
            data_dir: self.path.clone(),
            configured: configured.to_owned(),
            stored,
        })
    }

    /// The issuer that was fixed, whatever is configured now; when none was, `configured` is.
    pub fn issuer_or(&self, configured: Option<&str>) -> Result<String, DataDirError> {
        if let Some(stored) = installation::stored_issuer(&self.store)? {
            return Ok(stored);
        }
        let configured = configured.ok_or(DataDirError::NoIssuer)?;
        installation::put_issuer(&self.store, configured)?;
        Ok(configured.to_owned())
    }
}

/// A master key.
pub type MasterKey = Zeroizing<[u8; KEY_BYTES]>;

/// Makes a folder for the owner only, if it is not there.
pub fn make_folder(path: &Path) -> Result<PathBuf, DataDirError> {
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
    Ok(path.to_owned())
}

/// Makes a folder in a data directory, and that too, if they are not there.
pub fn make_folder_in(data_dir: &Path, name: &str) -> Result<PathBuf, DataDirError> {
    let path = make_folder(data_dir)?.join(name);
    owner::make_folder(&path, 0o700, data_dir).map_err(io_error(&path))?;
    Ok(path)
}

/// The master key of a data directory.
pub fn master_key(directory: &Path) -> Result<MasterKey, DataDirError> {
    let path = directory.join(MASTER_KEY);
    read_key(&path)?.ok_or(DataDirError::KeyMissing(path))
}

/// Encryption under the master key of a data directory whose store was sealed under the key of this fingerprint.
pub(crate) fn sealer_of(directory: &Path, fingerprint: &str) -> Result<Sealer, DataDirError> {
    let path = directory.join(MASTER_KEY);
    let key = read_key(&path)?;
    fitting(path, key, fingerprint)
}

fn fitting(path: PathBuf, key: Option<MasterKey>, fingerprint: &str) -> Result<Sealer, DataDirError> {
    let Some(key) = key else {
        return Err(DataDirError::KeyMissing(path));
    };
    let sealer = Sealer::new(&key);
    if sealer.fingerprint() == fingerprint {
        Ok(sealer)
    } else {
        Err(DataDirError::KeyForeign(path))
    }
}

/// The key in the file; none when there is no file.
pub(crate) fn read_key(path: &Path) -> Result<Option<MasterKey>, DataDirError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(DataDirError::KeyMalformed(path.to_owned()));
        }
        Err(error) => return Err(io_error(path)(error)),
    };
    from_hex(text.trim())
        .map(Some)
        .ok_or_else(|| DataDirError::KeyMalformed(path.to_owned()))
}

/// The key that these 64 hexadecimal digits stand for.
pub(crate) fn from_hex(text: &str) -> Option<MasterKey> {
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    for (place, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(key)
}

/// The key as 64 hexadecimal digits.
pub(crate) fn to_hex(key: &MasterKey) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(2 * KEY_BYTES + 1));
    hex::push(&mut text, key.iter());
    text
}

/// Writes a key. It appears whole or not at all, and never over another.
pub(crate) fn place_key(path: &Path, key: &MasterKey, random: &Random) -> io::Result<()> {
    let mut text = to_hex(key);
    text.push('\n');
    let mut unfinished = AtomicFile::beside(path, random);
    unfinished
        .create(Some(owner::folder_of(path)))?
        .write_all(text.as_bytes())?;
    unfinished.place(path, false)
}

/// Makes the key, unless another process has just made one.
fn make_key(path: &Path, random: &Random) -> Result<MasterKey, DataDirError> {
    let key = Sealer::generate(random);
    match place_key(path, &key, random) {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read_key(path)?.ok_or_else(|| DataDirError::KeyMissing(path.to_owned()))
        }
        Err(error) => Err(io_error(path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A data directory that is still to be made.
    struct Scratch {
        path: PathBuf,
        _folder: TempDir,
    }

    impl Scratch {
        fn new() -> Self {
            let folder = TempDir::new().unwrap();
            Self {
                path: folder.path().join("data"),
                _folder: folder,
            }
        }

        fn open(&self) -> Result<DataDir, DataDirError> {
            DataDir::open(&self.path, true, &Random::system())
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn whoever_has_the_data_for_a_moment_is_waited_for_and_a_service_is_not() {
        let tries = std::cell::Cell::new(0);
        let open = || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 {
                let path = PathBuf::from(DATABASE);
                return Err(DataDirError::Open(store::OpenError::AlreadyOpen { path }));
            }
            Ok(tries.get())
        };
        assert_eq!(
            in_turn(|| Ok(tries.get() == 1), open).unwrap(),
            None,
            "a service began to answer"
        );
        assert_eq!(in_turn(|| Ok(false), open).unwrap(), Some(3));
        let absent = || Err::<(), _>(DataDirError::Absent(PathBuf::from(DATABASE)));
        assert!(matches!(
            in_turn(|| Ok(false), absent),
            Err(DataDirError::Absent(_))
        ));
    }

    #[test]
    fn the_first_start_makes_everything_closed_to_others() {
        let scratch = Scratch::new();
        let absent = DataDir::open(&scratch.path, false, &Random::system());
        assert!(matches!(absent, Err(DataDirError::Absent(_))));
        assert!(!scratch.path.exists());
        let first = scratch.open().unwrap().sealer.fingerprint();
        assert_eq!(mode(&scratch.path), 0o700);
        assert_eq!(mode(&scratch.path.join(MASTER_KEY)), 0o600);
        assert_eq!(mode(&scratch.path.join(DATABASE)), 0o600);
        assert_eq!(fs::read_dir(&scratch.path).unwrap().count(), 2);
        assert_eq!(scratch.open().unwrap().sealer.fingerprint(), first);
    }

    #[test]
    fn a_missing_or_foreign_or_broken_key_is_refused_with_the_remedy() {
        let scratch = Scratch::new();
        drop(scratch.open().unwrap());
        let key = scratch.path.join(MASTER_KEY);
        let saved = fs::read(&key).unwrap();
        fs::remove_file(&key).unwrap();
        assert!(matches!(scratch.open(), Err(DataDirError::KeyMissing(_))));
        assert!(!key.exists());
        fs::write(&key, "00".repeat(KEY_BYTES)).unwrap();
        assert!(matches!(scratch.open(), Err(DataDirError::KeyForeign(_))));
        fs::write(&key, "not a key").unwrap();
        assert!(matches!(scratch.open(), Err(DataDirError::KeyMalformed(_))));
        fs::write(&key, saved).unwrap();
        assert!(scratch.open().is_ok());
    }

    #[test]
    fn a_missing_or_empty_database_beside_a_key_is_refused_and_nothing_is_made() {
        let scratch = Scratch::new();
        let first = scratch.open().unwrap().sealer.fingerprint();
        let database = scratch.path.join(DATABASE);
        let saved = fs::read(&database).unwrap();
        for may_create in [true, false] {
            fs::remove_file(&database).unwrap();
            let refused = || DataDir::open(&scratch.path, may_create, &Random::system()).err();
            assert!(matches!(refused(), Some(DataDirError::DatabaseMissing(_))));
            assert!(!database.exists());
            fs::write(&database, "").unwrap();
            assert!(matches!(refused(), Some(DataDirError::DatabaseMissing(_))));
            assert_eq!(fs::metadata(&database).unwrap().len(), 0);
        }
        fs::write(&database, saved).unwrap();
        assert_eq!(scratch.open().unwrap().sealer.fingerprint(), first);
        fs::write(&database, "").unwrap();
        fs::remove_file(scratch.path.join(MASTER_KEY)).unwrap();
        assert_ne!(scratch.open().unwrap().sealer.fingerprint(), first);
    }

    #[test]
    fn a_first_start_that_was_cut_off_is_finished_by_the_next() {
        let scratch = Scratch::new();
        fs::create_dir(&scratch.path).unwrap();
        fs::write(scratch.path.join(DATABASE), "").unwrap();
        drop(scratch.open().unwrap());

        let scratch = Scratch::new();
        fs::create_dir(&scratch.path).unwrap();
        drop(Store::open(&scratch.path.join(DATABASE), Options::default()).unwrap());
        drop(scratch.open().unwrap());

        let scratch = Scratch::new();
        fs::create_dir(&scratch.path).unwrap();
        drop(Store::open(&scratch.path.join(DATABASE), Options::default()).unwrap());
        let key = make_key(&scratch.path.join(MASTER_KEY), &Random::system()).unwrap();
        assert_eq!(
            scratch.open().unwrap().sealer.fingerprint(),
            Sealer::new(&key).fingerprint()
        );
    }

    #[test]
    fn a_closed_file_is_refused_with_the_remedy() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let path = PathBuf::from("/data/idsvc.redb");
        let errors = [
            io_error(&path)(denied()),
            store_error(store::OpenError::Io {
                path,
                source: denied(),
            }),
        ];
        for error in errors.map(|error| error.to_string()) {
            assert!(error.contains("run this as the user that owns"), "{error}");
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_called_one() {
        let scratch = Scratch::new();
        std::os::unix::fs::symlink("/nowhere/at/all", &scratch.path).unwrap();
        let said = scratch.open().err().unwrap().to_string();
        fs::remove_file(&scratch.path).unwrap();
        assert!(
            said.ends_with("cannot be used: it is a symbolic link to /nowhere/at/all, which is not there"),
            "{said}"
        );
    }

    #[test]
    fn a_directory_that_is_open_to_others_is_noticed() {
        let scratch = Scratch::new();
        drop(scratch.open().unwrap());
        assert_eq!(exposure(&scratch.path), None);
        fs::set_permissions(&scratch.path, Permissions::from_mode(0o750)).unwrap();
        let said = exposure(&scratch.path).unwrap();
        assert!(
            said.ends_with(&format!("chmod 700 {}", scratch.path.display())),
            "{said}"
        );
    }

    #[test]
    fn the_issuer_is_fixed_once() {
        let scratch = Scratch::new();
        let data = scratch.open().unwrap();
        assert!(matches!(data.issuer_or(None), Err(DataDirError::NoIssuer)));
        data.settle_issuer("https://a.example").unwrap();
        data.settle_issuer("https://a.example").unwrap();
        for configured in [None, Some("https://A.example")] {
            assert_eq!(data.issuer_or(configured).unwrap(), "https://a.example");
        }
        let changed = data
            .settle_issuer("https://A.example")
            .map_err(|error| error.to_string());
        assert!(
            changed
                .unwrap_err()
                .contains("idsvc config set-issuer https://A.example --i-know")
        );
    }

    #[test]
    fn the_development_server_keeps_away_from_the_data_of_others() {
        let (own, foreign) = (Scratch::new(), Scratch::new());
        let data = own.open().unwrap();
        data.settle_development().unwrap();
        data.settle_issuer("https://localhost:8443").unwrap();
        data.settle_development().unwrap();
        let data = foreign.open().unwrap();
        data.settle_issuer("https://id.example.com").unwrap();
        assert!(matches!(
            data.settle_development(),
            Err(DataDirError::NotForDevelopment)
        ));
    }

    #[test]
    fn a_second_process_is_told_who_has_it() {
        let scratch = Scratch::new();
        let _first = scratch.open().unwrap();
        assert!(matches!(
            scratch.open(),
            Err(DataDirError::Open(store::OpenError::AlreadyOpen { .. }))
        ));
    }
}
