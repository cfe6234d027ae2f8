//! The only reader of time.
//!
//! Everything else is handed a [`Timestamp`], so that a test can move the clock and a rule can be read
//! as a function of its arguments.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

/// When this was written: no clock that is right shows less.
pub const EARLIEST: Timestamp = Timestamp::from_seconds(1_790_000_000);

/// How far ahead of the clock a moment may lie that was noted by it, for clocks that were corrected.
const CLOCK_SLACK: Duration = Duration::from_hours(1);

/// A moment in whole seconds since 1970-01-01T00:00:00Z: the `NumericDate` of RFC 7519 section 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// A moment that many seconds after the epoch.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// Seconds since the epoch, as a `NumericDate` is written.
    pub const fn seconds(self) -> u64 {
        self.0
    }

    /// The moment in UTC as RFC 3339 writes it, such as `2026-11-21T09:30:00Z`; the bare number of seconds beyond the
    /// year 9999.
    pub fn rfc3339(self) -> String {
        i64::try_from(self.0)
            .ok()
            .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
            .and_then(|moment| moment.format(&Rfc3339).ok())
            .unwrap_or_else(|| self.0.to_string())
    }

    /// The smallest time-ordered identifier made at this moment ([`crate::random::Random::uuid_v7`]).
    pub fn first_id(self) -> Uuid {
        uuid::Builder::from_unix_timestamp_millis(self.0.saturating_mul(1000), &[0; 10]).into_uuid()
    }

    /// When a time-ordered identifier was made; the epoch for any other.
    pub fn of_id(id: Uuid) -> Self {
        Self(id.get_timestamp().map_or(0, |made_at| made_at.to_unix().0))
    }

    /// Whether this moment, which the service has noted as past, lies ahead: the clock was ahead when it was noted.
    ///
    /// What was made then would be good for as long as the clock was ahead, so it counts as expired: sessions, sign-ins
    /// under way, codes, access tokens. It is not removed for that. The clock may as well be behind now, which from
    /// what is in the store looks just the same, and then all of it is good again once the clock is right; until then
    /// people sign in anew and applications refresh.
    ///
    /// Refresh tokens are no such case: an anonymous user has no other way in, and an application throws a token away
    /// that was refused. They go on, and with the next use last as long as any other ([`crate::oauth::refresh`]).
    ///
    /// A clock before [`EARLIEST`] is behind for certain, such as that of a machine which has no battery for it and has
    /// not yet reached a time server. Nothing lies ahead of it, and the service works as well as it can.
    pub fn is_ahead_of(self, now: Self) -> bool {
        now >= EARLIEST && now + CLOCK_SLACK < self
    }

    /// How long ago `earlier` was; zero when it lies ahead, as after a clock that jumped back.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the end of time; parts of a second are dropped.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_secs()))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the epoch; parts of a second are dropped.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration.as_secs()))
    }
}

/// Where time comes from: the system, or a hand that a test holds.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's real-time clock.
    System,
    /// Milliseconds since the epoch, moved by [`Clock::advance`] only.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that stands still at `start` until it is advanced.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicU64::new(start.seconds().saturating_mul(1000))))
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.since_epoch().as_secs())
    }

    /// The time since the epoch as finely as it is known, for identifiers that sort by it
    /// ([`crate::random::Random::uuid_v7`]).
    pub fn since_epoch(&self) -> Duration {
        match self {
            Self::System => {
                #[expect(clippy::disallowed_methods, reason = "the one reader of system time")]
                let now = std::time::SystemTime::now();
                now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
            }
            Self::Manual(millis) => Duration::from_millis(millis.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock forward. The system's clock is not ours to move: there it does nothing.
    pub fn advance(&self, by: Duration) {
        if let Self::Manual(millis) = self {
            millis.fetch_add(
                u64::try_from(by.as_millis()).unwrap_or(u64::MAX),
                Ordering::SeqCst,
            );
        }
    }
}

/// How long the machine has been running. No hand and no time server moves it, and it goes on while the machine is
/// suspended, which [`std::time::Instant`] does not.
pub fn uptime() -> Duration {
    #[cfg(target_os = "linux")]
    const TIMER: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const TIMER: ClockId = ClockId::Monotonic;
    Duration::try_from(clock_gettime(TIMER)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(Timestamp::from_seconds(1_000));
        assert_eq!(clock.now().seconds(), 1_000);
        clock.advance(Duration::from_millis(1_500));
        assert_eq!(clock.now().seconds(), 1_001);
        assert_eq!(clock.since_epoch(), Duration::from_millis(1_001_500));
    }

    #[test]
    fn the_machine_runs_on() {
        let before = uptime();
        assert!(before > Duration::ZERO);
        assert!(uptime() >= before);
    }

    #[test]
    fn moments_are_readable() {
        assert_eq!(Timestamp(0).rfc3339(), "1970-01-01T00:00:00Z");
        assert_eq!(Timestamp(u64::MAX).rfc3339(), u64::MAX.to_string());
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let end = Timestamp::from_seconds(u64::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        let epoch = Timestamp::from_seconds(0);
        assert_eq!(epoch - Duration::from_secs(1), epoch);
        assert_eq!(epoch.since(end), Duration::ZERO);
    }

    #[test]
    fn a_moment_lies_ahead_of_a_clock_that_may_be_right_only() {
        let second = Duration::from_secs(1);
        assert!(!(EARLIEST + CLOCK_SLACK).is_ahead_of(EARLIEST));
        assert!((EARLIEST + CLOCK_SLACK + second).is_ahead_of(EARLIEST));
        assert!(!(EARLIEST + CLOCK_SLACK + second).is_ahead_of(EARLIEST - second));
        assert!(!EARLIEST.is_ahead_of(Timestamp(0)));
    }

    #[test]
    fn a_time_ordered_identifier_tells_when_it_was_made_and_others_do_not() {
        assert_eq!(Timestamp::of_id(EARLIEST.first_id()), EARLIEST);
        for id in [
            Uuid::nil(),
            Uuid::max(),
            uuid::Builder::from_random_bytes([255; 16]).into_uuid(),
        ] {
            assert_eq!(Timestamp::of_id(id), Timestamp(0));
        }
    }
}
