//! When a commit goes to the journal, and when to the database file.
//!
//! The database says in a table of its own from which [`Place`] on its journal counts. That row is written in the
//! commit that holds what was before it, and is removed in the one after which there is nothing to go on from.
//! The first commit after opening wants no journal, so a command that writes once leaves one file. Whatever the journal
//! does not take, because it is too much at once or the journal cannot be written, the engine commits itself, after all
//! that was written before. Of the engine's commits those that end a part of a checkpoint are not durable: they are on the
//! disk with the one that ends it, or where the database is closed before, and until then the journal holds them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ::redb::{Database, Durability, ReadableDatabase, TableDefinition, TableError, WriteTransaction};

use super::Shared;
use super::errors::{commit_failed, io_failed, storage_failed, table_failed, transaction_failed, unexpected};
use super::journal::{Change, Journal, Mark, Place, Record, Unusable, changes, records};
use super::overlay::{Changes, Overlay};
use super::rows::{Bytes, guarded};
use crate::random::Random;
use crate::store::StoreError;

/// No table of the store's, so that no backup holds it.
const MARKS: TableDefinition<'static, &str, Bytes> = TableDefinition::new("journal");
const MARK: &str = "mark";

/// How long a checkpoint may take, as far as that can be foreseen: where as much is written again before it has ended, all
/// who write wait for its end.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many changes one checkpoint has at first, and within which bounds that follows the disk. Twice as many are
/// replayed after a kill, at most.
const FIRST_MOST: usize = 4096;
const LEAST_MOST: usize = 64;
const GREATEST_MOST: usize = 16_384;

/// How many rows the engine is given at once. Each may change a page of its own, and a commit computes the checksums of
/// all that changed: those that had to leave the engine's cache by then would be read and written twice. A few where it
/// is tested what a part leaves behind.
const PART: usize = if cfg!(debug_assertions) { 3 } else { 2048 };

/// How long the journal is done without after it could not be written.
const REST: Duration = Duration::from_mins(10);

/// The journal, what the database says of it, and the checkpoint under way.
pub(in crate::store::engine::redb) struct Checkpoints {
    journal: Journal,
    random: Random,
    /// Whether the database asks for the journal when it is opened.
    is_named: bool,
    /// Whether something was committed since the database was opened.
    is_warm: bool,
    /// How many changes one checkpoint may have.
    most: usize,
    /// Until when the journal is done without, because it could not be written.
    rests_until: Option<Instant>,
    under_way: Option<UnderWay>,
}

/// A checkpoint that another thread does.
struct UnderWay {
    thread: JoinHandle<Result<Duration, StoreError>>,
    changes: usize,
}

/// Why a database cannot be brought to where its journal ends.
pub(in crate::store::engine::redb) enum ReplayError {
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
    pub(in crate::store::engine::redb) fn new(journal: Journal) -> Self {
        Self {
            journal,
            random: Random::system(),
            is_named: false,
            is_warm: false,
            most: FIRST_MOST,
            rests_until: None,
            under_way: None,
        }
    }

    /// Has a checkpoint have so many changes.
    #[cfg(test)]
    pub(in crate::store::engine::redb) fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Has everybody see a database that was just opened as it is where its journal ends. The first write puts that into
    /// the database.
    pub(in crate::store::engine::redb) fn replay(
        &mut self,
        database: &Database,
        overlay: &Overlay,
    ) -> Result<(), ReplayError> {
        self.journal.release();
        overlay.clear();
        self.is_warm = false;
        let place = place(database)?;
        self.is_named = place.is_some();
        let Some(place) = place else { return Ok(()) };
        let path = self.journal.path();
        let damaged = |what: &str| StoreError::Damaged(format!("its journal {} {what}", path.display()));
        let altered = || damaged("is not what was written");
        let bytes = self.journal.read().map_err(|error| match error {
            Unusable::Missing => damaged("is missing").into(),
            Unusable::Damaged => altered().into(),
            Unusable::Io(error) => ReplayError::Unreadable(path.to_owned(), error),
        })?;
        let found = records(&bytes, place).ok_or_else(altered)?;
        self.journal.trim(&found);
        if found.contents.is_empty() {
            return Ok(());
        }
        tracing::info!(records = found.contents.len(), "the journal is replayed");
        let mut all = Changes::default();
        for record in &found.contents {
            for change in changes(record).ok_or_else(altered)? {
                match change {
                    Change::Put(table, key, value) => all.set(table, key, Some(value.to_vec())),
                    Change::Remove(table, key) => all.set(table, key, None),
                }
            }
        }
        overlay.publish(all);
        Ok(())
    }

    /// Whether what is written goes to the journal. Fails if a checkpoint has failed since this was asked last.
    pub(in crate::store::engine::redb) fn go_on(&mut self, shared: &Shared) -> Result<bool, StoreError> {
        if self.under_way.as_ref().is_none_or(|at| at.thread.is_finished()) {
            self.wait(shared)?;
        }
        Ok(self.journal.is_open())
    }

