//! When to order, when to ask, when to rest: functions of what is kept and of the moment.

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::net::validity::Validity;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The wait after the first failure. It doubles with each further one: five attempts fit into an hour, which is as
/// often as authorities let a challenge fail.
const FIRST_WAIT: u64 = 2 * MINUTE;
/// The longest wait after a failure, unless the authority asks for more.
const LONGEST_WAIT: u64 = 12 * HOUR;
/// No moment that was chosen lies farther ahead; one that does comes of a clock that was wrong.
const FARTHEST: u64 = 2 * DAY;
/// The least time between two certificates, however short they live.
const LEAST_BETWEEN: u64 = 10 * MINUTE;
/// How long an answer about renewal is good (RFC 9773 section 4.3.2).
const ASK_WITHIN: std::ops::RangeInclusive<u64> = MINUTE..=DAY;
/// When the authority is asked again after it gave no answer.
const ASK_AFTER_SILENCE: u64 = 6 * HOUR;

/// What is remembered of the orders so far, across restarts. All moments are seconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// What is ordered where: [`super::Plan::line`]. What is remembered counts for nothing with another one.
    pub order: String,
    /// Attempts since the last certificate; counted before they are made.
    pub failures: u32,
    /// Why the latest attempt failed.
    pub failure: Option<Failure>,
    /// When it failed.
    pub failed_at: u64,
    /// The earliest moment of the next attempt.
    pub not_before: u64,
    /// Which certificate the rest is about.
    pub certificate: String,
    /// When it is renewed.
    pub renew_at: u64,
    /// The authority's window for the renewal, from and to.
    pub window: Option<(u64, u64)>,
    /// When the authority is asked for the window again.
    pub ask_at: u64,
}

/// The certificate in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What tells it from others.
    pub name: String,
    /// When it is valid.
    pub validity: Validity,
    /// Whether it is what the plan asks for.
    pub is_as_planned: bool,
}

/// Why a certificate is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is none that can be used.
    Missing,
    /// The domains or the authority were changed.
    Changed,
    /// The one in place is due.
    Due,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Order a certificate.
    Order(Reason),
    /// Ask the authority when to renew.
    Ask,
    /// A certificate is wanted, and the order has to wait until this moment.
    Wait(u64),
    /// Nothing, until this moment.
    Rest(u64),
}

impl Progress {
    /// What is remembered, as far as it is about this order and this certificate. `dice` is random.
    #[must_use]
    pub fn about(self, order: &str, held: Option<&Held>, dice: u64) -> Self {
        let mut this = if self.order == order {
            self
        } else {
            Self {
                order: order.to_owned(),
                ..Self::default()
            }
        };
        if let Some(held) = held
            && this.certificate != held.name
        {
            // A certificate came without this being told, as when the process ended in between.
            let not_before = this.not_before;
            this = this.with(held, 0, dice);
            this.not_before = not_before;
        }
        this
    }

    /// What to do at `now`.
    pub fn step(&self, held: Option<&Held>, now: u64) -> Step {
        let reason = match held {
            None => Some(Reason::Missing),
            Some(held) if !held.is_as_planned => Some(Reason::Changed),
            Some(_) => (now >= self.renew_at).then_some(Reason::Due),
        };
        match reason {
            Some(_) if is_ahead(self.not_before, now) => Step::Wait(self.not_before),
            Some(reason) => Step::Order(reason),
            None if is_ahead(self.ask_at, now) => Step::Rest(self.ask_at.min(self.renew_at)),
            None => Step::Ask,
        }
    }

    /// What is remembered before an attempt, as if it failed: so that a process that is killed in the middle, again
    /// and again, does not ask again and again.
    #[must_use]
    pub fn attempting(mut self, now: u64, dice: u64) -> Self {
        let doubled = FIRST_WAIT.checked_shl(self.failures).unwrap_or(LONGEST_WAIT);
        let wait = if self.failures > 16 {
            LONGEST_WAIT
        } else {
            doubled.min(LONGEST_WAIT)
        };
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.saturating_add(wait).saturating_add(dice % (wait / 8));
        self
    }

    /// After an attempt that failed.
    #[must_use]
    pub fn failed(mut self, failure: Failure, now: u64) -> Self {
        self.not_before = self.not_before.max(now.saturating_add(failure.wait));
        self.failed_at = now;
        self.failure = Some(failure);
        self
    }

