//! Checks the settings of the server, and the rights of the role in `store.url`.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, Row};

use super::errors::failed;
use super::hosts::describe;
use super::{CONNECTIONS, Postgres, State, sql};
use crate::store::{ServerWarning, StoreError};

/// With fewer locks for each connection, the server may refuse commits of many transactions.
const LEAST_LOCKS: i64 = 128;

/// The settings, how many connections are free, and whether `pg_rewind` can be used.
const SETTINGS: &str = "SELECT current_setting('max_locks_per_transaction')::int8,
  current_setting('synchronous_commit'),
  current_setting('synchronous_standby_names'),
  current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8
    - (SELECT coalesce(sum(numbackends), 0)::int8 FROM pg_catalog.pg_stat_database),
  current_setting('default_transaction_isolation'),
  current_setting('statement_timeout'),
  'on' IN (current_setting('wal_log_hints'), current_setting('data_checksums')),
  current_user::text";

/// The functions among these that are missing or may not be executed.
const UNUSABLE: &str = "SELECT string_agg(name, ', ') FROM unnest($1) name
  WHERE NOT coalesce(has_function_privilege(to_regproc(name)::oid, 'EXECUTE'), false)";

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
    let mut warnings = Vec::new();
    if let Err(StoreError::OldPrimary(message)) = state.settings.check_hosts().await {
        let remedy = "stop the old primary, and make it a standby: see idsvc help run-several-nodes";
        warnings.push(ServerWarning {
            setting: "store.url".to_owned(),
            message,
            remedy: remedy.to_owned(),
            is_fault: true,
        });
    }
    let client = state.settings.connect().await?.client;
    let asked = timeout(state.timeout, Asked::of(&client)).await;
    let asked = asked.map_err(|_| state.settings.silence())?;
    let asked = asked.map_err(|error| failed(&error))?;
    warnings.extend(asked.warnings(state.settings.has_several_hosts()));
    Ok(warnings)
}

/// The answers of the server.
struct Asked {
    settings: Row,
    unusable_functions: Option<String>,
    tells_timeline: bool,
}

impl Asked {
    async fn of(client: &Client) -> Result<Self, Error> {
        let settings = client.query_typed_one(SETTINGS, &[]).await?;
        let statements: [&str; 4] = [&sql::GET, &sql::COMMIT, sql::BEAT, sql::FORGET];
        let functions: Vec<_> = statements.into_iter().filter_map(function_in).collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 1] = [(&functions, Type::TEXT_ARRAY)];
        let unusable = client.query_typed_one(UNUSABLE, &parameters).await?;
        Ok(Self {
            settings,
            unusable_functions: unusable.get(0),
            tells_timeline: describe(client, &Config::new()).await.is_some(),
        })
    }

    fn warnings(&self, has_several_hosts: bool) -> Vec<ServerWarning> {
        let (locks, free): (i64, i64) = (self.settings.get(0), self.settings.get(3));
        let text = |index: usize| self.settings.get::<_, &str>(index);
        let (synchronous_commit, standbys) = (text(1), text(2));
        let (isolation, statement_timeout, role) = (text(4), text(5), text(7));
        let mut warnings = Vec::new();
        let mut warn = |setting: &str, message: String, remedy: &str, is_fault: bool| {
            warnings.push(ServerWarning {
                setting: setting.to_owned(),
                message,
                remedy: remedy.to_owned(),
                is_fault,
            });
        };
        if locks < LEAST_LOCKS {
            let message =
                format!("it is {locks}, so the server may refuse large commits with out of shared memory");
            let remedy = "set it to 256, and restart PostgreSQL";
            warn("max_locks_per_transaction", message, remedy, false);
        }
        if ["off", "local"].contains(&synchronous_commit) {
            let message = format!("it is {synchronous_commit}, so commits that were answered can be lost");
            let remedy = "set it to on, also for the role in store.url";
            warn("synchronous_commit", message, remedy, false);
        }
        if standbys.is_empty() {
            let message = "it is empty, so a failover loses commits that were answered".to_owned();
            let remedy = "name a standby, if the service must survive the loss of the database server";
            warn("synchronous_standby_names", message, remedy, has_several_hosts);
        }
        if !self.tells_timeline {
            let message = "the role in store.url cannot ask for the timeline, so an old primary that comes back after a failover is not recognized".to_owned();
            let remedy =
                "let the role execute pg_control_system(), pg_control_checkpoint() and pg_control_recovery()";
            warn("pg_control_checkpoint", message, remedy, false);
        }
        if has_several_hosts && !self.settings.get::<_, bool>(6) {
            let message = "it is off, and there are no data checksums, so pg_rewind cannot make an old primary a standby".to_owned();
            warn(
                "wal_log_hints",
                message,
                "set it to on, and restart PostgreSQL",
                false,
            );
        }
        if isolation != "read committed" {
            let message = format!("it is {isolation}, so each call takes two more statements");
            let remedy = "set it to read committed, also for the role in store.url";
            warn("default_transaction_isolation", message, remedy, false);
        }
        if statement_timeout != "0" {
            let message = format!("it is {statement_timeout}, so the server cancels commits under load");
            let remedy = format!("ALTER ROLE {role} SET statement_timeout = 0");
            warn("statement_timeout", message, &remedy, false);
        }
        if free <= i64::try_from(CONNECTIONS).unwrap_or(i64::MAX) {
            let needed = CONNECTIONS + 1;
            let message = format!(
                "it leaves {} connections, and another node needs {needed}",
                free.max(0)
            );
            warn(
                "max_connections",
                message,
                "raise it, and restart PostgreSQL",
                false,
            );
        }
        if let Some(functions) = &self.unusable_functions {
            let message = format!("the role {role} cannot execute {functions}");
            let remedy = format!(
                "as the owner: GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA idsvc TO {role}, after idsvc migrate"
            );
            warn("functions", message, &remedy, true);
        }
        warnings
    }
}

/// The name of the function that a statement calls.
fn function_in(statement: &str) -> Option<&str> {
    let call = statement.get(statement.find("idsvc.")?..)?;
    call.split('(').next()
}
