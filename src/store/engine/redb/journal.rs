//! The journal: one file beside the database, to which a batch of writes is appended and synced before it is shown to
//! anybody.
//!
//! Copy-on-write pages are dear to make durable: a row that changes takes its leaf and every page above it along.
//! So the journal makes a batch durable with one write and one sync to a place that has been written before, and the
//! batch is kept [above the engine](super::overlay). When one half of the journal is full, or nothing has been written
//! for a while, the engine commits everything in it at once, each page once however often it changed. The other half
//! is written meanwhile.
//!
//! A record begins where a page of the file does, so that no write touches what was answered before.
//!
//! Records are numbered, and the database says from which [`Place`] on they count: that is written in the commit that
//! holds those before it. So what has been overtaken by the database, or belongs to another one, is nothing but room.
//! The digest of a record covers the mark, its number and its content. A record that is not whole ends the journal: its
//! write was never answered. Unless a later record is whole: then the disk has lost something in between, and the
//! database is damaged.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::digest;
use rustix::fs::OFlags;

use super::sync_folder_of;
use crate::store::owner;

/// How long the file is at first; it is made twice as long after something has found no room.
const SHORTEST: u64 = 256 << 10;
/// How long it gets.
const LONGEST: u64 = 8 << 20;
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

/// What all records bear that go on from one state of the database; drawn at random for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub [u8; MARK_LEN]);

/// From where on a journal counts: the first record that the database does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What its records bear.
    pub mark: Mark,
    /// The number of the first.
    pub number: u64,
}

impl Place {
    /// As the database keeps it. The beginning is the mark alone, as in earlier releases, which knew no other place.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.mark.0.to_vec();
        if self.number > 0 {
            bytes.extend_from_slice(&self.number.to_be_bytes());
        }
        bytes
    }

    /// What [`Place::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (mark, rest) = bytes.split_first_chunk()?;
        let number = match rest {
            [] => 0,
            rest => u64::from_be_bytes(rest.try_into().ok()?),
        };
        Some(Self {
            mark: Mark(*mark),
            number,
        })
    }
}

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

    /// Whether more was changed than one record holds.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// How much of the file it takes.
    fn room(&self) -> u64 {
        room_of(self.bytes.len())
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
    /// What records are to bear; none before the database has named it in its last durable commit.
    mark: Option<Mark>,
    /// The number of the next record.
    number: u64,
    /// How many changes are in the part that is written to.
    changes: usize,
    /// The part of the file that is written to, and where in it the next record begins.
    part: Range<u64>,
    at: u64,
    length: u64,
    /// The longest record that found no room since it was last seen whether the file is to be longer.
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
            part: 0..0,
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

    /// All that is in the file. What comes back is on the disk, if the disk is well, even where the process that wrote it
    /// was killed before it had synced it.
    pub fn read(&self) -> Result<Vec<u8>, Unusable> {
        let mut bytes = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            // Nothing can be done about a disk that refuses, and nothing is promised by what is read.
            let _ = file.sync_all();
            file.read_to_end(&mut bytes)
        });
        match read {
            // No database names a journal that is shorter.
            Ok(length) if (length as u64) < SHORTEST => Err(Unusable::Damaged),
            Ok(_) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unusable::Missing),
            Err(error) => Err(Unusable::Io(error)),
        }
    }

    /// Gives back what lies behind these records: a journal that was read is not gone on with, and where the disk is full
    /// it is the room for the commit after which it is not needed any more.
    pub fn trim(&self, found: &Found<'_>) {
        // A link may lead to what belongs to somebody else.
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(&self.path);
        // It may as well stay as long as it is.
        let _ = opened.and_then(|file| file.set_len((found.end as u64).max(SHORTEST)));
    }

    /// Whether records may be appended.
    pub fn is_open(&self) -> bool {
        self.mark.is_some()
    }

    /// Where the next record goes, while records may be appended.
    pub fn place(&self) -> Option<Place> {
        let number = self.number;
        self.mark.map(|mark| Place { mark, number })
    }

    /// Whether this may be appended to the part that is written to.
    pub fn takes(&mut self, record: &Record) -> bool {
        if self.mark.is_none() || record.is_too_long {
            return false;
        }
        let fits = self.at + record.room() <= self.part.end;
        if !fits {
            self.wanted = self.wanted.max(record.room());
        }
        fits
    }

    /// How many changes are in the part that is written to.
    pub fn changes(&self) -> usize {
        self.changes
    }

    /// Appends a record. It is on the disk when this returns; after an error it may be, or a part of it.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let (Some(mark), Some(file)) = (self.mark, &self.file) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        self.buffer.clear();
        let number = self.number;
        write_record(Place { mark, number }, &record.bytes, &mut self.buffer);
        // What comes of it is known only when the next one begins: nothing is appended after a failure.
        self.mark = None;
        file.write_all_at(&self.buffer, self.at)?;
        file.sync_data()?;
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

    /// Begins at the beginning: nothing in the file is needed, and a durable commit of the database has named this mark.
    pub fn restart(&mut self, mark: Mark) {
        self.mark = Some(mark);
        self.number = 0;
        self.grow();
        self.begin_at(0..self.length / 2);
    }

    /// Goes on in the other part, which the database has overtaken. It has overtaken this one as well before the next turn.
    pub fn turn(&mut self) {
        if self.part.start == 0 {
            self.grow();
            // The file may have become longer since this part was measured: from now on its halves are equal.
            self.begin_at(self.length / 2..self.length);
        } else {
            self.begin_at(0..self.part.start);
        }
    }

    fn begin_at(&mut self, part: Range<u64>) {
        self.at = part.start;
        self.part = part;
        self.changes = 0;
    }

    /// Makes a file longer in which something found no room, if the disk has it.
    fn grow(&mut self) {
        let wanted = std::mem::take(&mut self.wanted);
        let (true, Some(file)) = (wanted > 0, &self.file) else {
            return;
        };
        let length = (self.length * 2)
            .max((wanted * 2).next_power_of_two())
            .min(LONGEST);
        if length == self.length {
            return;
        }
        match extend(file, length) {
            Ok(length) => self.length = length,
            Err(error) => {
                tracing::debug!(%error, "the journal stays as long as it is");
                let _ = file.set_len(self.length);
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
        self.file = None;
    }

    /// Removes the file: the database holds everything.
    pub fn remove(&mut self) -> io::Result<()> {
        self.release();
        remove_file(&self.path)
    }
}

/// Removes what may not be there.
pub(in crate::store::engine::redb) fn remove_file(path: &Path) -> io::Result<()> {
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

fn digest_of(place: Place, bytes: &[u8]) -> digest::Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&place.mark.0);
    context.update(&place.number.to_be_bytes());
    context.update(bytes);
    context.finish()
}

