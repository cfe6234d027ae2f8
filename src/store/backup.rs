//! A backup: the rows of one snapshot, except those of sign-ins, as one stream of bytes.
//!
//! It begins with a line that names the format and a line of JSON ([`Header`]). The name and the rows of each table
//! follow. It ends with the number of rows and an HMAC-SHA256 over all bytes before it, under a key that is derived from
//! the master key. The reader trusts no announced length and keeps one row in memory. Only after the last byte it knows
//! that the stream is complete and was made by this service.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use ring::hmac;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::engine::redb::Redb;
use super::engine::{Backend, CommitDecision, Snapshot, TableId};
#[cfg(feature = "postgres")]
use super::schema::stored;
use super::schema::{META, Schema, stored_in};
use super::tables;
#[cfg(feature = "postgres")]
use super::{Address, DatabaseLoad};
use super::{OpenError, Options, Store, StoreError};
use crate::clock::Timestamp;

const FORMAT: &[u8] = b"idsvc backup 1\n";
const FORMAT_PREFIX: &[u8] = b"idsvc backup ";
/// The first line of redb's magic number.
const DATABASE_PREFIX: &[u8] = b"redb\x1a\n";
/// The number of bytes that identify a backup.
pub const SIGNATURE_LEN: usize = FORMAT_PREFIX.len();
const HEADER_LIMIT: usize = 64 * 1024;
const KEY_LIMIT: u32 = 64 * 1024;
const VALUE_LIMIT: u32 = 64 * 1024 * 1024;
const END: u8 = 0;
/// The length of the end: its tag, the number of rows, the HMAC.
const END_LEN: u64 = 1 + 8 + 32;
const TABLE: u8 = 1;
const ROW: u8 = 2;
/// The approximate size of the transactions that fill a new database.
const BATCH_BYTES: usize = 8 << 20;
/// A load into a database server reports its progress after so many rows.
#[cfg(feature = "postgres")]
const PROGRESS_ROWS: u64 = 1000;

/// The header of a backup.
#[derive(Clone, Serialize, Deserialize)]
pub struct Header {
    /// The schema of the store.
    pub schema: u32,
    /// The release that made the backup.
    pub release: String,
    /// The time of the backup.
    pub created_at: Timestamp,
    /// The issuer that the first start fixed.
    pub issuer: Option<String>,
    /// The fingerprint of the master key that seals the secrets in the backup.
    pub master_key_fingerprint: String,
    /// The number of rows. `None` at the beginning of a backup whose rows were not counted first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// The master key, if the backup includes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_key: Option<Zeroizing<String>>,
}

/// Why a backup cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The new database cannot be created.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The bytes cannot be written.
    #[error("the backup cannot be written: {0}")]
    Unwritable(io::Error),
    /// The bytes cannot be read.
    #[error("the backup cannot be read: {0}")]
    Unreadable(io::Error),
    /// The file has another format.
    #[error("this is not a backup of idsvc")]
    NotABackup,
    /// The file is a database, such as the copy that an upgrade makes.
    #[error(
        "this is a database and no backup: put it in the place of idsvc.redb while the service is stopped"
    )]
    IsDatabase,
    /// A newer release made the backup.
    #[error("this backup was made by a newer release ({0}): restore it with that one")]
    Newer(String),
    /// The end is missing.
    #[error("the backup is cut off: a part of it is missing")]
    CutOff,
    /// The content is malformed or was changed.
    #[error("the backup is damaged or was changed ({0})")]
    Damaged(&'static str),
}

