//! The journal: makes a batch of writes durable with one write and one sync.
//!
//! A changed row in redb rewrites its page and every page above it, and a durable commit takes two syncs. A batch
//! therefore takes this way:
//!
//! 1. It is appended to the journal file and synced. It is durable then, and its writers get their replies.
//! 2. Its rows are published in the [`overlay`], where all readers see them.
//! 3. At a checkpoint another thread writes all rows of the overlay to redb in one commit, each page once. A checkpoint
//!    begins when half of the file is full, after some thousands of rows, and when nothing was written for seconds.
//!    During the checkpoint the journal continues in the other half of the file.
//!
//! A batch that is too long for a record goes to redb directly, after a checkpoint. So does every batch while the file
//! cannot be written, and the first batch after opening: a command that writes once needs no journal. A closed store has
//! no journal.
//!
//! # The file
//!
//! `idsvc.redb.journal` is 4 MiB long and has two halves. Each half is filled with records from its beginning. A record
//! begins at a multiple of 4096 bytes, so that writing a record touches no other one. Integers are big-endian.
//!
//! | offset | size | part of a record |
//! |---|---|---|
//! | 0 | 16 | the id of the journal, drawn at random each time a journal is started |
//! | 16 | 8 | the number of the record: 0, 1, 2 … |
//! | 24 | 4 | *n*, the length of the content, at most 1 MiB |
//! | 28 | 32 | SHA-256 of id, number and content |
//! | 60 | *n* | the content |
//! | 60 + *n* | up to 4095 | zeros to the end of the page |
//!
//! The content has one entry for each row that the batch changed:
//!
//! | size | part of an entry |
//! |---|---|
//! | 1 | 1 for a row that was written, 2 for one that was removed |
//! | 4, *n* | length and bytes of the table's name |
//! | 4, *n* | length and bytes of the key |
//! | 4, *n* | length and bytes of the value, if the row was written |
//!
//! # Replay
//!
//! The redb table `journal` has one row, `position`: 16 bytes of id and 8 bytes with the number of the first record that
//! redb does not hold. Each checkpoint writes it in the same commit as the earlier rows. Without that row there is no
//! journal, and a file at its path is ignored.
//!
//! When the store is opened, the whole file is searched for records with that id, from that number on. Their rows go to
//! the overlay, in order, and to redb with the first write or after some seconds. An incomplete record ends the journal:
//! its writers got no reply. If a later record is complete, the disk has lost the records in between. The database is
//! damaged then and is not opened. It is not opened either if the file is missing or has another length.

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
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ::redb::{Database, Durability, ReadableDatabase, TableDefinition, TableError, WriteTransaction};

use self::changes::Changes;
use self::file::{JournalFile, LENGTH};
use self::record::{JournalId, JournalPosition};
use super::base::{Bytes, call_redb, guarded};
use super::errors::{engine_failed, io_failed, unexpected};
use super::{Shared, live};
use crate::random::Random;
use crate::store::StoreError;

pub(in crate::store) use self::file::remove_file;
pub(super) use self::overlay::{Overlay, ReadSnapshot};
pub(super) use self::transaction::WriteTx;

/// The longest content of a record.
const RECORD_LIMIT: usize = 1 << 20;

/// No table of the store, so that no backup holds it.
const TABLE: TableDefinition<'static, &str, Bytes> = TableDefinition::new("journal");
const POSITION: &str = "position";

/// How long a checkpoint should take at most. If the other half of the file fills up during a checkpoint, all writers
/// wait for its end.
const CHECKPOINT_TARGET: Duration = Duration::from_secs(1);
/// The bounds of the number of rows in a checkpoint. The speed of the disk decides between them. The pages of more rows
/// would not fit into redb's cache.
const MIN_ROWS: usize = 64;
const MAX_ROWS: usize = 4096;
/// The largest commit of a checkpoint, in bytes: each row is in a page of its own.
pub(super) const LARGEST_COMMIT: u64 = MAX_ROWS as u64 * 4096;

/// How long the journal is suspended after its file could not be written.
const RETRY_PAUSE: Duration = Duration::from_mins(10);

/// The path of the journal of the database at `path`.
pub(super) fn path_beside(path: &Path) -> PathBuf {
    JournalFile::beside(path).path().to_owned()
}

