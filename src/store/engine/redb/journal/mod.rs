//! The journal: makes a batch of writes durable with one write and one sync.
//!
//! In redb a row that changes takes its page and every page above it along, and a durable commit takes two syncs. So a
//! batch takes this way:
//!
//! 1. It is appended to the journal file and synced. Then it is durable, and its writers get their answers.
//! 2. Its rows are published in the [`overlay`], from where everybody reads them.
//! 3. At a checkpoint another thread writes all rows of the overlay to redb in one commit, each page once. A checkpoint
//!    begins when half of the file is full, after some thousands of rows, and when nothing was written for seconds.
//!    Meanwhile the journal goes on in the other half of the file.
//!
//! A batch that is too long for a record goes to redb directly, after a checkpoint. So does every batch while the file
//! cannot be written, and the first one after opening: a command that writes once needs no journal. A store that was
//! closed has none.
//!
//! # The file
//!
//! `idsvc.redb.journal` is 4 MiB long and consists of two halves. Each is filled with records from its beginning. A record
//! begins at a multiple of 4096 bytes, so that writing one touches no other. Integers are big-endian.
//!
//! | offset | size | what a record holds |
//! |---|---|---|
//! | 0 | 16 | the id of the journal, drawn at random each time the journal begins anew |
//! | 16 | 8 | the number of the record: 0, 1, 2 … |
//! | 24 | 4 | *n*, the length of the content, at most 1 MiB |
//! | 28 | 32 | SHA-256 of id, number and content |
//! | 60 | *n* | the content |
//! | 60 + *n* | up to 4095 | zeros to the end of the page |
//!
//! The content is one entry for each row that the batch changed:
//!
//! | size | what an entry holds |
//! |---|---|
//! | 1 | 1 for a row that was written, 2 for one that was removed |
//! | 4, *n* | length and bytes of the table's name |
//! | 4, *n* | length and bytes of the key |
//! | 4, *n* | length and bytes of the value, if the row was written |
//!
//! # Replay
//!
//! The redb table `journal` has one row, `position`: 16 bytes of id and 8 bytes with the number of the first record that
//! redb does not hold. Each checkpoint writes it in the same commit as the rows before it. Without that row there is no
//! journal, and a file at its path is ignored.
//!
//! When the store is opened, the whole file is searched for records with that id, from that number on. Their rows go to
//! the overlay, in order, and to redb with the first write or after some seconds. A record that is not whole was never
//! answered, and ends the journal. If a later record is whole, the disk has lost something in between: the database is
//! damaged and is not opened. It is not opened either if the file is missing or has another length.

mod changes;
mod file;
mod overlay;
mod record;
#[cfg(test)]
mod tests;
mod transaction;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ::redb::{Database, Durability, ReadableDatabase, TableDefinition, TableError, WriteTransaction};

use self::changes::Changes;
use self::file::{JournalFile, LENGTH};
use self::record::{JournalId, JournalPosition};
use super::Shared;
use super::base::{Bytes, guarded};
use super::errors::{commit_failed, io_failed, storage_failed, table_failed, transaction_failed, unexpected};
use crate::random::Random;
use crate::store::StoreError;

pub(super) use self::file::remove_file;
pub(super) use self::overlay::{Overlay, ReadSnapshot};
pub(super) use self::transaction::WriteTx;

/// The longest content of a record.
const RECORD_LIMIT: usize = 1 << 20;

/// Not among the store's tables, so that no backup holds it.
const TABLE: TableDefinition<'static, &str, Bytes> = TableDefinition::new("journal");
const POSITION: &str = "position";

/// How long a checkpoint should take at most. If the other half of the file is full before it has ended, all writers
/// wait for its end.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of rows that a checkpoint has, between these two as the speed of the disk allows. More pages than these
/// change would not fit into redb's cache.
const MIN_ROWS: usize = 64;
const MAX_ROWS: usize = 4096;

/// How long to do without the file after it could not be written.
const RETRY_PAUSE: Duration = Duration::from_mins(10);

/// Where the journal of the database at `path` is, if there is one.
pub(super) fn path_beside(path: &Path) -> PathBuf {
    JournalFile::beside(path).path().to_owned()
}

/// Decides what goes to the journal file and what to redb.
pub(super) struct Journal {
    /// `None` for a database that has no journal: each batch goes to redb.
    file: Option<JournalFile>,
    random: Random,
    /// Whether redb may name a position in the journal.
    is_named: bool,
    /// Whether something was committed since the database was opened.
    is_warm: bool,
    /// The rows that were appended since the last checkpoint, and how many begin the next.
    rows: usize,
    max_rows: usize,
    retry_at: Option<Instant>,
    checkpoint: Option<JoinHandle<Result<Duration, StoreError>>>,
}