/// Writes the rows of the snapshot. If `header.rows` is set, the rows are counted first, and their number is in the header.
/// Returns the header with the number of rows.
pub fn write(
    snapshot: &dyn Snapshot,
    mut header: Header,
    key: &hmac::Key,
    sink: &mut dyn Write,
) -> Result<Header, BackupError> {
    if let Some(rows) = &mut header.rows {
        *rows = 0;
        for table in tables::backed_up() {
            visit(snapshot, table, |_, _| {
                *rows += 1;
                Ok(())
            })?;
        }
    }
    let mut out = AuthenticatedWriter {
        sink,
        mac: hmac::Context::with_key(key),
    };
    out.put(FORMAT)?;
    let text =
        Zeroizing::new(serde_json::to_vec(&header).map_err(|error| BackupError::Unwritable(error.into()))?);
    out.put(&text)?;
    out.put(b"\n")?;
    let mut rows = 0_u64;
    for table in tables::backed_up() {
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
            rows += 1;
            out.put(&[ROW])?;
            out.put(&key_length.to_be_bytes())?;
            out.put(&value_length.to_be_bytes())?;
            out.put(key)?;
            out.put(value)
        })?;
    }
    out.put(&[END])?;
    out.put(&rows.to_be_bytes())?;
    let tag = out.mac.sign();
    sink.write_all(tag.as_ref())
        .and_then(|()| sink.flush())
        .map_err(BackupError::Unwritable)?;
    header.rows = Some(rows);
    Ok(header)
}

/// Calls `each` for every row of a table, until `each` fails.
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

struct AuthenticatedWriter<'a> {
    sink: &'a mut dyn Write,
    mac: hmac::Context,
}

impl AuthenticatedWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.mac.update(bytes);
        self.sink.write_all(bytes).map_err(BackupError::Unwritable)
    }
}

/// A backup whose header has been read.
pub struct BackupReader<R> {
    source: R,
    header: Header,
    beginning: Zeroizing<Vec<u8>>,
}

