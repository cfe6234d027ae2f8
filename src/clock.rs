//! The only reader of time.
//!
//! All other code takes a [`Timestamp`]. A test can thereby move the clock, and a rule is a function of its arguments.

mod shared;
mod standstill;
mod zone;

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

pub use self::shared::SharedClock;
pub use self::standstill::BEAT_INTERVAL;

/// The time when this was written. A correct clock never shows less.
pub const EARLIEST: Timestamp = Timestamp::from_seconds(1_790_000_000);

/// A clock that is further from the time that several nodes share counts as wrong.
pub const LARGEST_DIFFERENCE: Duration = Duration::from_secs(10);

/// How far a stored time may lie ahead of the clock: clocks are corrected.
const CLOCK_SLACK: Duration = Duration::from_hours(1);

/// A time in whole seconds since 1970-01-01T00:00:00Z: the `NumericDate` of RFC 7519 section 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time `seconds` after the epoch.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// Seconds since the epoch.
    pub const fn seconds(self) -> u64 {
        self.0
    }

    /// The time in UTC in the format of RFC 3339, such as `2026-11-21T09:30:00Z`. After the year 9999, the number of
    /// seconds.
    pub fn rfc3339(self) -> String {
        i64::try_from(self.0)
            .ok()
            .and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok())
            .and_then(|moment| moment.format(&Rfc3339).ok())
            .unwrap_or_else(|| self.0.to_string())
    }

    /// The first second of its day in UTC.
    #[must_use]
    pub const fn day(self) -> Self {
        const SECONDS: u64 = 24 * 60 * 60;
        Self(self.0 - self.0 % SECONDS)
    }

    /// Its day in UTC, as in `2026-11-26`.
    pub fn date(self) -> String {
        let text = self.rfc3339();
        text.split_once('T')
            .map_or(text.clone(), |(date, _)| date.to_owned())
    }

    /// To the minute, as in `2026-11-26 09:30 UTC`, if the time zone of the reader is unknown.
    pub fn in_utc(self) -> String {
        let text = self.rfc3339();
        match text.get(..16) {
            Some(minute) => format!("{} UTC", minute.replace('T', " ")),
            None => text,
        }
    }

    /// The smallest time-ordered identifier of this time ([`crate::random::Random::uuid_v7`]).
    pub fn first_id(self) -> Uuid {
        self.id_with(&[0; 10])
    }

    /// The time-ordered identifier of this time with these bytes in place of random ones.
    pub fn id_with(self, rest: &[u8; 10]) -> Uuid {
        uuid::Builder::from_unix_timestamp_millis(self.0.saturating_mul(1000), rest).into_uuid()
    }

    /// The time of a time-ordered identifier; the epoch for any other identifier.
    pub fn of_id(id: Uuid) -> Self {
        Self(id.get_timestamp().map_or(0, |made_at| made_at.to_unix().0))
    }

    /// Whether this time, which the service stored as the present, lies ahead of `now`. The clock was then wrong: ahead
    /// when the time was stored, or behind now.
    ///
    /// If the clock was ahead, a session, sign-in, code or access token of that time would last too long. It counts as
    /// expired, but is not removed: if the clock is behind now, it is valid again once the clock is right. Until then
    /// people sign in again and applications refresh.
    ///
    /// Refresh tokens stay valid: an anonymous user has no other way to sign in, and an application discards a refused
    /// token. The next use gives them the usual lifetime ([`crate::oauth::refresh`]).
    ///
    /// A clock before [`EARLIEST`] is certainly behind, as on a machine without a clock battery before it reaches a time
    /// server. No time counts as ahead of such a clock, so that the service works.
    pub fn is_ahead_of(self, now: Self) -> bool {
        now >= EARLIEST && now + CLOCK_SLACK < self
    }

    /// The time since `earlier`; zero if `earlier` lies ahead, as after the clock was set back.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

/// The hour of a time, counted from the epoch. Expiring markers are stored by hour.
pub fn hour_of(moment: Timestamp) -> u32 {
    u32::try_from(moment.seconds() / 3600).unwrap_or(u32::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates. Fractions of a second are dropped.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_secs()))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the epoch. Fractions of a second are dropped.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration.as_secs()))
    }
}

/// When a request was read.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The time since the epoch when it was read.
    pub read_at: Duration,
    /// The earliest time at which it may have come, if the process stood still before it was read.
    pub earliest: Duration,
}

impl Arrival {
    /// Whether a node stored `stored` as the present after this request may have come. `now` is the present: what lies
    /// further ahead than clocks may differ was stored before the clock was set back, and tells nothing.
    pub fn may_precede(self, stored: Duration, now: Duration) -> bool {
        self.earliest < stored && stored <= now.saturating_add(LARGEST_DIFFERENCE)
    }

    /// The time of the request, for all that is decided by whole seconds.
    pub fn now(self) -> Timestamp {
        Timestamp(self.read_at.as_secs())
    }
}

/// The source of time: the system's clock, or one that a test moves.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's real-time clock.
    System,
    /// The same, corrected to the time that several nodes share.
    Shared(Arc<SharedClock>),
    /// Milliseconds since the epoch. Only [`Clock::advance`] moves this clock.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that shows `start` until it is advanced.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicU64::new(start.seconds().saturating_mul(1000))))
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.since_epoch().as_secs())
    }

    /// The time since the epoch in full precision, for identifiers that sort by time
    /// ([`crate::random::Random::uuid_v7`]).
    pub fn since_epoch(&self) -> Duration {
        match self {
            Self::System => {
                #[expect(clippy::disallowed_methods, reason = "the one reader of system time")]
                let now = std::time::SystemTime::now();
                now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
            }
            Self::Shared(shared) => shared.corrected(Self::System.since_epoch()),
            Self::Manual(millis) => Duration::from_millis(millis.load(Ordering::SeqCst)),
        }
    }

    /// When a request came that has been read just now.
    pub fn arrival(&self) -> Arrival {
        let read_at = self.since_epoch();
        let waited = match self {
            Self::Shared(shared) => shared.standstill.longest_wait(uptime()),
            // No other node has answered while this one stood still.
            Self::System | Self::Manual(_) => Duration::ZERO,
        };
        Arrival {
            read_at,
            earliest: read_at.saturating_sub(waited),
        }
    }

    /// Moves a manual clock forward. Does nothing to the system's clock.
    pub fn advance(&self, by: Duration) {
        if let Self::Manual(millis) = self {
            millis.fetch_add(
                u64::try_from(by.as_millis()).unwrap_or(u64::MAX),
                Ordering::SeqCst,
            );
        }
    }
}

/// The time since the machine started. Setting the clock does not change it. Unlike [`std::time::Instant`], it includes
/// the time in which the machine is suspended.
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
        let evening = Timestamp(86_399);
        assert_eq!(
            (evening.date().as_str(), evening.day()),
            ("1970-01-01", Timestamp(0))
        );
        assert_eq!((evening + Duration::from_secs(1)).date(), "1970-01-02");
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
    fn a_request_precedes_what_was_stored_since_and_not_what_a_clock_ahead_has_stored() {
        let second = Duration::from_secs(1);
        let (read_at, now) = (second * 1000, second * 1060);
        let arrival = Arrival {
            read_at,
            earliest: second * 997,
        };
        for (stored, precedes) in [
            (997, false),
            (998, true),
            (1060, true),
            (1070, true),
            (1071, false),
        ] {
            assert_eq!(arrival.may_precede(second * stored, now), precedes, "{stored}");
        }
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
