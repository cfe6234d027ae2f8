//! Reads what several transactions want in one call, and so in one snapshot.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::State;
use super::changes::Change;
use super::connection::Connection;
use super::errors::CallError;
use super::meters::CallKind;
use super::rows::{KeyRange, KnownRange, KnownRows, RowOfUser, StoredRow, Wanted};
use super::sql;
use crate::clock::uptime;
use crate::store::StoreError;

/// The most requests that share a call.
const BATCH_MAX: usize = 128;

/// Rows of one snapshot, and what the database says about itself.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) known: KnownRows,
    pub(super) generation: i64,
    /// What has changed since the generation in memory.
    pub(super) changes: Arc<[Change]>,
    /// The [`uptime`] at which they were asked for.
    pub(super) asked_at: Duration,
}

/// A request for rows.
pub(super) struct Fetch {
    pub(super) wanted: Arc<Wanted>,
    pub(super) reply: oneshot::Sender<Result<Fetched, StoreError>>,
    pub(super) deadline: Instant,
}

/// Serves requests until the queue is closed.
pub(super) async fn run(mut connection: Connection, mut requests: Receiver<Fetch>, state: Arc<State>) {
    let mut batch = Vec::new();
    while requests.recv_many(&mut batch, BATCH_MAX).await > 0 {
        serve(&mut connection, mem::take(&mut batch), &state).await;
    }
}

async fn serve(connection: &mut Connection, mut batch: Vec<Fetch>, state: &Arc<State>) {
    batch.retain(|fetch| !fetch.reply.is_closed());
    let mut batches = vec![batch];
    while let Some(mut batch) = batches.pop() {
        if batch.is_empty() {
            continue;
        }
        match send(connection, &batch, state).await {
            Err(CallError::Table(fault)) => {
                state.note_table_fault(CallKind::Fetch, &fault);
                let fails = |fetch: &mut Fetch| fetch.wanted.tables().contains(&fault.table.index());
                for fetch in batch.extract_if(.., fails) {
                    let _ = fetch.reply.send(Err(fault.error.clone()));
                }
                batches.push(batch);
            }
            Err(CallError::Refused(_)) if batch.len() > 1 => {
                batches.extend(batch.into_iter().map(|fetch| vec![fetch]));
            }
            answers => reply(batch, answers, state),
        }
    }
}

fn reply(batch: Vec<Fetch>, answers: Result<Vec<Fetched>, CallError>, state: &State) {
    match answers {
        Ok(answers) => {
            for (fetch, answer) in batch.into_iter().zip(answers) {
                let _ = fetch.reply.send(Ok(answer));
            }
        }
        Err(error) => {
            let error = error.into_error();
            state.note_failure(CallKind::Fetch, &error);
            for fetch in batch {
                let _ = fetch.reply.send(Err(error.clone()));
            }
        }
    }
}

/// Sends a batch until it is answered. Returns the answers in the order of the requests.
async fn send(
    connection: &mut Connection,
    batch: &[Fetch],
    state: &State,
) -> Result<Vec<Fetched>, CallError> {
    let fetch_batch = FetchBatch::new(batch.iter().map(|fetch| &*fetch.wanted));
    let deadline = batch.iter().map(|fetch| fetch.deadline).max();
    let deadline = deadline.unwrap_or_else(Instant::now);
    loop {
        let asked_at = uptime();
        match fetch_batch.send(connection, state, deadline).await {
            Ok(rows) => {
                state.note_answer(CallKind::Fetch);
                let answers = fetch_batch.split(&rows, batch.len(), asked_at);
                return answers.ok_or(CallError::Refused(StoreError::NotSetUp));
            }
            Err(failure @ (CallError::Refused(_) | CallError::Table(_))) => return Err(failure),
            Err(failure) if Instant::now() >= deadline => return Err(failure),
            Err(CallError::Disconnected(error) | CallError::Unconnected(error)) => {
                state.note_failure(CallKind::Fetch, &error);
            }
            Err(CallError::Conflict) => {}
        }
    }
}

