//! Tables that cannot be used while others can: another session has locked one, or a right on it is missing.
//!
//! A call that meets such a table is refused by the server, and its other requests are sent again. From then on, requests
//! for the table wait apart, for a few seconds at most. A connection of its own tries the table until it can be used.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep, timeout_at};

use super::State;
use super::commit::{CommitBatch, Ran};
use super::connection::Connection;
use super::errors::{CallError, TableFault};
use super::fetch::FetchBatch;
use super::meters::{CallKind, LONGEST_SILENCE};
use super::rows::{KeyRange, Wanted};
use crate::store::StoreError;
use crate::store::engine::TableId;
use crate::store::failure_log::FailureLog;

/// The pause between two attempts to use the table.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one attempt may take. The server gives up before.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// No row has this key.
const ABSENT: &[u8] = &[0];

#[derive(Default)]
pub(super) struct FaultyTables {
    faults: Mutex<BTreeMap<(CallKind, usize), Fault>>,
    mended: Notify,
    log: FailureLog,
}

struct Fault {
    since: Instant,
    error: StoreError,
    is_logged: bool,
}

impl Fault {
    /// Whether requests are refused at once. A short lock is waited for.
    fn is_lasting(&self) -> bool {
        !matches!(self.error, StoreError::Locked(_)) || self.since.elapsed() >= LONGEST_SILENCE
    }
}

impl FaultyTables {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(CallKind, usize), Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the node cannot do all its work, if a table cannot be used.
    pub(super) fn lasting(&self) -> Option<StoreError> {
        let faults = self.lock();
        let lasting = faults.values().find(|fault| fault.is_lasting());
        lasting.map(|fault| fault.error.clone())
    }

    pub(super) fn is_any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Waits until calls of this kind can use these tables. Fails at once if one has been faulty for some time.
    pub(super) async fn wait_for(
        &self,
        kind: CallKind,
        tables: BTreeSet<usize>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        loop {
            let mended = self.mended.notified();
            let until = {
                let faults = self.lock();
                let fault = tables.iter().find_map(|table| faults.get(&(kind, *table)));
                let Some(fault) = fault else { return Ok(()) };
                if fault.is_lasting() || Instant::now() >= deadline {
                    return Err(fault.error.clone());
                }
                deadline.min(fault.since + LONGEST_SILENCE)
            };
            drop(timeout_at(until.into(), mended).await);
        }
    }
}

impl State {
    /// Notes that calls of this kind cannot use a table, and tries it from now on until they can.
    pub(super) fn note_table_fault(self: &Arc<Self>, kind: CallKind, fault: &TableFault) {
        let TableFault { table, error } = fault;
        match self.faulty_tables.lock().entry((kind, table.index())) {
            Entry::Occupied(known) => known.into_mut().error = error.clone(),
            Entry::Vacant(place) => {
                let left_out = self.faulty_tables.log.take(error);
                if let Some(left_out) = left_out {
                    let left_out = (left_out > 0).then_some(left_out);
                    tracing::error!(calls = ?kind, table = table.name(), %error, left_out, "a table cannot be used");
                }
                place.insert(Fault {
                    since: Instant::now(),
                    error: error.clone(),
                    is_logged: left_out.is_some(),
                });
                tokio::spawn(try_until_usable(Arc::clone(self), kind, *table));
            }
        }
    }
}

async fn try_until_usable(state: Arc<State>, kind: CallKind, table: TableId) {
    let mut connection = Connection::new(state.settings.clone());
    loop {
        sleep(PAUSE).await;
        let tried = match kind {
            CallKind::Fetch => try_fetch(&mut connection, table, &state).await,
            CallKind::Commit => try_commit(&mut connection, table, &state).await,
        };
        match tried {
            Ok(()) => break,
            Err(CallError::Table(fault)) if fault.table == table => {
                state.note_table_fault(kind, &fault);
            }
            // The connection or the whole database fails, and the other connections note that.
            Err(_) => {}
        }
    }
    let fault = state.faulty_tables.lock().remove(&(kind, table.index()));
    state.faulty_tables.mended.notify_waiters();
    if fault.is_some_and(|fault| fault.is_logged) {
        tracing::warn!(calls = ?kind, table = table.name(), "the table can be used again");
    }
}

/// Reads the first row.
async fn try_fetch(connection: &mut Connection, table: TableId, state: &State) -> Result<(), CallError> {
    let all = KeyRange {
        from: Vec::new(),
        to: None,
    };
    let mut wanted = Wanted::default();
    wanted.ranges.insert((table.index(), all), 1);
    let batch = FetchBatch::new(std::iter::once(&wanted));
    let deadline = Instant::now() + ATTEMPT_TIMEOUT;
    batch.send(connection, state, deadline).await.map(drop)
}

/// Commits a transaction that removes a row and claims to have read it, though it does not exist. So it is refused after
/// all its statements have run, and holds up no commit and changes no catalog.
async fn try_commit(connection: &mut Connection, table: TableId, state: &State) -> Result<(), CallError> {
    let mut ran = Ran {
        generation: state.catalog.generation(),
        ..Ran::default()
    };
    ran.reads.rows.insert((table.index(), ABSENT.to_vec()), Some(0));
    ran.writes.set(table, ABSENT, None);
    let id = state.settings.random.bytes::<16>();
    let deadline = Instant::now() + ATTEMPT_TIMEOUT;
    let batch = CommitBatch::new(std::iter::once(&ran)).without_locks();
    batch.call(connection, &id, false, deadline).await.map(drop)
}
