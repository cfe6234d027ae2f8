//! Commits several transactions in one call.
//!
//! The database locks what the transactions have read and written, compares the stamps of all rows that they have read,
//! and writes the rows of those whose stamps are unchanged. So the result is that of one transaction after the other. The
//! locks are advisory, are taken in the order of their numbers, and end with the call.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use ring::digest;
use tokio::sync::oneshot;
use tokio_postgres::types::{ToSql, Type};

use super::State;
use super::connection::Connection;
use super::errors::CallError;
use super::fetch::number;
use super::queue::Batches;
use super::rows::{KeyRange, Reads, Writes, group_of};
use super::sql;
use crate::random::Random;
use crate::store::StoreError;
use crate::store::engine::TableId;

/// The most transactions that share a call.
const BATCH_MAX: usize = 128;

/// How the database took a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Committed {
    /// It is stored.
    Yes,
    /// Another transaction has changed what it has read.
    Conflict,
    /// The catalog in memory is not the one in the database.
    CatalogChanged,
}

/// A transaction that has run.
pub(super) struct Commit {
    /// The generation of the catalog with which it ran.
    pub(super) generation: i64,
    pub(super) reads: Reads,
    pub(super) writes: Writes,
    pub(super) reply: oneshot::Sender<Result<Committed, StoreError>>,
}

impl Commit {
    fn writes_catalog(&self) -> bool {
        self.writes.rows().any(|(table, ..)| table.is_in_catalog())
    }

    /// Whether this transaction reads or writes a row that is in `written`.
    fn conflicts_with(&self, written: &BTreeSet<(usize, Vec<u8>)>) -> bool {
        if written.is_empty() {
            return false;
        }
        let row_conflicts = |table: usize, key: &[u8]| written.contains(&(table, key.to_vec()));
        let range_conflicts = |table: TableId, range: &KeyRange| {
            let from = Bound::Included((table.index(), range.from.clone()));
            let to = match &range.to {
                Some(to) => Bound::Excluded((table.index(), to.clone())),
                None => Bound::Excluded((table.index() + 1, Vec::new())),
            };
            written.range((from, to)).next().is_some()
        };
        self.writes
            .rows()
            .any(|(table, key, _)| row_conflicts(table.index(), key))
            || self.reads.rows.keys().any(|place| written.contains(place))
            || self
                .reads
                .ranges
                .iter()
                .any(|read| range_conflicts(read.table, &read.range))
    }
}

/// Serves transactions until the queue is closed.
pub(super) async fn run(
    mut connection: Connection,
    commits: Batches<Commit>,
    state: Arc<State>,
    random: Random,
) {
    while let Some(batch) = commits.next(BATCH_MAX).await {
        serve(&mut connection, batch, &state, &random).await;
    }
}

async fn serve(connection: &mut Connection, batch: Vec<Commit>, state: &State, random: &Random) {
    let (mut members, mut conflicting) = (Vec::new(), Vec::new());
    let mut written = BTreeSet::new();
    let mut changes_catalog = false;
    let generation = batch
        .iter()
        .map(|commit| commit.generation)
        .max()
        .unwrap_or_default();
    for commit in batch {
        if commit.generation != generation {
            let _ = commit.reply.send(Ok(Committed::CatalogChanged));
        } else if changes_catalog || commit.conflicts_with(&written) {
            conflicting.push(commit);
        } else {
            changes_catalog = commit.writes_catalog();
            written.extend(
                commit
                    .writes
                    .rows()
                    .map(|(table, key, _)| (table.index(), key.clone())),
            );
            members.push(commit);
        }
    }
    match send(connection, generation, &members, state, random).await {
        Err(CallError::Refused(error)) if members.len() > 1 => {
            tracing::warn!(%error, "the database refused a batch: its transactions are committed one by one");
            for commit in members {
                let alone = std::slice::from_ref(&commit);
                let outcome = send(connection, generation, alone, state, random).await;
                reply(vec![commit], outcome, state);
            }
        }
        outcome => reply(members, outcome, state),
    }
    // These have run before the others were stored.
    for commit in conflicting {
        let _ = commit.reply.send(Ok(Committed::Conflict));
    }
}

