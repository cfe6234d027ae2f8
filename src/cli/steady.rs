//! Whether the clock can be trusted to say what has expired.
//!
//! A clock that is a day ahead for a while makes everything look expired. Tokens are refused then and work again
//! afterwards. But what housekeeping removes is gone: the keys that tokens are verified with, and the memory that an
//! assertion was used, which could be used again once the clock is right.

use std::time::{Duration, Instant};

use crate::clock::Timestamp;

/// How much further than the machine's own timer the clock may go between two looks.
const TOLERANCE: Duration = Duration::from_mins(5);
/// How long nothing is removed after that. A clock that is still there then was set right, not wrong.
const PAUSE: Duration = Duration::from_hours(1);

/// What was seen of the clock at the last look.
#[derive(Debug)]
pub(super) struct Steady {
    looked: Instant,
    told: Timestamp,
    /// How far it is ahead of the timer, and since when.
    ahead: Option<(Duration, Instant)>,
}

impl Steady {
    /// The clock as it is when the process starts is believed.
    pub(super) fn new(now: Timestamp, timer: Instant) -> Self {
        Self {
            looked: timer,
            told: now,
            ahead: None,
        }
    }

    /// Looks at the clock again: whether it may be believed. The timer only goes forward, by true seconds.
    pub(super) fn is_believed(&mut self, now: Timestamp, timer: Instant) -> bool {
        let expected = self.told + timer.saturating_duration_since(self.looked);
        if now > expected + TOLERANCE {
            tracing::warn!(
                seconds = now.since(expected).as_secs(),
                "the clock has jumped ahead: nothing that looks expired is removed for an hour"
            );
            let before = self.ahead.map_or(Duration::ZERO, |(ahead, _)| ahead);
            self.ahead = Some((before + now.since(expected), timer));
        } else if let Some((ahead, since)) = self.ahead {
            // Back again: what is expired now was so before.
            let left = ahead.saturating_sub(expected.since(now));
            self.ahead = (left > TOLERANCE).then_some((left, since));
        }
        (self.looked, self.told) = (timer, now);
        match self.ahead {
            Some((_, since)) if timer.saturating_duration_since(since) < PAUSE => false,
            _ => {
                self.ahead = None;
                true
            }
        }
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
        let start = Instant::now();
        let mut steady = Steady::new(NOON, start);
        for minutes in 1..200 {
            let passed = MINUTE * minutes;
            assert!(steady.is_believed(NOON + passed, start + passed));
        }
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_not_believed_until_it_is_back_or_an_hour_has_passed() {
        let start = Instant::now();
        let mut steady = Steady::new(NOON, start);
        assert!(!steady.is_believed(NOON + DAY, start + MINUTE));
        assert!(!steady.is_believed(NOON + DAY + MINUTE, start + 2 * MINUTE));
        assert!(steady.is_believed(NOON + 3 * MINUTE, start + 3 * MINUTE));
        assert!(!steady.is_believed(NOON + DAY, start + 4 * MINUTE));
        assert!(!steady.is_believed(NOON + DAY + 59 * MINUTE, start + 63 * MINUTE));
        assert!(steady.is_believed(NOON + DAY + 60 * MINUTE, start + 64 * MINUTE));
    }

    #[test]
    fn a_clock_that_comes_back_in_part_is_still_ahead() {
        let start = Instant::now();
        let mut steady = Steady::new(NOON, start);
        assert!(!steady.is_believed(NOON + DAY, start + MINUTE));
        assert!(!steady.is_believed(NOON + DAY - 9 * MINUTE, start + 2 * MINUTE));
        assert!(steady.is_believed(NOON + 3 * MINUTE, start + 3 * MINUTE));
    }

    #[test]
    fn a_clock_that_jumps_back_is_believed() {
        let start = Instant::now();
        let mut steady = Steady::new(NOON, start);
        assert!(steady.is_believed(NOON - DAY, start + MINUTE));
        assert!(
            !steady.is_believed(NOON, start + 2 * MINUTE),
            "it is ahead of what it was"
        );
    }
}