    /// Makes a batch durable by the journal, and shows it. Where the journal cannot take it, the engine does.
    pub(in crate::store::engine::redb) fn append(
        &mut self,
        shared: &Arc<Shared>,
        changes: Changes,
        record: &Record,
    ) -> Result<(), StoreError> {
        if self.journal.changes() >= self.most || !self.journal.takes(record) {
            self.turn(shared)?;
        }
        if self.journal.takes(record) {
            match self.journal.append(record) {
                Ok(()) => {
                    shared.overlay.publish(changes);
                    return Ok(());
                }
                Err(error) => self.rest(&error),
            }
        }
        let transaction = self.begin(shared)?;
        changes.write_to(&transaction)?;
        self.commit(shared, transaction)
    }

    /// Has another thread bring the database file to where the journal is now, which goes on in its other half.
    fn turn(&mut self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        let changes = self.journal.changes();
        if !self.freeze(shared)? {
            return Ok(());
        }
        let (place, doer) = (self.journal.place(), Arc::clone(shared));
        let name = "checkpoint".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || doer.give(place));
        // Where there is no thread to be had, the writer does it.
        match thread.map_err(|_| shared.give(place)) {
            Ok(thread) => self.under_way = Some(UnderWay { thread, changes }),
            Err(given) => self.learn(given?, changes),
        }
        Ok(())
    }

    /// Has everything stand still that the database file does not hold, and the journal go on in its other half. Whether
    /// there is such a thing.
    pub(in crate::store::engine::redb) fn freeze(&mut self, shared: &Shared) -> Result<bool, StoreError> {
        self.wait(shared)?;
        if self.journal.is_open() {
            self.journal.turn();
        }
        let is_behind = !shared.overlay.is_empty();
        if is_behind {
            shared.overlay.freeze();
        }
        Ok(is_behind)
    }

    /// Waits for the checkpoint that is under way. After one that failed the database has to be opened afresh.
    fn wait(&mut self, shared: &Shared) -> Result<(), StoreError> {
        self.join()?;
        if shared.overlay.stands_still() {
            return Err(StoreError::Interrupted);
        }
        Ok(())
    }

    /// Waits for the end of the other thread, if there is one, and says how that ended.
    pub(in crate::store::engine::redb) fn join(&mut self) -> Result<(), StoreError> {
        let Some(UnderWay { thread, changes }) = self.under_way.take() else {
            return Ok(());
        };
        let done = thread.join();
        let took = done.unwrap_or_else(|_| Err(StoreError::Damaged("the engine panicked".to_owned())))?;
        self.learn(took, changes);
        Ok(())
    }

    /// Brings the database file up to date: it holds everything when this returns.
    pub(in crate::store::engine::redb) fn catch_up(&mut self, shared: &Shared) -> Result<(), StoreError> {
        if self.freeze(shared)? {
            let place = self.journal.place();
            shared.give(place)?;
            self.is_named = place.is_some();
        }
        Ok(())
    }

    /// Begins a transaction of the engine's above everything that was written.
    pub(in crate::store::engine::redb) fn begin(
        &mut self,
        shared: &Shared,
    ) -> Result<WriteTransaction, StoreError> {
        self.catch_up(shared)?;
        shared.begin_write()
    }

    /// Commits what was changed in a transaction of the engine's.
    pub(in crate::store::engine::redb) fn commit(
        &mut self,
        shared: &Shared,
        transaction: WriteTransaction,
    ) -> Result<(), StoreError> {
        let place = match self.journal.place() {
            Some(place) => Some(place),
            None if self.is_warm => self.next_mark().map(|mark| Place { mark, number: 0 }),
            None => None,
        };
        let is_next = place.is_some() && !self.journal.is_open();
        // A commit that fails may have been kept all the same.
        let was_named = self.is_named;
        self.is_named |= place.is_some();
        let committed = commit(transaction, place, was_named);
        // There is nothing in it, and the engine is another now, perhaps even where it says that it has failed.
        shared.overlay.clear();
        committed?;
        self.is_named = place.is_some();
        self.is_warm = true;
        if let (true, Some(Place { mark, .. })) = (is_next, place) {
            self.journal.restart(mark);
        }
        Ok(())
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

    /// Brings the database file up to date, has it ask for no journal, and removes what lies there. Only while the database
    /// is open: else the journal at that path may be the one of another process that has taken the database.
    pub(in crate::store::engine::redb) fn end(&mut self, shared: &Shared) -> Result<(), StoreError> {
        self.wait(shared)?;
        shared.abort(shared.begin_write()?)?;
        self.journal.suspend();
        if self.freeze(shared)? || self.is_named {
            shared.give(None)?;
            self.is_named = false;
        }
        self.journal.remove().map_err(io_failed)
    }

    /// How much the next checkpoint may have to write follows from how long this one took.
    fn learn(&mut self, took: Duration, changes: usize) {
        if took > PATIENCE && changes >= LEAST_MOST {
            self.most = (changes / 2).clamp(LEAST_MOST, self.most);
        } else if took < PATIENCE / 2 && changes > self.most / 2 {
            // Four times as many take four times as long.
            let times = if took < PATIENCE / 8 { 4 } else { 2 };
            self.most = (self.most * times).min(GREATEST_MOST);
        }
    }
}

