//! The owner of a data directory owns every file in it. A file that root creates there is given to that owner, so that
//! the service can open it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

/// The folder that holds a file or folder.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Gives a file that root has just created to the owner of `like`. Does nothing for other users.
///
/// `made` must be new: the owner of the folder may have replaced an older file by a link.
pub fn chown_like(made: &impl AsFd, like: &Path) -> io::Result<()> {
    let owner = fs::metadata(like)?;
    give(made, owner.uid(), owner.gid())
}

/// Gives what root has just created to a user and a group.
pub(super) fn give(made: &impl AsFd, user: u32, group: u32) -> io::Result<()> {
    if user != 0 && rustix::fs::fstat(made)?.st_uid == 0 {
        fchown(made, Some(user), Some(group))?;
    }
    Ok(())
}

/// Opens a file for writing. A missing file is created with mode 0600, for the owner of `like`. A link is refused.
pub fn open_or_create(path: &Path, options: &OpenOptions, like: &Path) -> io::Result<File> {
    match options.clone().create_new(true).mode(0o600).open(path) {
        Ok(made) => chown_like(&made, like).map(|()| made),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => super::open(path, options),
        Err(error) => Err(error),
    }
}
