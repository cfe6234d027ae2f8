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

/// What a connection has done for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The header of a request does not come.
    Reading,
    /// Nothing is under way.
    Idle,
    /// The peer takes nothing of an answer, whatever else is under way.
    Untaken,
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
    /// Since when the peer has taken nothing of an answer, for each that it has not taken as a whole.
    untaken: Vec<(u64, Instant)>,
    /// How many answers there were.
    answered: u64,
}

impl Activity {
    /// A connection that owes its first request.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            phase: Phase::Reading,
            since: Instant::now(),
            read: 0,
            untaken: Vec::new(),
            answered: 0,
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

    /// An answer waits to be taken for as long as the returned value lives.
    pub fn answered(&self) -> Untaken {
        let mut current = self.state();
        let number = current.answered;
        current.answered += 1;
        current.untaken.push((number, Instant::now()));
        drop(current);
        Untaken {
            activity: self.clone(),
            number,
        }
    }

    fn byte_read(&self) {
        self.change(|phase| match phase {
            Phase::Idle => Phase::Reading,
            phase => phase,
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
            Phase::Serving(count) if count > 1 => Phase::Serving(count - 1),
            _ => Phase::Idle,
        });
    }

    fn change(&self, to: impl FnOnce(Phase) -> Phase) {
        let mut current = self.state();
        let phase = to(current.phase);
        if phase != current.phase {
            current.phase = phase;
            current.since = Instant::now();
            current.read = 0;
        }
    }

    /// Counts all times from now on: the connection was asked to end and gets time to do so.
    pub fn count_anew(&self) {
        let (now, mut current) = (Instant::now(), self.state());
        current.since = now;
        current.untaken.iter_mut().for_each(|(_, since)| *since = now);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What will be overdue next if nothing changes, and since when it is so: where it is up to the peer.
    fn waits(&self, timeouts: Timeouts) -> Option<(Overdue, Duration)> {
        let (now, current) = (Instant::now(), self.state());
        let left =
            |since: Instant, limit: Duration| limit.saturating_sub(now.saturating_duration_since(since));
        let of_phase = match current.phase {
            Phase::Reading => Some((Overdue::Reading, left(current.since, timeouts.reading))),
            Phase::Idle => Some((Overdue::Idle, left(current.since, timeouts.idle))),
            Phase::Serving(_) => None,
        };
        let oldest = current.untaken.iter().map(|(_, since)| since).min();
        let of_answer = oldest.map(|since| (Overdue::Untaken, left(*since, timeouts.untaken)));
        of_phase
            .into_iter()
            .chain(of_answer)
            .min_by_key(|(_, left)| *left)
    }

    /// Waits until something has gone on for too long, and says what. While a request is being answered that is only an
    /// answer before it: the request has a limit of its own.
    ///
    /// Nobody wakes it when the phase changes, which happens several times for each request. It looks again before
    /// the earliest moment at which a phase that began meanwhile could be overdue, and so misses none.
    pub async fn overdue(&self, timeouts: Timeouts) -> Overdue {
        const SHORTEST: Duration = Duration::from_millis(1);
        loop {
            let next_may_end = timeouts
                .reading
                .min(timeouts.idle)
                .min(timeouts.untaken)
                .max(SHORTEST);
            match self.waits(timeouts) {
                Some((overdue, left)) if left.is_zero() => return overdue,
                Some((_, left)) => tokio::time::sleep(left.min(next_may_end)).await,
                None => tokio::time::sleep(next_may_end).await,
            }
        }
    }
}

/// How long a peer is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the header of a request, from its first byte.
    pub reading: Duration,
    /// For a request.
    pub idle: Duration,
    /// For it to take some more of an answer.
    pub untaken: Duration,
}

impl Timeouts {
    /// The same, and nothing longer than `most`.
    #[must_use]
    pub fn at_most(self, most: Duration) -> Self {
        Self {
            reading: self.reading.min(most),
            idle: self.idle.min(most),
            untaken: self.untaken.min(most),
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

/// An answer that the peer has not taken as a whole.
#[derive(Debug)]
pub struct Untaken {
    activity: Activity,
    number: u64,
}

impl Untaken {
    /// A part of it was taken.
    pub fn count_anew(&self) {
        let mut current = self.activity.state();
        let mine = current
            .untaken
            .iter_mut()
            .find(|(number, _)| *number == self.number);
        if let Some((_, since)) = mine {
            *since = Instant::now();
        }
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        let mut current = self.activity.state();
        current.untaken.retain(|(number, _)| *number != self.number);
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

    fn waiting(reading: Duration, idle: Duration) -> Timeouts {
        Timeouts {
            reading,
            idle,
            untaken: LONG,
        }
    }

    #[tokio::test]
    async fn a_new_connection_owes_a_request() {
        assert_eq!(
            Activity::new().overdue(waiting(SHORT, LONG)).await,
            Overdue::Reading
        );
    }

    #[tokio::test]
    async fn a_connection_is_idle_after_its_last_answer_and_reading_after_the_next_byte() {
        let activity = Activity::new();
        let (one, two) = (activity.serving(), activity.serving());
        drop(one);
        assert_eq!(activity.state().phase, Phase::Serving(1));
        activity.byte_read();
        assert_eq!(activity.state().phase, Phase::Serving(1));
        drop(two);
        assert_eq!(activity.overdue(waiting(LONG, SHORT)).await, Overdue::Idle);
        activity.byte_read();
        assert_eq!(activity.overdue(waiting(SHORT, LONG)).await, Overdue::Reading);
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
        assert_eq!(activity.overdue(waiting(SHORT, LONG)).await, Overdue::Reading);
        activity.count_anew();
        let overdue = activity.overdue(waiting(LONG, LONG));
        assert!(tokio::time::timeout(SHORT, overdue).await.is_err());
    }

    /// However lively the connection is: each request would give the answers before it time, else.
    #[tokio::test]
    async fn an_answer_that_is_not_taken_is_overdue_whatever_else_goes_on() {
        let activity = Activity::new();
        let timeouts = Timeouts {
            reading: LONG,
            idle: LONG,
            untaken: SHORT,
        };
        let (older, newer) = (activity.answered(), activity.answered());
        let _serving = activity.serving();
        assert_eq!(activity.overdue(timeouts).await, Overdue::Untaken);
        newer.count_anew();
        assert_eq!(activity.waits(timeouts), Some((Overdue::Untaken, Duration::ZERO)));
        drop(older);
        drop(newer);
        assert_eq!(activity.waits(timeouts), None);
    }

    #[tokio::test]
    async fn a_request_that_is_being_answered_is_never_overdue() {
        let activity = Activity::new();
        let _serving = activity.serving();
        let overdue = activity.overdue(waiting(Duration::ZERO, Duration::ZERO));
        assert!(tokio::time::timeout(SHORT, overdue).await.is_err());
    }
}