    /// After an attempt that brought this certificate. One that is due already, as when the clock is wrong, counts
    /// with the failures, or else the next would be ordered before long, and the next.
    #[must_use]
    pub fn with(self, held: &Held, now: u64, dice: u64) -> Self {
        let renew_at = renewal(held.validity, None, dice);
        let is_due = renew_at <= now;
        let not_before = now.saturating_add(LEAST_BETWEEN);
        Self {
            order: self.order,
            failures: if is_due { self.failures } else { 0 },
            not_before: if is_due {
                not_before.max(self.not_before)
            } else {
                not_before
            },
            certificate: held.name.clone(),
            renew_at,
            ..Self::default()
        }
    }

    /// After the authority was asked: its window, and for how many seconds it stands; none when it has none.
    #[must_use]
    pub fn told(mut self, answer: Option<((u64, u64), u64)>, held: &Held, now: u64, dice: u64) -> Self {
        let Some((window, lasts)) = answer else {
            self.ask_at = now.saturating_add(ASK_AFTER_SILENCE);
            return self;
        };
        if self.window != Some(window) {
            self.window = Some(window);
            self.renew_at = renewal(held.validity, self.window, dice);
        }
        self.ask_at = now.saturating_add(lasts.clamp(*ASK_WITHIN.start(), *ASK_WITHIN.end()));
        self
    }
}

/// Whether a moment that was chosen is still to come.
fn is_ahead(moment: u64, now: u64) -> bool {
    moment > now && moment - now <= FARTHEST
}

