//! The open connections by address, and the choice of the one that is closed for a newcomer.
//!
//! Otherwise idle connections from many addresses would keep everybody else out until the timeouts. A connection in the
//! middle of a request, or of a handshake that makes progress, is never chosen.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Limits;
use super::activity::Activity;
use crate::limit::concurrency::{ConcurrencyLimit, Permit};
use crate::limit::network::subscriber_of;

/// The open connections of one listener. A clone shares them.
#[derive(Clone, Debug)]
pub struct OpenConnections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    per_address: Arc<ConcurrencyLimit>,
    max: usize,
    refused: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_subscriber: HashMap<IpAddr, HashMap<u64, Arc<Connection>>>,
    next_id: u64,
}

#[derive(Debug)]
struct Connection {
    activity: Activity,
    eviction: Notify,
}

/// An open connection. It counts for its address until this is dropped.
#[derive(Debug)]
pub struct OpenConnection {
    open: OpenConnections,
    connection: Arc<Connection>,
    subscriber: IpAddr,
    id: u64,
    _permit: Permit,
}

/// Whether a connection ends for a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// One was asked to end.
    Asked,
    /// Only addresses that hold less than the newcomer's have idle connections.
    NewcomerHoldsMore,
    /// No connection is idle.
    NoneIdle,
}

impl OpenConnections {
    /// Counts the connections of each address within these limits.
    pub fn new(limits: &Limits) -> Self {
        let per_address = ConcurrencyLimit::new(
            limits.max_connections_per_address,
            limits.max_connections,
            limits.uncounted.clone(),
        );
        Self(Arc::new(Inner {
            per_address,
            max: limits.max_connections,
            refused: AtomicU64::new(0),
            table: Mutex::default(),
        }))
    }

    /// The number of open connections.
    pub fn count(&self) -> usize {
        self.table().by_subscriber.values().map(HashMap::len).sum()
    }

    /// The most that may be open.
    pub fn max(&self) -> usize {
        self.0.max
    }

    /// How many were closed at once because too many were open.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Counts a connection that is closed at once.
    pub fn count_refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more connection of this address, unless that exceeds its limit.
    pub fn take(&self, address: IpAddr) -> Option<Permit> {
        ConcurrencyLimit::take(&self.0.per_address, address, 1)
    }

    /// Enters a connection of this address into the table.
    pub fn enter(&self, address: IpAddr, permit: Permit) -> OpenConnection {
        let connection = Arc::new(Connection {
            activity: Activity::new(),
            eviction: Notify::new(),
        });
        let subscriber = subscriber_of(address);
        let mut table = self.table();
        let id = table.next_id;
        table.next_id += 1;
        let of_subscriber = table.by_subscriber.entry(subscriber).or_default();
        of_subscriber.insert(id, Arc::clone(&connection));
        OpenConnection {
            open: self.clone(),
            connection,
            subscriber,
            id,
            _permit: permit,
        }
    }

