//! The free space on a disk.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// With fewer free bytes, the store can be expected to fail. This is twice the megabyte that the store writes as a proof
/// that it works again.
pub const LEAST_TO_WRITE: u64 = 2 << 20;

/// The smallest reserve. It exceeds the largest write of the store: the content of its journal, with the pages around it.
const LEAST_RESERVE: u64 = 16 << 20;
/// The reserve of a large disk.
const MOST_RESERVE: u64 = 64 << 20;

/// The space on a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The bytes that the owner of the file may still write.
    pub free: u64,
    /// All bytes, used or free.
    pub total: u64,
}

impl Space {
    /// The space that is kept for users who sign in and for removing expired rows: a twentieth of the disk, at least
    /// 16 MiB and at most 64 MiB. With less free space, new anonymous users wait.
    pub fn reserve(&self) -> u64 {
        (self.total / 20).clamp(LEAST_RESERVE, MOST_RESERVE)
    }

    /// The bytes that are missing from the reserve.
    pub fn lacking(&self) -> u64 {
        self.reserve().saturating_sub(self.free)
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

    #[test]
    fn a_twentieth_is_kept_within_bounds() {
        let (mib, gib) = (1_u64 << 20, 1_u64 << 30);
        for (total, reserve) in [(64 * mib, 16 * mib), (640 * mib, 32 * mib), (50 * gib, 64 * mib)] {
            let space = |free| Space { free, total };
            assert_eq!(space(0).reserve(), reserve);
            assert_eq!(space(reserve).lacking(), 0);
            assert_eq!(space(reserve - 1).lacking(), 1);
        }
    }
}
