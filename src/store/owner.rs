//! Whom a data directory belongs to, all that is in it belongs to: also what root makes there, or else the service
//! could not open it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use rustix::fs::OFlags;

/// The folder that a file or folder lies in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Gives what root has just made to whom `like` belongs to. What anybody else makes is their own.
///
/// `made` must be new: whoever owns the folder may have put a link in the place of anything older.
pub fn give(made: &File, like: &Path) -> io::Result<()> {
    let (mine, owner) = (made.metadata()?, fs::metadata(like)?);
    if mine.uid() == 0 && owner.uid() != 0 {
        fchown(made, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(())
}

/// Opens a file for writing. One that is not there is made, for whom `like` belongs to and nobody else.
pub fn open_or_make(path: &Path, options: &OpenOptions, like: &Path) -> io::Result<File> {
    let made = options.clone().create_new(true).mode(0o600).open(path);
    match made {
        Ok(made) => give(&made, like).map(|()| made),
        // It may be a link to a file that is not there yet, which stays the affair of whoever made the link.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.clone().create(true).mode(0o600).open(path)
        }
        Err(error) => Err(error),
    }
}

/// Makes a folder that is not there, for whom `like` belongs to.
pub fn make_folder(path: &Path, mode: u32, like: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
            give(&File::from(made), like)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}
