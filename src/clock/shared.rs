//! The clock of a node among several that share a database.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::standstill::Standstill;
use super::uptime;

/// What a node knows of the time that it shares with the others, beside its own clock.
#[derive(Debug, Default)]
pub struct SharedClock {
    /// How many milliseconds the shared time is ahead of the clock of this machine.
    correction: AtomicI64,
    pub(super) standstill: Standstill,
}

impl SharedClock {
    /// Corrects the clock of this machine by so many milliseconds from now on.
    pub fn correct(&self, millis: i64) {
        self.correction.store(millis, Ordering::Relaxed);
    }

    /// Notes that the process runs. To be called every [`super::BEAT_INTERVAL`].
    pub fn beat(&self) {
        self.standstill.beat(uptime());
    }

    pub(super) fn corrected(&self, own: Duration) -> Duration {
        let correction = self.correction.load(Ordering::Relaxed);
        let amount = Duration::from_millis(correction.unsigned_abs());
        if correction < 0 {
            own.saturating_sub(amount)
        } else {
            own.saturating_add(amount)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_time_is_ahead_of_the_own_clock_or_behind() {
        let (shared, own) = (SharedClock::default(), Duration::from_secs(100));
        assert_eq!(shared.corrected(own), own);
        shared.correct(1500);
        assert_eq!(shared.corrected(own), Duration::from_millis(101_500));
        shared.correct(-1500);
        assert_eq!(shared.corrected(own), Duration::from_millis(98_500));
    }
}