/// Decides which batches go to the journal file and which to redb.
pub(super) struct Journal {
    /// `None` for a database without a journal: each batch goes to redb.
    file: Option<JournalFile>,
    random: Random,
    /// Whether redb may hold a position in the journal.
    is_position_stored: bool,
    /// Whether a batch was committed since the database was opened.
    has_committed: bool,
    /// The number of rows that were appended since the last checkpoint, and the number that starts the next one.
    rows: usize,
    max_rows: usize,
    retry_at: Option<Instant>,
    checkpoint_thread: Option<JoinHandle<Result<Duration, StoreError>>>,
}

impl Journal {
    /// The journal of the database at `path`, or no journal.
    pub(super) fn new(path: Option<&Path>) -> Self {
        Self {
            file: path.map(JournalFile::beside),
            random: Random::system(),
            is_position_stored: false,
            has_committed: false,
            rows: 0,
            max_rows: MAX_ROWS,
            retry_at: None,
            checkpoint_thread: None,
        }
    }

    /// Reads the records of the file into the overlay, for a database that was just opened.
    pub(super) fn replay(&mut self, database: &Database, overlay: &Overlay) -> Result<(), StoreError> {
        overlay.clear();
        self.has_committed = false;
        let Some(file) = &mut self.file else { return Ok(()) };
        file.release();
        let position = read_position(database)?;
        self.is_position_stored = position.is_some();
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

    /// Makes a batch durable and publishes it.
    pub(super) fn commit(&mut self, shared: &Arc<Shared>, changes: Changes) -> Result<(), StoreError> {
        if self.append(shared, &changes)? {
            self.rows += changes.len();
            shared.overlay.publish(changes);
            return Ok(());
        }
        self.checkpoint(shared)?;
        let position = self.position();
        let is_open = position.is_some();
        let position = position.or_else(|| self.start_new());
        let transaction = shared.begin_write()?;
        let growth = changes.write_to(&transaction)?;
        // A failed commit may still be on the disk.
        let was_stored = self.is_position_stored;
        self.is_position_stored |= position.is_some();
        shared.commit_durably(transaction, growth, position, was_stored)?;
        self.is_position_stored = position.is_some();
        self.has_committed = true;
        if let (false, Some(file), Some(position)) = (is_open, &mut self.file, position) {
            file.restart(position.id);
        }
        Ok(())
    }

    /// Appends a batch to the file. Returns false if the batch must go to redb.
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
        let Some(file) = &mut self.file else {
            return Ok(false);
        };
        if let Err(error) = file.append(&content) {
            self.suspend(&error);
            return Ok(false);
        }
        Ok(true)
    }

    fn position(&self) -> Option<JournalPosition> {
        self.file.as_ref()?.position()
    }

    /// Prepares a new journal, if one is due, and returns its first position. Redb must hold the rows of the last one.
    fn start_new(&mut self) -> Option<JournalPosition> {
        let is_suspended = self.retry_at.is_some_and(|retry_at| Instant::now() < retry_at);
        if !self.has_committed || self.is_position_stored || is_suspended {
            return None;
        }
        if let Err(error) = self.file.as_mut()?.prepare() {
            self.suspend(&error);
            return None;
        }
        let id = JournalId(self.random.bytes());
        Some(JournalPosition { id, number: 0 })
    }

    /// Writes to redb only for a while. A record that was written in part is ignored once redb holds no position.
    fn suspend(&mut self, error: &io::Error) {
        tracing::warn!(%error, "the journal cannot be written, the database goes on without it");
        self.retry_at = Some(Instant::now() + RETRY_PAUSE);
        if let Some(file) = &mut self.file {
            file.release();
        }
    }

    /// Starts a checkpoint on another thread.
    fn start_checkpoint(&mut self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        if !self.freeze(shared)? {
            return Ok(());
        }
        let position = self.position();
        let worker = Arc::clone(shared);
        let thread = thread::Builder::new().name("checkpoint".to_owned());
        match thread.spawn(move || worker.write_frozen(position)) {
            Ok(thread) => self.checkpoint_thread = Some(thread),
            // The system has no thread left.
            Err(_) => drop(shared.write_frozen(position)?),
        }
        Ok(())
    }

    /// Freezes the rows that redb does not hold, and switches to the other half of the file. Returns whether there were
    /// such rows.
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