/// A moment in the authority's window (RFC 9773 section 4.2), or soon after two thirds of the certificate's life; in
/// any case before its last tenth.
fn renewal(validity: Validity, window: Option<(u64, u64)>, dice: u64) -> u64 {
    let life = validity.not_after.saturating_sub(validity.not_before);
    let (from, to) = match window {
        Some((from, to)) if from < to => (from, to),
        _ => {
            let due = validity.not_before.saturating_add(life / 3 * 2);
            (due, due.saturating_add(life / 30))
        }
    };
    let chosen = from.saturating_add(dice % (to - from).max(1));
    chosen.min(validity.not_after.saturating_sub(life / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const ORDER: &str = "ACME certificate of a for b";

    fn held(days: u64) -> Held {
        Held {
            name: format!("{days} days"),
            validity: Validity {
                not_before: NOW,
                not_after: NOW + days * DAY,
            },
            is_as_planned: true,
        }
    }

    fn fresh() -> Progress {
        Progress::default().about(ORDER, None, 0)
    }

    fn failure(wait: u64) -> Failure {
        Failure {
            wait,
            ..Failure::new("no", "try")
        }
    }

    #[test]
    fn what_is_missing_or_changed_is_ordered_at_once() {
        assert_eq!(fresh().step(None, NOW), Step::Order(Reason::Missing));
        let changed = Held {
            is_as_planned: false,
            ..held(90)
        };
        let progress = Progress::default().about(ORDER, Some(&changed), 0);
        assert_eq!(progress.step(Some(&changed), NOW), Step::Order(Reason::Changed));
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life_at_no_common_moment() {
        let held = held(90);
        for dice in [0, 7, u64::MAX] {
            let progress = fresh().with(&held, NOW, dice).told(None, &held, NOW, dice);
            let due = progress.renew_at;
            assert!((NOW + 60 * DAY..NOW + 63 * DAY).contains(&due), "{dice}");
            let asked = Progress {
                ask_at: due + 1,
                ..progress
            };
            assert_eq!(asked.step(Some(&held), due - 1), Step::Rest(due));
            assert_eq!(asked.step(Some(&held), due), Step::Order(Reason::Due));
        }
    }

    #[test]
    fn the_authoritys_window_counts_and_a_moment_is_chosen_once_in_it() {
        let held = held(90);
        let window = (NOW + 30 * DAY, NOW + 31 * DAY);
        let told = fresh()
            .with(&held, NOW, 1)
            .told(Some((window, 6 * HOUR)), &held, NOW, 5 * HOUR);
        assert_eq!(told.renew_at, window.0 + 5 * HOUR);
        assert_eq!(told.step(Some(&held), NOW + 1), Step::Rest(NOW + 6 * HOUR));
        assert_eq!(told.step(Some(&held), NOW + 6 * HOUR), Step::Ask);
        let again = told.clone().told(Some((window, 0)), &held, NOW, 9);
        assert_eq!((again.renew_at, again.ask_at), (told.renew_at, NOW + MINUTE));
        let moved = again.told(Some(((NOW - 2, NOW - 1), u64::MAX)), &held, NOW, 9);
        assert_eq!(
            moved.step(Some(&held), NOW + LEAST_BETWEEN),
            Step::Order(Reason::Due)
        );
        assert_eq!(moved.ask_at, NOW + DAY);
    }

    #[test]
    fn no_window_lets_a_certificate_expire() {
        let held = held(90);
        for window in [
            (NOW + 100 * DAY, NOW + 200 * DAY),
            (u64::MAX - 1, u64::MAX),
            (NOW + 99 * DAY, NOW),
        ] {
            let told = fresh()
                .with(&held, NOW, 0)
                .told(Some((window, DAY)), &held, NOW, u64::MAX);
            assert!(told.renew_at <= NOW + 81 * DAY, "{window:?}");
        }
    }

    #[test]
    fn waits_double_from_two_minutes_to_half_a_day() {
        let (mut progress, mut now, mut in_first_hour) = (fresh(), NOW, 0);
        for attempt in 0..40 {
            assert_eq!(
                progress.step(None, now),
                Step::Order(Reason::Missing),
                "{attempt}"
            );
            progress = progress.attempting(now, u64::MAX);
            let wait = progress.not_before - now;
            assert!(
                (FIRST_WAIT..=LONGEST_WAIT + LONGEST_WAIT / 8).contains(&wait),
                "{wait}"
            );
            progress = progress.failed(failure(0), now);
            assert_eq!(progress.step(None, now + wait - 1), Step::Wait(now + wait));
            in_first_hour += u32::from(now < NOW + HOUR);
            now += wait;
        }
        assert_eq!((in_first_hour, progress.failures), (5, 40));
        assert!(progress.not_before - now <= LONGEST_WAIT);
    }

    #[test]
    fn an_authority_that_asks_for_more_time_gets_it() {
        let progress = fresh().attempting(NOW, 0).failed(failure(DAY), NOW);
        assert_eq!(progress.step(None, NOW + 1), Step::Wait(NOW + DAY));
    }

    #[test]
    fn an_attempt_that_was_cut_off_counts_as_one_that_failed() {
        let cut = fresh().attempting(NOW, 0);
        let read = cut.about(ORDER, None, 0);
        assert_eq!(read.step(None, NOW + 1), Step::Wait(NOW + FIRST_WAIT));
    }

    #[test]
    fn a_changed_order_forgets_what_failed_and_a_certificate_that_came_unnoticed_counts() {
        let failed = fresh().attempting(NOW, 0).failed(failure(0), NOW);
        assert_eq!(
            failed.clone().about("another", None, 0).step(None, NOW),
            Step::Order(Reason::Missing)
        );
        let held = held(90);
        let noticed = failed.clone().about(ORDER, Some(&held), 0);
        assert_eq!((noticed.failures, noticed.not_before), (0, failed.not_before));
        assert_eq!(noticed.renew_at, NOW + 60 * DAY);
        assert_eq!(noticed.step(Some(&held), NOW), Step::Ask);
        assert_eq!(noticed.clone().about(ORDER, Some(&held), 99), noticed);
    }

    #[test]
    fn a_certificate_that_hardly_lives_does_not_make_for_a_flood_of_orders() {
        let gone = Held {
            validity: Validity {
                not_before: NOW - DAY,
                not_after: NOW - 1,
            },
            ..held(0)
        };
        let (mut progress, mut now, mut orders) = (fresh(), NOW, 0);
        while now < NOW + 7 * DAY {
            progress = progress.attempting(now, 0).with(&gone, now, 0);
            let Step::Wait(until) = progress.step(Some(&gone), now) else {
                panic!("{progress:?}");
            };
            assert!(until >= now + LEAST_BETWEEN);
            (now, orders) = (until, orders + 1);
        }
        assert!(orders < 25, "{orders}");
    }

    #[test]
    fn a_clock_that_was_wrong_does_not_keep_the_service_from_ordering() {
        let ahead = fresh().attempting(NOW + 1000 * DAY, 0);
        assert_eq!(ahead.step(None, NOW), Step::Order(Reason::Missing));
        let held = held(90);
        let ahead = fresh().with(&held, NOW, 0).told(None, &held, NOW + 1000 * DAY, 0);
        assert_eq!(ahead.step(Some(&held), NOW), Step::Ask);
    }

    #[test]
    fn what_is_remembered_can_be_read_by_later_versions() {
        let read: Progress = serde_json::from_str("{\"order\":\"x\",\"later\":1}").unwrap();
        assert_eq!(read.order, "x");
    }
}
