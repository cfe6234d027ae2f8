//! The owner of a data directory owns every file in it. A file that root creates there is given to that owner, so that
//! the service can open it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use rustix::fs::OFlags;

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
pub fn chown_like(made: &File, like: &Path) -> io::Result<()> {
    let owner = fs::metadata(like)?;
    if made.metadata()?.uid() == 0 && owner.uid() != 0 {
        fchown(made, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(())
}

/// Opens a file for writing. A missing file is created with mode 0600, for the owner of `like`.
pub fn open_or_create(path: &Path, options: &OpenOptions, like: &Path) -> io::Result<File> {
    let made = options.clone().create_new(true).mode(0o600).open(path);
    match made {
        Ok(made) => chown_like(&made, like).map(|()| made),
        // The path may be a link to a missing file. That file is created, and its owner is not changed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.clone().create(true).mode(0o600).open(path)
        }
        Err(error) => Err(error),
    }
}

/// Creates a missing folder, for the owner of `like`.
pub fn create_folder(path: &Path, mode: u32, like: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
            chown_like(&File::from(made), like)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}