    /// Asks one connection to end: the longest idle one of the address that holds most. An address that holds less than
    /// the newcomer's loses none.
    pub fn evict_for(&self, newcomer: IpAddr) -> Eviction {
        let (now, table) = (Instant::now(), self.table());
        let share_of = |subscriber: &IpAddr| self.0.per_address.share_of(*subscriber);
        let mut holders: Vec<_> = table
            .by_subscriber
            .iter()
            .map(|(subscriber, connections)| (share_of(subscriber), connections))
            .collect();
        holders.sort_unstable_by_key(|(share, _)| Reverse(*share));
        for of_one_share in holders.chunk_by(|(one, _), (other, _)| one == other) {
            let idle = of_one_share.iter().flat_map(|(share, connections)| {
                let connections = connections.values();
                connections
                    .filter_map(|connection| Some((connection.activity.idle_since(now)?, *share, connection)))
            });
            if let Some((_, share, connection)) = idle.min_by_key(|(since, ..)| *since) {
                if share < share_of(&newcomer) {
                    return Eviction::NewcomerHoldsMore;
                }
                connection.eviction.notify_one();
                return Eviction::Asked;
            }
        }
        Eviction::NoneIdle
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnection {
    /// What the connection is doing.
    pub fn activity(&self) -> Activity {
        self.connection.activity.clone()
    }

    /// Waits until the connection has to end for another. A request that arrived since it was chosen is answered first.
    pub async fn evicted(&self) {
        loop {
            self.connection.eviction.notified().await;
            if self.connection.activity.idle_since(Instant::now()).is_some() {
                return;
            }
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut table = self.open.table();
        if let Some(of_subscriber) = table.by_subscriber.get_mut(&self.subscriber) {
            of_subscriber.remove(&self.id);
            if of_subscriber.is_empty() {
                table.by_subscriber.remove(&self.subscriber);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::activity::Serving;

    fn open(limits: &Limits) -> (OpenConnections, impl Fn(&str) -> OpenConnection + use<>) {
        let open = OpenConnections::new(limits);
        let all = open.clone();
        let enter = move |address: &str| {
            let address = address.parse().unwrap();
            all.enter(address, all.take(address).unwrap())
        };
        (open, enter)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Which of the connections has to end.
    async fn evicted(connections: &[OpenConnection]) -> Option<usize> {
        for (at, connection) in connections.iter().enumerate() {
            let waited = tokio::time::timeout(Duration::ZERO, connection.evicted()).await;
            if waited.is_ok() {
                return Some(at);
            }
        }
        None
    }

    #[tokio::test]
    async fn the_longest_idle_connection_of_the_largest_holder_is_chosen() {
        let (open, enter) = open(&Limits::default());
        let connections = ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.2", "192.0.2.3"].map(enter);
        drop(connections[1].activity().serving());
        assert_eq!(open.evict_for(ip("192.0.2.9")), Eviction::Asked);
        assert_eq!(evicted(&connections).await, Some(2));
    }

    #[tokio::test]
    async fn a_connection_with_a_request_is_passed_over_and_a_larger_holder_takes_nothing_from_a_smaller() {
        let (open, enter) = open(&Limits::default());
        let connections = ["192.0.2.1", "192.0.2.2", "192.0.2.2"].map(enter);
        let busy: Vec<Serving> = connections[1..]
            .iter()
            .map(|connection| connection.activity().serving())
            .collect();
        let _newcomer = open.take(ip("192.0.2.2"));
        assert_eq!(open.evict_for(ip("192.0.2.2")), Eviction::NewcomerHoldsMore);
        assert_eq!(open.evict_for(ip("192.0.2.9")), Eviction::Asked);
        assert_eq!(evicted(&connections).await, Some(0));
        drop(busy);
        assert_eq!(open.evict_for(ip("192.0.2.2")), Eviction::Asked);
        assert_eq!(evicted(&connections).await, Some(1));
    }

    #[tokio::test]
    async fn a_site_counts_as_a_whole_and_an_uncounted_address_as_a_single_connection() {
        let limits = Limits {
            uncounted: vec!["10.0.0.0/8".parse().unwrap()],
            ..Limits::default()
        };
        let (open, enter) = open(&limits);
        let mut connections: Vec<_> = (0..4).map(|_| enter("10.0.0.1")).collect();
        connections.push(enter("192.0.2.1"));
        connections.extend((0..17).map(|subnet| enter(&format!("2001:db8:1:{subnet:x}::1"))));
        assert_eq!(open.evict_for(ip("192.0.2.9")), Eviction::Asked);
        assert_eq!(evicted(&connections).await, Some(5));
        connections.truncate(5);
        assert_eq!(open.evict_for(ip("192.0.2.9")), Eviction::Asked);
        assert_eq!(evicted(&connections).await, Some(0));
    }

    #[tokio::test]
    async fn a_request_that_began_since_the_choice_is_answered() {
        let (open, enter) = open(&Limits::default());
        let connections = [enter("192.0.2.1")];
        assert_eq!(open.evict_for(ip("192.0.2.9")), Eviction::Asked);
        let serving = connections[0].activity().serving();
        assert_eq!(evicted(&connections).await, None);
        drop(serving);
        assert_eq!(open.evict_for(ip("192.0.2.9")), Eviction::Asked);
        assert_eq!(evicted(&connections).await, Some(0));
        drop(connections);
        assert_eq!(open.evict_for(ip("192.0.2.9")), Eviction::NoneIdle);
        assert!(open.table().by_subscriber.is_empty());
    }
}
