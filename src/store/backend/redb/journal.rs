//! The journal: one file beside the database, to which a batch of writes is appended and synced before the engine
//! shows it to anybody.
//!
//! Copy-on-write pages are dear to make durable: a row that changes takes its leaf and every page above it along.
//! So the engine commits to memory, and the journal makes the batch durable with one write and one sync to a place
//! that has been written before. When the journal is full, or nothing has been written for a while, the engine
//! commits to the disk everything at once, each page once however often it changed, and the journal begins anew.
//!
//! A record begins where a page of the file does, so that no write touches what was answered before.
//!
//! A record counts only under the [`Mark`] that the database itself holds in the same commit, so a journal that has
//! been overtaken by its database, or belongs to another one, is nothing but room. The digest of a record covers the
//! mark, its number and its content. A record that is not whole ends the journal: its write was never answered.
//! Unless a later record is whole: then the disk has lost something in between, and the database is damaged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ring::digest;

use super::sync_folder_of;
use crate::store::owner;

/// How long the file is at first; each time it was full it is made twice as long.
const SHORTEST: u64 = 256 << 10;
/// How long it gets.
const LONGEST: u64 = 4 << 20;
/// What it is filled with at first.
const BLOCK: usize = 16 << 10;
/// A record begins at a multiple of this.
const PAGE: usize = 4096;

const MARK_LEN: usize = 16;
const NUMBER_LEN: usize = 8;
const LENGTH_LEN: usize = 4;
const DIGEST_LEN: usize = digest::SHA256_OUTPUT_LEN;
/// What a record has before its content.
pub const HEAD_LEN: usize = MARK_LEN + NUMBER_LEN + LENGTH_LEN + DIGEST_LEN;

const PUT: u8 = 1;
const REMOVE: u8 = 2;

/// The state of the database that a journal goes on from, drawn at random for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub [u8; MARK_LEN]);

/// One change of one row, by the name of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A row was written.
    Put(&'a str, &'a [u8], &'a [u8]),
    /// A row was removed.
    Remove(&'a str, &'a [u8]),
}

/// The changes of one batch, in their order, as the journal keeps them.
#[derive(Debug, Default)]
pub struct Record {
    bytes: Vec<u8>,
    changes: usize,
    is_too_long: bool,
}

impl Record {
    /// The most that one record holds. A batch with more is for the engine to make durable.
    pub const LIMIT: usize = 1 << 20;

    /// Notes a change.
    pub fn note(&mut self, change: Change<'_>) {
        if self.is_too_long {
            return;
        }
        let (kind, table, key, value) = match change {
            Change::Put(table, key, value) => (PUT, table, key, Some(value)),
            Change::Remove(table, key) => (REMOVE, table, key, None),
        };
        self.changes += 1;
        self.bytes.push(kind);
        for part in [Some(table.as_bytes()), Some(key), value].into_iter().flatten() {
            let Ok(length) = u32::try_from(part.len()) else {
                self.is_too_long = true;
                break;
            };
            self.bytes.extend_from_slice(&length.to_be_bytes());
            self.bytes.extend_from_slice(part);
        }
        if self.is_too_long || self.bytes.len() > Self::LIMIT {
            self.is_too_long = true;
            self.bytes = Vec::new();
        }
    }

    /// What of it goes into the journal.
    pub fn content(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.is_too_long
    }
}

/// Reads the changes of a record; `None` when the bytes are no such thing.
pub fn changes(mut bytes: &[u8]) -> Option<Vec<Change<'_>>> {
    fn part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, rest) = bytes.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        *bytes = rest;
        Some(part)
    }
    let mut changes = Vec::new();
    while let Some((kind, rest)) = bytes.split_first() {
        bytes = rest;
        let table = std::str::from_utf8(part(&mut bytes)?).ok()?;
        let key = part(&mut bytes)?;
        changes.push(match *kind {
            PUT => Change::Put(table, key, part(&mut bytes)?),
            REMOVE => Change::Remove(table, key),
            _ => return None,
        });
    }
    Some(changes)
}

