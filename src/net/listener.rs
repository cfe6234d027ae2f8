//! The listening sockets: who gets in, how many at a time, and how it all ends.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::connection::{Answering, Guarded};
use super::tls::Acceptor;
use super::{Fallback, Limits, Peer, Unanswered, connection, drain};
use crate::limit::concurrency::ConcurrencyLimit;

/// How long to wait when no connection can be accepted, as when the process is out of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(75);
/// How many waits pass between two log lines about it.
const WAITS_PER_LINE: u64 = 100;

/// How many connections may wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const QUEUE: u32 = 65_535;

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Nothing to listen on.
    #[error("no address to listen on")]
    NoAddress,
    /// Somebody else listens there.
    #[error(
        "cannot listen on {0}: the address is in use, perhaps by another instance of this service; --listen names another"
    )]
    InUse(SocketAddr),
    /// The operating system does not let this user listen there.
    #[error("cannot listen on {0}: permission denied (ports below 1024 need CAP_NET_BIND_SERVICE)")]
    Denied(SocketAddr),
    /// Any other reason.
    #[error("cannot listen on {0}: {1}")]
    Other(SocketAddr, #[source] io::Error),
}

/// Listening sockets that have not begun to accept.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<TcpListener>,
    /// Whether somebody keeps the sockets open when this process closes them.
    outlive: bool,
    limits: Limits,
    fallback: Fallback,
}

impl Listener {
    /// Binds all of `addresses`, or none. `[::]` is all addresses of IPv6, and those of IPv4 too unless one of them is
    /// named with the same port.
    pub async fn bind(addresses: &[SocketAddr], limits: Limits) -> Result<Self, BindError> {
        let mut sockets = Vec::with_capacity(addresses.len());
        for address in addresses {
            let socket = if addresses.iter().any(|other| is_left_to(*address, *other)) {
                bind_ipv6_only(*address)
            } else {
                TcpListener::bind(address).await
            };
            sockets.push(socket.map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => BindError::InUse(*address),
                io::ErrorKind::PermissionDenied => BindError::Denied(*address),
                _ => BindError::Other(*address, error),
            })?);
        }
        if sockets.is_empty() {
            return Err(BindError::NoAddress);
        }
        Ok(Self {
            sockets,
            outlive: false,
            limits,
            fallback: Fallback::default(),
        })
    }

    /// Takes over sockets that another process bound and keeps open, so that connections made while nobody accepts
    /// wait for the next to do so.
    pub fn inherit(sockets: Vec<std::net::TcpListener>, limits: Limits) -> io::Result<Self> {
        let sockets = sockets.into_iter().map(|socket| {
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket)
        });
        Ok(Self {
            sockets: sockets.collect::<io::Result<_>>()?,
            outlive: true,
            limits,
            fallback: Fallback::default(),
        })
    }

    /// Answers requests that come to no answer of their own with what `fallback` makes of the status: 500 after
    /// a panic, 503 after [`Limits::request_timeout`].
    #[must_use]
    pub fn with_fallback(
        self,
        fallback: impl Fn(Unanswered) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            fallback: Fallback::new(fallback),
            ..self
        }
    }

    /// Where it listens, with the real port where port 0 was asked for.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.sockets
            .iter()
            .filter_map(|socket| socket.local_addr().ok())
            .collect()
    }

    /// Accepts connections and serves them until `shutdown` is ready, then finishes what has begun within
    /// [`Limits::drain_timeout`]. Without `tls` every connection is plain HTTP/1.1; with it HTTP/2 is
    /// spoken when the peer asks for it (RFC 7301).
    pub async fn serve<S, F>(
        self,
        tls: Option<Acceptor>,
        service: S,
        shutdown: impl Future<Output = ()> + Send,
    ) where
        S: Fn(Request<Incoming>, Peer) -> F + Send + Sync + 'static,
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let service: Answering = Arc::new(move |request, peer| Box::pin(service(request, peer)));
        self.accept(tls, service, shutdown).await;
    }

    async fn accept(
        self,
        tls: Option<Acceptor>,
        service: Answering,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let (drain, draining) = drain::channel();
        let limits = Arc::new(self.limits);
        let addresses = ConcurrencyLimit::new(
            limits.max_connections_per_address,
            limits.max_connections,
            limits.uncounted.clone(),
        );
        let mut arrivals = Arrivals::new(self.sockets, limits.max_connections);
        let mut connections = JoinSet::new();
        let admit = |connections: &mut JoinSet<()>, (permit, stream, from): Arrival| {
            let peer = Peer {
                addr: SocketAddr::new(from.ip().to_canonical(), from.port()),
                tls: tls.is_some(),
            };
            let Some(seat) = ConcurrencyLimit::take(&addresses, peer.addr.ip(), 1) else {
                tracing::debug!(peer = %peer.addr, "closed, too many connections from one address");
                return;
            };
            let (tls, draining) = (tls.clone(), draining.clone());
            let service = Guarded::new(Arc::clone(&service), peer, self.fallback.clone());
            let limits = Arc::clone(&limits);
            connections.spawn(async move {
                connection::serve(stream, tls, service, &limits, draining).await;
                drop((seat, permit));
            });
        };
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(end) = connections.join_next() => {
                    if let Err(error) = end {
                        tracing::error!(%error, "a connection ended in a panic");
                    }
                }
                arrival = arrivals.next() => admit(&mut connections, arrival),
            }
        }
        if self.outlive {
            drop(arrivals);
        } else {
            arrivals.last(|arrival| admit(&mut connections, arrival));
        }
        drain.begin();
        drain::finish(connections, limits.drain_timeout).await;
    }
}

