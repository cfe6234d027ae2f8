//! Who else can open a data directory, and who can put files into it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, Stat, accessat, fchmod, fstat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};

use super::{DataDirError, io_error};
use crate::files::Folder;

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

/// The mode bits with which the group and others write.
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Refuses a data directory in which other users could put files, or links that lead elsewhere. Root works in the
/// directory of any user: it follows no link there, and gives that user what it makes.
///
/// A group that can write is accepted where the bits do not stay, and in a directory of root whose group this process is
/// in: orchestrators give volumes to a pod that way. What is in such a directory must belong to its owner, to the user of
/// this process or to root: a member of the group could have put anything else there.
pub(super) fn check_writers(path: &Path) -> Result<(), DataDirError> {
    let found = fs::metadata(path).map_err(io_error(path))?;
    let (mode, owner, user) = (found.mode() & 0o777, found.uid(), geteuid().as_raw());
    let group = found.gid();
    let path = path.to_owned();
    if mode & OTHERS_WRITE != 0 {
        return Err(DataDirError::WritableByOthers { path, mode });
    }
    if ![owner, 0].contains(&user) && owner != 0 {
        return Err(DataDirError::ForeignOwner { path, owner, user });
    }
    if mode & GROUP_WRITES != 0 && !can_close(owner) && !is_in_group(group) {
        return Err(DataDirError::WritableByGroup { path, mode, group });
    }
    if mode & GROUP_WRITES != 0 {
        check_entries(&path, &[owner, user, 0])?;
    }
    Ok(())
}

/// Refuses a file, folder or link in the directory that belongs to none of these users.
fn check_entries(path: &Path, owners: &[u32]) -> Result<(), DataDirError> {
    let entries = Folder::open(path).and_then(|folder| folder.entries());
    let mut entries = entries.map_err(io_error(path))?.into_iter();
    let foreign = entries.find(|(_, found)| !owners.contains(&found.st_uid));
    match foreign {
        Some((name, found)) => Err(DataDirError::ForeignEntry {
            path: path.join(name),
            owner: found.st_uid,
            user: geteuid().as_raw(),
        }),
        None => Ok(()),
    }
}

/// Whether this process may change the mode of a file of this owner.
fn can_close(owner: u32) -> bool {
    [owner, 0].contains(&geteuid().as_raw())
}

/// Whether the group is the primary or a supplementary one of this process.
fn is_in_group(group: u32) -> bool {
    let is_listed = || getgroups().is_ok_and(|groups| groups.iter().any(|listed| listed.as_raw() == group));
    getegid().as_raw() == group || is_listed()
}

/// Closes a data directory that its group can write to, with all that is in it. Orchestrators open a volume and its files
/// to a group at each start of a pod.
///
/// What belongs to another user than the directory or this process stays as it is. So does a file with a second name,
/// which may be one outside of the directory. What cannot be closed is logged: some file systems have no modes.
pub(super) fn close_to_group(path: &Path) {
    let Ok(found) = fs::metadata(path) else {
        return;
    };
    if found.mode() & GROUP_WRITES == 0 {
        return;
    }
    let owners = [found.uid(), geteuid().as_raw()];
    let mut left = Vec::new();
    match Folder::open(path) {
        Ok(folder) => close_folder(&folder, &owners, &mut left),
        Err(error) => left.push(LeftOpen::new(path, error)),
    }
    if let Some(LeftOpen { path, error }) = left.first() {
        tracing::warn!(path = %path.display(), %error, count = left.len(), "a group can write to files that cannot be closed");
    }
}

/// A file or folder that could not be closed.
struct LeftOpen {
    path: PathBuf,
    error: io::Error,
}

impl LeftOpen {
    fn new(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        Self { path, error }
    }
}

/// Closes what is in the folder before the folder itself, so that the next start goes on if this one is cut off.
fn close_folder(folder: &Folder, owners: &[u32], left: &mut Vec<LeftOpen>) {
    let entries = folder.entries().unwrap_or_else(|error| {
        left.push(LeftOpen::new(folder.path(), error));
        Vec::new()
    });
    for (name, found) in entries {
        let closed = if FileType::from_raw_mode(found.st_mode).is_dir() {
            let inner = folder.folder(&name);
            inner.map(|inner| close_folder(&inner, owners, left))
        } else if is_to_close(&found, owners) {
            folder.file(&name).and_then(|file| close(&file, owners))
        } else {
            Ok(())
        };
        if let Err(error) = closed
            && is_to_close(&found, owners)
        {
            left.push(LeftOpen::new(&folder.path().join(name), error));
        }
    }
    if let Err(error) = close(folder, owners) {
        left.push(LeftOpen::new(folder.path(), error));
    }
}

fn close(opened: &impl AsFd, owners: &[u32]) -> io::Result<()> {
    let found = fstat(opened)?;
    if is_to_close(&found, owners) {
        fchmod(opened, Mode::from_raw_mode(found.st_mode & 0o700))?;
    }
    Ok(())
}

/// Whether the group can write to a file or folder that is to be closed.
fn is_to_close(found: &Stat, owners: &[u32]) -> bool {
    let kind = FileType::from_raw_mode(found.st_mode);
    let is_closable = kind.is_dir() || (kind.is_file() && found.st_nlink == 1);
    let is_own = can_close(found.st_uid) && owners.contains(&found.st_uid);
    found.st_mode & GROUP_WRITES != 0 && is_closable && is_own
}

/// Closes a file to its group and to others, unless it belongs to another user.
pub(super) fn close_file(file: &File) -> io::Result<()> {
    if can_close(file.metadata()?.uid()) {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// The warning about a data directory of root that a group of this process can write to.
pub fn shared_with_group(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    let is_shared = found.mode() & GROUP_WRITES != 0 && !can_close(found.uid()) && is_in_group(found.gid());
    is_shared.then(|| {
        format!(
            "the data directory {} belongs to root and is open to group {}, as volumes of containers are: let no other program be in that group",
            path.display(),
            found.gid()
        )
    })
}

/// The warning about a data directory that other users can open.
pub fn exposure(path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let is_open = || {
        format!(
            "the data directory is open to other users: chmod 700 {}",
            path.display()
        )
    };
    shared_with_group(path).or_else(|| (mode & 0o077 != 0).then(is_open))
}

#[cfg(test)]
mod tests {
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