/// The file, and how far it has been written.
#[derive(Debug)]
pub struct Journal {
    database: PathBuf,
    path: PathBuf,
    file: Option<File>,
    /// Under which mark records may be appended; none before the database has one in its last durable commit.
    mark: Option<Mark>,
    number: u64,
    changes: usize,
    /// How long appending has taken.
    spent: Duration,
    at: u64,
    /// How much of the file may be written to.
    length: u64,
    /// How long it would have had to be for what it could not take.
    wanted: u64,
    buffer: Vec<u8>,
}

/// Why a journal cannot be gone on from.
#[derive(Debug)]
pub enum Unusable {
    /// The database says that there is one, and there is none.
    Missing,
    /// Something in the middle of it is not what was written.
    Damaged,
    /// The operating system refused.
    Io(io::Error),
}

impl Journal {
    /// The journal of the database at `path`. Touches nothing.
    pub fn beside(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(".journal");
        Self {
            database: path.to_owned(),
            path: PathBuf::from(name),
            file: None,
            mark: None,
            number: 0,
            changes: 0,
            spent: Duration::ZERO,
            at: 0,
            length: 0,
            wanted: 0,
            buffer: Vec::new(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content of the records that were appended under `mark`, in their order. What comes back is on the disk, if
    /// the disk is well, even where the process that wrote it was killed before it had synced it.
    pub fn read(&self, mark: Mark) -> Result<Vec<Vec<u8>>, Unusable> {
        let mut bytes = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            // Nothing can be done about a disk that refuses, and nothing is promised by what is read.
            let _ = file.sync_all();
            file.read_to_end(&mut bytes)
        });
        match read {
            // No database names a journal that is shorter.
            Ok(length) if (length as u64) < SHORTEST => Err(Unusable::Damaged),
            Ok(_) => records(&bytes, mark).ok_or(Unusable::Damaged),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unusable::Missing),
            Err(error) => Err(Unusable::Io(error)),
        }
    }

    /// Gives back what lies behind these records: a journal that was read is not gone on with, and where the disk is full
    /// it is the room for the commit after which it is not needed any more.
    pub fn trim(&self, records: &[Vec<u8>]) {
        let lengths = records.iter().map(|content| HEAD_LEN + content.len());
        let end: usize = lengths.map(|length| length.next_multiple_of(PAGE)).sum();
        let opened = OpenOptions::new().write(true).open(&self.path);
        // It may as well stay as long as it is.
        let _ = opened.and_then(|file| file.set_len((end as u64).max(SHORTEST)));
    }

    /// Whether so much may be appended now, and no more than `most` changes are then in it.
    pub fn takes(&mut self, record: &Record, most: usize) -> bool {
        if self.mark.is_none() || record.is_too_long {
            return false;
        }
        let end = self.at + (HEAD_LEN + record.bytes.len()) as u64;
        self.wanted = self.wanted.max(end);
        end <= self.length && self.changes + record.changes <= most
    }

    /// How many changes are in it.
    pub fn changes(&self) -> usize {
        self.changes
    }

    /// How long one record has taken on average, from its write to the end of its sync.
    pub fn mean_append(&self) -> Duration {
        self.spent / u32::try_from(self.number.max(1)).unwrap_or(u32::MAX)
    }

    /// As if so many changes were in it, by one record that took so long.
    #[cfg(test)]
    pub(super) fn pretend(&mut self, changes: usize, spent: Duration) {
        self.changes = changes;
        self.number = 1;
        self.spent = spent;
    }

    /// Whether records were appended that the database does not hold durably yet.
    pub fn is_ahead(&self) -> bool {
        self.number > 0
    }

