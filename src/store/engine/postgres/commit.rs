//! Commits several transactions in one call.
//!
//! The database locks what the transactions have read and written, compares the stamps of all rows that they have read,
//! and writes the rows of those whose stamps are unchanged. So the result is that of one transaction after the other. The
//! locks are advisory, are taken in the order of their numbers, and end with the call.

mod batch;

use std::collections::BTreeSet;
use std::mem;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;

pub(super) use self::batch::{CATALOG_LOCK, CommitBatch};
use super::State;
use super::connection::Connection;
use super::errors::CallError;
use super::fetch::number;
use super::meters::CallKind;
use super::rows::{KeyRange, Reads, Writes};
use crate::random::Random;
use crate::store::StoreError;
use crate::store::catalog_use::UsedClients;
use crate::store::engine::TableId;
use crate::store::tables::CLIENTS;

/// The most transactions that share a call. Each takes several of the server's locks.
pub(super) const BATCH_LIMIT: usize = 128;

/// How the database took a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Committed {
    /// It is stored.
    Yes,
    /// Another transaction has changed what it has read.
    Conflict,
    /// What it has used of the catalog has changed.
    CatalogChanged,
}

/// What a transaction has read and written.
#[derive(Default)]
pub(super) struct Ran {
    /// The generation of the catalog with which it ran, and the clients that it used.
    pub(super) generation: i64,
    pub(super) used: UsedClients,
    pub(super) reads: Reads,
    pub(super) writes: Writes,
}

/// A transaction that has run.
pub(super) struct Commit {
    pub(super) ran: Ran,
    pub(super) reply: oneshot::Sender<Result<Committed, StoreError>>,
    pub(super) deadline: Instant,
}

impl Ran {
    /// Whether it writes rows of the catalog that count as used by every transaction.
    fn changes_for_all(&self) -> bool {
        let mut tables = self.writes.rows().map(|(table, ..)| table);
        tables.any(|table| table.is_in_catalog() && table != CLIENTS.id())
    }

    pub(super) fn tables(&self) -> BTreeSet<usize> {
        let rows = self.reads.rows.keys().map(|(table, _)| *table);
        let ranges = self.reads.ranges.iter().map(|read| read.table.index());
        let written = self.writes.rows().map(|(table, ..)| table.index());
        rows.chain(ranges).chain(written).collect()
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
                .used
                .keys()
                .any(|key| row_conflicts(CLIENTS.id().index(), key))
            || (self.used.has_counted && written.iter().any(|(table, _)| *table == CLIENTS.id().index()))
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
    mut commits: Receiver<Commit>,
    state: Arc<State>,
    random: Random,
) {
    let mut batch = Vec::new();
    while commits.recv_many(&mut batch, state.batch_max).await > 0 {
        serve(&mut connection, mem::take(&mut batch), &state, &random).await;
    }
}

async fn serve(connection: &mut Connection, mut batch: Vec<Commit>, state: &Arc<State>, random: &Random) {
    batch.retain(|commit| !commit.reply.is_closed());
    let (mut members, mut conflicting) = (Vec::new(), Vec::new());
    let mut written = BTreeSet::new();
    let mut changes_for_all = false;
    for commit in batch {
        if changes_for_all || commit.ran.conflicts_with(&written) {
            conflicting.push(commit);
        } else {
            changes_for_all = commit.ran.changes_for_all();
            written.extend(
                commit
                    .ran
                    .writes
                    .rows()
                    .map(|(table, key, _)| (table.index(), key.clone())),
            );
            members.push(commit);
        }
    }
    let mut batches = vec![members];
    while let Some(mut members) = batches.pop() {
        match send(connection, &members, state, random).await {
            Err(CallError::Table(fault)) => {
                state.note_table_fault(CallKind::Commit, &fault);
                let fails = |commit: &mut Commit| commit.ran.tables().contains(&fault.table.index());
                for commit in members.extract_if(.., fails) {
                    let _ = commit.reply.send(Err(fault.error.clone()));
                }
                batches.push(members);
            }
            Err(CallError::Refused(_)) if members.len() > 1 => {
                batches.extend(members.into_iter().map(|commit| vec![commit]));
            }
            outcome => reply(members, outcome, state),
        }
    }
    // These have run before the others were stored.
    for commit in conflicting {
        let _ = commit.reply.send(Ok(Committed::Conflict));
    }
}

fn reply(members: Vec<Commit>, outcome: Result<Vec<i16>, CallError>, state: &State) {
    match outcome {
        Ok(failed) => {
            // A transaction of which several rows have changed is in the list for each, and below zero if its catalog has.
            let failed: BTreeSet<i16> = failed.into_iter().collect();
            let failures = failed.range(0..).count();
            state.note_commit(members.len() - failures.min(members.len()));
            for (index, commit) in members.into_iter().enumerate() {
                let member = number(index);
                let committed = match failed.contains(&member) {
                    true if failed.contains(&(-1 - member)) => Committed::CatalogChanged,
                    true => Committed::Conflict,
                    false => Committed::Yes,
                };
                let _ = commit.reply.send(Ok(committed));
            }
        }
        Err(failure) => {
            let error = failure.into_error();
            state.note_failure(CallKind::Commit, &error);
            for commit in members {
                let _ = commit.reply.send(Err(error.clone()));
            }
        }
    }
}

/// Sends a batch until its result is known. Returns the members that failed.
///
/// The database keeps the result of each batch. So a batch whose answer was lost is sent again, and is not carried out
/// twice.
async fn send(
    connection: &mut Connection,
    members: &[Commit],
    state: &State,
    random: &Random,
) -> Result<Vec<i16>, CallError> {
    if members.is_empty() {
        return Ok(Vec::new());
    }
    let id = random.bytes::<16>();
    let batch = CommitBatch::new(members.iter().map(|commit| &commit.ran));
    let deadline = members.iter().map(|commit| commit.deadline).max();
    let deadline = deadline.unwrap_or_else(Instant::now);
    let mut is_unknown = false;
    state.note_commit_asked();
    let failure = loop {
        let failure = match batch.call(connection, &id, is_unknown, deadline).await {
            Ok(rows) => {
                state.note_commit_answered();
                state.note_answer(CallKind::Commit);
                let failed = rows.first().map(|row| row.get(0));
                return failed.ok_or(CallError::Refused(StoreError::NotSetUp));
            }
            Err(failure) => failure,
        };
        is_unknown |= matches!(failure, CallError::Disconnected(_));
        let is_late = Instant::now() >= deadline;
        match &failure {
            CallError::Conflict if !is_late => state.note_rerun(),
            CallError::Table(fault) if is_unknown && !is_late && fault.is_lock() => state.note_rerun(),
            CallError::Disconnected(error) | CallError::Unconnected(error) if !is_late => {
                state.note_failure(CallKind::Commit, error);
            }
            _ => break failure,
        }
    };
    if matches!(failure, CallError::Refused(_) | CallError::Table(_)) {
        state.note_commit_answered();
    }
    if !is_unknown {
        return Err(failure);
    }
    // A second attempt under another id could store it twice.
    let error = failure.into_error();
    if let Some(left_out) = state.unknown_log.take(&error) {
        let left_out = (left_out > 0).then_some(left_out);
        tracing::error!(%error, left_out, "whether the last transactions were stored is not known");
    }
    Err(CallError::Disconnected(StoreError::Interrupted))
}
