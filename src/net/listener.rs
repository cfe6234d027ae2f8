//! The listening sockets: how connections are accepted, limited and ended.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use super::accept_queue::{AcceptQueue, Admitted};
use super::connection::{Guarded, RequestHandler};
use super::open_connections::OpenConnections;
use super::tls::Acceptor;
use super::{FailedRequest, Fallback, Limits, Peer, connection, drain};

/// How many connections may wait to be accepted. The kernel limits it to `net.core.somaxconn`.
const BACKLOG: u32 = 65_535;

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The list of addresses is empty.
    #[error("no address to listen on")]
    NoAddress,
    /// Another process listens there.
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
    /// Whether the service manager keeps the sockets open when this process closes them.
    is_inherited: bool,
    open: OpenConnections,
    limits: Limits,
    fallback: Fallback,
}

impl Listener {
    /// Binds all of `addresses`, or none. `[::]` accepts IPv4 too, unless the list has an IPv4 address with the same port.
    /// On a machine without IPv6 it accepts IPv4 only.
    pub async fn bind(addresses: &[SocketAddr], limits: Limits) -> Result<Self, BindError> {
        let mut sockets = Vec::with_capacity(addresses.len());
        for address in addresses {
            let has_ipv4 = addresses.iter().any(|other| must_be_ipv6_only(*address, *other));
            let bound = if has_ipv4 {
                bind_ipv6_only(*address)
            } else {
                TcpListener::bind(address).await
            };
            match bound {
                Err(error) if is_all_ipv6(*address) && lacks_ipv6(&error) => {
                    if !has_ipv4 {
                        let all_ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
                        let socket = TcpListener::bind(all_ipv4).await;
                        sockets.push(socket.map_err(|error| bind_error(all_ipv4, error))?);
                    }
                    tracing::warn!(
                        "this machine has no IPv6 ({error}): on {address}, the service answers IPv4 only"
                    );
                }
                bound => sockets.push(bound.map_err(|error| bind_error(*address, error))?),
            }
        }
        if sockets.is_empty() {
            return Err(BindError::NoAddress);
        }
        Ok(Self {
            sockets,
            is_inherited: false,
            open: OpenConnections::new(&limits),
            limits,
            fallback: Fallback::default(),
        })
    }

    /// Takes over sockets that the service manager bound and keeps open. Connections that are made while no process
    /// accepts them wait for the next process.
    pub fn inherit(sockets: Vec<std::net::TcpListener>, limits: Limits) -> io::Result<Self> {
        let sockets = sockets.into_iter().map(|socket| {
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket)
        });
        Ok(Self {
            sockets: sockets.collect::<io::Result<_>>()?,
            is_inherited: true,
            open: OpenConnections::new(&limits),
            limits,
            fallback: Fallback::default(),
        })
    }

    /// Answers failed requests by `fallback`.
    #[must_use]
    pub fn with_fallback(
        self,
        fallback: impl Fn(FailedRequest) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            fallback: Fallback::new(fallback),
            ..self
        }
    }

    /// The connections that are open, which are also counted while the listener serves.
    pub fn open_connections(&self) -> OpenConnections {
        self.open.clone()
    }

    /// The addresses it listens on, with the port that the kernel chose for port 0.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.sockets
            .iter()
            .filter_map(|socket| socket.local_addr().ok())
            .collect()
    }

    /// Accepts and serves connections until `shutdown` is ready, then finishes their requests within
    /// [`Limits::drain_timeout`]. Without `tls` every connection is plain HTTP/1.1. With it, a peer can choose HTTP/2
    /// (RFC 7301).
    pub async fn serve<S, F>(
        self,
        tls: Option<Acceptor>,
        service: S,
        shutdown: impl Future<Output = ()> + Send,
    ) where
        S: Fn(Request<Incoming>, Peer) -> F + Send + Sync + 'static,
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let service: RequestHandler = Arc::new(move |request, peer| Box::pin(service(request, peer)));
        self.accept(tls, service, shutdown).await;
    }

    async fn accept(
        self,
        tls: Option<Acceptor>,
        service: RequestHandler,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let (drain, draining) = drain::channel();
        let limits = Arc::new(self.limits);
        let open = self.open;
        let mut queue = AcceptQueue::new(self.sockets, limits.max_connections, open.clone());
        let mut connections = JoinSet::new();
        let admit = |connections: &mut JoinSet<()>, Admitted { newcomer, slot }: Admitted| {
            let peer = Peer {
                addr: newcomer.from,
                tls: tls.is_some(),
            };
            let (tls, draining) = (tls.clone(), draining.clone());
            let service = Guarded::new(Arc::clone(&service), peer, self.fallback.clone());
            let limits = Arc::clone(&limits);
            let connection = open.enter(newcomer.from.ip(), newcomer.address_permit);
            connections.spawn(async move {
                let activity = connection.activity();
                tokio::select! {
                    () = connection::serve(newcomer.stream, tls, service, activity, &limits, draining) => {}
                    () = connection.evicted() => {
                        tracing::debug!(peer = %peer.addr, "idle connection closed for a new one");
                    }
                }
                drop((connection, slot));
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
                admitted = queue.next() => admit(&mut connections, admitted),
            }
        }
        if self.is_inherited {
            drop(queue);
        } else {
            queue.drain(|admitted| admit(&mut connections, admitted));
        }
        drain.begin();
        drain::finish(connections, limits.drain_timeout).await;
    }
}

