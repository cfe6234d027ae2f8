//! The connections that wait to be accepted, and the slots that they get.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::open_connections::{Eviction, OpenConnections};
use crate::limit::concurrency::Permit;

/// How long to wait if no connection can be accepted, for example without free file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(75);
/// How many failures are logged as one line.
const FAILURES_PER_LOG_LINE: u64 = 100;

/// How long a connection at the limit waits before another idle one is looked for.
const EVICTION_INTERVAL: Duration = Duration::from_millis(50);

/// The most connections that are accepted from the queue of a socket before it is closed. On most systems the queue is
/// shorter (`net.core.somaxconn`).
const MAX_DRAINED: usize = 8192;

/// A connection with its slot.
pub(super) struct Admitted {
    pub(super) newcomer: Newcomer,
    pub(super) slot: OwnedSemaphorePermit,
}

/// A connection that is counted for its address, but has no slot yet.
pub(super) struct Newcomer {
    pub(super) stream: TcpStream,
    pub(super) from: SocketAddr,
    pub(super) address_permit: Permit,
}

/// The connections of all sockets, in turn.
pub(super) struct AcceptQueue {
    sockets: Vec<TcpListener>,
    turn: usize,
    slots: Arc<Semaphore>,
    open: OpenConnections,
    /// The connection that waits for a slot.
    waiting: Option<Newcomer>,
    failures: u64,
}

impl AcceptQueue {
    pub(super) fn new(sockets: Vec<TcpListener>, max_connections: usize, open: OpenConnections) -> Self {
        let slots = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        Self {
            sockets,
            turn: 0,
            slots,
            open,
            waiting: None,
            failures: 0,
        }
    }

    /// The next connection. If all slots are taken, an idle connection is closed. No connection is lost when
    /// the future is dropped.
    pub(super) async fn next(&mut self) -> Admitted {
        loop {
            if self.waiting.is_none() {
                self.waiting = self.newcomer().await;
            }
            if let Some(slot) = self.slot().await
                && let Some(newcomer) = self.waiting.take()
            {
                return Admitted { newcomer, slot };
            }
        }
    }

    /// A slot for the connection that waits. None if the connection was closed instead, or waits on.
    async fn slot(&mut self) -> Option<OwnedSemaphorePermit> {
        let from = self.waiting.as_ref()?.from;
        if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            return Some(slot);
        }
        if self.open.evict_for(from.ip()) == Eviction::NewcomerHoldsMore {
            tracing::debug!(peer = %from, "closed, no other address has more connections");
            self.open.count_refused();
            self.waiting = None;
            return None;
        }
        let freed = Arc::clone(&self.slots).acquire_owned();
        tokio::time::timeout(EVICTION_INTERVAL, freed).await.ok()?.ok()
    }

    async fn newcomer(&mut self) -> Option<Newcomer> {
        match self.accept().await {
            Ok((stream, from)) => {
                self.failures = 0;
                self.count(stream, from)
            }
            Err(error) if concerns_one_connection(&error) => None,
            Err(error) => {
                if self.failures.is_multiple_of(FAILURES_PER_LOG_LINE) {
                    tracing::error!(%error, "cannot accept connections, trying on");
                }
                self.failures = self.failures.saturating_add(1);
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                None
            }
        }
    }

    /// Counts a connection for its address. At the limit of the address it is closed.
    fn count(&self, stream: TcpStream, from: SocketAddr) -> Option<Newcomer> {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let Some(address_permit) = self.open.take(from.ip()) else {
            tracing::debug!(peer = %from, "closed, too many connections from one address");
            self.open.count_refused();
            return None;
        };
        Some(Newcomer {
            stream,
            from,
            address_permit,
        })
    }

    /// Accepts the connections that wait in the kernel's queues, up to the limit, and closes the sockets.
    pub(super) fn drain(mut self, mut admit: impl FnMut(Admitted)) {
        let slot = || Arc::clone(&self.slots).try_acquire_owned().ok();
        if let Some(newcomer) = self.waiting.take()
            && let Some(slot) = slot()
        {
            admit(Admitted { newcomer, slot });
        }
        for socket in mem::take(&mut self.sockets) {
            // Accepts without the runtime, which may not know yet which connections wait.
            let Ok(socket) = socket.into_std() else {
                continue;
            };
            // The loop is bounded, because peers may fill the queue as fast as it is emptied.
            for _ in 0..MAX_DRAINED {
                let Some(slot) = slot() else {
                    break;
                };
                match socket.accept() {
                    Ok((stream, from)) => {
                        let stream = stream
                            .set_nonblocking(true)
                            .and_then(|()| TcpStream::from_std(stream));
                        if let Ok(stream) = stream
                            && let Some(newcomer) = self.count(stream, from)
                        {
                            admit(Admitted { newcomer, slot });
                        }
                    }
                    Err(error) if concerns_one_connection(&error) => {}
                    Err(_) => break,
                }
            }
        }
    }

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        std::future::poll_fn(|context| {
            self.turn = self.turn.wrapping_add(1);
            let first = self.turn.checked_rem(self.sockets.len()).unwrap_or(0);
            for socket in self.sockets.iter().cycle().skip(first).take(self.sockets.len()) {
                if let Poll::Ready(accepted) = socket.poll_accept(context) {
                    return Poll::Ready(accepted);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether `accept` failed because of the one connection it was about to return (`accept(2)`).
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn being_out_of_file_descriptors_is_no_fault_of_one_connection() {
        const EMFILE: i32 = 24;
        assert!(!concerns_one_connection(&io::Error::from_raw_os_error(EMFILE)));
        assert!(concerns_one_connection(&io::ErrorKind::ConnectionAborted.into()));
    }
}