/// One call for everything that a batch wants. What two requests want is asked for once.
pub(super) struct FetchBatch {
    keys: BTreeMap<(usize, Vec<u8>), Vec<usize>>,
    of_users: BTreeMap<RowOfUser, Vec<usize>>,
    ranges: BTreeMap<(usize, KeyRange), (usize, Vec<usize>)>,
}

/// What every answer of the database says of it.
pub(super) struct DatabaseState {
    /// The generation of the catalog.
    pub(super) generation: i64,
    /// The time in microseconds since the epoch.
    pub(super) clock: i64,
    /// What has changed in the catalog since the generation in memory.
    pub(super) changes: Arc<[Change]>,
}

impl FetchBatch {
    pub(super) fn new<'a>(requests: impl Iterator<Item = &'a Wanted>) -> Self {
        let mut fetch_batch = Self {
            keys: BTreeMap::new(),
            of_users: BTreeMap::new(),
            ranges: BTreeMap::new(),
        };
        for (index, wanted) in requests.enumerate() {
            for place in &wanted.keys {
                fetch_batch.keys.entry(place.clone()).or_default().push(index);
            }
            for row in &wanted.of_users {
                fetch_batch.of_users.entry(row.clone()).or_default().push(index);
            }
            for (place, limit) in &wanted.ranges {
                let (longest, requests) = fetch_batch.ranges.entry(place.clone()).or_default();
                *longest = (*longest).max(*limit);
                requests.push(index);
            }
        }
        fetch_batch
    }

    pub(super) async fn send(
        &self,
        connection: &mut Connection,
        state: &State,
        deadline: Instant,
    ) -> Result<Vec<Row>, CallError> {
        let parameters = self.parameters(state.catalog.known_generation());
        connection.call(&sql::GET, &parameters.typed(), deadline).await
    }

    pub(super) fn parameters(&self, known_generation: i64) -> FetchParameters<'_> {
        let of_users = || self.of_users.keys();
        let ranges = || self.ranges.keys();
        FetchParameters {
            tables: self.keys.keys().map(|(table, _)| number(*table)).collect(),
            keys: self.keys.keys().map(|(_, key)| key.as_slice()).collect(),
            user_tables: of_users().map(|row| number(row.table)).collect(),
            user_rests: of_users().map(|row| row.rest.as_slice()).collect(),
            naming_tables: of_users().map(|row| number(row.named_by.0)).collect(),
            naming_keys: of_users().map(|row| row.named_by.1.as_slice()).collect(),
            range_tables: ranges().map(|(table, _)| number(*table)).collect(),
            range_from: ranges().map(|(_, range)| range.from.as_slice()).collect(),
            range_to: ranges().map(|(_, range)| range.to.as_deref()).collect(),
            range_limits: self
                .ranges
                .values()
                .map(|(limit, _)| i32::try_from(*limit).unwrap_or(i32::MAX))
                .collect(),
            known_generation,
        }
    }

    pub(super) fn database_state(rows: &[Row]) -> Option<DatabaseState> {
        let stamp_of = |number: i32| {
            let row = rows.iter().find(|row| row.get::<_, i32>(0) == number);
            row.map(|row| row.get::<_, i64>(3))
        };
        Some(DatabaseState {
            generation: stamp_of(sql::GENERATION_ROW)?,
            clock: stamp_of(sql::CLOCK_ROW)?,
            changes: rows.iter().filter_map(Change::of).collect(),
        })
    }

    /// The answers to the requests, in their order. `None` if the database has no generation.
    fn split(&self, rows: &[Row], requests: usize, asked_at: Duration) -> Option<Vec<Fetched>> {
        let mut found = BTreeMap::new();
        let mut in_ranges: BTreeMap<usize, Vec<(Vec<u8>, StoredRow)>> = BTreeMap::new();
        let mut keys_of_users = BTreeMap::new();
        let database = Self::database_state(rows)?;
        for row in rows {
            let stamp: i64 = row.get(3);
            match (row.get::<_, i32>(0), row.get::<_, Option<&[u8]>>(1)) {
                (sql::GENERATION_ROW | sql::CLOCK_ROW | sql::CHANGE_ROW, _) => {}
                (sql::USER_KEY_ROW, key) => {
                    let index = usize::try_from(stamp).ok()?.checked_sub(1)?;
                    keys_of_users.insert(index, key?.to_vec());
                }
                (number, key) => {
                    let index = usize::try_from(number).ok()?.checked_sub(1)?;
                    let value = row.get::<_, &[u8]>(2).to_vec();
                    let stored = StoredRow { value, stamp };
                    match key {
                        None => drop(found.insert(index, stored)),
                        Some(key) => in_ranges.entry(index).or_default().push((key.to_vec(), stored)),
                    }
                }
            }
        }
        let mut answers: Vec<_> = (0..requests)
            .map(|_| Fetched {
                known: KnownRows::default(),
                generation: database.generation,
                changes: Arc::clone(&database.changes),
                asked_at,
            })
            .collect();
        for (index, ((table, key), askers)) in self.keys.iter().enumerate() {
            let row = found.remove(&index);
            for answer in askers {
                let known = &mut answers.get_mut(*answer)?.known;
                known
                    .rows
                    .entry(*table)
                    .or_default()
                    .insert(key.clone(), row.clone());
            }
        }
        for (index, (row, askers)) in self.of_users.iter().enumerate() {
            // Without a row that names the user, there is no key.
            let Some(key) = keys_of_users.remove(&index) else {
                continue;
            };
            let stored = found.remove(&(self.keys.len() + index));
            for answer in askers {
                let known = &mut answers.get_mut(*answer)?.known;
                let rows = known.rows.entry(row.table).or_default();
                rows.insert(key.clone(), stored.clone());
            }
        }
        for (index, (place, (limit, askers))) in self.ranges.iter().enumerate() {
            let rows = in_ranges.remove(&index).unwrap_or_default();
            for answer in askers {
                let known = KnownRange {
                    rows: rows.clone(),
                    limit: *limit,
                };
                answers
                    .get_mut(*answer)?
                    .known
                    .ranges
                    .insert(place.clone(), known);
            }
        }
        Some(answers)
    }
}

