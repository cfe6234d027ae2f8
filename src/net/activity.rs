//! The phase of a connection, and the timeout of each phase.
//!
//! hyper has one timer for an HTTP/1 connection, and it runs from the moment the connection waits for a request. An
//! idle connection and a slow header would get the same time. This module tells them apart, and ends idle HTTP/2
//! connections by the same rule. It also counts HTTP/2 frames that belong to no request, because they cost their
//! sender next to nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The bytes that a peer may send on HTTP/2 without a request beginning or ending. They hold a header, the rest of bodies
/// that were answered before they were read (bounded by the connection's window), and many times the control frames of
/// an honest peer.
pub(super) const BYTES_BETWEEN_REQUESTS: usize = 512 * 1024;
/// The additional bytes for each request in progress: its body in small frames, and the part that is read of a body that
/// is too large.
pub const BYTES_PER_REQUEST: usize = 1280 * 1024;

/// How long a TLS handshake or a response may make no progress before the connection counts as idle.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has arrived.
    Accepted,
    /// A part of the TLS handshake has arrived.
    Handshaking,
    /// The TLS handshake is done, and the first request is awaited.
    Secured,
    /// The header of a request is awaited.
    Reading,
    /// This number of requests is in progress.
    Serving(usize),
    /// No request is in progress.
    Idle,
}

/// The timeout that has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The header of a request did not arrive.
    Reading,
    /// No request arrived.
    Idle,
    /// The peer took nothing of a response.
    Sending,
}

/// The phase of one connection. A clone shares it.
#[derive(Clone, Debug)]
pub struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// Bytes of frames that arrived since a request last began or ended.
    frame_bytes: usize,
    sending: Vec<ResponseProgress>,
    /// The number of the next response.
    next_response: u64,
}

/// A response that the peer has not taken completely.
#[derive(Debug)]
struct ResponseProgress {
    response: u64,
    /// When the peer last took a part of it.
    since: Instant,
}

