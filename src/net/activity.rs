//! What a connection is doing, and for how long it may go on doing it.
//!
//! hyper has one timer for an HTTP/1 connection, and it runs from the moment the connection waits for a
//! request. So a quiet connection and a header that trickles in would get the same time. Here the two are
//! told apart, and an HTTP/2 connection without requests is ended by the same rule.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The header of a request is on its way.
    Reading,
    /// That many requests are being answered.
    Serving(usize),
    /// Nothing is under way.
    Idle,
}

/// The phase of one connection, changed by whoever sees it change.
#[derive(Clone, Debug)]
pub struct Activity(Arc<Mutex<(Phase, Instant)>>);

impl Activity {
    /// A connection that owes its first request.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new((Phase::Reading, Instant::now()))))
    }

    /// A request is being answered for as long as the returned value lives.
    pub fn serving(&self) -> Serving {
        self.change(|phase| match phase {
            Phase::Serving(count) => Phase::Serving(count.saturating_add(1)),
            Phase::Reading | Phase::Idle => Phase::Serving(1),
        });
        Serving(self.clone())
    }

    fn byte_read(&self) {
        self.change(|phase| match phase {
            Phase::Idle | Phase::Reading => Phase::Reading,
            Phase::Serving(count) => Phase::Serving(count),
        });
    }

    fn served(&self) {
        self.change(|phase| match phase {
            Phase::Serving(count) if count > 1 => Phase::Serving(count.saturating_sub(1)),
            Phase::Serving(_) | Phase::Reading | Phase::Idle => Phase::Idle,
        });
    }

    fn change(&self, to: impl FnOnce(Phase) -> Phase) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let phase = to(current.0);
        if phase != current.0 {
            *current = (phase, Instant::now());
        }
    }

    /// Counts the time of the present phase from now on: the connection was asked to end and gets time to do so.
    pub fn count_anew(&self) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        current.1 = Instant::now();
    }

    /// The phase, and since when it is so.
    fn current(&self) -> (Phase, Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one phase has gone on for too long, and says which. While a request is being answered
    /// nothing is too long here: the request has a limit of its own.
    ///
    /// Nobody wakes it when the phase changes, which happens several times for each request. It looks again before
    /// the earliest moment at which a phase that began meanwhile could be overdue, and so misses none.
    pub async fn overdue(&self, reading: Duration, idle: Duration) -> Phase {
        const SHORTEST: Duration = Duration::from_millis(1);
        loop {
            let now = Instant::now();
            let (phase, since) = self.current();
            let spent = now.saturating_duration_since(since);
            let left = match phase {
                Phase::Reading => reading.saturating_sub(spent),
                Phase::Idle => idle.saturating_sub(spent),
                Phase::Serving(_) => Duration::MAX,
            };
            if left.is_zero() {
                return phase;
            }
            let next_may_end = reading.min(idle).max(SHORTEST);
            tokio::time::sleep(left.min(next_may_end)).await;
        }
    }
}

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub struct Serving(Activity);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.served();
    }
}

/// A stream that tells an [`Activity`] when the first byte of a request comes in. For HTTP/1: on HTTP/2
/// bytes come in that belong to no request.
#[derive(Debug)]
pub struct Watched<IO> {
    inner: IO,
    activity: Activity,
}

impl<IO> Watched<IO> {
    /// Watches `inner`.
    pub fn new(inner: IO, activity: Activity) -> Self {
        Self { inner, activity }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.byte_read();
        }
        polled
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Watched<IO> {
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
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_hours(1);

    #[tokio::test]
    async fn a_new_connection_owes_a_request() {
        assert_eq!(Activity::new().overdue(SHORT, LONG).await, Phase::Reading);
    }

    #[tokio::test]
    async fn a_connection_is_idle_after_its_last_answer_and_reading_after_the_next_byte() {
        let activity = Activity::new();
        let (one, two) = (activity.serving(), activity.serving());
        drop(one);
        assert_eq!(activity.current().0, Phase::Serving(1));
        activity.byte_read();
        assert_eq!(activity.current().0, Phase::Serving(1));
        drop(two);
        assert_eq!(activity.overdue(LONG, SHORT).await, Phase::Idle);
        activity.byte_read();
        assert_eq!(activity.overdue(SHORT, LONG).await, Phase::Reading);
    }

    #[tokio::test]
    async fn a_connection_asked_to_end_is_not_overdue_for_what_it_did_before() {
        let activity = Activity::new();
        assert_eq!(activity.overdue(SHORT, LONG).await, Phase::Reading);
        activity.count_anew();
        let overdue = activity.overdue(LONG, LONG);
        assert!(tokio::time::timeout(SHORT, overdue).await.is_err());
    }

    #[tokio::test]
    async fn a_request_that_is_being_answered_is_never_overdue() {
        let activity = Activity::new();
        let _serving = activity.serving();
        let overdue = activity.overdue(Duration::ZERO, Duration::ZERO);
        assert!(tokio::time::timeout(SHORT, overdue).await.is_err());
    }
}
