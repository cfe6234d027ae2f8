//! One request to a service on this machine, at an address that it listens on.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::own_certificate::trusting_any;

/// The time for connection, handshake and answer.
const TIMEOUT: Duration = Duration::from_secs(3);
const MAX_BODY_BYTES: usize = 16 * 1024;

/// A request without credentials.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    pub path: &'a str,
    /// The host of the service, for `Host` and for the handshake.
    pub host: &'a str,
    /// Whether the service speaks TLS. Its certificate is not checked, because it may be self-signed or for another
    /// name.
    pub has_tls: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    pub status: u16,
    pub body: String,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NoAnswer {
    pub problem: String,
    /// Whether the service accepted the connection and ended the handshake.
    pub is_handshake: bool,
}

/// Where a socket that listens on `address` is reached from this machine, in the order to try.
pub fn reachable_at(address: SocketAddr) -> Vec<SocketAddr> {
    let at = |ip: IpAddr| SocketAddr::new(ip, address.port());
    match address.ip() {
        ip if !ip.is_unspecified() => vec![address],
        IpAddr::V4(_) => vec![at(Ipv4Addr::LOCALHOST.into())],
        // Without IPv6 it listens on IPv4.
        IpAddr::V6(_) => vec![at(Ipv6Addr::LOCALHOST.into()), at(Ipv4Addr::LOCALHOST.into())],
    }
}

impl Probe<'_> {
    /// Sends the request to this address.
    pub async fn ask(self, address: SocketAddr) -> Result<ProbeAnswer, NoAnswer> {
        let problem = |problem: &dyn Display| NoAnswer {
            problem: format!("{address} {problem}"),
            is_handshake: false,
        };
        let asked = async {
            let stream = TcpStream::connect(address)
                .await
                .map_err(|error| problem(&format_args!("does not accept connections ({error})")))?;
            if !self.has_tls {
                return self.exchange(stream).await.map_err(|error| problem(&error));
            }
            let tls = trusting_any().map_err(|error| problem(&error))?;
            let name = ServerName::try_from(self.host.to_owned());
            let name = name.unwrap_or_else(|_| address.ip().into());
            let connected = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
            let stream = connected.map_err(|error| NoAnswer {
                is_handshake: true,
                ..problem(&format_args!("does not answer with TLS ({error})"))
            })?;
            self.exchange(stream).await.map_err(|error| problem(&error))
        };
        let answer = tokio::time::timeout(TIMEOUT, asked).await;
        answer.unwrap_or_else(|_| {
            Err(problem(&format_args!(
                "did not answer within {} seconds",
                TIMEOUT.as_secs()
            )))
        })
    }

    async fn exchange(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<ProbeAnswer, String> {
        let malformed = |error: &dyn Display| format!("does not answer with proper HTTP ({error})");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| malformed(&error))?;
        let request = Request::get(self.path).header(HOST, self.host);
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|error| malformed(&error))?;
        let answer = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| malformed(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
            let body = body.map_err(|error| malformed(&error))?.to_bytes();
            Ok(ProbeAnswer {
                status: head.status.as_u16(),
                body: String::from_utf8_lossy(&body).into_owned(),
            })
        };
        // The connection works only while it is polled beside the request.
        tokio::pin!(answer, connection);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            _ = &mut connection => answer.await,
        }
    }
}
