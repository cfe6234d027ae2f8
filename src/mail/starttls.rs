//! The part of a connection before TLS (RFC 3207).
//!
//! What was sent in the clear is forgotten once TLS has begun: an attacker on the way may have added to it (RFC 3207
//! section 4.2, RFC 9051 section 11.1).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The most bytes of one reply.
const MAX_REPLY_BYTES: u64 = 8 * 1024;
/// The greeting in place of the one that was read before TLS.
const GREETING: &[u8] = b"220 ready\r\n";

/// The reply to a command: its code, and its lines without it.
pub(super) struct Reply {
    pub code: u16,
    pub lines: Vec<String>,
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.lines.join(" "))
    }
}

/// Sends a command, if there is one, and reads the reply (RFC 5321 section 4.2.1).
pub(super) async fn exchange(stream: &mut BufReader<TcpStream>, command: Option<&str>) -> io::Result<Reply> {
    if let Some(command) = command {
        stream.write_all(format!("{command}\r\n").as_bytes()).await?;
        stream.flush().await?;
    }
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "what it answers is not SMTP");
    let mut limited = stream.take(MAX_REPLY_BYTES);
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        if limited.read_until(b'\n', &mut line).await? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it closed the connection",
            ));
        }
        let line = String::from_utf8_lossy(&line);
        let line = line
            .strip_suffix('\n')
            .ok_or_else(malformed)?
            .trim_end_matches('\r');
        let code = line
            .get(..3)
            .and_then(|code| code.parse().ok())
            .ok_or_else(malformed)?;
        lines.push(line.get(4..).unwrap_or_default().trim().to_owned());
        match line.as_bytes().get(3) {
            Some(b'-') => {}
            None | Some(b' ') => return Ok(Reply { code, lines }),
            Some(_) => return Err(malformed()),
        }
    }
}

/// A connection, with TLS or without. `greeting` is read before what the server sends.
pub(super) struct Stream {
    greeting: &'static [u8],
    transport: Transport,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self.transport, Transport::Tls(_))
    }

    /// A connection whose greeting is not read yet.
    pub(super) fn fresh(tls: TlsStream<TcpStream>) -> Self {
        Self {
            greeting: b"",
            transport: Transport::Tls(Box::new(tls)),
        }
    }

    /// A connection after STARTTLS.
    pub(super) fn upgraded(tls: TlsStream<TcpStream>) -> Self {
        Self {
            greeting: GREETING,
            ..Self::fresh(tls)
        }
    }

    /// A connection in the clear, whose greeting was read.
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self {
            greeting: GREETING,
            transport: Transport::Plain(stream),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

impl AsyncTokioStream for Stream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.transport {
            Transport::Plain(stream) => stream.peer_addr(),
            Transport::Tls(stream) => stream.get_ref().0.peer_addr(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.greeting.is_empty() {
            let (now, later) = self.greeting.split_at(self.greeting.len().min(into.remaining()));
            into.put_slice(now);
            self.greeting = later;
            return Poll::Ready(Ok(()));
        }
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
