//! A stream that reports what it reads.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;

/// The bytes that one HTTP/2 connection reads before it yields to others: a thousand of the smallest frames.
const BYTES_PER_TURN: usize = 16 * 1024;

/// The protocol of a stream.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// TLS, where the bytes of the handshake are reported.
    Tls,
    /// HTTP/1, where each byte belongs to a request.
    Http1,
    /// HTTP/2, where a peer can send frames without a request.
    Http2,
}

/// A stream that reports to an [`Activity`] what it reads: with TLS the progress of the handshake, on HTTP/1 the first byte
/// of a request, on HTTP/2 the number of bytes. On HTTP/2 it yields to other connections, and fails when the peer sends too many bytes without a request.
#[derive(Debug)]
pub struct MonitoredStream<IO> {
    inner: IO,
    activity: Activity,
    protocol: Protocol,
    /// Bytes that were read since this connection last yielded.
    bytes_in_turn: usize,
}

impl<IO> MonitoredStream<IO> {
    pub fn new(inner: IO, activity: Activity, protocol: Protocol) -> Self {
        Self {
            inner,
            activity,
            protocol,
            bytes_in_turn: 0,
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for MonitoredStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes_in_turn >= BYTES_PER_TURN {
            self.bytes_in_turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let read = buffer.filled().len().saturating_sub(before);
        match self.protocol {
            Protocol::Tls | Protocol::Http1 if read == 0 => {}
            Protocol::Tls => self.activity.handshake_read(),
            Protocol::Http1 => self.activity.byte_read(),
            Protocol::Http2 => {
                self.bytes_in_turn = self.bytes_in_turn.saturating_add(read);
                if !self.activity.frames_read(read) {
                    return Poll::Ready(Err(io::Error::other("a flood of frames without a request")));
                }
            }
        }
        polled
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::net::activity::BYTES_BETWEEN_REQUESTS;

    #[test]
    fn a_flood_lets_others_have_their_turn_and_ends() {
        let mut context = Context::from_waker(Waker::noop());
        let mut stream = MonitoredStream::new(tokio::io::repeat(0), Activity::new(), Protocol::Http2);
        let (mut read, mut turns) = (0, 0);
        loop {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut stream).poll_read(&mut context, &mut buffer) {
                Poll::Ready(Ok(())) => read += buffer.filled().len(),
                Poll::Ready(Err(_)) => break,
                Poll::Pending => turns += 1,
            }
        }
        assert_eq!(
            (read, turns),
            (BYTES_BETWEEN_REQUESTS, BYTES_BETWEEN_REQUESTS / BYTES_PER_TURN)
        );
        let mut stream = MonitoredStream::new(tokio::io::repeat(0), Activity::new(), Protocol::Http1);
        for _ in 0..1000 {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            let polled = Pin::new(&mut stream).poll_read(&mut context, &mut buffer);
            assert!(matches!(polled, Poll::Ready(Ok(()))));
        }
    }
}
