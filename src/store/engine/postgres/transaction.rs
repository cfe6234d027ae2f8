//! Runs reads and transactions over rows that are fetched as they are needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::State;
use super::commit::{Commit, Committed};
use super::fetch::{Fetch, Fetched};
use super::rows::{KnownRows, Reads, Wanted, Writes};
use super::view::View;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::engine::writer::Job;

/// For how long a transaction runs again because another one has changed what it read.
const ATTEMPTS_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause after the first conflict, and after many.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// How often a closure may ask for further rows. One that reads row after row needs a round for each.
const MAX_ROUNDS: u32 = 200;

/// A look that is repeated until all its rows are known.
#[derive(Default)]
pub(super) struct RepeatedRead {
    pub(super) known: KnownRows,
    wanted: Wanted,
    rounds: u32,
}

impl RepeatedRead {
    /// The result of `look`, or the rows that have to be known first.
    pub(super) fn run<T>(
        &mut self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<Result<T, StoreError>, Result<Wanted, StoreError>> {
        let view = View::new(&self.known);
        let result = look(&view);
        let (reads, _) = view.into_parts();
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
        for (place, limit) in reads.missed.ranges {
            self.wanted.ranges.insert(place, limit);
        }
        Ok(self.wanted.clone())
    }
}

impl State {
    pub(super) async fn read<T>(
        &self,
        look: &impl Fn(&dyn Snapshot) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut read = RepeatedRead::default();
        loop {
            match read.run(look) {
                Ok(result) => return result,
                Err(wanted) => read.known = self.fetch(wanted?).await?.known,
            }
        }
    }

    /// Fetches rows. If the catalog has changed, it is read first.
    pub(super) async fn fetch(&self, wanted: Wanted) -> Result<Fetched, StoreError> {
        let fetched = self.fetch_rows(wanted).await?;
        self.catch_up(fetched.generation, fetched.asked_at).await?;
        Ok(fetched)
    }

    pub(super) async fn fetch_rows(&self, wanted: Wanted) -> Result<Fetched, StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.fetches.put(Fetch {
            wanted,
            reply: sender,
            deadline: Instant::now() + self.timeout,
        })?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn commit(&self, generation: i64, reads: Reads, writes: Writes) -> Result<Committed, StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.commits.put(Commit {
            generation,
            reads,
            writes,
            reply: sender,
        })?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Commits a transaction that reads and writes nothing, to see whether commits succeed.
    pub(super) async fn commit_nothing(&self) {
        let generation = self.catalog.generation();
        // The connection notes the outcome.
        drop(self.commit(generation, Reads::default(), Writes::default()).await);
    }

    /// Runs a transaction until it is committed, or fails.
    pub(super) async fn run(&self, mut job: Box<dyn Job>) {
        let begun = Instant::now();
        let mut read = RepeatedRead::default();
        let mut conflicts = 0;
        let outcome = loop {
            let generation = self.catalog.generation();
            let mut view = View::new(&read.known);
            let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut view)));
            let (reads, writes) = view.into_parts();
            if reads.has_missed() {
                let wanted = match read.add_missing(reads) {
                    Ok(wanted) => wanted,
                    Err(error) => break Err(error),
                };
                match self.fetch(wanted).await {
                    Ok(fetched) => read.known = fetched.known,
                    Err(error) => break Err(error),
                }
                continue;
            }
            match ran {
                Err(_) => break Err(StoreError::Panicked(job.name())),
                // The job has the error as its outcome.
                Ok(Err(_)) => break Ok(()),
                Ok(Ok(())) if writes.is_empty() => break Ok(()),
                Ok(Ok(())) => {}
            }
            let retry = match self.commit(generation, reads, writes).await {
                Ok(Committed::Yes) => break Ok(()),
                Ok(Committed::Conflict) => {
                    self.pause_after(conflicts).await;
                    conflicts += 1;
                    self.fetch(read.wanted.clone()).await
                }
                Ok(Committed::CatalogChanged) => match self.replace_catalog(generation).await {
                    Ok(()) => self.fetch(read.wanted.clone()).await,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            self.note_rerun();
            match retry {
                Ok(_) if begun.elapsed() > ATTEMPTS_TIMEOUT => break Err(StoreError::Busy),
                Ok(fetched) => read.known = fetched.known,
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = &outcome {
            tracing::error!(transaction = job.name(), %error, "a write was rolled back");
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
