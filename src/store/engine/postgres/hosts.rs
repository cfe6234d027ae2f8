//! Looks at the servers of an address, so that no node uses a primary from before a failover.
//!
//! A failover gives the new primary a higher timeline. An old primary that comes back takes writes too, and knows nothing
//! of what happened since.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio_postgres::Client;
use tokio_postgres::config::{Config, Host};

use crate::store::StoreError;

/// Whether the server takes writes, its system, its timeline, and when it was started. A standby may know a newer timeline
/// than that of its last checkpoint.
const SERVER: &str = "SELECT current_setting('transaction_read_only') = 'off', system.system_identifier,
  CASE WHEN pg_is_in_recovery()
    THEN greatest(checkpoint.timeline_id, recovery.min_recovery_end_timeline, (SELECT received_tli FROM pg_catalog.pg_stat_wal_receiver))
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int4
  END,
  (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8
FROM pg_control_system() system, pg_control_checkpoint() checkpoint, pg_control_recovery() recovery";

const USUAL_PORT: u16 = 5432;

/// A server, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    name: String,
    takes_writes: bool,
    /// A primary and its standbys are one system.
    system: i64,
    timeline: i32,
    started_at: i64,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (timeline {})", self.name, self.timeline)
    }
}

/// The newest primary that this process has used.
#[derive(Default)]
pub(super) struct NewestPrimary {
    server: Mutex<Option<Server>>,
    /// How often another one took its place. A connection from before that is closed.
    changes: AtomicU64,
    has_warned: AtomicBool,
}

impl NewestPrimary {
    /// Checks that the server is no older primary than the one that was used before. It is remembered then.
    pub(super) async fn check(&self, client: &Client, host: &Config) -> Result<(), StoreError> {
        let Some(server) = describe(client, host).await else {
            if !self.has_warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "the server does not tell its timeline, so an old primary that comes back after a failover is not recognized: see idsvc doctor"
                );
            }
            return Ok(());
        };
        let mut newest = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(newest) = newest.as_ref().filter(|newest| is_older(&server, newest)) {
            return Err(old_primary(&server, newest));
        }
        if newest.as_ref().is_some_and(|newest| is_older(newest, &server)) {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        *newest = Some(server);
        Ok(())
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

fn is_older(server: &Server, other: &Server) -> bool {
    server.system == other.system && server.timeline < other.timeline
}

fn old_primary(old: &Server, newer: &Server) -> StoreError {
    StoreError::OldPrimary(format!("{old} takes writes, but {newer} came after it"))
}

/// Checks that at most one of the servers takes writes, and that none is newer than that one.
pub(super) fn check(servers: &[Server]) -> Result<(), StoreError> {
    let mut primaries = servers.iter().filter(|server| server.takes_writes);
    let Some(primary) = primaries.next() else {
        return Ok(());
    };
    // Two addresses may lead to one server.
    let is_other =
        |server: &&Server| (server.system, server.started_at) != (primary.system, primary.started_at);
    if let Some(other) = primaries.find(is_other) {
        let message = format!("{primary} and {other} both take writes");
        return Err(StoreError::OldPrimary(message));
    }
    match servers.iter().find(|server| is_older(primary, server)) {
        Some(newer) => Err(old_primary(primary, newer)),
        None => Ok(()),
    }
}

/// `None` if the server does not say. Some services that speak PostgreSQL's protocol have no timelines.
pub(super) async fn describe(client: &Client, host: &Config) -> Option<Server> {
    let row = client.query_typed_one(SERVER, &[]).await.ok()?;
    Some(Server {
        name: name_of(host),
        takes_writes: row.try_get(0).ok()?,
        system: row.try_get(1).ok()?,
        timeline: row.try_get(2).ok()?,
        started_at: row.try_get(3).ok()?,
    })
}

/// The name of a host, and its port if that is not the usual one.
pub(super) fn name_of(host: &Config) -> String {
    let name = match (host.get_hosts(), host.get_hostaddrs()) {
        ([Host::Tcp(name), ..], _) => name.clone(),
        ([Host::Unix(folder), ..], _) => folder.display().to_string(),
        (_, [address, ..]) => address.to_string(),
        _ => String::new(),
    };
    match host.get_ports() {
        [port, ..] if *port != USUAL_PORT => format!("{name}:{port}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, takes_writes: bool, timeline: i32) -> Server {
        Server {
            name: name.to_owned(),
            takes_writes,
            system: 1,
            timeline,
            started_at: i64::from(timeline),
        }
    }

    #[test]
    fn two_primaries_and_an_old_one_are_refused_by_name() {
        let refused = |servers: &[Server]| check(servers).unwrap_err().to_string();
        let two = refused(&[server("db1", true, 1), server("db2", true, 2)]);
        assert!(
            two.contains("db1 (timeline 1) and db2 (timeline 2) both"),
            "{two}"
        );
        let old = refused(&[server("db3", false, 2), server("db1", true, 1)]);
        assert!(
            old.contains("db1 (timeline 1) takes writes, but db3 (timeline 2)"),
            "{old}"
        );
    }

    #[test]
    fn a_primary_with_standbys_behind_it_and_one_with_two_addresses_are_used() {
        check(&[server("db1", false, 1), server("db2", true, 2)]).unwrap();
        check(&[server("db1", true, 2), server("pooler", true, 2)]).unwrap();
        check(&[server("db1", false, 1)]).unwrap();
        check(&[]).unwrap();
    }

    #[test]
    fn another_system_is_no_older_one() {
        let restored = Server {
            system: 2,
            ..server("db1", true, 1)
        };
        assert!(!is_older(&restored, &server("db2", false, 2)));
    }
}
