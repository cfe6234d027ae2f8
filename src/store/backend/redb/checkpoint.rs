//! When a commit goes to the journal, and when to the database file.
//!
//! The database says in a table of its own which [`Mark`] its journal has to bear. That row is written in the durable
//! commit that the journal goes on from, and is removed in the one after which there is nothing to go on from.
//! The first commit after opening is durable and wants no journal, so a command that writes once leaves one file.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::redb::{Database, Durability, ReadableDatabase, TableDefinition, TableError, WriteTransaction};

use super::errors::{commit_failed, io_failed, storage_failed, table_failed, transaction_failed, unexpected};
use super::journal::{Change, Journal, Mark, Record, Unusable, changes};
use super::rows::{Bytes, guarded, raw_definition};
use crate::random::Random;
use crate::store::StoreError;

/// No table of the store's, so that no backup holds it.
const MARKS: TableDefinition<'static, &str, Bytes> = TableDefinition::new("journal");
const MARK: &str = "mark";

/// How long everybody waits for a checkpoint beyond its syncs, as far as that can be foreseen: a disk that seeks is
/// brought up to date more often, so that there is less to write each time.
const PATIENCE: Duration = Duration::from_millis(20);
/// How many changes the journal holds at first, and within which bounds that follows the disk. They are also what
/// is replayed after a kill.
const FIRST_MOST: usize = 4096;
const LEAST_MOST: usize = 64;
const GREATEST_MOST: usize = 16_384;
/// A durable commit syncs twice; see [`make_durable`].
const SYNCS: u32 = 2;

/// How long the journal is done without after it could not be written.
const REST: Duration = Duration::from_mins(10);

/// The journal, and what the database says of it.
pub(super) struct Checkpoints {
    journal: Journal,
    random: Random,
    /// Whether the database asks for the journal when it is opened.
    is_named: bool,
    /// Whether something was committed since the database was opened.
    is_warm: bool,
    /// How many changes the journal may hold.
    most: usize,
    /// Until when the journal is done without, because it could not be written.
    rests_until: Option<Instant>,
}

/// Why a database cannot be brought to where its journal ends.
pub(super) enum ReplayError {
    /// The journal cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The journal is not what was written, or the engine failed.
    Store(StoreError),
}

impl From<StoreError> for ReplayError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Checkpoints {
    /// With nothing known of the database yet.
    pub(super) fn new(journal: Journal) -> Self {
        Self {
            journal,
            random: Random::system(),
            is_named: false,
            is_warm: false,
            most: FIRST_MOST,
            rests_until: None,
        }
    }

    /// Brings a database that was just opened to where its journal ends, in memory: the next commit is durable.
    pub(super) fn replay(&mut self, database: &Database) -> Result<(), ReplayError> {
        self.journal.release();
        self.is_warm = false;
        let mark = mark(database)?;
        self.is_named = mark.is_some();
        let Some(mark) = mark else { return Ok(()) };
        let path = self.journal.path();
        let damaged = |what: &str| StoreError::Damaged(format!("its journal {} {what}", path.display()));
        let records = self.journal.read(mark).map_err(|error| match error {
            Unusable::Missing => damaged("is missing").into(),
            Unusable::Damaged => damaged("is not what was written").into(),
            Unusable::Io(error) => ReplayError::Unreadable(path.to_owned(), error),
        })?;
        self.journal.trim(&records);
        if records.is_empty() {
            return Ok(());
        }
        tracing::info!(records = records.len(), "the journal is replayed");
        let mut transaction = guarded(|| database.begin_write()).map_err(transaction_failed)?;
        for record in &records {
            for change in changes(record).ok_or_else(|| damaged("is not what was written"))? {
                apply(&transaction, change)?;
            }
        }
        transaction
            .set_durability(Durability::None)
            .map_err(|_| unexpected("durability"))?;
        guarded(|| transaction.commit()).map_err(commit_failed)?;
        Ok(())
    }

