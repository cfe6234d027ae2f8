//! The lock on a data directory, and waiting while another process uses it.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::access::check_writers;
use super::{DataDirError, control_socket, io_error};
use crate::control::client;
use crate::store::OpenError;

/// How long to wait for a process that uses the directory briefly: a command, or a service that starts or ends.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(100);

/// The lock on a data directory whose database is elsewhere. A database file has a lock of its own. Dropping this releases
/// it.
#[derive(Debug)]
pub struct DirectoryLock {
    _directory: File,
}

impl DirectoryLock {
    /// Locks the directory. Fails with [`OpenError::AlreadyOpen`] if another process has locked it. On a file system without
    /// locks, this locks nothing.
    pub fn take(path: &Path) -> Result<Self, DataDirError> {
        let directory = File::open(path).map_err(io_error(path))?;
        if matches!(directory.try_lock(), Err(TryLockError::WouldBlock)) {
            let path = path.to_owned();
            return Err(OpenError::AlreadyOpen { path }.into());
        }
        Ok(Self {
            _directory: directory,
        })
    }
}

/// Whether a service that accepts commands uses the data directory. Fails if others could have put its socket there.
pub fn is_served(data_dir: &Path) -> Result<bool, DataDirError> {
    if data_dir.exists() {
        check_writers(data_dir)?;
    }
    Ok(client::is_there(&control_socket(data_dir))?)
}

/// Calls `open` until no other process uses the data directory. Returns `None` once `is_over` returns true, for example
/// because a service uses the directory.
pub fn wait_and_open<T>(
    is_over: impl Fn() -> Result<bool, DataDirError>,
    open: impl Fn() -> Result<T, DataDirError>,
) -> Result<Option<T>, DataDirError> {
    let begun = Instant::now();
    while !is_over()? {
        match open() {
            Err(DataDirError::Open(OpenError::AlreadyOpen { .. })) if begun.elapsed() < LOCK_TIMEOUT => {
                thread::sleep(RETRY);
            }
            opened => return opened.map(Some),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_process_that_has_the_data_for_a_moment_is_waited_for_and_a_service_is_not() {
        let path = || PathBuf::from("idsvc.redb");
        let tries = Cell::new(0);
        let open = || {
            tries.set(tries.get() + 1);
            match tries.get() {
                1 | 2 => Err(DataDirError::Open(OpenError::AlreadyOpen { path: path() })),
                opened => Ok(opened),
            }
        };
        assert_eq!(wait_and_open(|| Ok(tries.get() == 1), open).unwrap(), None);
        assert_eq!(wait_and_open(|| Ok(false), open).unwrap(), Some(3));
        let absent = wait_and_open(|| Ok(false), || Err::<(), _>(DataDirError::Absent(path())));
        assert!(matches!(absent, Err(DataDirError::Absent(_))));
    }
}
