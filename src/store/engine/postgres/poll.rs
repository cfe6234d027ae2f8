//! Asks the database twice a second which catalog is the newest, and what time it is. Every second time, it also stores
//! that this node lives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;
use uuid::Uuid;

use super::connection::Connection;
use super::errors::CallError;
use super::fetch::FetchBatch;
use super::meters::CallKind;
use super::node_clock::{ClockAnswer, HEARTBEAT_LIFETIME};
use super::sql;
use super::{Postgres, State};
use crate::clock::{Clock, uptime};
use crate::store::StoreError;
use crate::store::failure_log::FailureLog;

const INTERVAL: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(3);
/// Shorter, so that the next poll comes before the catalog counts as old.
const BEAT_TIMEOUT: Duration = Duration::from_secs(2);
/// After so many polls the results of old batches and old changes of the catalog are removed. A cleanup removes more
/// batches than a node commits until the next one.
const POLLS_PER_CLEANUP: u32 = 20;
const CLEANUP_TIMEOUT: Duration = Duration::from_mins(1);
const POLLS_PER_BEAT: u32 = 2;
/// After so many polls a node looks at the other hosts of its address, in the middle between two cleanups.
const POLLS_PER_LOOK: u32 = 20;
/// A commit of this role that waits for a synchronous standby. A role sees its own sessions.
const AWAITS_STANDBY: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE usename = current_user AND wait_event = 'SyncRep')";

/// Polls as long as the store is open.
pub(super) async fn run(mut connection: Connection, state: Arc<State>) {
    let mut probe: Option<JoinHandle<()>> = None;
    let mut cleanup: Option<JoinHandle<()>> = None;
    let mut look: Option<JoinHandle<()>> = None;
    let mut beats = BeatLog::default();
    for count in 0_u32.. {
        let is_node = state.node_clock.is_node();
        if let Err(error) = poll(&mut connection, &state).await {
            state.note_failure(CallKind::Fetch, &error);
        } else {
            if count % POLLS_PER_BEAT == 0 {
                let deadline = Instant::now() + BEAT_TIMEOUT;
                beats.note(state.beat(&mut connection, deadline).await);
            }
            find_standby_awaited(&mut connection, &state).await;
            let is_look_due = count % POLLS_PER_LOOK == POLLS_PER_LOOK / 2 || state.settings.is_disputed();
            if is_node && state.settings.has_several_hosts() && is_look_due && has_ended(look.as_ref()) {
                let settings = state.settings.clone();
                look = Some(tokio::spawn(async move { settings.compare_hosts().await }));
            }
        }
        if is_node && count % POLLS_PER_CLEANUP == 0 && has_ended(cleanup.as_ref()) {
            cleanup = Some(tokio::spawn(clean_up(Arc::clone(&state))));
        }
        let is_idle = is_node && state.meters.is_commit_due();
        if (state.meters.commits_may_fail() || is_idle) && has_ended(probe.as_ref()) {
            let state = Arc::clone(&state);
            // A node that is not ready gets no requests, so only this commit shows that it is ready again. An idle node
            // answers reads from memory, and only this commit shows that the standbys have not left its database.
            probe = Some(tokio::spawn(async move { state.commit_nothing().await }));
        }
        sleep(INTERVAL).await;
    }
}

/// Finds out whether commits that may fail wait for a synchronous standby. That is known until commits succeed.
async fn find_standby_awaited(connection: &mut Connection, state: &State) {
    if !state.meters.commits_may_fail() {
        state.settings.note_standby_awaited(false);
    } else if !state.settings.awaits_standby() {
        let deadline = Instant::now() + BEAT_TIMEOUT;
        // What fails here fails the next poll too.
        if let Ok(rows) = connection.call(AWAITS_STANDBY, &[], deadline).await {
            let is_awaited = rows.first().is_some_and(|row| row.get(0));
            state.settings.note_standby_awaited(is_awaited);
        }
    }
}

/// Logs that heartbeats fail, and that they succeed again.
#[derive(Default)]
struct BeatLog {
    log: FailureLog,
    is_logged: bool,
}

impl BeatLog {
    fn note(&mut self, beat: Result<(), CallError>) {
        match beat {
            Ok(()) if std::mem::take(&mut self.is_logged) => {
                tracing::warn!("the clock of this node is compared with those of the other nodes again");
            }
            Ok(()) => {}
            Err(failure) => {
                let error = failure.into_error();
                if let Some(left_out) = self.log.take(&error) {
                    self.is_logged = true;
                    let left_out = (left_out > 0).then_some(left_out);
                    tracing::error!(%error, left_out, "the clock of this node cannot be compared with those of the other nodes");
                }
            }
        }
    }
}

fn has_ended(task: Option<&JoinHandle<()>>) -> bool {
    task.is_none_or(JoinHandle::is_finished)
}

/// Removes what is old, on a connection of its own, because that may take long. If it fails, the next cleanup goes on.
async fn clean_up(state: Arc<State>) {
    let mut connection = Connection::new(state.settings.clone());
    let deadline = Instant::now() + CLEANUP_TIMEOUT;
    drop(connection.call(sql::FORGET, &[], deadline).await);
}

impl Postgres {
    /// Makes this process one of the nodes, whose clock counts. Blocks until the clocks are compared.
    pub(in crate::store) fn announce(&self, node: Uuid) -> Result<(), StoreError> {
        self.state.node_clock.announce(node);
        self.wait_for(|state| async move {
            let mut connection = Connection::new(state.settings.clone());
            compare_clocks(&mut connection, &state).await
        })
    }

    /// How many other nodes run. One that has stopped counts for a few seconds, and those are waited for.
    pub(in crate::store) async fn other_nodes(&self) -> Result<usize, StoreError> {
        let counted = self.handle.spawn(other_nodes(Arc::clone(&self.state)));
        counted.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Like [`Self::other_nodes`], and blocks.
    pub(in crate::store) fn other_nodes_blocking(&self) -> Result<usize, StoreError> {
        self.wait_for(other_nodes)
    }
}

async fn other_nodes(state: Arc<State>) -> Result<usize, StoreError> {
    let mut connection = Connection::new(state.settings.clone());
    let deadline = Instant::now() + HEARTBEAT_LIFETIME + INTERVAL;
    loop {
        compare_clocks(&mut connection, &state).await?;
        let count = state.node_clock.other_nodes();
        if count == 0 || Instant::now() >= deadline {
            return Ok(count);
        }
        sleep(INTERVAL).await;
    }
}

async fn compare_clocks(connection: &mut Connection, state: &State) -> Result<(), StoreError> {
    poll(connection, state).await?;
    let beat = state.beat(connection, Instant::now() + TIMEOUT).await;
    beat.map_err(CallError::into_error)
}

/// Asks once, and compares the clocks.
async fn poll(connection: &mut Connection, state: &State) -> Result<(), StoreError> {
    let batch = FetchBatch::new(std::iter::empty());
    let (asked_at, own_time) = (uptime(), Clock::System.since_epoch());
    let rows = batch.send(connection, state, Instant::now() + TIMEOUT).await;
    let rows = rows.map_err(CallError::into_error)?;
    let database = FetchBatch::database_state(&rows).ok_or(StoreError::NotSetUp)?;
    state.note_answer(CallKind::Fetch);
    state.note_clock(&ClockAnswer {
        database: database.clock,
        asked_at: own_time,
        took: uptime().saturating_sub(asked_at),
    });
    state
        .catch_up(database.generation, &database.changes, asked_at, state.deadline())
        .await
}
