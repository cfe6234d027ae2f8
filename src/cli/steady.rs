//! Whether the clock can be trusted to say what has expired.
//!
//! A clock that is a day ahead for a while makes everything look expired. Tokens are refused then and work again
//! afterwards. But what housekeeping removes is gone: the keys that tokens are verified with, and the memory that an
//! assertion was used, which could be used again once the clock is right.
//!
//! A machine that wakes up is no such case: the timer that the clock is held against ([`crate::clock::uptime`]) has
//! counted the time asleep. Where it has not, as in a virtual machine that was paused, the clock seems to jump.

use std::time::Duration;

use crate::clock::Timestamp;

/// How much further than the machine's own timer the clock may go between two looks.
const TOLERANCE: Duration = Duration::from_mins(5);
/// How long nothing is removed after that. A clock that is still there then was set right, not wrong.
const PAUSE: Duration = Duration::from_hours(1);
/// The longest that nothing is removed, however often the clock jumps: a machine that is paused every hour has its
/// housekeeping done all the same.
const LONGEST_PAUSE: Duration = Duration::from_hours(24);

/// What was seen of the clock at the last look.
#[derive(Debug)]
pub(super) struct Steady {
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

impl Steady {
    /// The clock as it is when the process starts is believed.
    pub(super) fn new(now: Timestamp, timer: Duration) -> Self {
        Self {
            looked: timer,
            told: now,
            ahead: None,
        }
    }

    /// Looks at the clock again: whether it may be believed. The timer only goes forward, by true seconds.
    pub(super) fn is_believed(&mut self, now: Timestamp, timer: Duration) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);
    const MINUTE: Duration = Duration::from_mins(1);
    const NOON: Timestamp = Timestamp::from_seconds(1_000_000);

    #[test]
    fn a_clock_that_goes_with_the_timer_is_believed() {
        let start = DAY * 30;
        let mut steady = Steady::new(NOON, start);
        for minutes in 1..200 {
            let passed = MINUTE * minutes;
            assert!(steady.is_believed(NOON + passed, start + passed));
        }
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_not_believed_until_it_is_back_or_an_hour_has_passed() {
        let start = DAY * 30;
        let mut steady = Steady::new(NOON, start);
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
        let mut steady = Steady::new(NOON, start);
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
        let mut steady = Steady::new(NOON, start);
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
        let mut steady = Steady::new(NOON, start);
        assert!(!steady.is_believed(NOON + DAY, start + MINUTE));
        assert!(!steady.is_believed(NOON + DAY - 9 * MINUTE, start + 2 * MINUTE));
        assert!(steady.is_believed(NOON + 3 * MINUTE, start + 3 * MINUTE));
    }

    #[test]
    fn a_clock_that_jumps_back_is_believed() {
        let start = DAY * 30;
        let mut steady = Steady::new(NOON, start);
        assert!(steady.is_believed(NOON - DAY, start + MINUTE));
        assert!(
            !steady.is_believed(NOON, start + 2 * MINUTE),
            "it is ahead of what it was"
        );
    }
}