impl Drop for Checkpoints {
    /// The other thread has the database open for as long as it lasts.
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::warn!(%error, "the database is left behind its journal");
        }
    }
}

impl Shared {
    /// Commits what stands still in the overlay, part by part, and that the journal counts from `place` on. How long that
    /// took.
    fn give(&self, place: Option<Place>) -> Result<Duration, StoreError> {
        let begun = Instant::now();
        let first = self.begin_write()?;
        let last = self.overlay.write_still_to(first, PART, |part| {
            keep(part)?;
            self.begin_write()
        })?;
        commit(last, place, true)?;
        self.overlay.thaw();
        Ok(begun.elapsed())
    }
}

/// Commits durably, together with the place from which on a journal counts. Where there is none, and there `was` one, the
/// database asks for no journal from now on.
pub(in crate::store::engine::redb) fn commit(
    mut transaction: WriteTransaction,
    place: Option<Place>,
    was: bool,
) -> Result<(), StoreError> {
    if place.is_some() || was {
        let mut marks = guarded(|| transaction.open_table(MARKS)).map_err(table_failed)?;
        let done = match &place {
            Some(place) => guarded(|| marks.insert(MARK, place.to_bytes().as_slice()).map(|_| ())),
            None => guarded(|| marks.remove(MARK).map(|_| ())),
        };
        done.map_err(storage_failed)?;
    }
    make_durable(&mut transaction)?;
    guarded(|| transaction.commit()).map_err(commit_failed)
}

/// Commits a part of a checkpoint, without the disk. The file may come to hold some of the parts, if the database is closed
/// before the last, and is nothing then without its journal, which still holds them all.
pub(in crate::store::engine::redb) fn keep(mut transaction: WriteTransaction) -> Result<(), StoreError> {
    transaction
        .set_durability(Durability::None)
        .map_err(|_| unexpected("durability"))?;
    guarded(|| transaction.commit()).map_err(commit_failed)
}

/// Has the commit be on the disk when it returns, wholly or not at all, and the next opening be quick.
pub(in crate::store::engine::redb) fn make_durable(
    transaction: &mut WriteTransaction,
) -> Result<(), StoreError> {
    transaction
        .set_durability(Durability::Immediate)
        .map_err(|_| unexpected("durability"))?;
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(true);
    Ok(())
}

fn place(database: &Database) -> Result<Option<Place>, StoreError> {
    let transaction = guarded(|| database.begin_read()).map_err(transaction_failed)?;
    let marks = match guarded(|| transaction.open_table(MARKS)) {
        Ok(marks) => marks,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(table_failed(error)),
    };
    let found = guarded(|| Ok(marks.get(MARK)?.map(|mark| mark.value().to_vec()))).map_err(storage_failed)?;
    found
        .map(|bytes| Place::from_bytes(&bytes))
        .map(|place| place.ok_or_else(|| StoreError::Damaged("the mark of its journal".to_owned())))
        .transpose()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn checkpoints() -> Checkpoints {
        Checkpoints::new(Journal::beside(Path::new("nowhere.redb")))
    }

    #[test]
    fn a_checkpoint_that_took_long_is_followed_by_a_smaller_one_down_to_a_least() {
        let mut checkpoints = checkpoints();
        checkpoints.learn(PATIENCE * 2, FIRST_MOST);
        assert_eq!(checkpoints.most, FIRST_MOST / 2);
        for _ in 0..20 {
            checkpoints.learn(PATIENCE * 100, checkpoints.most);
        }
        assert_eq!(checkpoints.most, LEAST_MOST);
        checkpoints.learn(PATIENCE * 100, 1);
        checkpoints.learn(PATIENCE * 100, GREATEST_MOST);
        assert_eq!(checkpoints.most, LEAST_MOST);
    }

    #[test]
    fn a_quick_checkpoint_of_a_full_journal_lets_the_next_be_greater_up_to_a_bound() {
        let mut checkpoints = checkpoints();
        checkpoints.learn(Duration::ZERO, 10);
        assert_eq!(checkpoints.most, FIRST_MOST, "ten changes prove nothing");
        checkpoints.learn(PATIENCE / 4, FIRST_MOST);
        assert_eq!(checkpoints.most, FIRST_MOST * 2);
        for _ in 0..20 {
            checkpoints.learn(Duration::ZERO, checkpoints.most);
        }
        assert_eq!(checkpoints.most, GREATEST_MOST);
        checkpoints.learn(PATIENCE * 3 / 4, checkpoints.most);
        assert_eq!(checkpoints.most, GREATEST_MOST, "what fits stays");
    }
}
