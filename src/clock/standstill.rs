//! Notices that this process stood still, as in a virtual machine that was paused.
//!
//! A request that comes while it stands still waits in its socket. It is read when the process goes on, and nothing tells when it came.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A process whose [`Standstill::beat`] is called this often is not overloaded.
pub const BEAT_INTERVAL: Duration = Duration::from_millis(100);
/// After a longer pause between two beats, the process stood still.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long after a standstill requests are read that came during it.
const BACKLOG_TIME: Duration = Duration::from_secs(2);

/// The last beats, by the timer of the machine ([`crate::clock::uptime`]).
#[derive(Debug, Default)]
pub(super) struct Standstill(Mutex<Option<Beats>>);

#[derive(Clone, Copy, Debug)]
struct Beats {
    last: Duration,
    /// When the last standstill began and ended.
    stood: Option<(Duration, Duration)>,
}

impl Beats {
    /// The same beats and one more.
    fn then(self, now: Duration) -> Self {
        let stood = match self.stood {
            _ if now.saturating_sub(self.last) < LONGEST_PAUSE => self.stood,
            // What came during the one before may still be unread.
            Some((from, until)) if self.last < until + BACKLOG_TIME => Some((from, now)),
            _ => Some((self.last, now)),
        };
        Self { last: now, stood }
    }
}

impl Standstill {
    /// Notes that the process runs.
    pub(super) fn beat(&self, now: Duration) {
        let mut beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = Beats {
            last: now,
            stood: None,
        };
        *beats = Some(beats.map_or(first, |beats| beats.then(now)));
    }

    /// How long what is read now may have waited because the process stood still. Without beats that is not known.
    pub(super) fn longest_wait(&self, now: Duration) -> Duration {
        let beats = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The process may have gone on with this, before the next beat.
        let stood = beats.and_then(|beats| beats.then(now).stood);
        match stood {
            Some((from, until)) if now < until + BACKLOG_TIME => now.saturating_sub(from),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn beating(beats: &[u64]) -> Standstill {
        let standstill = Standstill::default();
        for beat in beats {
            standstill.beat(ms(*beat));
        }
        standstill
    }

    #[test]
    fn what_is_read_just_after_a_standstill_may_have_come_when_it_began() {
        let steady = beating(&[1000, 1100, 1500]);
        assert_eq!(steady.longest_wait(ms(1999)), ms(0));
        // No beat has ended this one yet.
        assert_eq!(steady.longest_wait(ms(4000)), ms(2500));
        let stood = beating(&[1500, 4000, 4400, 4800, 5200, 5600]);
        assert_eq!(stood.longest_wait(ms(5600)), ms(4100));
        assert_eq!(stood.longest_wait(ms(5999)), ms(4499));
        assert_eq!(stood.longest_wait(ms(6000)), ms(0));
    }

    #[test]
    fn two_standstills_in_a_row_are_one() {
        let twice = beating(&[1000, 4000, 4100, 7000]);
        assert_eq!(twice.longest_wait(ms(7000)), ms(6000));
        for beat in [7400, 7800, 8200, 8600] {
            twice.beat(ms(beat));
        }
        assert_eq!(twice.longest_wait(ms(9000)), ms(0));
    }

    #[test]
    fn a_process_without_beats_tells_nothing() {
        assert_eq!(Standstill::default().longest_wait(ms(9000)), ms(0));
    }
}