/// How much of the file a record takes that has so much content.
fn room_of(content: usize) -> u64 {
    (HEAD_LEN + content).next_multiple_of(PAGE) as u64
}

/// Appends a record as the file holds it, up to the end of its last page.
pub fn write_record(place: Place, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&place.mark.0);
    out.extend_from_slice(&place.number.to_be_bytes());
    // No record is longer than its limit.
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(digest_of(place, bytes).as_ref());
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
    (digest_of(Place { mark, number }, content).as_ref() == digest).then_some((number, content))
}

/// What a journal holds from a place on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found<'a> {
    /// The content of the records, in their order.
    pub contents: Vec<&'a [u8]>,
    /// Where the last byte of the file is that they need.
    pub end: usize,
}

/// All whole records from a place on, wherever in the file they are; `None` when one of them is missing and a later one
/// is not.
pub fn records(bytes: &[u8], place: Place) -> Option<Found<'_>> {
    let mut contents = BTreeMap::new();
    let mut end = 0;
    for at in (0..bytes.len()).step_by(PAGE) {
        if at < end {
            // The content of a record may look like one.
            continue;
        }
        let Some((number, content)) = bytes.get(at..).and_then(|rest| record(rest, place.mark)) else {
            continue;
        };
        // One that was overtaken may have its last page written over and be whole by chance: what lies there counts.
        if number >= place.number {
            end = at + (HEAD_LEN + content.len()).next_multiple_of(PAGE);
            if contents.insert(number, content).is_some() {
                return None;
            }
        }
    }
    let mut numbers = contents.keys().map(|number| number - place.number);
    let is_gapless = (0..contents.len() as u64).all(|expected| numbers.next() == Some(expected));
    is_gapless.then(|| Found {
        contents: contents.into_values().collect(),
        end,
    })
}
