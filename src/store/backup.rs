//! A backup: every row of one snapshot as one stream of bytes.
//!
//! A line that names the format, a line of JSON ([`Header`]), then for each table its name and its rows, and at
//! the end the number of rows and an HMAC-SHA256 over everything before it, under a key that is derived from the
//! master key. The reader trusts no length it is told, keeps one row in memory, and only after the last byte
//! knows that the stream is whole and was made by this service.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use ring::hmac;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::engine::redb::Redb;
use super::engine::{Backend, Snapshot, TableId, Verdict};
use super::schema::{META, Schema, stored_in};
use super::tables;
use super::{OpenError, Options, Store, StoreError};
use crate::clock::Timestamp;

const FORMAT: &[u8] = b"idsvc backup 1\n";
const FORMAT_NAME: &[u8] = b"idsvc backup ";
/// How a file of redb begins: the first line of its magic number.
const DATABASE_NAME: &[u8] = b"redb\x1a\n";
/// How many bytes tell a backup from other files.
pub const NAME_LEN: usize = FORMAT_NAME.len();
const HEADER_LIMIT: usize = 64 * 1024;
const KEY_LIMIT: u32 = 64 * 1024;
const VALUE_LIMIT: u32 = 64 * 1024 * 1024;
const END: u8 = 0;
/// How long the end is: its sign, the number of rows, the seal.
const END_LEN: u64 = 1 + 8 + 32;
const TABLE: u8 = 1;
const ROW: u8 = 2;
/// Rows are put into the new database in transactions of about so many bytes.
const BATCH_BYTES: usize = 8 << 20;

/// What a backup says about itself.
#[derive(Clone, Serialize, Deserialize)]
pub struct Header {
    /// The schema of the store that was backed up.
    pub schema: u32,
    /// The release that made the backup.
    pub release: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// The issuer that the first start fixed.
    pub issuer: Option<String>,
    /// The fingerprint of the master key that the secrets inside are sealed under.
    pub master_key_fingerprint: String,
    /// How many rows follow.
    pub rows: u64,
    /// The master key itself, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_key: Option<Zeroizing<String>>,
}

/// Why a backup was not made or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The new database cannot be made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The bytes cannot be written where they are to go.
    #[error("the backup cannot be written: {0}")]
    Unwritable(io::Error),
    /// The bytes cannot be read.
    #[error("the backup cannot be read: {0}")]
    Unreadable(io::Error),
    /// It begins with something else.
    #[error("this is not a backup of idsvc")]
    NotABackup,
    /// It is a database, as an upgrade copies it.
    #[error(
        "this is a database and no backup: put it in the place of idsvc.redb while the service is stopped"
    )]
    ADatabase,
    /// A later release made it.
    #[error("this backup was made by a newer release ({0}): restore it with that one")]
    Newer(String),
    /// It ends before its end.
    #[error("the backup is cut off: a part of it is missing")]
    CutOff,
    /// Something in it is not what was written.
    #[error("the backup is damaged or was changed ({0})")]
    Damaged(&'static str),
}

/// Writes every row of the snapshot. `header.rows` is set here; `progress` hears the number of rows so far.
pub fn write(
    snapshot: &dyn Snapshot,
    mut header: Header,
    key: &hmac::Key,
    sink: &mut dyn Write,
) -> Result<Header, BackupError> {
    header.rows = 0;
    for table in tables::all() {
        visit(snapshot, table, |_, _| {
            header.rows = header.rows.saturating_add(1);
            Ok(())
        })?;
    }
    let mut out = Sealing {
        sink,
        mac: hmac::Context::with_key(key),
    };
    out.put(FORMAT)?;
    let text =
        Zeroizing::new(serde_json::to_vec(&header).map_err(|error| BackupError::Unwritable(error.into()))?);
    out.put(&text)?;
    out.put(b"\n")?;
    for table in tables::all() {
        let mut is_named = false;
        visit(snapshot, table, |key, value| {
            if !is_named {
                let name = table.name().as_bytes();
                let length = u8::try_from(name.len()).map_err(|_| BackupError::Damaged("a table's name"))?;
                out.put(&[TABLE, length])?;
                out.put(name)?;
                is_named = true;
            }
            let lengths = (u32::try_from(key.len()), u32::try_from(value.len()));
            let (Ok(key_length), Ok(value_length)) = lengths else {
                return Err(StoreError::TooLarge(value.len()).into());
            };
            out.put(&[ROW])?;
            out.put(&key_length.to_be_bytes())?;
            out.put(&value_length.to_be_bytes())?;
            out.put(key)?;
            out.put(value)
        })?;
    }
    out.put(&[END])?;
    out.put(&header.rows.to_be_bytes())?;
    let tag = out.mac.sign();
    sink.write_all(tag.as_ref())
        .and_then(|()| sink.flush())
        .map_err(BackupError::Unwritable)?;
    Ok(header)
}

