//! Operations that answer with many records or with the bytes of a file, one after the other.

use std::io::{self, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Admin;
use super::operation::Done;
use crate::store::StoreError;
use crate::store::backup::BackupError;
use crate::store::page::Page;

/// An operation that writes to a sink, which may be as slow as its reader. It changes nothing.
pub trait StreamOperation: Serialize + DeserializeOwned + Send + 'static {
    /// The name in the audit event: the command, as in `user list`.
    const NAME: &'static str;
    /// Whether a service ends it if it takes too long: while its snapshot is open, the database file grows.
    const HAS_DEADLINE: bool = false;

    /// Writes everything. Blocks. Callers use [`Admin::stream`].
    fn write(self, admin: Admin<'_>, sink: &mut dyn Write) -> Result<Done<()>, StreamError>;
}

/// A stream of records, which are [`StreamLine`]s.
pub trait RecordStream: StreamOperation {
    type Record: DeserializeOwned;
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamLine<T> {
    Record(T),
    /// The last line. A stream without it is incomplete.
    End,
}

/// Why not everything was written.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The backup failed.
    #[error("the backup was not finished: {0}")]
    Backup(BackupError),
    /// The store cannot be read.
    #[error("the list was not finished: {0}")]
    Store(#[from] StoreError),
    /// The reader has closed the connection, or is too slow.
    #[error("the reply was not read to its end: {0}")]
    Unwritable(io::Error),
}

impl From<BackupError> for StreamError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Unwritable(error) => Self::Unwritable(error),
            error => Self::Backup(error),
        }
    }
}

impl Admin<'_> {
    /// Writes what an operation answers. Blocks.
    pub fn stream<O: StreamOperation>(self, operation: O, sink: &mut dyn Write) -> Result<(), StreamError> {
        let done = operation.write(self, sink)?;
        self.record(O::NAME, done);
        Ok(())
    }
}

/// The message as JSON, with a line end. A new secret is in less than a page, so that no copy of it is left behind by a
/// buffer that grows.
pub fn to_line(message: &(impl Serialize + ?Sized)) -> serde_json::Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(Vec::with_capacity(4096));
    serde_json::to_writer(&mut *line, message)?;
    line.push(b'\n');
    Ok(line)
}

/// Writes a line of a stream of records.
pub(super) fn write_line<T: Serialize>(
    sink: &mut dyn Write,
    line: &StreamLine<T>,
) -> Result<(), StreamError> {
    let line = to_line(line).map_err(|error| StreamError::Unwritable(error.into()))?;
    sink.write_all(&line).map_err(StreamError::Unwritable)
}

/// Writes the last line.
pub(super) fn write_end(sink: &mut dyn Write) -> Result<(), StreamError> {
    write_line(sink, &StreamLine::<()>::End)?;
    sink.flush().map_err(StreamError::Unwritable)
}

/// Writes the records of a list, page by page. No snapshot is open while the reader is waited for.
pub(super) fn write_pages<T: Serialize, K>(
    mut after: Option<K>,
    limit: u64,
    sink: &mut dyn Write,
    mut read: impl FnMut(Option<K>) -> Result<Page<T, K>, StoreError>,
) -> Result<Done<()>, StreamError> {
    let mut remaining = limit;
    while remaining > 0 {
        let page = read(after)?;
        for record in page.records {
            if remaining == 0 {
                break;
            }
            write_line(sink, &StreamLine::Record(record))?;
            remaining -= 1;
        }
        if page.next.is_none() {
            break;
        }
        after = page.next;
    }
    write_end(sink)?;
    Ok(Done::unrecorded(()))
}