impl Journal {
    /// The journal beside the database at `path`, or none.
    pub(super) fn new(path: Option<&Path>) -> Self {
        Self {
            file: path.map(JournalFile::beside),
            random: Random::system(),
            is_named: false,
            is_warm: false,
            rows: 0,
            max_rows: MAX_ROWS,
            retry_at: None,
            checkpoint: None,
        }
    }

    /// Reads what the file holds for a database that was just opened into the overlay.
    pub(super) fn replay(&mut self, database: &Database, overlay: &Overlay) -> Result<(), StoreError> {
        overlay.clear();
        self.is_warm = false;
        let Some(file) = &mut self.file else { return Ok(()) };
        file.release();
        let position = read_position(database)?;
        self.is_named = position.is_some();
        let Some(position) = position else { return Ok(()) };
        let path = file.path().display();
        let damaged = |what: &str| StoreError::Damaged(format!("its journal {path} {what}"));
        let altered = || damaged("is not what was written");
        let bytes = file.read().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => damaged("is missing"),
            kind => io_failed(io::Error::new(kind, format!("{path} cannot be read: {error}"))),
        })?;
        if bytes.len() != LENGTH {
            return Err(altered());
        }
        let contents = record::read_records(&bytes, position).ok_or_else(altered)?;
        let mut changes = Changes::default();
        for content in &contents {
            changes.add_content(content).ok_or_else(altered)?;
        }
        if !changes.is_empty() {
            tracing::info!(records = contents.len(), "the journal is replayed");
            overlay.publish(changes);
        }
        Ok(())
    }

    /// Makes a batch durable and shows it.
    pub(super) fn commit(&mut self, shared: &Arc<Shared>, changes: Changes) -> Result<(), StoreError> {
        if self.append(shared, &changes)? {
            self.rows += changes.len();
            shared.overlay.publish(changes);
            return Ok(());
        }
        self.catch_up(shared)?;
        let position = self.position();
        let is_open = position.is_some();
        let position = position.or_else(|| self.begin_anew());
        let transaction = shared.begin_write()?;
        changes.write_to(&transaction)?;
        // A commit that fails may have been kept.
        let was_named = self.is_named;
        self.is_named |= position.is_some();
        commit_durably(transaction, position, was_named)?;
        self.is_named = position.is_some();
        self.is_warm = true;
        if let (false, Some(file), Some(position)) = (is_open, &mut self.file, position) {
            file.restart(position.id);
        }
        Ok(())
    }

    /// Appends a batch to the file; false if it has to go to redb.
    fn append(&mut self, shared: &Arc<Shared>, changes: &Changes) -> Result<bool, StoreError> {
        if self.position().is_none() {
            return Ok(false);
        }
        let Some(content) = changes.to_content() else {
            return Ok(false);
        };
        let has_room = self.file.as_ref().is_some_and(|file| file.has_room(&content));
        if self.rows >= self.max_rows || !has_room {
            self.start_checkpoint(shared)?;
        }
        match self.file.as_mut().map(|file| file.append(&content)) {
            Some(Ok(())) => Ok(true),
            Some(Err(error)) => {
                self.pause(&error);
                Ok(false)
            }
            None => Ok(false),
        }
    }

    fn position(&self) -> Option<JournalPosition> {
        self.file.as_ref()?.position()
    }

    /// Where the journal begins anew, if there is to be one. What an earlier one held has to be in redb.
    fn begin_anew(&mut self) -> Option<JournalPosition> {
        let pauses = self.retry_at.is_some_and(|retry_at| Instant::now() < retry_at);
        if !self.is_warm || self.is_named || pauses {
            return None;
        }
        if let Err(error) = self.file.as_mut()?.prepare() {
            self.pause(&error);
            return None;
        }
        let id = JournalId(self.random.bytes());
        Some(JournalPosition { id, number: 0 })
    }

    /// Does without the file for a while. What was written of a record in vain counts for nothing once redb names no
    /// position any more.
    fn pause(&mut self, error: &io::Error) {
        tracing::warn!(%error, "the journal cannot be written, the database goes on without it");
        self.retry_at = Some(Instant::now() + RETRY_PAUSE);
        if let Some(file) = &mut self.file {
            file.release();
        }
    }

    /// Begins a checkpoint on another thread.
    fn start_checkpoint(&mut self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        if !self.freeze(shared)? {
            return Ok(());
        }
        let position = self.position();
        let worker = Arc::clone(shared);
        let thread = thread::Builder::new().name("checkpoint".to_owned());
        match thread.spawn(move || worker.write_frozen(position)) {
            Ok(thread) => self.checkpoint = Some(thread),
            // No thread is to be had.
            Err(_) => drop(shared.write_frozen(position)?),
        }
        Ok(())
    }

    /// Freezes what redb does not hold, and has the file go on in its other half. Whether there was anything.
    fn freeze(&mut self, shared: &Shared) -> Result<bool, StoreError> {
        self.join()?;
        if shared.overlay.is_frozen() {
            // The last checkpoint failed.
            return Err(StoreError::Interrupted);
        }
        self.rows = 0;
        if let Some(file) = &mut self.file {
            file.switch_half();
        }
        let is_behind = !shared.overlay.is_empty();
        if is_behind {
            shared.overlay.freeze();
        }
        Ok(is_behind)
    }

    /// Sees whether the checkpoint has ended. If it failed, the database has to be opened afresh.
    pub(super) fn poll_checkpoint(&mut self, shared: &Shared) -> Result<(), StoreError> {
        if self
            .checkpoint
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
        {
            return Ok(());
        }
        self.join()?;
        if shared.overlay.is_frozen() {
            return Err(StoreError::Interrupted);
        }
        Ok(())
    }

    /// Waits for the end of the checkpoint, if there is one. How many rows the next one has follows from its duration.
    pub(super) fn join(&mut self) -> Result<(), StoreError> {
        let Some(thread) = self.checkpoint.take() else {
            return Ok(());
        };
        let panicked = |_| Err(StoreError::Damaged("the engine panicked".to_owned()));
        let took = thread.join().unwrap_or_else(panicked)?;
        if took > CHECKPOINT_TIMEOUT {
            self.max_rows = (self.max_rows / 2).max(MIN_ROWS);
        } else if took < CHECKPOINT_TIMEOUT / 4 {
            self.max_rows = (self.max_rows * 2).min(MAX_ROWS);
        }
        Ok(())
    }

    /// Brings redb up to date: it holds everything when this returns.
    pub(super) fn catch_up(&mut self, shared: &Shared) -> Result<(), StoreError> {
        if self.freeze(shared)? {
            let position = self.position();
            shared.write_frozen(position)?;
            self.is_named = position.is_some();
        }
        Ok(())
    }

    /// Brings redb up to date, and removes the file. Only while the database is open: the journal at that path may
    /// belong to another process that has opened the database since.
    pub(super) fn end(&mut self, shared: &Shared) -> Result<(), StoreError> {
        self.join()?;
        let Some(file) = &mut self.file else { return Ok(()) };
        drop(shared.begin_write()?);
        file.release();
        if self.freeze(shared)? || self.is_named {
            shared.write_frozen(None)?;
            self.is_named = false;
        }
        self.file
            .as_mut()
            .map_or(Ok(()), JournalFile::remove)
            .map_err(io_failed)
    }
}

