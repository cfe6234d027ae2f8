//! Looks at the servers of an address, so that no node uses a primary from before a failover.
//!
//! A failover gives the new primary a higher timeline. An old primary that comes back takes writes too, and knows nothing
//! of what happened since.

use std::collections::BTreeSet;
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
/// How the error ends of a host that takes no writes.
const STANDBY_ANSWER: &str = "database does not allow writes";

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
    /// Whether another server calls itself the primary too, and nothing tells which one is newer.
    is_disputed: AtomicBool,
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

    /// Compares the server in use with others of the address. If one of them is newer, that one takes its place, and no
    /// connection to the older one is used any more.
    pub(super) fn compare(&self, others: &[Server]) {
        let mut newest = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(used) = newest.as_ref() else { return };
        let newer = others.iter().filter(|other| is_older(used, other));
        if let Some(newer) = newer.max_by_key(|newer| (newer.timeline, newer.takes_writes)) {
            tracing::error!("{used} is an old primary, because {newer} came after it: this node leaves it");
            self.changes.fetch_add(1, Ordering::Relaxed);
            *newest = Some(newer.clone());
        }
        let rivals = newest.iter().chain(others).filter(|server| server.takes_writes);
        let rivals: Vec<_> = rivals
            .filter(|server| !newest.iter().any(|newest| is_older(server, newest)))
            .collect();
        let is_disputed = rivals
            .iter()
            .map(|server| server.identity())
            .collect::<BTreeSet<_>>()
            .len()
            > 1;
        let was_disputed = self.is_disputed.swap(is_disputed, Ordering::Relaxed);
        if is_disputed && !was_disputed {
            let names: Vec<_> = rivals.iter().map(ToString::to_string).collect();
            let names = names.join(" and ");
            tracing::error!("{names} take writes, and nothing tells which one is newer: stop the wrong one");
        } else if was_disputed && !is_disputed {
            tracing::warn!("only one server of the database takes writes again");
        }
    }

    /// The name of the server in use.
    pub(super) fn name(&self) -> Option<String> {
        let newest = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        newest.as_ref().map(|server| server.name.clone())
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(super) fn is_disputed(&self) -> bool {
        self.is_disputed.load(Ordering::Relaxed)
    }
}

impl Server {
    /// Two addresses may lead to one server.
    fn identity(&self) -> [i64; 2] {
        [self.system, self.started_at]
    }
}

fn is_older(server: &Server, other: &Server) -> bool {
    server.system == other.system && server.timeline < other.timeline
}

fn old_primary(old: &Server, newer: &Server) -> StoreError {
    StoreError::OldPrimary(format!("{old} takes writes, but {newer} came after it"))
}

/// Why a host was not used.
pub(super) struct HostFailure {
    host: String,
    error: StoreError,
}

impl HostFailure {
    pub(super) fn new(host: &Config, error: StoreError) -> Self {
        Self {
            host: name_of(host),
            error,
        }
    }

    /// One error of all hosts. The one that explains most comes first: a standby always refuses, and an old primary is
    /// refused because of another one.
    pub(super) fn join(mut failures: Vec<Self>) -> Option<StoreError> {
        failures.sort_by_key(|failure| match &failure.error {
            StoreError::Unreachable(message) if message.ends_with(STANDBY_ANSWER) => 2,
            StoreError::OldPrimary(_) => 1,
            _ => 0,
        });
        if failures.len() < 2 {
            return failures.pop().map(|failure| failure.error);
        }
        let is_old = |failure: &Self| matches!(failure.error, StoreError::OldPrimary(_));
        let has_old_primary = failures.iter().any(is_old);
        let messages = failures.into_iter().map(|failure| match failure.error {
            StoreError::Unreachable(message) if !message.starts_with(&failure.host) => {
                format!("{}: {message}", failure.host)
            }
            StoreError::Unreachable(message) | StoreError::OldPrimary(message) => message,
            error => format!("{}: {error}", failure.host),
        });
        let message = messages.collect::<Vec<_>>().join("; ");
        Some(if has_old_primary {
            StoreError::OldPrimary(message)
        } else {
            StoreError::Unreachable(message)
        })
    }
}

/// Checks that at most one of the servers takes writes, and that none is newer than that one.
pub(super) fn check(servers: &[Server]) -> Result<(), StoreError> {
    let mut primaries = servers.iter().filter(|server| server.takes_writes);
    let Some(primary) = primaries.next() else {
        return Ok(());
    };
    if let Some(other) = primaries.find(|server| server.identity() != primary.identity()) {
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

    fn using(used: Server) -> NewestPrimary {
        NewestPrimary {
            server: Mutex::new(Some(used)),
            ..NewestPrimary::default()
        }
    }

    #[test]
    fn a_newer_primary_takes_the_place_of_the_one_in_use() {
        let newest = using(server("db1", true, 1));
        newest.compare(&[server("db2", false, 1)]);
        assert_eq!((newest.changes(), newest.name().unwrap().as_str()), (0, "db1"));
        newest.compare(&[server("db3", false, 2), server("db2", true, 2)]);
        assert_eq!((newest.changes(), newest.name().unwrap().as_str()), (1, "db2"));
        newest.compare(&[server("db1", true, 1)]);
        assert_eq!((newest.changes(), newest.is_disputed()), (1, false));
    }

    #[test]
    fn of_two_primaries_of_one_timeline_nothing_tells_the_newer_one_until_one_is_gone() {
        let newest = using(server("db1", true, 2));
        newest.compare(&[server("pooler", true, 2)]);
        assert!(!newest.is_disputed(), "both addresses lead to one server");
        let rival = Server {
            started_at: 9,
            ..server("db2", true, 2)
        };
        newest.compare(std::slice::from_ref(&rival));
        assert!(newest.is_disputed());
        newest.compare(&[Server {
            takes_writes: false,
            ..rival
        }]);
        assert!(!newest.is_disputed());
        assert_eq!(newest.changes(), 0);
    }

    #[test]
    fn the_errors_of_all_hosts_are_named_and_that_of_the_primary_comes_first() {
        let failure = |host: &str, error| HostFailure {
            host: host.to_owned(),
            error,
        };
        let unreachable = |what: &str| StoreError::Unreachable(what.to_owned());
        let standby = || unreachable(&format!("error connecting to server: {STANDBY_ANSWER}"));
        let told = |failures| HostFailure::join(failures).unwrap().to_string();
        let refused = unreachable("too many connections for role (53300)");
        let said = told(vec![failure("db2", standby()), failure("db1", refused)]);
        assert!(
            said.contains("reached: db1: too many connections for role (53300); db2: error connecting"),
            "{said}"
        );
        let old = StoreError::OldPrimary("db1 takes writes, but db2 came after it".to_owned());
        let silent = unreachable("db2 did not answer in time");
        let said = told(vec![failure("db1", old), failure("db2", silent)]);
        assert!(
            said.starts_with("db2 did not answer in time; db1 takes writes, but db2 came after it: stop"),
            "{said}"
        );
        assert!(
            told(vec![failure("db1", standby())])
                .ends_with("server: database does not allow writes: try again later")
        );
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
