//! Checks the settings of the server.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_postgres::Config;

use super::errors::failed;
use super::hosts::describe;
use super::{CONNECTIONS, Postgres, State};
use crate::store::{ServerWarning, StoreError};

/// With fewer locks for each connection, the server may refuse commits of many transactions.
const LEAST_LOCKS: i64 = 128;

/// The number of locks, the two settings of replication, and how many connections are free.
const SETTINGS: &str = "SELECT current_setting('max_locks_per_transaction')::int8,
  current_setting('synchronous_commit'),
  current_setting('synchronous_standby_names'),
  current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8
    - (SELECT coalesce(sum(numbackends), 0)::int8 FROM pg_catalog.pg_stat_database)";

impl Postgres {
    /// The settings of the server that should be changed.
    pub(in crate::store) async fn server_warnings(&self) -> Result<Vec<ServerWarning>, StoreError> {
        let asked = self.handle.spawn(server_warnings(Arc::clone(&self.state)));
        asked.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Like [`Self::server_warnings`], and blocks.
    pub(in crate::store) fn server_warnings_blocking(&self) -> Result<Vec<ServerWarning>, StoreError> {
        self.wait_for(server_warnings)
    }
}

async fn server_warnings(state: Arc<State>) -> Result<Vec<ServerWarning>, StoreError> {
    let client = state.settings.connect().await?.client;
    let row = timeout(state.timeout, client.query_typed_one(SETTINGS, &[])).await;
    let row = row.map_err(|_| state.settings.silence())?;
    let row = row.map_err(|error| failed(&error))?;
    let described = timeout(state.timeout, describe(&client, &Config::new())).await;
    let tells_timeline = described.map_err(|_| state.settings.silence())?.is_some();
    let (locks, free): (i64, i64) = (row.get(0), row.get(3));
    let (synchronous_commit, standbys): (&str, &str) = (row.get(1), row.get(2));
    let mut warnings = Vec::new();
    let mut warn = |setting: &str, message: String, remedy: &str| {
        warnings.push(ServerWarning {
            setting: setting.to_owned(),
            message,
            remedy: remedy.to_owned(),
        });
    };
    if locks < LEAST_LOCKS {
        warn(
            "max_locks_per_transaction",
            format!("it is {locks}, so the server may refuse large commits with out of shared memory"),
            "set it to 256, and restart PostgreSQL",
        );
    }
    if ["off", "local"].contains(&synchronous_commit) {
        warn(
            "synchronous_commit",
            format!("it is {synchronous_commit}, so commits that were answered can be lost"),
            "set it to on, also for the role in store.url",
        );
    }
    if standbys.is_empty() {
        warn(
            "synchronous_standby_names",
            "it is empty, so a failover loses commits that were answered".to_owned(),
            "name a standby, if the service must survive the loss of the database server",
        );
    }
    if !tells_timeline {
        warn(
            "pg_control_checkpoint",
            "the role in store.url cannot ask for the timeline, so an old primary that comes back after a failover is not recognized".to_owned(),
            "let the role execute pg_control_system(), pg_control_checkpoint() and pg_control_recovery()",
        );
    }
    if free <= i64::try_from(CONNECTIONS).unwrap_or(i64::MAX) {
        warn(
            "max_connections",
            format!(
                "it leaves {} connections, and another node needs {}",
                free.max(0),
                CONNECTIONS + 1
            ),
            "raise it, and restart PostgreSQL",
        );
    }
    Ok(warnings)
}
