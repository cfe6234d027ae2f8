//! Whether the clock can be trusted to say what has expired.
//!
//! A clock that is a day ahead for a while makes everything look expired. Tokens are refused then and work again
//! afterwards. But what housekeeping removes is gone: the keys that tokens are verified with, and the memory that an
//! assertion was used. So after a jump ahead nothing is removed for an hour, or until the clock is back.
//!
//! The clock is compared with the machine's own timer ([`crate::clock::uptime`]), which counts the time asleep. At a start
//! it is compared with the [watermark](crate::flow::clock_watermark): a machine without a battery may come up in any year,
//! long before a time server answers.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::flow::clock_watermark::SETTLED;

/// How much further than the timer the clock may go between two looks.
const TOLERANCE: Duration = Duration::from_mins(5);
/// How much later than the watermark it may be at a start. A service that was off for longer pauses in vain.
const LONGEST_GAP: Duration = Duration::from_hours(24);
/// How long nothing is removed after a jump. A clock that is still there then was set right, not wrong.
const PAUSE: Duration = SETTLED;
/// The longest that nothing is removed, however often the clock jumps, as on a machine that is paused every hour.
const LONGEST_PAUSE: Duration = Duration::from_hours(24);

/// Compares the clock with the timer, look by look.
#[derive(Debug)]
pub(crate) struct ClockGuard {
    last: Reading,
    /// The last that was believed.
    trusted: Reading,
    /// When the clock last jumped ahead, by the timer.
    jumped: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    clock: Timestamp,
    timer: Duration,
}

impl Reading {
    /// By how much the clock is ahead of where it should be by an earlier reading.
    fn ahead_of(self, earlier: Self) -> Duration {
        let expected = earlier.clock + self.timer.saturating_sub(earlier.timer);
        self.clock.since(expected)
    }
}

impl ClockGuard {
    /// The clock and the timer as the process starts.
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
            jumped: timer,
        }
    }

    /// Looks at the clock again: whether it may be believed. The timer only goes forward, by true seconds.
    pub(crate) fn is_believed(&mut self, clock: Timestamp, timer: Duration) -> bool {
        let reading = Reading { clock, timer };
        let jump = reading.ahead_of(self.last);
        if jump > TOLERANCE {
            tracing::warn!(
                seconds = jump.as_secs(),
                "the clock has jumped ahead: nothing that looks expired is removed for an hour"
            );
            self.jumped = timer;
        }
        self.last = reading;
        let is_over = timer.saturating_sub(self.jumped) >= PAUSE
            || timer.saturating_sub(self.trusted.timer) >= LONGEST_PAUSE;
        let is_believed = is_over || reading.ahead_of(self.trusted) <= TOLERANCE;
        if is_believed {
            self.trusted = reading;
        }
        is_believed
    }
}

/// Whether the clock is too far ahead of the watermark to be believed at a start.
pub(crate) fn is_far_ahead(clock: Timestamp, watermark: Timestamp) -> bool {
    clock.since(watermark) > LONGEST_GAP
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

    /// Whether the clock is believed at each look: minutes of the timer, and minutes that the clock is ahead of it.
    fn believed(guard: &mut ClockGuard, looks: &[(u32, u32)]) -> Vec<bool> {
        let look =
            |(timer, ahead): &(u32, u32)| guard.is_believed(NOON + minutes(timer + ahead), minutes(*timer));
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_not_believed_until_it_is_back_or_an_hour_has_passed() {
        let mut guard = ClockGuard::new(NOON, Duration::ZERO, None);
        assert_eq!(believed(&mut guard, &[(1, 0), (60, 5), (61, 0)]), [true; 3]);
        let back = [(62, DAY), (63, DAY - 9), (64, 3)];
        assert_eq!(believed(&mut guard, &back), [false, false, true]);
        let ahead = [(65, DAY), (124, DAY), (125, DAY), (126, 0), (127, 6)];
        assert_eq!(believed(&mut guard, &ahead), [false, false, true, true, false]);
    }

    #[test]
    fn a_clock_that_jumps_every_half_hour_is_believed_once_a_day() {
        let mut guard = ClockGuard::new(NOON, Duration::ZERO, None);
        let looks: Vec<_> = (1..=2 * 24 * 5).map(|round| (round * 30, round * 30)).collect();
        let times = believed(&mut guard, &looks)
            .into_iter()
            .filter(|is_believed| *is_believed);
        assert_eq!(times.count(), 5);
    }

    #[test]
    fn a_clock_far_ahead_of_the_watermark_is_not_believed_at_the_start() {
        let start = |ahead| ClockGuard::new(NOON + minutes(ahead), Duration::ZERO, Some(NOON));
        let year = 365 * DAY;
        let stays = [(0, year), (59, year), (60, year)];
        assert_eq!(believed(&mut start(year), &stays), [false, false, true]);
        // Set right by a time server. A week in which the machine was off looks like a clock that is still ahead.
        assert_eq!(believed(&mut start(year), &[(1, 0)]), [true]);
        assert_eq!(believed(&mut start(year), &[(1, 7 * DAY)]), [false]);
        assert_eq!(believed(&mut start(DAY), &[(0, DAY)]), [true]);
        assert!(
            ClockGuard::new(NOON - minutes(DAY), Duration::ZERO, Some(NOON))
                .is_believed(NOON - minutes(DAY), Duration::ZERO)
        );
    }
}
