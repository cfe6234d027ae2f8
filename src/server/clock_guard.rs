//! Whether the clock can be trusted to say what has expired.
//!
//! A clock that is a day ahead for a while makes everything look expired. Tokens are refused then and work again
//! afterwards. But what housekeeping removes is gone: the keys that tokens are verified with, and the memory that an
//! assertion was used, which could be used again once the clock is right.
//!
//! When the service starts there is no earlier look. Then the clock is held against the newest thing in the store, where
//! it is noted every hour how late it is: a machine without a battery may come up in any year, long before a time
//! server answers.
//!
//! A machine that wakes up is no such case: the timer that the clock is held against ([`crate::clock::uptime`]) has
//! counted the time asleep. Where it has not, as in a virtual machine that was paused, the clock seems to jump.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::flow::clock_watermark::SETTLED;

/// How much further than the machine's own timer the clock may go between two looks.
const TOLERANCE: Duration = Duration::from_mins(5);
/// How long nothing is removed after that. A clock that is still there then was set right, not wrong.
const PAUSE: Duration = SETTLED;
/// How much later than the newest thing in the store it may be at a start. A service that was off for longer is
/// taken for one whose clock is ahead, which costs it a pause.
const LONGEST_GAP: Duration = Duration::from_hours(24);
/// The longest that nothing is removed, however often the clock jumps: a machine that is paused every hour has its
/// housekeeping done all the same.
const LONGEST_PAUSE: Duration = Duration::from_hours(24);

/// What was seen of the clock at the last look.
#[derive(Debug)]
pub(crate) struct ClockGuard {
    looked: Duration,
    told: Timestamp,
    ahead: Option<Ahead>,
}

/// A clock that has jumped ahead of the timer.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    by: Duration,
    /// When it first jumped, by the timer.
    since: Duration,
    /// When it last jumped.
    jumped: Duration,
}

impl ClockGuard {
    /// The clock as it is when the process starts, and the newest moment that the store knows of
    /// ([`crate::flow::clock_watermark`]).
    pub(crate) fn new(now: Timestamp, timer: Duration, known: Option<Timestamp>) -> Self {
        let by = known.and_then(|known| is_far_ahead(now, known));
        if let Some(by) = by {
            tracing::warn!(
                seconds = by.as_secs(),
                "the clock is more than a day ahead of all that is in the database: unless the service was off for so long, set it right; nothing that looks expired is removed for an hour"
            );
        }
        Self {
            looked: timer,
            told: now,
            ahead: by.map(|by| Ahead {
                by,
                since: timer,
                jumped: timer,
            }),
        }
    }

    /// Looks at the clock again: whether it may be believed. The timer only goes forward, by true seconds.
    pub(crate) fn is_believed(&mut self, now: Timestamp, timer: Duration) -> bool {
        let expected = self.told + timer.saturating_sub(self.looked);
        if now > expected + TOLERANCE {
            tracing::warn!(
                seconds = now.since(expected).as_secs(),
                "the clock has jumped ahead: nothing that looks expired is removed for an hour"
            );
            let before = self.ahead.unwrap_or(Ahead {
                by: Duration::ZERO,
                since: timer,
                jumped: timer,
            });
            self.ahead = Some(Ahead {
                by: before.by + now.since(expected),
                jumped: timer,
                ..before
            });
        } else if let Some(ahead) = self.ahead {
            // Back again: what is expired now was so before.
            let by = ahead.by.saturating_sub(expected.since(now));
            self.ahead = (by > TOLERANCE).then_some(Ahead { by, ..ahead });
        }
        (self.looked, self.told) = (timer, now);
        self.ahead = self.ahead.filter(|ahead| {
            timer.saturating_sub(ahead.jumped) < PAUSE && timer.saturating_sub(ahead.since) < LONGEST_PAUSE
        });
        self.ahead.is_none()
    }
}

