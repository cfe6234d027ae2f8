//! How much room there is on a disk.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// With fewer bytes free the store can be expected to fail: twice the megabyte that it writes, after it has failed, as
/// proof that it need not.
pub const LEAST_TO_WRITE: u64 = 2 << 20;

/// The bytes that the owner of this file or folder may still write there. An error where nobody knows.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
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
    Ok(blocks.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_says_how_much_is_free_and_what_is_nowhere_has_none() {
        assert!(free_bytes(&std::env::temp_dir()).unwrap() > 0);
        assert!(free_bytes(Path::new("/nowhere/at/all")).is_err());
    }
}