/// Whether one list cannot hold both. `[::]` stands in the way of no address of IPv4 there: it [leaves](is_left_to) it
/// alone.
pub fn exclude(one: SocketAddr, other: SocketAddr) -> bool {
    let is_for_all = one.ip().is_unspecified() || other.ip().is_unspecified();
    let is_one_host = one == other || one.is_ipv4() == other.is_ipv4() && is_for_all;
    one.port() != 0 && one.port() == other.port() && is_one_host
}

/// Whether two lists cannot hold one each. There `[::]` is IPv4 too: a port that was named in the other list by mistake
/// must not take IPv4 from the service.
pub fn exclude_apart(one: SocketAddr, other: SocketAddr) -> bool {
    let is_for_both = |address: SocketAddr| address.is_ipv6() && address.ip().is_unspecified();
    let is_one_port = one.port() != 0 && one.port() == other.port();
    exclude(one, other) || is_one_port && (is_for_both(one) || is_for_both(other))
}

/// Whether the first address must be IPv6 only, so that the second can be listened on too.
fn is_left_to(address: SocketAddr, other: SocketAddr) -> bool {
    address.is_ipv6() && other.is_ipv4() && address.port() == other.port()
}

/// Binds an address of IPv6 so that it leaves IPv4 alone, whatever the system's default is (RFC 3493 section 5.3).
fn bind_ipv6_only(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    socket.set_reuseaddr(true)?;
    rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

/// The most connections that are taken from the kernel's queue of a socket before it is closed; more than the queue is
/// long on most systems (`net.core.somaxconn`).
const LAST_ARRIVALS: usize = 8192;

/// A connection, its place among all, and where it comes from.
type Arrival = (OwnedSemaphorePermit, TcpStream, SocketAddr);

/// Connections as they come in, from all sockets in turn.
struct Arrivals {
    sockets: Vec<TcpListener>,
    turn: usize,
    permits: Arc<Semaphore>,
    failures: u64,
}

impl Arrivals {
    fn new(sockets: Vec<TcpListener>, max_connections: usize) -> Self {
        let permits = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        Self {
            sockets,
            turn: 0,
            permits,
            failures: 0,
        }
    }

    /// The next connection, once there is room for it. Nothing is lost when this is dropped half-way.
    async fn next(&mut self) -> Arrival {
        let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
            return std::future::pending().await;
        };
        loop {
            match self.accept().await {
                Ok((stream, from)) => {
                    self.failures = 0;
                    return (permit, stream, from);
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => {
                    if self.failures.is_multiple_of(WAITS_PER_LINE) {
                        tracing::error!(%error, "cannot accept connections, trying on");
                    }
                    self.failures = self.failures.saturating_add(1);
                    tokio::time::sleep(BACK_OFF).await;
                }
            }
        }
    }

    /// Closes the sockets, after what waits in the kernel's queues: whose connection is there, up to the cap, sees no
    /// difference to one that was accepted before.
    fn last(self, mut admit: impl FnMut(Arrival)) {
        for socket in self.sockets {
            // Accepts without the runtime, which may not have heard yet of what waits.
            let Ok(socket) = socket.into_std() else {
                continue;
            };
            // A queue that is filled as fast as it is emptied must not keep the service from stopping.
            for _ in 0..LAST_ARRIVALS {
                let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                    break;
                };
                match socket.accept() {
                    Ok((stream, from)) => {
                        let stream = stream
                            .set_nonblocking(true)
                            .and_then(|()| TcpStream::from_std(stream));
                        if let Ok(stream) = stream {
                            admit((permit, stream, from));
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
    use std::io::Write as _;

    use super::*;

    /// Whether this machine has IPv6. Where it has not, the report of a run counts this test as not run.
    fn has_ipv6(test: &str) -> bool {
        let bound = std::net::TcpListener::bind("[::1]:0");
        if bound.is_err() {
            let line = format!("{test}\tNOT RUN: this machine has no IPv6\n");
            eprint!("{line}");
            if let Some(path) = std::env::var_os("IDSVC_LONG_REPORT") {
                let mut file = std::fs::File::options()
                    .create(true)
                    .append(true)
                    .open(path)
                    .unwrap();
                file.write_all(line.as_bytes()).unwrap();
            }
        }
        bound.is_ok()
    }

    #[test]
    fn being_out_of_file_descriptors_is_no_fault_of_one_connection() {
        const EMFILE: i32 = 24;
        assert!(!concerns_one_connection(&io::Error::from_raw_os_error(EMFILE)));
        assert!(concerns_one_connection(&io::ErrorKind::ConnectionAborted.into()));
    }

    #[tokio::test]
    async fn an_address_in_use_is_said_to_be_so() {
        let any = "127.0.0.1:0".parse().unwrap();
        let first = Listener::bind(&[any], Limits::default()).await.unwrap();
        let taken = first.local_addrs()[0];
        let second = Listener::bind(&[any, taken], Limits::default()).await;
        let refused = second.unwrap_err();
        assert!(matches!(refused, BindError::InUse(address) if address == taken));
        assert!(refused.to_string().contains("--listen"), "{refused}");
        assert!(matches!(
            Listener::bind(&[], Limits::default()).await,
            Err(BindError::NoAddress)
        ));
    }

    #[tokio::test]
    async fn all_addresses_of_ipv4_and_ipv6_can_be_listened_on_with_one_port() {
        if !has_ipv6("listening on IPv4 and IPv6") {
            return;
        }
        for addresses in [["0.0.0.0", "[::]"], ["[::]", "0.0.0.0"]] {
            let bound = loop {
                let free = TcpListener::bind("0.0.0.0:0")
                    .await
                    .unwrap()
                    .local_addr()
                    .unwrap();
                let wanted: [SocketAddr; 2] =
                    addresses.map(|host| format!("{host}:{}", free.port()).parse().unwrap());
                match Listener::bind(&wanted, Limits::default()).await {
                    // Somebody else was faster, unless it is this service itself.
                    Err(BindError::InUse(_)) if TcpListener::bind(wanted[0]).await.is_err() => {}
                    bound => break bound.unwrap(),
                }
            };
            let port = bound.local_addrs()[0].port();
            assert_eq!(bound.local_addrs().len(), 2);
            for host in ["127.0.0.1", "[::1]"] {
                assert!(TcpStream::connect(format!("{host}:{port}")).await.is_ok());
            }
        }
    }

    #[tokio::test]
    async fn what_excludes_each_other_is_what_cannot_be_bound_in_one_list_or_in_two() {
        let hosts = ["0.0.0.0", "127.0.0.1", "127.0.0.2", "[::]", "[::1]"];
        if !has_ipv6("addresses that exclude each other") {
            return;
        }
        for (first, second) in hosts.iter().flat_map(|one| hosts.map(|other| (*one, other))) {
            let at = |host: &str, port: u16| -> SocketAddr { format!("{host}:{port}").parse().unwrap() };
            let (mut in_one, mut in_two) = (false, false);
            // Somebody else may be faster.
            for _ in 0..10 {
                let port = {
                    let free = TcpListener::bind("[::]:0").await.unwrap();
                    free.local_addr().unwrap().port()
                };
                let bind = async |hosts: &[&str]| {
                    let addresses: Vec<_> = hosts.iter().map(|host| at(host, port)).collect();
                    Listener::bind(&addresses, Limits::default()).await
                };
                in_one |= bind(&[first, second]).await.is_ok();
                let public = bind(&[first]).await;
                let metrics = bind(&[second]).await;
                in_two |= public.is_ok() && metrics.is_ok();
                if in_one && in_two {
                    break;
                }
            }
            let (one, other) = (at(first, 1), at(second, 1));
            assert_eq!(in_one, !exclude(one, other), "{first} {second}");
            // Where [::] is IPv6 alone by the system's default, more can be bound than may be.
            assert!(in_two || exclude_apart(one, other), "{first} {second}");
        }
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert!(!exclude_apart(any, any), "each gets a port of its own");
    }
}
