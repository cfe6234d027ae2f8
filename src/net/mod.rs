//! Sockets, TLS, HTTP connections, and the limits of each peer.
//!
//! This folder knows nothing of identity. It hands each request to a function and sends the response that the function
//! returns. A silent, slow or greedy peer costs a bounded amount of memory for a bounded time.

mod accept_queue;
pub mod acme;
pub mod activity;
pub mod alpn;
pub mod answer;
pub mod certificate;
pub mod certificate_file;
pub mod chain;
pub mod challenge;
pub mod client_certificate;
pub mod connection;
pub mod drain;
pub mod inherited;
pub mod key_exchange;
pub mod listener;
pub mod monitored_stream;
pub mod notify;
#[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
pub mod nss;
pub mod open_connections;
pub mod outbound;
pub mod own_certificate;
pub mod probe;
pub mod self_signed;
pub mod tls;
mod tls_config;
pub mod tls_error;
pub mod tls_problem;
pub mod validity;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, Uri};
use http_body_util::Full;
use ipnet::IpNet;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address of the peer. An IPv4 address is never mapped to IPv6.
    pub addr: SocketAddr,
    /// Whether the connection uses TLS that ends in this process.
    pub tls: bool,
}

/// The time from the end of a request's header to its answer. After that the answer is 503.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A request whose service panicked or took too long.
#[derive(Debug)]
pub struct FailedRequest {
    /// The status of the answer: 500 after a panic, 503 after [`Limits::request_timeout`].
    pub status: StatusCode,
    /// The sender.
    pub peer: Peer,
    /// The target.
    pub uri: Uri,
}

/// Makes the answer to a failed request.
#[derive(Clone)]
pub struct Fallback(Arc<dyn Fn(FailedRequest) -> Response<Full<Bytes>> + Send + Sync>);

impl Fallback {
    fn new(make: impl Fn(FailedRequest) -> Response<Full<Bytes>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    fn answer(&self, status: StatusCode, peer: Peer, uri: Uri) -> Response<Full<Bytes>> {
        (self.0)(FailedRequest { status, peer, uri })
    }
}

impl Default for Fallback {
    /// An answer with the status and an empty body.
    fn default() -> Self {
        Self::new(|failed| {
            let mut response = Response::new(Full::default());
            *response.status_mut() = failed.status;
            response
        })
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fallback").finish_non_exhaustive()
    }
}

/// The limits of one peer, and of all peers together.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections in all. At the limit, an idle one is closed for a new one. If none is idle, new ones wait.
    pub max_connections: usize,
    /// Open connections from one IPv4 address or IPv6 /64. An IPv6 /48 may have eight times as many, but no network may
    /// have more than half of all. Further connections are closed at once.
    pub max_connections_per_address: usize,
    /// Networks that [`Limits::max_connections_per_address`] does not count: proxies that many peers share.
    pub uncounted: Vec<IpNet>,
    /// From the accepted connection to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request (for the first request: from the start of the connection) to the
    /// end of its header.
    pub header_timeout: Duration,
    /// The longest time without a request in progress, and without progress in sending an answer.
    pub idle_timeout: Duration,
    /// [`REQUEST_TIMEOUT`].
    pub request_timeout: Duration,
    /// Request line and header together, in bytes.
    pub max_header_bytes: u16,
    /// Requests in progress on one HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// From the start of the shutdown to the end of the last connection.
    pub drain_timeout: Duration,
}

impl Limits {
    /// The default of [`Limits::max_connections`].
    pub const MAX_CONNECTIONS: usize = 10_000;
    /// The default of [`Limits::max_connections_per_address`].
    pub const MAX_CONNECTIONS_PER_ADDRESS: usize = 256;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: Self::MAX_CONNECTIONS,
            max_connections_per_address: Self::MAX_CONNECTIONS_PER_ADDRESS,
            uncounted: Vec::new(),
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(1),
            request_timeout: REQUEST_TIMEOUT,
            max_header_bytes: 16 * 1024,
            max_concurrent_streams: 32,
            drain_timeout: Duration::from_secs(30),
        }
    }
}