    /// Commits: by the journal when that has room, else all that has gathered at once.
    pub(super) fn commit(
        &mut self,
        mut transaction: WriteTransaction,
        record: &Record,
    ) -> Result<(), StoreError> {
        if record.is_empty() {
            return transaction.abort().map_err(storage_failed);
        }
        if !self.journal.takes(record, self.most) {
            let mark = if self.is_warm { self.next_mark() } else { None };
            self.keep(transaction, mark)?;
            self.is_warm = true;
            return Ok(());
        }
        if let Err(error) = self.journal.append(record) {
            self.rest(&error);
            return self.keep(transaction, None);
        }
        transaction
            .set_durability(Durability::None)
            .map_err(|_| unexpected("durability"))?;
        transaction.commit().map_err(commit_failed)
    }

    /// The mark to go on from, when there is a journal to go on with.
    fn next_mark(&mut self) -> Option<Mark> {
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        if self.is_named && !self.journal.is_prepared() {
            // What the named one holds has first to be in the database.
            return None;
        }
        match self.journal.prepare() {
            Ok(()) => {
                self.rests_until = None;
                Some(Mark(self.random.bytes()))
            }
            Err(error) => {
                self.rest(&error);
                None
            }
        }
    }

    /// Does without the journal for a while: the database alone is slower, and as safe. What of a record may have been
    /// written counts for nothing once a durable commit has dropped the mark.
    fn rest(&mut self, error: &io::Error) {
        tracing::warn!(path = %self.journal.path().display(), %error, "the journal cannot be written, the database goes on without it");
        self.journal.release();
        self.rests_until = Some(Instant::now() + REST);
    }

    /// Whether the journal holds what the database file does not.
    pub(super) fn are_due(&self) -> bool {
        self.journal.is_ahead()
    }

    /// Brings the database file up to date; the journal begins anew.
    pub(super) fn settle(&mut self, transaction: WriteTransaction) -> Result<(), StoreError> {
        let mark = self.next_mark();
        self.keep(transaction, mark)
    }

    /// Brings the database file up to date, if it asks for a journal, and removes what lies there. Only while the database
    /// is open: else the journal at that path may be the one of another process that has taken the database.
    pub(super) fn end(
        &mut self,
        begin: impl FnOnce() -> Result<WriteTransaction, StoreError>,
    ) -> Result<(), StoreError> {
        let transaction = begin()?;
        if self.is_named {
            self.keep(transaction, None)?;
        } else {
            transaction.abort().map_err(storage_failed)?;
        }
        self.journal.remove().map_err(io_failed)
    }

    /// How much the next checkpoint may have to write follows from how long this one took, without what the syncs of
    /// so busy a disk take anyway: the fewer changes a checkpoint has, the more often that would be waited for.
    fn learn(&mut self, took: Duration) {
        let changes = self.journal.changes();
        let writing = took.saturating_sub(self.journal.mean_append() * SYNCS);
        if writing > PATIENCE && changes >= LEAST_MOST {
            self.most = (changes / 2).max(LEAST_MOST);
        } else if writing < PATIENCE / 2 && changes > self.most / 2 {
            self.most = (self.most * 2).min(GREATEST_MOST);
        }
    }

    fn keep(&mut self, mut transaction: WriteTransaction, mark: Option<Mark>) -> Result<(), StoreError> {
        self.journal.suspend();
        if mark.is_some() || self.is_named {
            let mut marks = guarded(|| transaction.open_table(MARKS)).map_err(table_failed)?;
            let done = match &mark {
                Some(mark) => guarded(|| marks.insert(MARK, mark.0.as_slice()).map(|_| ())),
                None => guarded(|| marks.remove(MARK).map(|_| ())),
            };
            done.map_err(storage_failed)?;
        }
        make_durable(&mut transaction)?;
        // A commit that fails may have been kept all the same.
        self.is_named |= mark.is_some();
        let begun = Instant::now();
        transaction.commit().map_err(commit_failed)?;
        self.learn(begun.elapsed());
        self.is_named = mark.is_some();
        if let Some(mark) = mark {
            self.journal.restart(mark);
        }
        Ok(())
    }
}