fn bind_error(address: SocketAddr, error: io::Error) -> BindError {
    match error.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address),
        io::ErrorKind::PermissionDenied => BindError::Denied(address),
        _ => BindError::Other(address, error),
    }
}

fn is_all_ipv6(address: SocketAddr) -> bool {
    address.is_ipv6() && address.ip().is_unspecified()
}

/// Whether the error is that of a kernel without IPv6, or of one where it is switched off.
fn lacks_ipv6(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL]
        .iter()
        .any(|known| code == Some(known.raw_os_error()))
}

/// Whether one listener cannot bind both addresses. There `[::]` and an IPv4 address do not conflict: `[::]` is then bound
/// for IPv6 [only](must_be_ipv6_only).
pub fn conflict_in_one_listener(one: SocketAddr, other: SocketAddr) -> bool {
    let is_for_all = one.ip().is_unspecified() || other.ip().is_unspecified();
    let is_one_host = one == other || one.is_ipv4() == other.is_ipv4() && is_for_all;
    one.port() != 0 && one.port() == other.port() && is_one_host
}

/// Whether two listeners cannot bind one address each. There `[::]` includes IPv4, so that a port that is named in the
/// other list by mistake does not take IPv4 from the service.
pub fn conflict_across_listeners(one: SocketAddr, other: SocketAddr) -> bool {
    let is_one_port = one.port() != 0 && one.port() == other.port();
    conflict_in_one_listener(one, other) || is_one_port && (is_all_ipv6(one) || is_all_ipv6(other))
}

/// Whether the first address must be bound for IPv6 only, so that the second can be bound too.
fn must_be_ipv6_only(address: SocketAddr, other: SocketAddr) -> bool {
    address.is_ipv6() && other.is_ipv4() && address.port() == other.port()
}

/// Binds an IPv6 address without IPv4, for any default of the system (RFC 3493 section 5.3).
fn bind_ipv6_only(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    socket.set_reuseaddr(true)?;
    rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::net::TcpStream;

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
                    // Another process was faster, unless it is this service itself.
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
            // Another process may be faster.
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
            assert_eq!(in_one, !conflict_in_one_listener(one, other), "{first} {second}");
            // If the system binds [::] for IPv6 only by default, more combinations work than are allowed.
            assert!(
                in_two || conflict_across_listeners(one, other),
                "{first} {second}"
            );
        }
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        assert!(
            !conflict_across_listeners(any, any),
            "each gets a port of its own"
        );
    }
}