    /// Appends a record. It is on the disk when this returns; after an error it may be, or a part of it.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let (Some(mark), Some(file)) = (self.mark, &self.file) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        self.buffer.clear();
        write_record(mark, self.number, &record.bytes, &mut self.buffer);
        // What comes of it is known only when the next one begins: nothing is appended after a failure.
        self.mark = None;
        let begun = Instant::now();
        file.write_all_at(&self.buffer, self.at)?;
        file.sync_data()?;
        self.spent += begun.elapsed();
        self.mark = Some(mark);
        self.number += 1;
        self.changes += record.changes;
        self.at += self.buffer.len() as u64;
        Ok(())
    }

    /// Whether the file is there to be written to.
    pub fn is_prepared(&self) -> bool {
        self.file.is_some()
    }

    /// Makes the file, while the database names none; what lay there is removed. It is written to its end, so that
    /// appending never waits for room, and belongs to whom the database belongs to, whoever made it.
    pub fn prepare(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        // Whatever lies there holds nothing that the database has not, and may lead elsewhere or belong to another.
        remove_file(&self.path)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)?;
        owner::give(&file, &self.database)?;
        self.length = extend(&file, SHORTEST)?;
        sync_folder_of(&self.path)?;
        self.file = Some(file);
        Ok(())
    }

    /// Goes on from a durable commit of the database that holds this mark. A journal that was too short grows, if
    /// there is room.
    pub fn restart(&mut self, mark: Mark) {
        self.mark = Some(mark);
        self.number = 0;
        self.changes = 0;
        self.spent = Duration::ZERO;
        self.at = 0;
        let wanted = std::mem::take(&mut self.wanted).min(LONGEST);
        if wanted > self.length
            && let Some(file) = &self.file
        {
            match extend(file, (self.length * 2).max(wanted.next_power_of_two())) {
                Ok(length) => self.length = length,
                Err(error) => {
                    tracing::debug!(%error, "the journal stays as long as it is");
                    let _ = file.set_len(self.length);
                }
            }
        }
    }

    /// Takes nothing more before the next [`Journal::restart`].
    pub fn suspend(&mut self) {
        self.mark = None;
    }

    /// Lets go of the file: it may not be the one at its path any more.
    pub fn release(&mut self) {
        self.suspend();
        self.number = 0;
        self.changes = 0;
        self.spent = Duration::ZERO;
        self.file = None;
    }

    /// Removes the file: the database holds everything.
    pub fn remove(&mut self) -> io::Result<()> {
        self.release();
        remove_file(&self.path)
    }
}

/// Removes what may not be there.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Fills a file with zeros up to `length`, if it is shorter. How long it is then, and on the disk.
fn extend(file: &File, length: u64) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    while end < length {
        file.write_all_at(&[0; BLOCK], end)?;
        end += BLOCK as u64;
    }
    file.sync_all()?;
    Ok(end.min(LONGEST))
}

fn digest_of(mark: Mark, number: u64, bytes: &[u8]) -> digest::Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&mark.0);
    context.update(&number.to_be_bytes());
    context.update(bytes);
    context.finish()
}

/// Appends a record as the file holds it, up to the end of its last page.
pub fn write_record(mark: Mark, number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&mark.0);
    out.extend_from_slice(&number.to_be_bytes());
    // No record is longer than its limit.
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(digest_of(mark, number, bytes).as_ref());
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(PAGE), 0);
}

/// The record at the beginning of `bytes`: its number and its content.
fn record(bytes: &[u8], mark: Mark) -> Option<(u64, &[u8])> {
    let rest = bytes.strip_prefix(&mark.0)?;
    let (number, rest) = rest.split_first_chunk::<NUMBER_LEN>()?;
    let (length, rest) = rest.split_first_chunk::<LENGTH_LEN>()?;
    let (digest, rest) = rest.split_first_chunk::<DIGEST_LEN>()?;
    let number = u64::from_be_bytes(*number);
    let (content, _) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    (digest_of(mark, number, content).as_ref() == digest).then_some((number, content))
}

/// All whole records from the beginning on; `None` when one of them is missing and a later one is not.
pub fn records(bytes: &[u8], mark: Mark) -> Option<Vec<Vec<u8>>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut next = 0;
    for at in (0..bytes.len()).step_by(PAGE) {
        let Some((number, content)) = bytes.get(at..).and_then(|rest| record(rest, mark)) else {
            continue;
        };
        if at < next {
            // The content of a record may look like one.
            continue;
        }
        if at > next || number != found.len() as u64 {
            return None;
        }
        found.push(content.to_vec());
        next = at + (HEAD_LEN + content.len()).next_multiple_of(PAGE);
    }
    Some(found)
}