    /// Checks whether the checkpoint has ended. If it failed, the database must be reopened.
    pub(super) fn poll_checkpoint(&mut self, shared: &Shared) -> Result<(), StoreError> {
        if let Some(thread) = &self.checkpoint_thread
            && !thread.is_finished()
        {
            return Ok(());
        }
        self.join()?;
        if shared.overlay.is_frozen() {
            return Err(StoreError::Interrupted);
        }
        Ok(())
    }

    /// Waits for the end of a running checkpoint. Its duration decides how many rows the next one has.
    pub(super) fn join(&mut self) -> Result<(), StoreError> {
        let Some(thread) = self.checkpoint_thread.take() else {
            return Ok(());
        };
        let panicked = |_| Err(StoreError::Damaged("the engine panicked".to_owned()));
        let duration = thread.join().unwrap_or_else(panicked)?;
        if duration > CHECKPOINT_TARGET {
            self.max_rows = (self.max_rows / 2).max(MIN_ROWS);
        } else if duration < CHECKPOINT_TARGET / 4 {
            self.max_rows = (self.max_rows * 2).min(MAX_ROWS);
        }
        Ok(())
    }

    /// Writes all rows to redb, and returns after that.
    pub(super) fn checkpoint(&mut self, shared: &Shared) -> Result<(), StoreError> {
        if self.freeze(shared)? {
            let position = self.position();
            shared.write_frozen(position)?;
            self.is_position_stored = position.is_some();
        }
        Ok(())
    }

    /// Writes all rows to redb and removes the file. Fails unless the database is open: the journal may belong to another
    /// process that has opened the database since.
    pub(super) fn remove(&mut self, shared: &Shared) -> Result<(), StoreError> {
        self.join()?;
        let Some(file) = &mut self.file else { return Ok(()) };
        drop(shared.begin_write()?);
        file.release();
        if self.freeze(shared)? || self.is_position_stored {
            shared.write_frozen(None)?;
            self.is_position_stored = false;
        }
        self.file
            .as_mut()
            .map_or(Ok(()), JournalFile::remove)
            .map_err(io_failed)
    }
}

impl Drop for Journal {
    /// The checkpoint thread keeps the database open.
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::warn!(%error, "the last checkpoint failed");
        }
    }
}

impl Shared {
    /// Commits the frozen rows together with `position`. Returns the duration.
    fn write_frozen(&self, position: Option<JournalPosition>) -> Result<Duration, StoreError> {
        let begun = Instant::now();
        let transaction = self.begin_write()?;
        let growth = self.overlay.write_frozen_to(&transaction)?;
        self.commit_durably(transaction, growth, position, true)?;
        self.overlay.drop_frozen();
        Ok(begun.elapsed())
    }

    /// Commits durably, together with the position of the journal and with the bytes of all rows, which grew by `growth`.
    /// If `position` is `None` and one `was_stored`, that one is removed.
    fn commit_durably(
        &self,
        mut transaction: WriteTransaction,
        growth: i64,
        position: Option<JournalPosition>,
        was_stored: bool,
    ) -> Result<(), StoreError> {
        if position.is_some() || was_stored {
            let mut table = call_redb(|| transaction.open_table(TABLE))?;
            call_redb(|| match position {
                Some(position) => table.insert(POSITION, position.to_bytes().as_slice()).map(drop),
                None => table.remove(POSITION).map(drop),
            })?;
        }
        let counted = self.live_bytes.load(Ordering::Relaxed);
        let live_bytes = live::update(&transaction, counted, growth)?;
        transaction
            .set_durability(Durability::Immediate)
            .map_err(|_| unexpected("durability"))?;
        // Two-phase commit makes the commit atomic, quick repair makes opening after a crash fast.
        transaction.set_two_phase_commit(true);
        transaction.set_quick_repair(true);
        call_redb(|| transaction.commit())?;
        self.live_bytes.store(live_bytes, Ordering::Relaxed);
        Ok(())
    }
}

fn read_position(database: &Database) -> Result<Option<JournalPosition>, StoreError> {
    let transaction = call_redb(|| database.begin_read())?;
    let table = match guarded(|| transaction.open_table(TABLE)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(engine_failed(error)),
    };
    let Some(row) = call_redb(|| table.get(POSITION))? else {
        return Ok(None);
    };
    match JournalPosition::from_bytes(row.value()) {
        Some(position) => Ok(Some(position)),
        None => Err(StoreError::Damaged("the position of its journal".to_owned())),
    }
}
