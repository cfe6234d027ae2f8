//! When a commit goes to the journal, and when to the database file.
//!
//! The database says in a table of its own which [`Mark`] its journal has to bear. That row is written in the durable
//! commit that the journal goes on from, and is removed in the one after which there is nothing to go on from.
//! The first commit after opening is durable and wants no journal, so a command that writes once leaves one file.

use ::redb::{Database, Durability, ReadableDatabase, TableDefinition, TableError, WriteTransaction};

use super::errors::{commit_failed, io_failed, storage_failed, table_failed, transaction_failed, unexpected};
use super::journal::{Change, Journal, Mark, Record, Unusable, changes};
use super::rows::{Bytes, guarded, raw_definition};
use crate::random::Random;
use crate::store::StoreError;

/// No table of the store's, so that no backup holds it.
const MARKS: TableDefinition<'static, &str, Bytes> = TableDefinition::new("journal");
const MARK: &str = "mark";

/// The journal, and what the database says of it.
pub(super) struct Checkpoints {
    journal: Journal,
    random: Random,
    /// Whether the database asks for the journal when it is opened.
    is_named: bool,
    /// Whether something was committed since the database was opened.
    is_warm: bool,
}

impl Checkpoints {
    /// With nothing known of the database yet.
    pub(super) fn new(journal: Journal) -> Self {
        Self {
            journal,
            random: Random::system(),
            is_named: false,
            is_warm: false,
        }
    }

    /// Brings a database that was just opened to where its journal ends, in memory: the next commit is durable.
    pub(super) fn replay(&mut self, database: &Database) -> Result<(), StoreError> {
        self.journal.suspend();
        self.is_warm = false;
        let mark = mark(database)?;
        self.is_named = mark.is_some();
        let Some(mark) = mark else { return Ok(()) };
        let damaged =
            |what: &str| StoreError::Damaged(format!("its journal {} {what}", self.journal.path().display()));
        let records = self.journal.read(mark).map_err(|error| match error {
            Unusable::Missing => damaged("is missing"),
            Unusable::Damaged => damaged("is not what was written"),
            Unusable::Io(error) => io_failed(error),
        })?;
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
        guarded(|| transaction.commit()).map_err(commit_failed)
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
        if !self.journal.takes(record) {
            let mark = self.is_warm.then(|| Mark(self.random.bytes()));
            self.keep(transaction, mark)?;
            self.is_warm = true;
            return Ok(());
        }
        self.journal.append(record).map_err(io_failed)?;
        transaction
            .set_durability(Durability::None)
            .map_err(|_| unexpected("durability"))?;
        transaction.commit().map_err(commit_failed)
    }

    /// Whether the journal holds what the database file does not.
    pub(super) fn are_due(&self) -> bool {
        self.journal.is_ahead()
    }

    /// Brings the database file up to date; the journal begins anew.
    pub(super) fn settle(&mut self, transaction: WriteTransaction) -> Result<(), StoreError> {
        let mark = Mark(self.random.bytes());
        self.keep(transaction, Some(mark))
    }

    /// Brings the database file up to date and removes the journal, if the database asks for one.
    pub(super) fn end(
        &mut self,
        begin: impl FnOnce() -> Result<WriteTransaction, StoreError>,
    ) -> Result<(), StoreError> {
        if self.is_named {
            self.keep(begin()?, None)?;
        }
        self.journal.remove().map_err(io_failed)
    }

    fn keep(&mut self, mut transaction: WriteTransaction, mark: Option<Mark>) -> Result<(), StoreError> {
        if mark.is_some() {
            self.journal.prepare().map_err(io_failed)?;
        }
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
        transaction.commit().map_err(commit_failed)?;
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
