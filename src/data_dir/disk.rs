//! How much room there is on a disk.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// With fewer bytes free the store can be expected to fail: twice the megabyte that it writes, after it has failed, as
/// proof that it need not.
pub const LEAST_TO_WRITE: u64 = 2 << 20;

/// What is kept of every disk, at least: more than the store writes at once, which is what its journal holds, with the
/// pages around it.
const LEAST_RESERVE: u64 = 16 << 20;
/// What is kept of a large one.
const MOST_RESERVE: u64 = 64 << 20;

/// The room on a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What the owner of what was asked about may still write.
    pub free: u64,
    /// What there is of it, in use or not.
    pub total: u64,
}

impl Space {
    /// What is kept for those who have begun, and for removing what has expired: a twentieth, 16 MiB at least and 64 MiB
    /// at most. Whatever can wait is put off while there is less.
    pub fn reserve(&self) -> u64 {
        (self.total / 20).clamp(LEAST_RESERVE, MOST_RESERVE)
    }

    /// How many bytes the reserve lacks.
    pub fn lacking(&self) -> u64 {
        self.reserve().saturating_sub(self.free)
    }
}

/// The room for the owner of this file or folder. An error where nobody knows.
pub fn space(path: &Path) -> io::Result<Space> {
    let found = rustix::fs::statvfs(path)?;
    if found.f_blocks == 0 {
        // Memory without a bound, for one: it does not know its size.
        return Err(io::ErrorKind::Unsupported.into());
    }
    // Some file systems keep a share of their room for root. Whoever asks, it is the owner who writes.
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
