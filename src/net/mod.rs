//! Bytes in and out: sockets, TLS, HTTP framing, and the limits that no peer can talk its way around.
//!
//! This folder knows nothing of identity. It hands each request to a function and sends back what the
//! function returns, and it sees to it that a peer which is silent, slow, greedy or rude costs a bounded
//! amount of memory for a bounded time.

pub mod acme;
pub mod activity;
pub mod alpn;
pub mod answer;
pub mod certificate;
mod certificate_file;
pub mod challenge;
pub mod connection;
pub mod drain;
pub mod inherited;
pub mod listener;
pub mod notify;
#[cfg(all(target_feature = "crt-static", target_env = "gnu"))]
pub mod nss;
pub mod outbound;
pub mod self_signed;
pub mod tls;
pub mod tls_error;
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

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address that the connection came from; an IPv4 address is never written as an IPv6 one.
    pub addr: SocketAddr,
    /// Whether this process itself ended the TLS that the request came through.
    pub tls: bool,
}

/// From the end of a request's header to its answer; then 503.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A request that came to no answer of its own.
#[derive(Debug)]
pub struct Unanswered {
    /// What it is answered with: 500 after a panic, 503 after [`Limits::request_timeout`].
    pub status: StatusCode,
    /// Who sent it.
    pub peer: Peer,
    /// What it asked for.
    pub uri: Uri,
}

/// Makes the answer to a request that came to none of its own.
#[derive(Clone)]
pub struct Fallback(Arc<dyn Fn(Unanswered) -> Response<Full<Bytes>> + Send + Sync>);

impl Fallback {
    fn new(make: impl Fn(Unanswered) -> Response<Full<Bytes>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    fn answer(&self, status: StatusCode, peer: Peer, uri: Uri) -> Response<Full<Bytes>> {
        (self.0)(Unanswered { status, peer, uri })
    }
}

impl Default for Fallback {
    /// The status and nothing else.
    fn default() -> Self {
        Self::new(|unanswered| {
            let mut response = Response::new(Full::default());
            *response.status_mut() = unanswered.status;
            response
        })
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fallback").finish_non_exhaustive()
    }
}

/// What one peer, and all of them together, may take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections in all. At the cap no more are accepted; they wait in the kernel's queue.
    pub max_connections: usize,
    /// Open connections from one IPv4 address or one IPv6 /64, and eight times as many from one IPv6 /48, but never more
    /// than half of all. More are closed at once.
    pub max_connections_per_address: usize,
    /// Networks that [`Limits::max_connections_per_address`] does not count: proxies that many peers share.
    pub uncounted: Vec<IpNet>,
    /// From the accepted connection to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request (for the first request: from the start of the connection) to the
    /// end of its header.
    pub header_timeout: Duration,
    /// Without a request under way, and without anything being taken of an answer.
    pub idle_timeout: Duration,
    /// [`REQUEST_TIMEOUT`].
    pub request_timeout: Duration,
    /// Request line and header together, in bytes.
    pub max_header_bytes: u16,
    /// Requests under way on one HTTP/2 connection.
    pub max_concurrent_streams: u32,
    /// From the call to stop to the end of the last connection.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_per_address: 256,
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