impl Drop for Journal {
    /// The thread of the checkpoint keeps the database open.
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::warn!(%error, "the last checkpoint failed");
        }
    }
}

impl Shared {
    /// Commits the frozen rows, and `position` with them. How long that took.
    fn write_frozen(&self, position: Option<JournalPosition>) -> Result<Duration, StoreError> {
        let begun = Instant::now();
        let transaction = self.begin_write()?;
        self.overlay.write_frozen_to(&transaction)?;
        commit_durably(transaction, position, true)?;
        self.overlay.thaw();
        Ok(begun.elapsed())
    }
}

/// Commits durably, together with the position of the journal. If that is `None` and one `was_named`, it is removed.
fn commit_durably(
    mut transaction: WriteTransaction,
    position: Option<JournalPosition>,
    was_named: bool,
) -> Result<(), StoreError> {
    if position.is_some() || was_named {
        let mut table = guarded(|| transaction.open_table(TABLE)).map_err(table_failed)?;
        let done = match position {
            Some(position) => guarded(|| table.insert(POSITION, position.to_bytes().as_slice()).map(|_| ())),
            None => guarded(|| table.remove(POSITION).map(|_| ())),
        };
        done.map_err(storage_failed)?;
    }
    transaction
        .set_durability(Durability::Immediate)
        .map_err(|_| unexpected("durability"))?;
    // On the disk wholly or not at all, and quick to open after a crash.
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(true);
    guarded(|| transaction.commit()).map_err(commit_failed)
}

fn read_position(database: &Database) -> Result<Option<JournalPosition>, StoreError> {
    let transaction = guarded(|| database.begin_read()).map_err(transaction_failed)?;
    let table = match guarded(|| transaction.open_table(TABLE)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(table_failed(error)),
    };
    let found = guarded(|| Ok(table.get(POSITION)?.map(|row| row.value().to_vec())));
    let Some(bytes) = found.map_err(storage_failed)? else {
        return Ok(None);
    };
    let position = JournalPosition::from_bytes(&bytes);
    position
        .map(Some)
        .ok_or_else(|| StoreError::Damaged("the position of its journal".to_owned()))
}
