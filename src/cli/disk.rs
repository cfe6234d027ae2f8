//! How much room there is on a disk.

use std::io;
use std::path::Path;

/// The bytes that may still be written where this file or folder is.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}