fn reply(members: Vec<Commit>, outcome: Result<Option<Vec<i16>>, CallError>, state: &State) {
    match outcome {
        Ok(Some(failed)) => {
            state.note_commit(members.len() - failed.len().min(members.len()));
            for (index, commit) in members.into_iter().enumerate() {
                let has_failed = failed.contains(&number(index));
                let committed = if has_failed {
                    Committed::Conflict
                } else {
                    Committed::Yes
                };
                let _ = commit.reply.send(Ok(committed));
            }
        }
        Ok(None) => {
            for commit in members {
                let _ = commit.reply.send(Ok(Committed::CatalogChanged));
            }
        }
        Err(failure) => {
            let error = failure.into_error();
            state.note_failure(&error);
            for commit in members {
                let _ = commit.reply.send(Err(error.clone()));
            }
        }
    }
}

/// Sends a batch until its result is known. Returns the members that failed; `None` if the catalog has changed.
///
/// The database keeps the result of each batch. So a batch whose answer was lost is sent again, and is not carried out
/// twice.
async fn send(
    connection: &mut Connection,
    generation: i64,
    members: &[Commit],
    state: &State,
    random: &Random,
) -> Result<Option<Vec<i16>>, CallError> {
    if members.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let id = random.bytes::<16>();
    let id = id.as_slice();
    let batch = Batch::new(members);
    let range_rows: Vec<_> = batch.range_rows.iter().map(Vec::as_slice).collect();
    let parameters: [(&(dyn ToSql + Sync), Type); 18] = [
        (&id, Type::BYTEA),
        (&generation, Type::INT8),
        (&batch.lock_hashes, Type::INT8_ARRAY),
        (&batch.lock_is_exclusive, Type::BOOL_ARRAY),
        (&batch.read_members, Type::INT2_ARRAY),
        (&batch.read_tables, Type::INT2_ARRAY),
        (&batch.read_keys, Type::BYTEA_ARRAY),
        (&batch.read_stamps, Type::INT8_ARRAY),
        (&batch.range_members, Type::INT2_ARRAY),
        (&batch.range_tables, Type::INT2_ARRAY),
        (&batch.range_from, Type::BYTEA_ARRAY),
        (&batch.range_to, Type::BYTEA_ARRAY),
        (&batch.range_limits, Type::INT4_ARRAY),
        (&range_rows, Type::BYTEA_ARRAY),
        (&batch.write_members, Type::INT2_ARRAY),
        (&batch.write_tables, Type::INT2_ARRAY),
        (&batch.write_keys, Type::BYTEA_ARRAY),
        (&batch.write_values, Type::BYTEA_ARRAY),
    ];
    let deadline = Instant::now() + state.timeout;
    let mut is_unknown = false;
    let failure = loop {
        let failure = match connection.call(sql::COMMIT, &parameters, deadline).await {
            Ok(rows) => {
                state.note_answer();
                return Ok(rows.first().and_then(|row| row.get(0)));
            }
            Err(failure) => failure,
        };
        is_unknown |= matches!(failure, CallError::Disconnected(_));
        let is_late = Instant::now() >= deadline;
        match &failure {
            CallError::Conflict if !is_late => state.note_rerun(),
            CallError::Disconnected(error) | CallError::Unconnected(error) if !is_late => {
                state.note_failure(error);
            }
            _ => break failure,
        }
    };
    if !is_unknown {
        return Err(failure);
    }
    // A second attempt under another id could store it twice.
    let error = failure.into_error();
    tracing::error!(%error, "whether the last transactions were stored is not known");
    Err(CallError::Disconnected(StoreError::Interrupted))
}

