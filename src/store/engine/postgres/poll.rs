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
use super::node_clock::ClockAnswer;
use super::sql;
use super::{Postgres, State};
use crate::clock::{Clock, uptime};
use crate::store::StoreError;

const INTERVAL: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(3);
/// After so many polls the results of old batches and old changes of the catalog are removed.
const POLLS_PER_CLEANUP: u32 = 120;
const POLLS_PER_BEAT: u32 = 2;

/// Polls as long as the store is open.
pub(super) async fn run(mut connection: Connection, state: Arc<State>) {
    let mut probe: Option<JoinHandle<()>> = None;
    for count in 0_u32.. {
        if let Err(error) = poll(&mut connection, &state).await {
            state.note_failure(CallKind::Fetch, &error);
        } else if count % POLLS_PER_BEAT == 0
            && let Err(failure) = state.beat(&mut connection, Instant::now() + TIMEOUT).await
        {
            state.note_failure(CallKind::Fetch, &failure.into_error());
        }
        if count % POLLS_PER_CLEANUP == 0 {
            let deadline = Instant::now() + TIMEOUT;
            // It is tried again in a minute.
            drop(connection.call(sql::FORGET, &[], deadline).await);
        }
        let is_idle = state.node_clock.is_node() && state.meters.is_commit_due();
        if (state.meters.commits_may_fail() || is_idle) && probe.as_ref().is_none_or(JoinHandle::is_finished)
        {
            let state = Arc::clone(&state);
            // A node that is not ready gets no requests, so only this commit shows that it is ready again. An idle node
            // answers reads from memory, and only this commit shows that the standbys have not left its database.
            probe = Some(tokio::spawn(async move { state.commit_nothing().await }));
        }
        sleep(INTERVAL).await;
    }
}

impl Postgres {
    /// Makes this process one of the nodes, whose clock counts. Blocks until the clocks are compared.
    pub(in crate::store) fn announce(&self, node: Uuid) -> Result<(), StoreError> {
        self.state.node_clock.announce(node);
        self.wait_for(|state| async move {
            let mut connection = Connection::new(state.settings.clone());
            poll(&mut connection, &state).await?;
            let beat = state.beat(&mut connection, Instant::now() + TIMEOUT).await;
            beat.map_err(CallError::into_error)
        })
    }
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