impl Activity {
    /// A connection from which nothing has arrived.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            phase: Phase::Accepted,
            since: Instant::now(),
            frame_bytes: 0,
            sending: Vec::new(),
            next_response: 0,
        })))
    }

    /// Counts a request as in progress until the returned value is dropped.
    pub fn serving(&self) -> Serving {
        self.change(|phase| match phase {
            Phase::Serving(count) => Phase::Serving(count.saturating_add(1)),
            _ => Phase::Serving(1),
        });
        Serving(self.clone())
    }

    /// Counts a response as waiting for the peer until the returned value is dropped.
    pub fn sending(&self) -> Sending {
        let mut current = self.state();
        let response = current.next_response;
        current.next_response += 1;
        current.sending.push(ResponseProgress {
            response,
            since: Instant::now(),
        });
        drop(current);
        Sending {
            activity: self.clone(),
            response,
        }
    }

    pub(super) fn byte_read(&self) {
        self.change(|phase| match phase {
            Phase::Serving(count) => Phase::Serving(count),
            _ => Phase::Reading,
        });
    }

    pub(super) fn handshake_read(&self) {
        let mut current = self.state();
        if matches!(current.phase, Phase::Accepted | Phase::Handshaking) {
            current.phase = Phase::Handshaking;
            current.since = Instant::now();
        }
    }

    /// Ends the TLS handshake.
    pub fn secured(&self) {
        self.change(|_| Phase::Secured);
    }

    /// Since when nothing has been in progress on this connection. None while something makes progress.
    pub fn idle_since(&self, now: Instant) -> Option<Instant> {
        let current = self.state();
        let stalled =
            |since: Instant| (now.saturating_duration_since(since) >= STALL_TIMEOUT).then_some(since);
        match (
            current.phase,
            current.sending.iter().map(|progress| progress.since).max(),
        ) {
            (Phase::Reading | Phase::Serving(_), _) => None,
            (Phase::Handshaking, _) => stalled(current.since),
            (_, Some(taken)) => stalled(current.since.max(taken)),
            (_, None) => Some(current.since),
        }
    }

    /// Counts bytes of frames, and returns whether the peer may send this many.
    pub(super) fn frames_read(&self, bytes: usize) -> bool {
        let mut current = self.state();
        current.frame_bytes = current.frame_bytes.saturating_add(bytes);
        let requests = match current.phase {
            Phase::Serving(count) => count,
            _ => 0,
        };
        let limit = BYTES_BETWEEN_REQUESTS.saturating_add(requests.saturating_mul(BYTES_PER_REQUEST));
        current.frame_bytes <= limit
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
            current.frame_bytes = 0;
        }
    }

    /// Restarts all timers, because the connection was asked to end and gets time for that.
    pub fn restart_timers(&self) {
        let (now, mut current) = (Instant::now(), self.state());
        current.since = now;
        for progress in &mut current.sending {
            progress.since = now;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The timeout that expires next if nothing changes. None while only this side has work to do.
    fn next_timeout(&self, timeouts: Timeouts) -> Option<NextTimeout> {
        let (now, current) = (Instant::now(), self.state());
        let timeout = |overdue, since: Instant, limit: Duration| NextTimeout {
            overdue,
            left: limit.saturating_sub(now.saturating_duration_since(since)),
        };
        let phase = match current.phase {
            Phase::Serving(_) => None,
            Phase::Idle => Some(timeout(Overdue::Idle, current.since, timeouts.idle)),
            _ => Some(timeout(Overdue::Reading, current.since, timeouts.reading)),
        };
        let oldest = current.sending.iter().map(|progress| progress.since).min();
        let response = oldest.map(|since| timeout(Overdue::Sending, since, timeouts.sending));
        phase
            .into_iter()
            .chain(response)
            .min_by_key(|timeout| timeout.left)
    }

    /// Waits until a timeout expires, and returns which one. While a request is in progress, only an earlier response
    /// can expire: the request has its own timeout.
    ///
    /// A change of phase does not wake this task, because the phase changes several times for each request. Instead the
    /// task sleeps no longer than the shortest timeout, so it also sees a phase that began while it slept.
    pub async fn overdue(&self, timeouts: Timeouts) -> Overdue {
        const SHORTEST: Duration = Duration::from_millis(1);
        loop {
            let shortest_timeout = timeouts
                .reading
                .min(timeouts.idle)
                .min(timeouts.sending)
                .max(SHORTEST);
            match self.next_timeout(timeouts) {
                Some(next) if next.left.is_zero() => return next.overdue,
                Some(next) => tokio::time::sleep(next.left.min(shortest_timeout)).await,
                None => tokio::time::sleep(shortest_timeout).await,
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct NextTimeout {
    overdue: Overdue,
    left: Duration,
}

/// How long the service waits for a peer.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the header of a request, from its first byte.
    pub reading: Duration,
    /// For a request.
    pub idle: Duration,
    /// For the peer to take another part of a response.
    pub sending: Duration,
}

impl Timeouts {
    /// These timeouts, each at most `max`.
    #[must_use]
    pub fn at_most(self, max: Duration) -> Self {
        Self {
            reading: self.reading.min(max),
            idle: self.idle.min(max),
            sending: self.sending.min(max),
        }
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct Serving(Activity);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.served();
    }
}

/// A response that the peer has not taken completely.
#[derive(Debug)]
pub struct Sending {
    activity: Activity,
    response: u64,
}

impl Sending {
    /// Restarts the timer of this response, because the peer took a part of it.
    pub fn restart_timer(&self) {
        let mut current = self.activity.state();
        for progress in &mut current.sending {
            if progress.response == self.response {
                progress.since = Instant::now();
            }
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut current = self.activity.state();
        current
            .sending
            .retain(|progress| progress.response != self.response);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_hours(1);

    fn waiting(reading: Duration, idle: Duration) -> Timeouts {
        Timeouts {
            reading,
            idle,
            sending: LONG,
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
    fn what_makes_progress_is_not_idle_and_what_has_stalled_is() {
        let activity = Activity::new();
        let idle_now_and_later = || {
            let now = Instant::now();
            [now, now + STALL_TIMEOUT].map(|moment| activity.idle_since(moment).is_some())
        };
        assert_eq!(idle_now_and_later(), [true, true], "nothing has arrived");
        activity.handshake_read();
        assert_eq!(idle_now_and_later(), [false, true]);
        activity.secured();
        activity.handshake_read();
        assert_eq!(idle_now_and_later(), [true, true], "no request has arrived");
        activity.byte_read();
        assert_eq!(idle_now_and_later(), [false, false]);
        let serving = activity.serving();
        let sending = activity.sending();
        assert_eq!(idle_now_and_later(), [false, false]);
        drop(serving);
        assert_eq!(idle_now_and_later(), [false, true]);
        drop(sending);
        assert_eq!(idle_now_and_later(), [true, true]);
    }

    #[test]
    fn frames_without_a_request_are_bearable_up_to_a_bound_and_a_request_counts_anew() {
        let activity = Activity::new();
        assert!(activity.frames_read(BYTES_BETWEEN_REQUESTS));
        assert!(!activity.frames_read(1));
        let serving = activity.serving();
        assert!(activity.frames_read(BYTES_BETWEEN_REQUESTS + BYTES_PER_REQUEST));
        assert!(!activity.frames_read(1));
        drop(serving);
        assert!(activity.frames_read(BYTES_BETWEEN_REQUESTS));
        assert!(!activity.frames_read(1));
    }

    #[tokio::test]
    async fn a_connection_asked_to_end_is_not_overdue_for_what_it_did_before() {
        let activity = Activity::new();
        assert_eq!(activity.overdue(waiting(SHORT, LONG)).await, Overdue::Reading);
        activity.restart_timers();
        let overdue = activity.overdue(waiting(LONG, LONG));
        assert!(tokio::time::timeout(SHORT, overdue).await.is_err());
    }

    /// Otherwise each further request would give the earlier responses more time.
    #[tokio::test]
    async fn an_answer_that_is_not_taken_is_overdue_whatever_else_goes_on() {
        let activity = Activity::new();
        let timeouts = Timeouts {
            reading: LONG,
            idle: LONG,
            sending: SHORT,
        };
        let (older, newer) = (activity.sending(), activity.sending());
        let _serving = activity.serving();
        assert_eq!(activity.overdue(timeouts).await, Overdue::Sending);
        newer.restart_timer();
        assert_eq!(
            activity.next_timeout(timeouts),
            Some(NextTimeout {
                overdue: Overdue::Sending,
                left: Duration::ZERO
            })
        );
        drop(older);
        drop(newer);
        assert_eq!(activity.next_timeout(timeouts), None);
    }

    #[tokio::test]
    async fn a_request_that_is_being_answered_is_never_overdue() {
        let activity = Activity::new();
        let _serving = activity.serving();
        let overdue = activity.overdue(waiting(Duration::ZERO, Duration::ZERO));
        assert!(tokio::time::timeout(SHORT, overdue).await.is_err());
    }
}
