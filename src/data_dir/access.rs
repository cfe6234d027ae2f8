//! Who else can open a data directory, and who can put files into it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{DataDirError, io_error};

/// The command that restores access to a file or folder, if its owner runs this process and has no access.
pub(crate) fn chmod_command(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    let (wanted, mode) = if found.is_dir() {
        (Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK, "700")
    } else {
        (Access::READ_OK | Access::WRITE_OK, "600")
    };
    let is_closed = accessat(CWD, path, wanted, AtFlags::EACCESS) == Err(Errno::ACCESS);
    (is_closed && found.uid() == geteuid().as_raw()).then(|| format!("chmod {mode} {}", path.display()))
}

/// The mode bits with which group and others write.
pub(super) const OTHER_WRITERS: u32 = 0o022;

/// Refuses a data directory in which other users could put files, or links that lead elsewhere. Root works in the
/// directory of any user: it follows no link there, and gives that user what it makes.
pub(super) fn check_writers(path: &Path) -> Result<(), DataDirError> {
    let found = fs::metadata(path).map_err(io_error(path))?;
    let (mode, owner, user) = (found.mode() & 0o777, found.uid(), geteuid().as_raw());
    let writers = match (mode & 0o020 != 0, mode & 0o002 != 0) {
        (false, false) if [owner, 0].contains(&user) || owner == 0 => return Ok(()),
        (false, false) => {
            let path = path.to_owned();
            return Err(DataDirError::ForeignOwner { path, owner, user });
        }
        (true, false) => "its group",
        (false, true) => "everybody outside its group",
        (true, true) => "everybody",
    };
    let path = path.to_owned();
    Err(DataDirError::WritableByOthers { path, mode, writers })
}

/// The warning about a data directory that other users can open.
pub fn exposure(path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o077 != 0).then(|| {
        format!(
            "the data directory is open to other users: chmod 700 {}",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::chown;

    use rustix::process::Uid;
    use rustix::thread::set_thread_res_uid;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_directory_that_is_open_to_others_is_noticed() {
        let scratch = TempDir::new().unwrap();
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o700)).unwrap();
        assert_eq!(exposure(scratch.path()), None);
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o750)).unwrap();
        let said = exposure(scratch.path()).unwrap();
        assert!(
            said.ends_with(&format!("chmod 700 {}", scratch.path().display())),
            "{said}"
        );
    }

    #[test]
    fn a_directory_of_another_user_is_refused_unless_root_uses_it_or_owns_it() {
        const OWNER: u32 = 64_242;
        const OTHER_USER: u32 = 64_243;
        if !geteuid().is_root() {
            // Only root can give a directory away.
            return;
        }
        let scratch = TempDir::new().unwrap();
        let checked_by = |user: u32| {
            let path = scratch.path().to_owned();
            let checking = std::thread::spawn(move || {
                set_thread_res_uid(None, Uid::from_raw(user), None).unwrap();
                check_writers(&path)
            });
            checking.join().unwrap()
        };
        assert!(checked_by(OTHER_USER).is_ok(), "it is of root");
        chown(scratch.path(), Some(OWNER), None).unwrap();
        assert!(checked_by(OWNER).is_ok() && checked_by(0).is_ok());
        let refused = checked_by(OTHER_USER);
        assert!(matches!(
            refused,
            Err(DataDirError::ForeignOwner {
                owner: OWNER,
                user: OTHER_USER,
                ..
            })
        ));
    }
}
