//! Runs reads and transactions over rows that are fetched as they are needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::State;
use super::commit::{Commit, Committed, Ran};
use super::fetch::{Fetch, Fetched};
use super::meters::CallKind;
use super::rows::{KnownRows, Reads, Wanted};
use super::view::View;
use crate::store::StoreError;
use crate::store::catalog_use::CatalogUse;
use crate::store::engine::Snapshot;
use crate::store::engine::writer::Job;

/// How long after its start a transaction may still run again.
const ATTEMPTS_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause after the first conflict, and after many.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// How much longer than its deadline an answer is waited for. The connection answers at the deadline, and knows better
/// what failed.
const ANSWER_GRACE: Duration = Duration::from_millis(500);
/// How often a closure may ask for further rows. One that reads row after row needs a round for each.
const MAX_ROUNDS: u32 = 200;

/// A read that runs again until all its rows are known.
#[derive(Default)]
pub(super) struct RepeatedRead {
    pub(super) known: KnownRows,
    wanted: Wanted,
    rounds: u32,
}

impl RepeatedRead {
    /// The result of `look`, or the rows that have to be known first.
    pub(super) fn run<T, E>(
        &mut self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, E>,
    ) -> Result<Result<T, E>, Result<Wanted, StoreError>> {
        let view = View::new(&self.known);
        let result = look(&view);
        let reads = view.reads.into_inner();
        if !reads.has_missed() {
            return Ok(result);
        }
        Err(self.add_missing(reads))
    }

    /// All rows that were read or missed so far. They are fetched together, so that they are of one snapshot.
    fn add_missing(&mut self, reads: Reads) -> Result<Wanted, StoreError> {
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            return Err(StoreError::Unbounded);
        }
        self.wanted.keys.extend(reads.missed.keys);
        self.wanted.of_users.extend(reads.missed.of_users);
        for (place, limit) in reads.missed.ranges {
            self.wanted.ranges.insert(place, limit);
        }
        Ok(self.wanted.clone())
    }
}

/// What a read has returned.
pub(in crate::store) struct ReadResult<T> {
    pub(in crate::store) value: T,
    /// Whether the database was asked for rows.
    pub(in crate::store) has_asked: bool,
}

