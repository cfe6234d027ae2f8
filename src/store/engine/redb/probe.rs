//! Tries whether the disk takes writes, without the database.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::journal::remove_file;

/// The space of the proof row and of the second copy of its pages. If this fits on the disk, the proof row does.
const BYTES: usize = 2 << 20;

/// Writes two mebibytes to a temporary file beside the database. They begin at the offset where the database ends, so
/// that a limit on the size of files applies too. The file is unlinked before it is written.
pub(super) fn write_beside(database: &Path) -> io::Result<()> {
    let mut name = database.as_os_str().to_owned();
    name.push(".probe");
    let path = PathBuf::from(name);
    let end = fs::metadata(database)?.len();
    // A process that was killed before it unlinked the file has left it.
    remove_file(&path)?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)?;
    file.write_all_at(&vec![1; BYTES], end)?;
    file.sync_data()
}
