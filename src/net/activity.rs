//! What a connection is doing, and for how long it may go on doing it.
//!
//! hyper has one timer for an HTTP/1 connection, and it runs from the moment the connection waits for a
//! request. So a quiet connection and a header that trickles in would get the same time. Here the two are
//! told apart, and an HTTP/2 connection without requests is ended by the same rule. On HTTP/2 there are frames, too,
//! that belong to no request and cost their sender next to nothing; here they are counted.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The bytes that may come in on HTTP/2 without a request beginning or ending: a header, the rest of bodies that were
/// answered before they were read, which the connection's window bounds, and what honest peers send besides, many
/// times over.
const WITHOUT_REQUEST: usize = 512 * 1024;
/// How many more may come in for each request that is being answered: its body in small frames, and what is still taken
/// of one that is too large.
pub const FOR_A_REQUEST: usize = 1280 * 1024;

/// The bytes that one HTTP/2 connection brings in before others have their turn: a thousand of the smallest frames.
const TURN: usize = 16 * 1024;

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
pub struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// Bytes of frames that came in since a request last began or ended.
    read: usize,
}

impl Activity {
    /// A connection that owes its first request.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            phase: Phase::Reading,
            since: Instant::now(),
            read: 0,
        })))
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

    /// Counts the bytes of frames that came in. Whether so many are bearable.
    fn frames_read(&self, bytes: usize) -> bool {
        let mut current = self.state();
        current.read = current.read.saturating_add(bytes);
        let requests = match current.phase {
            Phase::Serving(count) => count,
            Phase::Reading | Phase::Idle => 0,
        };
        current.read <= WITHOUT_REQUEST.saturating_add(requests.saturating_mul(FOR_A_REQUEST))
    }

    fn served(&self) {
        self.change(|phase| match phase {
            Phase::Serving(count) if count > 1 => Phase::Serving(count.saturating_sub(1)),
            Phase::Serving(_) | Phase::Reading | Phase::Idle => Phase::Idle,
        });
    }

    fn change(&self, to: impl FnOnce(Phase) -> Phase) {
        let mut current = self.state();
        let phase = to(current.phase);
        if phase != current.phase {
            *current = State {
                phase,
                since: Instant::now(),
                read: 0,
            };
        }
    }

    /// Counts the time of the present phase from now on: the connection was asked to end and gets time to do so.
    pub fn count_anew(&self) {
        self.state().since = Instant::now();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The phase, and since when it is so.
    fn current(&self) -> (Phase, Instant) {
        let current = self.state();
        (current.phase, current.since)
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

/// What the bytes are that come in.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// Those of HTTP/1: all of them belong to a request.
    Requests,
    /// Those of HTTP/2.
    Frames,
}

/// A stream that tells an [`Activity`] what comes in. On HTTP/1 that is when the first byte of a request does; on
/// HTTP/2, where bytes come in between requests too, how many do: it lets others have their turn in between, and fails
/// when they are too many.
#[derive(Debug)]
pub struct Watched<IO> {
    inner: IO,
    activity: Activity,
    content: Content,
    /// Bytes that came in since others had their turn.
    taken: usize,
}

impl<IO> Watched<IO> {
    /// Watches a connection that speaks HTTP/1.
    pub fn requests(inner: IO, activity: Activity) -> Self {
        Self {
            inner,
            activity,
            content: Content::Requests,
            taken: 0,
        }
    }

    /// Watches a connection that speaks HTTP/2.
    pub fn frames(inner: IO, activity: Activity) -> Self {
        Self {
            inner,
            activity,
            content: Content::Frames,
            taken: 0,
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.taken >= TURN {
            self.taken = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let read = buffer.filled().len().saturating_sub(before);
        match self.content {
            Content::Requests if read > 0 => self.activity.byte_read(),
            Content::Requests => {}
            Content::Frames => {
                self.taken = self.taken.saturating_add(read);
                if !self.activity.frames_read(read) {
                    return Poll::Ready(Err(io::Error::other("a flood of frames without a request")));
                }
            }
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
    use std::task::Waker;

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

    #[test]
    fn frames_without_a_request_are_bearable_up_to_a_bound_and_a_request_counts_anew() {
        let activity = Activity::new();
        assert!(activity.frames_read(WITHOUT_REQUEST));
        assert!(!activity.frames_read(1));
        let serving = activity.serving();
        assert!(activity.frames_read(WITHOUT_REQUEST + FOR_A_REQUEST));
        assert!(!activity.frames_read(1));
        drop(serving);
        assert!(activity.frames_read(WITHOUT_REQUEST));
        assert!(!activity.frames_read(1));
    }

    #[test]
    fn a_flood_lets_others_have_their_turn_and_ends() {
        let mut context = Context::from_waker(Waker::noop());
        let mut stream = Watched::frames(tokio::io::repeat(0), Activity::new());
        let (mut came, mut turns) = (0, 0);
        loop {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut stream).poll_read(&mut context, &mut buffer) {
                Poll::Ready(Ok(())) => came += buffer.filled().len(),
                Poll::Ready(Err(_)) => break,
                Poll::Pending => turns += 1,
            }
        }
        assert_eq!((came, turns), (WITHOUT_REQUEST, WITHOUT_REQUEST / TURN));
        let mut stream = Watched::requests(tokio::io::repeat(0), Activity::new());
        for _ in 0..1000 {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            let polled = Pin::new(&mut stream).poll_read(&mut context, &mut buffer);
            assert!(matches!(polled, Poll::Ready(Ok(()))));
        }
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