/// By how much the clock is ahead of what the store knows of, where that is too much to be believed at a start.
pub(crate) fn is_far_ahead(now: Timestamp, known: Timestamp) -> Option<Duration> {
    Some(now.since(known)).filter(|by| *by > LONGEST_GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);
    const MINUTE: Duration = Duration::from_mins(1);
    const NOON: Timestamp = Timestamp::from_seconds(1_000_000);

    #[test]
    fn a_clock_that_goes_with_the_timer_is_believed() {
        let start = DAY * 30;
        let mut steady = ClockGuard::new(NOON, start, None);
        for minutes in 1..200 {
            let passed = MINUTE * minutes;
            assert!(steady.is_believed(NOON + passed, start + passed));
        }
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_not_believed_until_it_is_back_or_an_hour_has_passed() {
        let start = DAY * 30;
        let mut steady = ClockGuard::new(NOON, start, None);
        assert!(!steady.is_believed(NOON + DAY, start + MINUTE));
        assert!(!steady.is_believed(NOON + DAY + MINUTE, start + 2 * MINUTE));
        assert!(steady.is_believed(NOON + 3 * MINUTE, start + 3 * MINUTE));
        assert!(!steady.is_believed(NOON + DAY, start + 4 * MINUTE));
        assert!(!steady.is_believed(NOON + DAY + 59 * MINUTE, start + 63 * MINUTE));
        assert!(steady.is_believed(NOON + DAY + 60 * MINUTE, start + 64 * MINUTE));
    }

    #[test]
    fn a_machine_that_sleeps_every_hour_is_believed_and_a_jump_in_between_is_not() {
        let start = DAY * 30;
        let mut steady = ClockGuard::new(NOON, start, None);
        let mut passed = Duration::ZERO;
        for _ in 0..48 {
            // The timer has counted the time asleep.
            for step in [MINUTE, MINUTE, 58 * MINUTE] {
                passed += step;
                assert!(steady.is_believed(NOON + passed, start + passed));
            }
        }
        passed += MINUTE;
        assert!(!steady.is_believed(NOON + passed + DAY, start + passed));
        // Nor is it while the machine sleeps less than the hour.
        passed += 50 * MINUTE;
        assert!(!steady.is_believed(NOON + passed + DAY, start + passed));
        passed += 10 * MINUTE;
        assert!(steady.is_believed(NOON + passed + DAY, start + passed));
    }

    #[test]
    fn a_clock_that_jumps_every_half_hour_is_believed_once_a_day() {
        let start = DAY * 30;
        let mut steady = ClockGuard::new(NOON, start, None);
        let mut believed = 0;
        for rounds in 1..=2 * 24 * 5_u32 {
            let passed = 30 * MINUTE * rounds;
            believed += u32::from(steady.is_believed(NOON + passed * 2, start + passed));
        }
        assert_eq!(believed, 4);
    }

    #[test]
    fn a_clock_that_comes_back_in_part_is_still_ahead() {
        let start = DAY * 30;
        let mut steady = ClockGuard::new(NOON, start, None);
        assert!(!steady.is_believed(NOON + DAY, start + MINUTE));
        assert!(!steady.is_believed(NOON + DAY - 9 * MINUTE, start + 2 * MINUTE));
        assert!(steady.is_believed(NOON + 3 * MINUTE, start + 3 * MINUTE));
    }

    #[test]
    fn a_clock_that_jumps_back_is_believed() {
        let start = DAY * 30;
        let mut steady = ClockGuard::new(NOON, start, None);
        assert!(steady.is_believed(NOON - DAY, start + MINUTE));
        assert!(
            !steady.is_believed(NOON, start + 2 * MINUTE),
            "it is ahead of what it was"
        );
    }

    #[test]
    fn a_clock_that_is_far_ahead_at_the_start_is_not_believed_until_it_is_back_or_an_hour_has_passed() {
        let ahead = NOON + 365 * 73 * DAY;
        let mut steady = ClockGuard::new(ahead, MINUTE, Some(NOON));
        assert!(!steady.is_believed(ahead, MINUTE));
        assert!(!steady.is_believed(ahead + 59 * MINUTE, 60 * MINUTE));
        assert!(steady.is_believed(ahead + 60 * MINUTE, 61 * MINUTE));
        // Set right by a time server. A week in which the machine was off looks like a clock that is still ahead.
        for (off, is_believed) in [(MINUTE, true), (7 * DAY, false)] {
            let mut steady = ClockGuard::new(ahead, MINUTE, Some(NOON));
            assert!(!steady.is_believed(ahead + MINUTE, 2 * MINUTE));
            assert_eq!(steady.is_believed(NOON + off, 3 * MINUTE), is_believed);
            assert!(steady.is_believed(NOON + off + 58 * MINUTE, 61 * MINUTE));
        }
    }

    #[test]
    fn a_clock_that_is_near_what_is_known_or_behind_it_is_believed_at_the_start() {
        for now in [NOON, NOON + DAY, NOON - DAY] {
            assert!(ClockGuard::new(now, MINUTE, Some(NOON)).is_believed(now, MINUTE));
        }
    }
}
