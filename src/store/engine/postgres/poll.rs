//! Asks the database twice a second which catalog is the newest, and what time it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::State;
use super::connection::Connection;
use super::errors::CallError;
use super::fetch::FetchBatch;
use super::meters::CallKind;
use super::sql;
use crate::clock::{Clock, uptime};
use crate::store::StoreError;

const INTERVAL: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(3);
/// After so many polls the results of old batches and old changes of the catalog are removed.
const POLLS_PER_CLEANUP: u32 = 120;

/// Polls as long as the store is open.
pub(super) async fn run(mut connection: Connection, state: Arc<State>) {
    let mut probe: Option<JoinHandle<()>> = None;
    for count in 0_u32.. {
        match poll(&mut connection, &state).await {
            Ok(clock) => state.note_clock(skew(clock)),
            Err(error) => state.note_failure(CallKind::Fetch, &error),
        }
        if count % POLLS_PER_CLEANUP == 0 {
            let deadline = Instant::now() + TIMEOUT;
            // It is tried again in a minute.
            drop(connection.call(sql::FORGET, &[], deadline).await);
        }
        if state.meters.commits_may_fail() && probe.as_ref().is_none_or(JoinHandle::is_finished) {
            let state = Arc::clone(&state);
            // A node that is not ready gets no requests, so only this commit shows that it is ready again.
            probe = Some(tokio::spawn(async move { state.commit_nothing().await }));
        }
        sleep(INTERVAL).await;
    }
}

/// Returns the time of the database, in microseconds since the epoch.
async fn poll(connection: &mut Connection, state: &State) -> Result<i64, StoreError> {
    let batch = FetchBatch::new(std::iter::empty());
    let asked_at = uptime();
    let rows = batch.send(connection, state, Instant::now() + TIMEOUT).await;
    let rows = rows.map_err(CallError::into_error)?;
    let database = FetchBatch::database_state(&rows).ok_or(StoreError::NotSetUp)?;
    state.note_answer(CallKind::Fetch);
    state
        .catch_up(database.generation, &database.changes, asked_at, state.deadline())
        .await?;
    Ok(database.clock)
}

fn skew(clock: i64) -> Duration {
    let theirs = Duration::from_micros(u64::try_from(clock).unwrap_or_default());
    Clock::System.since_epoch().abs_diff(theirs)
}