/// Has the commit be on the disk when it returns, wholly or not at all, and the next opening be quick.
pub(super) fn make_durable(transaction: &mut WriteTransaction) -> Result<(), StoreError> {
    transaction
        .set_durability(Durability::Immediate)
        .map_err(|_| unexpected("durability"))?;
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(true);
    Ok(())
}

fn mark(database: &Database) -> Result<Option<Mark>, StoreError> {
    let transaction = guarded(|| database.begin_read()).map_err(transaction_failed)?;
    let marks = match guarded(|| transaction.open_table(MARKS)) {
        Ok(marks) => marks,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(table_failed(error)),
    };
    let found = guarded(|| Ok(marks.get(MARK)?.map(|mark| mark.value().to_vec()))).map_err(storage_failed)?;
    found
        .map(|mark| mark.try_into().map(Mark))
        .transpose()
        .map_err(|_| StoreError::Damaged("the mark of its journal".to_owned()))
}

fn apply(transaction: &WriteTransaction, change: Change<'_>) -> Result<(), StoreError> {
    let (Change::Put(table, ..) | Change::Remove(table, _)) = change;
    let mut opened = guarded(|| transaction.open_table(raw_definition(table))).map_err(table_failed)?;
    let done = match change {
        Change::Put(_, key, value) => guarded(|| opened.insert(key, value).map(|_| ())),
        Change::Remove(_, key) => guarded(|| opened.remove(key).map(|_| ())),
    };
    done.map_err(storage_failed)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn with_changes(changes: usize) -> Checkpoints {
        let mut checkpoints = Checkpoints::new(Journal::beside(Path::new("nowhere.redb")));
        checkpoints.journal.pretend(changes, Duration::ZERO);
        checkpoints
    }

    #[test]
    fn a_checkpoint_that_took_long_is_followed_by_a_smaller_one_down_to_a_least() {
        let mut checkpoints = with_changes(FIRST_MOST);
        checkpoints.learn(PATIENCE * 2);
        assert_eq!(checkpoints.most, FIRST_MOST / 2);
        for _ in 0..20 {
            let most = checkpoints.most;
            checkpoints.journal.pretend(most, Duration::ZERO);
            checkpoints.learn(PATIENCE * 100);
        }
        assert_eq!(checkpoints.most, LEAST_MOST);
        checkpoints.journal.pretend(1, Duration::ZERO);
        checkpoints.learn(PATIENCE * 100);
        assert_eq!(
            checkpoints.most, LEAST_MOST,
            "a slow bulk write says nothing of the journal"
        );
    }

    #[test]
    fn a_quick_checkpoint_of_a_full_journal_lets_the_next_be_greater_up_to_a_bound() {
        let mut checkpoints = with_changes(10);
        checkpoints.learn(Duration::ZERO);
        assert_eq!(checkpoints.most, FIRST_MOST, "ten changes prove nothing");
        for _ in 0..20 {
            let most = checkpoints.most;
            checkpoints.journal.pretend(most, Duration::ZERO);
            checkpoints.learn(Duration::ZERO);
        }
        assert_eq!(checkpoints.most, GREATEST_MOST);
        let most = checkpoints.most;
        checkpoints.journal.pretend(most, Duration::ZERO);
        checkpoints.learn(PATIENCE * 3 / 4);
        assert_eq!(checkpoints.most, GREATEST_MOST, "what fits stays");
    }

    #[test]
    fn a_disk_whose_syncs_are_slow_is_not_synced_more_often() {
        let slow = PATIENCE * 10;
        let mut checkpoints = with_changes(FIRST_MOST);
        checkpoints.journal.pretend(FIRST_MOST, slow);
        checkpoints.learn(slow * 2 + PATIENCE / 3);
        assert_eq!(
            checkpoints.most,
            FIRST_MOST * 2,
            "the pages themselves took little"
        );
        checkpoints.journal.pretend(FIRST_MOST, slow);
        checkpoints.learn(slow * 2 + PATIENCE * 2);
        assert_eq!(checkpoints.most, FIRST_MOST / 2);
    }
}