/// The parameters of [`sql::COMMIT`].
#[derive(Default)]
struct Batch<'a> {
    lock_hashes: Vec<i64>,
    lock_is_exclusive: Vec<bool>,
    read_members: Vec<i16>,
    read_tables: Vec<i16>,
    read_keys: Vec<&'a [u8]>,
    read_stamps: Vec<Option<i64>>,
    range_members: Vec<i16>,
    range_tables: Vec<i16>,
    range_from: Vec<&'a [u8]>,
    range_to: Vec<Option<&'a [u8]>>,
    range_limits: Vec<i32>,
    range_rows: Vec<Vec<u8>>,
    write_members: Vec<i16>,
    write_tables: Vec<i16>,
    write_keys: Vec<&'a [u8]>,
    write_values: Vec<Option<&'a [u8]>>,
}

impl<'a> Batch<'a> {
    fn new(members: &'a [Commit]) -> Self {
        let mut batch = Self::default();
        let mut locks = Locks::default();
        for (index, commit) in members.iter().enumerate() {
            let member = number(index);
            locks.lock(CATALOG_LOCK, commit.writes_catalog());
            for ((table, key), (_, stamp)) in &commit.reads.rows {
                locks.lock(lock_of(*table, key), false);
                batch.read_members.push(member);
                batch.read_tables.push(number(*table));
                batch.read_keys.push(key);
                batch.read_stamps.push(*stamp);
            }
            for read in &commit.reads.ranges {
                let group = read.range.group(read.table).unwrap_or_default();
                locks.lock(lock_of(read.table.index(), group), true);
                batch.range_members.push(member);
                batch.range_tables.push(number(read.table.index()));
                batch.range_from.push(&read.range.from);
                batch.range_to.push(read.range.to.as_deref());
                // One more row than was visited shows whether a row was added at the end.
                let rows = read.visited.len() + usize::from(read.to_end);
                batch.range_limits.push(i32::try_from(rows).unwrap_or(i32::MAX));
                batch
                    .range_rows
                    .push(read.visited.iter().flat_map(as_compared).collect());
            }
            for (table, key, value) in commit.writes.rows() {
                locks.lock(lock_of(table.index(), &[]), false);
                if let Some(group) = group_of(table, key) {
                    locks.lock(lock_of(table.index(), group), false);
                }
                locks.lock(lock_of(table.index(), key), true);
                batch.write_members.push(member);
                batch.write_tables.push(number(table.index()));
                batch.write_keys.push(key);
                batch.write_values.push(value.map(Vec::as_slice));
            }
        }
        (batch.lock_hashes, batch.lock_is_exclusive) = locks.0.into_iter().unzip();
        batch
    }
}

/// The lock of the catalog: shared by every transaction, exclusive for one that changes the catalog.
pub(super) const CATALOG_LOCK: i64 = i64::MIN;

/// Locks in the order in which they are taken, and whether each is exclusive.
#[derive(Default)]
struct Locks(BTreeMap<i64, bool>);

impl Locks {
    fn lock(&mut self, hash: i64, is_exclusive: bool) {
        *self.0.entry(hash).or_default() |= is_exclusive;
    }
}

/// A visited row as `commit_v1` compares it. The stamp alone is not enough: all rows of a batch have the same one.
fn as_compared((key, stamp): &(Vec<u8>, i64)) -> Vec<u8> {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    [&stamp.to_be_bytes()[..], &length.to_be_bytes(), key].concat()
}

/// The lock of a row, of a group of rows, or, with an empty key, of a table. All releases must agree on it.
fn lock_of(table: usize, key: &[u8]) -> i64 {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&number(table).to_be_bytes());
    context.update(key);
    let digest = context.finish();
    let (first, _) = digest.as_ref().split_first_chunk().unwrap_or((&[0; 8], &[]));
    i64::from_be_bytes(*first)
}
