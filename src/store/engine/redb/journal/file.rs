//! The journal file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::record::{JournalId, JournalPosition, record_len, write_record};
use crate::files::{self, owner};
use crate::store::engine::redb::sync_folder_of;

/// The length of the file. It never changes.
pub(super) const LENGTH: usize = 4 << 20;
const HALF: u64 = LENGTH as u64 / 2;

pub(super) struct JournalFile {
    database: PathBuf,
    path: PathBuf,
    file: Option<File>,
    /// The position of the next record; `None` while nothing may be appended.
    position: Option<JournalPosition>,
    /// The offset of the next record, and the end of the half that it is in.
    offset: u64,
    half_end: u64,
    buffer: Vec<u8>,
}

impl JournalFile {
    /// The journal of the database at `path`. Opens nothing.
    pub(super) fn beside(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(".journal");
        Self {
            database: path.to_owned(),
            path: PathBuf::from(name),
            file: None,
            position: None,
            offset: 0,
            half_end: HALF,
            buffer: Vec::new(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the whole file. A process may have been killed between writing a record and syncing it, so the file is
    /// synced first: replayed records are on the disk.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut file = files::open_to_read(&self.path)?;
        // If the disk fails, the next write reports it.
        let _ = file.sync_all();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn position(&self) -> Option<JournalPosition> {
        self.position
    }

    pub(super) fn has_room(&self, content: &[u8]) -> bool {
        self.offset + record_len(content) as u64 <= self.half_end
    }

    /// Appends a record and syncs it. After an error the record may be on the disk, whole or in part. Further appends then
    /// fail until [`JournalFile::restart`].
    pub(super) fn append(&mut self, content: &[u8]) -> io::Result<()> {
        let (Some(position), Some(file)) = (self.position.take(), &self.file) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        self.buffer.clear();
        write_record(position, content, &mut self.buffer);
        file.write_all_at(&self.buffer, self.offset)?;
        file.sync_data()?;
        self.offset += self.buffer.len() as u64;
        let number = position.number + 1;
        self.position = Some(JournalPosition { number, ..position });
        Ok(())
    }

    /// Creates the file, unless it is open. It is filled with zeros, so that appending needs no further space, and gets
    /// the owner of the database. Call this only while redb holds no position. A file that is already there is removed: it
    /// holds nothing that is needed, and may be a link or belong to another user.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        remove_file(&self.path)?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)?;
        owner::chown_like(&file, &self.database)?;
        file.write_all_at(&vec![0; LENGTH], 0)?;
        file.sync_all()?;
        sync_folder_of(&self.path)?;
        self.file = Some(file);
        Ok(())
    }

    /// Starts with record 0 of `id`. Redb must have stored that position durably.
    pub(super) fn restart(&mut self, id: JournalId) {
        self.position = Some(JournalPosition { id, number: 0 });
        (self.offset, self.half_end) = (0, HALF);
    }

    /// Continues in the other half. Redb must hold the records there.
    pub(super) fn switch_half(&mut self) {
        (self.offset, self.half_end) = if self.half_end == HALF {
            (HALF, LENGTH as u64)
        } else {
            (0, HALF)
        };
    }

    /// Closes the file. The file at its path may be another one now.
    pub(super) fn release(&mut self) {
        self.position = None;
        self.file = None;
    }

    /// Removes the file. Redb must hold all records.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        self.release();
        remove_file(&self.path)
    }
}

/// Removes a file, if it is there.
pub(in crate::store) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