impl<R: Read> BackupReader<R> {
    /// Reads the header.
    pub fn open(mut source: R) -> Result<Self, BackupError> {
        let mut beginning = Zeroizing::new(Vec::new());
        read_line(&mut source, &mut beginning, FORMAT.len())?;
        if *beginning != FORMAT {
            return Err(match beginning.strip_prefix(FORMAT_PREFIX) {
                Some(_) => BackupError::Newer("another format".to_owned()),
                None if *beginning == DATABASE_PREFIX => BackupError::IsDatabase,
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

    /// The header. It is authenticated only after the last row has been read.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The rows. `key` is the key that the backup must have been written under.
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

/// Reads the header and checks that the end is there. This finds an empty or truncated file, but authenticates nothing.
pub fn check_ends(mut source: impl Read + Seek) -> Result<Header, BackupError> {
    let mut header = BackupReader::open(&mut source)?.header;
    let unreadable = BackupError::Unreadable;
    let header_end = source.stream_position().map_err(unreadable)?;
    let length = source.seek(SeekFrom::End(0)).map_err(unreadable)?;
    let end = length.checked_sub(END_LEN).filter(|end| *end >= header_end);
    let end = end.ok_or(BackupError::CutOff)?;
    source.seek(SeekFrom::Start(end)).map_err(unreadable)?;
    let (mut sign, mut rows) = ([0], [0; 8]);
    fill(&mut source, &mut sign)?;
    fill(&mut source, &mut rows)?;
    let rows = u64::from_be_bytes(rows);
    if sign == [END] && *header.rows.get_or_insert(rows) == rows {
        Ok(header)
    } else {
        Err(BackupError::CutOff)
    }
}

/// Reads a line with its newline, of at most `limit` bytes.
fn read_line(source: &mut impl Read, line: &mut Vec<u8>, limit: usize) -> Result<(), BackupError> {
    let mut byte = [0];
    loop {
        match source.read(&mut byte) {
            Ok(0) if line.is_empty() => return Err(BackupError::NotABackup),
            Ok(0) => return Err(BackupError::CutOff),
            Ok(_) => line.extend_from_slice(&byte),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unreadable(error)),
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

/// How far a backup was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsRead {
    /// The number of rows that were read.
    pub read: u64,
    /// The number that the header announced, if it did.
    pub announced: Option<u64>,
}

/// The rows of a backup.
pub struct Rows<R> {
    source: R,
    mac: Option<hmac::Context>,
    key: hmac::Key,
    table: Option<TableId>,
    read: u64,
    announced: Option<u64>,
}

impl<R: Read> Rows<R> {
    /// How far the backup was read.
    pub fn progress(&self) -> RowsRead {
        RowsRead {
            read: self.read,
            announced: self.announced,
        }
    }

    /// The next row. `None` after the last row, once the whole backup is authenticated.
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
        // ring compares tags in constant time only for messages, so both tags go through a further HMAC.
        let again = |bytes: &[u8]| hmac::sign(&self.key, bytes);
        let is_genuine =
            made.is_some_and(|made| hmac::verify(&self.key, &tag, again(made.as_ref()).as_ref()).is_ok());
        if !is_genuine {
            return Err(BackupError::Damaged("its seal does not fit"));
        }
        if rows != self.read || self.announced.is_some_and(|announced| rows != announced) {
            return Err(BackupError::Damaged("its rows are not all there"));
        }
        let mut more = [0];
        match self.source.read(&mut more) {
            Ok(0) => Ok(()),
            Ok(_) => Err(BackupError::Damaged("something follows its end")),
            Err(error) => Err(unreadable(error)),
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
        let bytes = read_at_most(&mut self.source, length).map_err(unreadable)?;
        if bytes.len() != usize::try_from(length).unwrap_or(usize::MAX) {
            return Err(BackupError::CutOff);
        }
        if let Some(mac) = &mut self.mac {
            mac.update(&bytes);
        }
        Ok(bytes)
    }
}

/// Reads `announced` bytes, or fewer if the source ends. Memory grows with the bytes read, not with the announcement.
fn read_at_most(source: &mut impl Read, announced: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(u64::from(announced)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn fill(source: &mut impl Read, bytes: &mut [u8]) -> Result<(), BackupError> {
    source.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => BackupError::CutOff,
        _ => unreadable(error),
    })
}

/// The error of a source. One that decrypts says `InvalidData` of what was changed.
fn unreadable(error: io::Error) -> BackupError {
    match error.kind() {
        io::ErrorKind::InvalidData => BackupError::Damaged("its encryption does not fit"),
        _ => BackupError::Unreadable(error),
    }
}

/// Puts the rows into a new database file and upgrades it to `schema`. If this fails, the caller removes the file.
pub fn restore<R: Read>(
    path: &Path,
    rows: &mut Rows<R>,
    options: Options,
    schema: &Schema,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<Store, BackupError> {
    let engine = Redb::open_without_journal(path, options.cache_bytes)?;
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
                CommitDecision::Commit
            } else {
                CommitDecision::RollBack
            }
        })?;
        outcome?;
        let RowsRead { read, announced } = rows.progress();
        progress(read, announced);
    }
    if stored_in(&engine)?.is_none() {
        return Err(missing_schema());
    }
    Ok(Store::on(Arc::new(engine), options, schema)?)
}

/// Puts the rows into an empty database on a server, and upgrades them to `schema`. Nothing is kept before
/// [`DatabaseLoad::commit`]. Blocks.
#[cfg(feature = "postgres")]
pub fn load<R: Read>(
    address: &Address,
    rows: &mut Rows<R>,
    schema: &Schema,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<DatabaseLoad, BackupError> {
    let mut load = DatabaseLoad::begin(address)?;
    while let Some((table, key, value)) = rows.next_row()? {
        load.add(table, key, value)?;
        let RowsRead { read, announced } = rows.progress();
        if read % PROGRESS_ROWS == 0 {
            progress(read, announced);
        }
    }
    load.finish_rows()?;
    if stored(&load)?.is_none() {
        return Err(missing_schema());
    }
    schema.upgrade_in(&mut load)?;
    Ok(load)
}

fn missing_schema() -> BackupError {
    BackupError::Store(StoreError::Corrupt {
        table: META.id().name(),
        what: "the schema is missing".to_owned(),
    })
}

/// Whether a file with this beginning is a backup, or was to become one. A beginning that is shorter than
/// [`SIGNATURE_LEN`] must be the whole file.
pub fn looks_like_backup(beginning: &[u8]) -> bool {
    beginning.starts_with(FORMAT_PREFIX) || FORMAT_PREFIX.starts_with(beginning)
}

#[cfg(test)]
mod tests;