/// Calls `each` for every row of a table, until it fails.
fn visit(
    snapshot: &dyn Snapshot,
    table: TableId,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let mut failed = None;
    snapshot.range(table, Bound::Unbounded, Bound::Unbounded, &mut |key, value| {
        Ok(match each(key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })
    })?;
    failed.map_or(Ok(()), Err)
}

struct Sealing<'a> {
    sink: &'a mut dyn Write,
    mac: hmac::Context,
}

impl Sealing<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.mac.update(bytes);
        self.sink.write_all(bytes).map_err(BackupError::Unwritable)
    }
}

/// A backup whose header has been read, and nothing else of it.
pub struct Incoming<R> {
    source: R,
    header: Header,
    beginning: Zeroizing<Vec<u8>>,
}

impl<R: Read> Incoming<R> {
    /// Reads the header.
    pub fn open(mut source: R) -> Result<Self, BackupError> {
        let mut beginning = Zeroizing::new(Vec::new());
        read_line(&mut source, &mut beginning, FORMAT.len())?;
        if *beginning != FORMAT {
            return Err(match beginning.strip_prefix(FORMAT_NAME) {
                Some(_) => BackupError::Newer("another format".to_owned()),
                None if *beginning == DATABASE_NAME => BackupError::ADatabase,
                None => BackupError::NotABackup,
            });
        }
        let mut text = Zeroizing::new(Vec::new());
        read_line(&mut source, &mut text, HEADER_LIMIT)?;
        let header: Header = serde_json::from_slice(&text).map_err(|_| BackupError::Damaged("its header"))?;
        beginning.extend_from_slice(&text);
        Ok(Self {
            source,
            header,
            beginning,
        })
    }

    /// What it says about itself. Not proven before the last row has been read.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The rows, with the key that they must have been written under.
    pub fn rows(self, key: &hmac::Key) -> Rows<R> {
        let mut mac = hmac::Context::with_key(key);
        mac.update(&self.beginning);
        Rows {
            source: self.source,
            mac: Some(mac),
            key: key.clone(),
            table: None,
            read: 0,
            announced: self.header.rows,
        }
    }
}

/// Reads the header, and looks whether the end is there: as much as tells a backup from a file that was emptied or cut
/// off. Nothing is proven by it.
pub fn glance(mut source: impl Read + Seek) -> Result<Header, BackupError> {
    let header = Incoming::open(&mut source)?.header;
    let unreadable = BackupError::Unreadable;
    let begun = source.stream_position().map_err(unreadable)?;
    let length = source.seek(SeekFrom::End(0)).map_err(unreadable)?;
    let end = length.checked_sub(END_LEN).filter(|end| *end >= begun);
    let end = end.ok_or(BackupError::CutOff)?;
    source.seek(SeekFrom::Start(end)).map_err(unreadable)?;
    let (mut sign, mut rows) = ([0], [0; 8]);
    fill(&mut source, &mut sign)?;
    fill(&mut source, &mut rows)?;
    if sign == [END] && u64::from_be_bytes(rows) == header.rows {
        Ok(header)
    } else {
        Err(BackupError::CutOff)
    }
}

/// A line with its end, of at most `limit` bytes.
fn read_line(source: &mut impl Read, line: &mut Vec<u8>, limit: usize) -> Result<(), BackupError> {
    let mut byte = [0];
    loop {
        match source.read(&mut byte) {
            Ok(0) if line.is_empty() => return Err(BackupError::NotABackup),
            Ok(0) => return Err(BackupError::CutOff),
            Ok(_) => line.extend_from_slice(&byte),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(BackupError::Unreadable(error)),
        }
        if byte == *b"\n" {
            return Ok(());
        }
        if line.len() >= limit {
            return Err(BackupError::NotABackup);
        }
    }
}

/// One row: its table, its key, its value.
pub type Row = (TableId, Vec<u8>, Vec<u8>);

/// The rows of a backup, one after the other.
pub struct Rows<R> {
    source: R,
    mac: Option<hmac::Context>,
    key: hmac::Key,
    table: Option<TableId>,
    read: u64,
    announced: u64,
}

impl<R: Read> Rows<R> {
    /// How many rows have been read, and how many there will be.
    pub fn progress(&self) -> (u64, u64) {
        (self.read, self.announced)
    }

