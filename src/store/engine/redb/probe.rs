//! Whether the disk takes writes, asked without the database.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::journal::remove_file;

/// As much as the writer's proof and its second copy of pages take, so that where this fits, the proof does.
const BYTES: usize = 2 << 20;

/// Writes two mebibytes to a file of its own beside the database, from where the database ends, which is what a limit on
/// the size of files looks at. Nobody finds the file: it has lost its name before anything is in it.
pub(super) fn write_beside(database: &Path) -> io::Result<()> {
    let mut name = database.as_os_str().to_owned();
    name.push(".probe");
    let path = PathBuf::from(name);
    let end = fs::metadata(database)?.len();
    // A process that was killed in between has left the name.
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