impl State {
    /// When a read or a transaction that begins now has to end.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    pub(super) async fn read<T, E>(
        &self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, E>,
    ) -> Result<ReadResult<Result<T, E>>, StoreError> {
        let deadline = self.deadline();
        let mut read = RepeatedRead::default();
        loop {
            match read.run(look) {
                Ok(value) => {
                    return Ok(ReadResult {
                        value,
                        has_asked: read.rounds > 0,
                    });
                }
                Err(wanted) => read.known = self.fetch(wanted?, deadline).await?.known,
            }
        }
    }

    /// Fetches rows. If the catalog has changed, it is read first.
    pub(super) async fn fetch(&self, wanted: Wanted, deadline: Instant) -> Result<Fetched, StoreError> {
        let fetched = self.fetch_rows(wanted, deadline).await?;
        self.catch_up(fetched.generation, &fetched.changes, fetched.asked_at, deadline)
            .await?;
        Ok(fetched)
    }

    pub(super) async fn fetch_rows(&self, wanted: Wanted, deadline: Instant) -> Result<Fetched, StoreError> {
        let wanted = Arc::new(wanted);
        let mut has_met_lock = false;
        loop {
            if self.faulty_tables.is_any() {
                let tables = wanted.tables();
                // A box, because the futures of all requests contain this one.
                Box::pin(self.faulty_tables.wait_for(CallKind::Fetch, tables, deadline)).await?;
            }
            self.note_fetch();
            let (reply, receiver) = oneshot::channel();
            self.fetches.put(Fetch {
                wanted: Arc::clone(&wanted),
                reply,
                deadline,
            })?;
            let answer = answer(receiver, deadline).await;
            match answer.unwrap_or_else(|| Err(self.settings.silence())) {
                // Once, a locked table is waited for.
                Err(StoreError::Locked(_)) if !has_met_lock => has_met_lock = true,
                fetched => return fetched,
            }
        }
    }

    async fn commit(&self, ran: Ran, deadline: Instant) -> Result<Committed, StoreError> {
        let (reply, receiver) = oneshot::channel();
        if self.faulty_tables.is_any() {
            Box::pin(
                self.faulty_tables
                    .wait_for(CallKind::Commit, ran.tables(), deadline),
            )
            .await?;
        }
        self.commits.put(Commit { ran, reply, deadline })?;
        answer(receiver, deadline)
            .await
            .unwrap_or(Err(StoreError::Interrupted))
    }

    /// Commits a transaction that reads and writes nothing, to see whether commits succeed.
    pub(super) async fn commit_nothing(&self) {
        let ran = Ran {
            generation: self.catalog.generation(),
            ..Ran::default()
        };
        // The connection notes the outcome.
        drop(self.commit(ran, self.deadline()).await);
    }

    /// Runs a transaction until it is committed, or fails. `request` has caused it.
    pub(super) async fn run(&self, mut job: Box<dyn Job>, request: Option<Arc<CatalogUse>>) {
        let (begun, deadline) = (Instant::now(), self.deadline());
        let mut read = RepeatedRead::default();
        let (mut conflicts, mut has_met_lock, mut has_asked) = (0, false, false);
        let outcome = loop {
            let generation = self.catalog.generation();
            let mut view = View::new(&read.known);
            let mut ended = Ok(Ok(()));
            let used = CatalogUse::of_transaction(generation, || {
                ended = catch_unwind(AssertUnwindSafe(|| job.run(&mut view)));
            });
            let (reads, mut writes) = (view.reads.into_inner(), view.writes);
            if reads.has_missed() {
                has_asked = true;
                let wanted = match read.add_missing(reads) {
                    Ok(wanted) => wanted,
                    Err(error) => break Err(error),
                };
                match self.fetch(wanted, deadline).await {
                    // By now the client may have asked another node and used its answer. Here, that looks like a replay.
                    Ok(_) if begun.elapsed() > ATTEMPTS_TIMEOUT => break Err(StoreError::Busy),
                    Ok(fetched) => read.known = fetched.known,
                    Err(error) => break Err(error),
                }
                continue;
            }
            writes.drop_unchanged(&read.known, &reads);
            match ended {
                Err(_) => break Err(StoreError::Panicked(job.name())),
                // The job has the error as its outcome.
                Ok(Err(_)) => break Ok(()),
                Ok(Ok(())) if writes.is_empty() && !job.always_commits() => break Ok(()),
                Ok(Ok(())) => {}
            }
            let ran = Ran {
                generation,
                used,
                reads,
                writes,
            };
            has_asked = true;
            match self.commit(ran, deadline).await {
                Ok(Committed::Yes) => break Ok(()),
                Ok(Committed::Conflict) => {
                    self.pause_after(conflicts).await;
                    conflicts += 1;
                }
                Ok(Committed::CatalogChanged) => {}
                // Once, the transaction waits until the table can be used.
                Err(StoreError::Locked(_)) if !has_met_lock => has_met_lock = true,
                Err(error) => break Err(error),
            }
            self.note_rerun();
            match self.fetch(read.wanted.clone(), deadline).await {
                Ok(_) if begun.elapsed() > ATTEMPTS_TIMEOUT => break Err(StoreError::Busy),
                Ok(fetched) => read.known = fetched.known,
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = &outcome
            && let Some(left_out) = self.failure_log.take(error)
        {
            let left_out = (left_out > 0).then_some(left_out);
            tracing::error!(transaction = job.name(), %error, left_out, "a write was rolled back");
        }
        if has_asked && let Some(request) = request {
            request.note_asked();
        }
        job.reply(outcome);
    }

    /// Waits after so many conflicts in a row, longer each time, so that transactions on one row do not meet again.
    async fn pause_after(&self, conflicts: u32) {
        let longest = LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.saturating_pow(conflicts));
        let [share] = self.settings.random.bytes();
        tokio::time::sleep(longest.mul_f32(f32::from(share) / 255.0)).await;
    }
}

/// Waits for the answer of a connection. `None` if the connection serves a batch with a later deadline.
async fn answer<T>(
    receiver: oneshot::Receiver<Result<T, StoreError>>,
    deadline: Instant,
) -> Option<Result<T, StoreError>> {
    let answer = timeout_at((deadline + ANSWER_GRACE).into(), receiver)
        .await
        .ok()?;
    Some(answer.unwrap_or(Err(StoreError::Closed)))
}