    /// The next row; none after the last, when the whole backup has proved to be genuine.
    pub fn next_row(&mut self) -> Result<Option<Row>, BackupError> {
        loop {
            if self.mac.is_none() {
                return Ok(None);
            }
            match self.array::<1>()? {
                [TABLE] => {
                    let [length] = self.array::<1>()?;
                    let name = self.take(u32::from(length))?;
                    let known = tables::all().find(|table| table.name().as_bytes() == name);
                    self.table = Some(known.ok_or(BackupError::Damaged(
                        "it has a table that this release does not know",
                    ))?);
                }
                [ROW] => {
                    let key_length = u32::from_be_bytes(self.array()?);
                    let value_length = u32::from_be_bytes(self.array()?);
                    let table = self.table.ok_or(BackupError::Damaged("a row without a table"))?;
                    if key_length > KEY_LIMIT || value_length > VALUE_LIMIT {
                        return Err(BackupError::Damaged("a row is too long"));
                    }
                    let key = self.take(key_length)?;
                    let value = self.take(value_length)?;
                    self.read = self.read.saturating_add(1);
                    return Ok(Some((table, key, value)));
                }
                [END] => return self.end().map(|()| None),
                _ => return Err(BackupError::Damaged("something between two rows")),
            }
        }
    }

    fn end(&mut self) -> Result<(), BackupError> {
        let rows = u64::from_be_bytes(self.array()?);
        let made = self.mac.take().map(hmac::Context::sign);
        let mut tag = [0; 32];
        fill(&mut self.source, &mut tag)?;
        // ring verifies messages, not finished contexts: both tags go through one more HMAC, as messages.
        let again = |bytes: &[u8]| hmac::sign(&self.key, bytes);
        let is_genuine =
            made.is_some_and(|made| hmac::verify(&self.key, &tag, again(made.as_ref()).as_ref()).is_ok());
        if !is_genuine {
            return Err(BackupError::Damaged("its seal does not fit"));
        }
        if rows != self.read || rows != self.announced {
            return Err(BackupError::Damaged("its rows are not all there"));
        }
        let mut more = [0];
        match self.source.read(&mut more) {
            Ok(0) => Ok(()),
            Ok(_) => Err(BackupError::Damaged("something follows its end")),
            Err(error) => Err(BackupError::Unreadable(error)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        fill(&mut self.source, &mut bytes)?;
        if let Some(mac) = &mut self.mac {
            mac.update(&bytes);
        }
        Ok(bytes)
    }

    fn take(&mut self, length: u32) -> Result<Vec<u8>, BackupError> {
        let bytes = as_many_as_come(&mut self.source, length).map_err(BackupError::Unreadable)?;
        if bytes.len() != usize::try_from(length).unwrap_or(usize::MAX) {
            return Err(BackupError::CutOff);
        }
        if let Some(mac) = &mut self.mac {
            mac.update(&bytes);
        }
        Ok(bytes)
    }
}

/// So many bytes, or fewer where the source ends. Memory grows with what comes, not with what was announced.
fn as_many_as_come(source: &mut impl Read, announced: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(u64::from(announced)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn fill(source: &mut impl Read, bytes: &mut [u8]) -> Result<(), BackupError> {
    source.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => BackupError::CutOff,
        _ => BackupError::Unreadable(error),
    })
}

/// Puts the rows into a database file that does not exist yet, and brings it to `schema`. The file is for the
/// caller to remove when this fails.
pub fn restore<R: Read>(
    path: &Path,
    rows: &mut Rows<R>,
    options: Options,
    schema: &Schema,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Store, BackupError> {
    let engine = Redb::open_alone(path, options.cache_bytes)?;
    let mut is_over = false;
    while !is_over {
        let mut outcome = Ok(());
        engine.transact(&mut |tx| {
            let mut bytes = 0;
            while bytes < BATCH_BYTES && outcome.is_ok() && !is_over {
                match rows.next_row() {
                    Ok(Some((table, key, value))) => {
                        bytes += key.len() + value.len();
                        outcome = tx.put(table, &key, &value).map_err(BackupError::from);
                    }
                    Ok(None) => is_over = true,
                    Err(error) => outcome = Err(error),
                }
            }
            if outcome.is_ok() {
                Verdict::Commit
            } else {
                Verdict::RollBack
            }
        })?;
        outcome?;
        let (read, announced) = rows.progress();
        progress(read, announced);
    }
    if stored_in(&engine)?.is_none() {
        return Err(StoreError::Corrupt {
            table: META.id().name(),
            what: "the schema is missing".to_owned(),
        }
        .into());
    }
    Ok(Store::on(Arc::new(engine), options, schema)?)
}

/// Whether a file that begins with this, and ends there when it is shorter than [`NAME_LEN`], is or was to be a backup.
pub fn may_be_one(beginning: &[u8]) -> bool {
    beginning.starts_with(FORMAT_NAME) || FORMAT_NAME.starts_with(beginning)
}

#[cfg(test)]
mod tests;
