//! Decides whether the clock can be trusted to say what has expired.
//!
//! A clock that is a day ahead for a while makes everything look expired. Tokens are refused then and work again
//! afterwards. But housekeeping removes records for good: the keys that verify tokens, and the memory of used
//! assertions. So after a jump ahead nothing is removed for an hour, or until the clock is back.
//!
//! The clock is compared with the timer of the machine ([`crate::clock::uptime`]), which counts the time asleep. At a
//! start it is compared with the [watermark](crate::flow::clock_watermark): a machine without a battery may start in
//! any year, long before a time server answers.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::flow::clock_watermark::SETTLED;

/// How far the clock may get ahead of the timer between two checks.
const TOLERANCE: Duration = Duration::from_mins(5);
/// How far the clock may be ahead of the watermark at a start. After a longer stop the pause is unneeded, but harmless.
const MAX_GAP: Duration = Duration::from_hours(24);
/// How long nothing is removed after a jump. A clock that stays ahead for so long was corrected by the jump.
const PAUSE: Duration = SETTLED;
/// The longest time without removals if the clock jumps again and again, as on a machine that is paused every hour.
const MAX_PAUSE: Duration = Duration::from_hours(24);

/// Compares the clock with the timer at each check.
#[derive(Debug)]
pub(crate) struct ClockGuard {
    last: Reading,
    /// The last reading that was trusted.
    trusted: Reading,
    /// The timer when the clock last jumped ahead.
    jumped_at: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    clock: Timestamp,
    timer: Duration,
}

impl Reading {
    /// How far the clock is ahead of the time that an earlier reading and the timer give.
    fn ahead_of(self, earlier: Self) -> Duration {
        let expected = earlier.clock + self.timer.saturating_sub(earlier.timer);
        self.clock.since(expected)
    }
}

impl ClockGuard {
    /// Starts with the clock and the timer at the start of the process.
    pub(crate) fn new(clock: Timestamp, timer: Duration, watermark: Option<Timestamp>) -> Self {
        let last = Reading { clock, timer };
        let far_behind = watermark.filter(|watermark| is_far_ahead(clock, *watermark));
        if let Some(watermark) = far_behind {
            tracing::warn!(
                seconds = clock.since(watermark).as_secs(),
                "the clock is more than a day ahead of all that is in the database: unless the service was off for so long, set it right; nothing that looks expired is removed for an hour"
            );
        }
        let trusted = Reading {
            clock: far_behind.unwrap_or(clock),
            timer,
        };
        Self {
            last,
            trusted,
            jumped_at: timer,
        }
    }

    /// Checks the clock again, and says whether it is trusted. The timer only goes forward, in true seconds.
    pub(crate) fn is_trusted(&mut self, clock: Timestamp, timer: Duration) -> bool {
        let reading = Reading { clock, timer };
        let jump = reading.ahead_of(self.last);
        if jump > TOLERANCE {
            tracing::warn!(
                seconds = jump.as_secs(),
                "the clock has jumped ahead: nothing that looks expired is removed for an hour"
            );
            self.jumped_at = timer;
        }
        self.last = reading;
        let is_over = timer.saturating_sub(self.jumped_at) >= PAUSE
            || timer.saturating_sub(self.trusted.timer) >= MAX_PAUSE;
        let is_trusted = is_over || reading.ahead_of(self.trusted) <= TOLERANCE;
        if is_trusted {
            self.trusted = reading;
        }
        is_trusted
    }
}

/// Whether the clock is too far ahead of the watermark to be trusted at a start.
pub(crate) fn is_far_ahead(clock: Timestamp, watermark: Timestamp) -> bool {
    clock.since(watermark) > MAX_GAP
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::from_seconds(1_000_000);
    const HOUR: u32 = 60;
    const DAY: u32 = 24 * HOUR;

    fn minutes(minutes: u32) -> Duration {
        Duration::from_mins(minutes.into())
    }

    /// Whether the clock is trusted at each check: minutes of the timer, and minutes that the clock is ahead of it.
    fn trusted(guard: &mut ClockGuard, checks: &[(u32, u32)]) -> Vec<bool> {
        let check =
            |(timer, ahead): &(u32, u32)| guard.is_trusted(NOON + minutes(timer + ahead), minutes(*timer));
        checks.iter().map(check).collect()
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_not_trusted_until_it_is_back_or_an_hour_has_passed() {
        let mut guard = ClockGuard::new(NOON, Duration::ZERO, None);
        assert_eq!(trusted(&mut guard, &[(1, 0), (60, 5), (61, 0)]), [true; 3]);
        let back = [(62, DAY), (63, DAY - 9), (64, 3)];
        assert_eq!(trusted(&mut guard, &back), [false, false, true]);
        let ahead = [(65, DAY), (124, DAY), (125, DAY), (126, 0), (127, 6)];
        assert_eq!(trusted(&mut guard, &ahead), [false, false, true, true, false]);
    }

    #[test]
    fn a_clock_that_jumps_every_half_hour_is_trusted_once_a_day() {
        let mut guard = ClockGuard::new(NOON, Duration::ZERO, None);
        let checks: Vec<_> = (1..=2 * 24 * 5).map(|round| (round * 30, round * 30)).collect();
        let times = trusted(&mut guard, &checks)
            .into_iter()
            .filter(|is_trusted| *is_trusted);
        assert_eq!(times.count(), 5);
    }

    #[test]
    fn a_clock_far_ahead_of_the_watermark_is_not_trusted_at_the_start() {
        let start = |ahead| ClockGuard::new(NOON + minutes(ahead), Duration::ZERO, Some(NOON));
        let year = 365 * DAY;
        let stays = [(0, year), (59, year), (60, year)];
        assert_eq!(trusted(&mut start(year), &stays), [false, false, true]);
        // A time server corrects the clock. A week in which the machine was off looks like a clock that is still ahead.
        assert_eq!(trusted(&mut start(year), &[(1, 0)]), [true]);
        assert_eq!(trusted(&mut start(year), &[(1, 7 * DAY)]), [false]);
        assert_eq!(trusted(&mut start(DAY), &[(0, DAY)]), [true]);
        assert!(
            ClockGuard::new(NOON - minutes(DAY), Duration::ZERO, Some(NOON))
                .is_trusted(NOON - minutes(DAY), Duration::ZERO)
        );
    }
}
