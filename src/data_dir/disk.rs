//! The free space on a disk.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// With fewer free bytes, a write may fail. This is twice the largest commit of the store: a full journal whose rows are
/// each in a page of its own.
pub const LEAST_TO_WRITE: u64 = 32 << 20;

/// The bytes that are kept for users who sign in and for removing expired rows. With fewer free bytes, new anonymous users
/// wait, and a scheduled backup replaces older ones, or is not made.
pub const RESERVE: u64 = 64 << 20;

/// The space on a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The bytes that the owner of the file may still write.
    pub free: u64,
    /// All bytes, used or free.
    pub total: u64,
}

impl Space {
    /// The bytes that are missing from the reserve.
    pub fn lacking(&self) -> u64 {
        RESERVE.saturating_sub(self.free)
    }
}

/// The space for the owner of this file or folder. Fails if the file system does not know its size.
pub fn space(path: &Path) -> io::Result<Space> {
    let found = rustix::fs::statvfs(path)?;
    if found.f_blocks == 0 {
        // A file system in memory without a bound, for example.
        return Err(io::ErrorKind::Unsupported.into());
    }
    // Some file systems reserve space for root. The owner of the files writes them, not the caller.
    let blocks = if std::fs::metadata(path)?.uid() == 0 {
        found.f_bfree
    } else {
        found.f_bavail
    };
    Ok(Space {
        free: blocks.saturating_mul(found.f_frsize),
        total: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_says_how_much_is_free_and_what_is_nowhere_has_none() {
        let found = space(&std::env::temp_dir()).unwrap();
        assert!(found.free > 0 && found.free <= found.total);
        assert!(space(Path::new("/nowhere/at/all")).is_err());
    }
}