/// The parameters of [`sql::GET`].
pub(super) struct FetchParameters<'a> {
    tables: Vec<i16>,
    keys: Vec<&'a [u8]>,
    user_tables: Vec<i16>,
    user_rests: Vec<&'a [u8]>,
    naming_tables: Vec<i16>,
    naming_keys: Vec<&'a [u8]>,
    range_tables: Vec<i16>,
    range_from: Vec<&'a [u8]>,
    range_to: Vec<Option<&'a [u8]>>,
    range_limits: Vec<i32>,
    known_generation: i64,
}

impl FetchParameters<'_> {
    pub(super) fn typed(&self) -> [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 11] {
        [
            (&self.tables, Type::INT2_ARRAY),
            (&self.keys, Type::BYTEA_ARRAY),
            (&self.user_tables, Type::INT2_ARRAY),
            (&self.user_rests, Type::BYTEA_ARRAY),
            (&self.naming_tables, Type::INT2_ARRAY),
            (&self.naming_keys, Type::BYTEA_ARRAY),
            (&self.range_tables, Type::INT2_ARRAY),
            (&self.range_from, Type::BYTEA_ARRAY),
            (&self.range_to, Type::BYTEA_ARRAY),
            (&self.range_limits, Type::INT4_ARRAY),
            (&self.known_generation, Type::INT8),
        ]
    }
}

/// The number of a table, or of a member of a batch, as PostgreSQL gets it.
pub(super) fn number(index: usize) -> i16 {
    i16::try_from(index).unwrap_or(i16::MAX)
}
