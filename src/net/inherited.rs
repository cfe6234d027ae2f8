//! Listening sockets that the service manager opened and keeps open (`sd_listen_fds(3)`).
//!
//! They make a restart invisible: a connection that is made during the restart waits in the kernel's queue for the next
//! process. The process also needs no right to bind a low port.

use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

/// The name (`FileDescriptorName=`) of sockets for the metrics.
pub const METRICS: &str = "metrics";
/// The name of sockets whose plain HTTP is redirected. Sockets with a name that is not listed here are for the public.
pub const REDIRECT: &str = "redirect";
/// The name of sockets where clients show certificates.
pub const MTLS: &str = "mtls";

/// Why the sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// A descriptor is not a listening TCP socket.
    #[error(
        "descriptor {number}, handed over by $LISTEN_FDS with the name {name:?}, is no listening TCP socket: {source}"
    )]
    NoListener {
        /// The number of the descriptor.
        number: usize,
        /// The name of the socket.
        name: String,
        /// What is wrong with it.
        source: io::Error,
    },
}

/// The sockets that were handed over, by their purpose.
#[derive(Debug, Default)]
pub struct Inherited {
    pub public: Vec<TcpListener>,
    pub metrics: Vec<TcpListener>,
    pub redirect: Vec<TcpListener>,
    /// For clients with certificates.
    pub mtls: Vec<TcpListener>,
}

/// The number of the first descriptor (`SD_LISTEN_FDS_START`).
const FIRST: usize = 3;

impl Inherited {
    /// Takes the sockets that `$LISTEN_FDS`, `$LISTEN_PID` and `$LISTEN_FDNAMES` announce, and removes the first two
    /// from the environment. To be called once, before the process has a second thread.
    pub fn take() -> Result<Self, InheritError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut descriptors = ListenFd::from_env();
        let mut inherited = Self::default();
        for at in 0..descriptors.len() {
            let name = names.next().unwrap_or_default();
            let taken = descriptors.take_tcp_listener(at).and_then(|socket| match socket {
                Some(socket) if socket_acceptconn(&socket)? => Ok(socket),
                _ => Err(io::Error::other("nobody listens on it")),
            });
            let socket = taken.map_err(|source| InheritError::NoListener {
                number: FIRST.saturating_add(at),
                name: name.to_owned(),
                source,
            })?;
            match name {
                METRICS => inherited.metrics.push(socket),
                REDIRECT => inherited.redirect.push(socket),
                MTLS => inherited.mtls.push(socket),
                _ => inherited.public.push(socket),
            }
        }
        Ok(inherited)
    }
}

pub fn addresses(sockets: &[TcpListener]) -> Vec<SocketAddr> {
    sockets
        .iter()
        .filter_map(|socket| socket.local_addr().ok())
        .collect()
}
