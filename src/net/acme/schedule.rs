//! When to order, when to ask and when to rest: pure functions of the saved state and the time.

use instant_acme::CertificateIdentifier;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::net::validity::Validity;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The wait after the first failure. It doubles with each further one. Five attempts fit into an hour, because authorities
/// allow five failed challenges an hour.
const FIRST_WAIT: u64 = 2 * MINUTE;
/// The longest wait after a failure, unless the authority asks for more.
const LONGEST_WAIT: u64 = 12 * HOUR;
/// No scheduled time is farther ahead than this, unless the clock was wrong when it was scheduled.
const FARTHEST: u64 = 2 * DAY;
/// The least time between two certificates, however short they live.
const LEAST_BETWEEN: u64 = 10 * MINUTE;
/// The least time between two certificates if the first is due for renewal when it is issued: it has expired, or the
/// authority wants it replaced at once.
const LEAST_AFTER_DUE_CERTIFICATE: u64 = 12 * HOUR;
/// The bounds of the validity of an answer about renewal (RFC 9773 section 4.3.2).
const ANSWER_VALIDITY: std::ops::RangeInclusive<u64> = MINUTE..=DAY;
/// The time until the next question after the authority gave no answer.
const ASK_AFTER_NO_ANSWER: u64 = 6 * HOUR;

/// The first and the last second in which an authority wants a certificate renewed (RFC 9773 section 4.2).
pub type Window = (u64, u64);

/// When an authority wants a certificate renewed (RFC 9773).
#[derive(Clone, Copy, Debug)]
pub struct RenewalInfo {
    pub window: Window,
    /// For how many seconds the answer is valid.
    pub lasts: u64,
}

/// The history of the orders, which survives restarts. All times are seconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Schedule {
    /// [`super::Plan::line`]. The other fields are reset if it changes.
    pub order: String,
    /// Attempts since the last certificate. An attempt is counted before it is made.
    pub failures: u32,
    /// Why the latest attempt failed.
    pub failure: Option<Failure>,
    pub failed_at: u64,
    /// The earliest moment of the next attempt.
    pub not_before: u64,
    /// The [fingerprint](Held::fingerprint) of the certificate that `window` and `ask_at` are about.
    pub certificate: u64,
    /// The authority's window for the renewal.
    pub window: Option<Window>,
    /// When the authority is asked for the window again.
    pub ask_at: u64,
}

/// The current certificate.
#[derive(Clone, Debug)]
pub struct Held {
    /// A number that identifies the certificate.
    pub fingerprint: u64,
    pub validity: Validity,
    /// Whether it matches the plan.
    pub is_as_planned: bool,
    /// The identifier for the question when to renew it (RFC 9773 section 4.1).
    pub identifier: Option<CertificateIdentifier<'static>>,
}

impl Held {
    /// When it is renewed: in the authority's window (RFC 9773 section 4.2), or soon after two thirds of its life. In any
    /// case it is renewed before its last tenth. Each certificate has its own time in that range.
    fn renew_at(&self, window: Option<Window>) -> u64 {
        let Validity {
            not_before,
            not_after,
        } = self.validity;
        let life = not_after.saturating_sub(not_before);
        let due = not_before.saturating_add(life / 3 * 2);
        let (from, to) = window
            .filter(|(from, to)| from < to)
            .unwrap_or((due, due.saturating_add(life / 30)));
        let chosen = from.saturating_add(self.fingerprint % (to - from).max(1));
        chosen.min(not_after.saturating_sub(life / 10))
    }
}

const MISSING: &str = "there is none that can be used";
const CHANGED: &str = "the domains or the authority have changed";
const DUE: &str = "the one in use is due for renewal";

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Order a certificate, for this reason.
    Order(&'static str),
    /// Ask the authority when to renew.
    Ask,
    /// A certificate is needed, but the order has to wait until this time.
    Wait(u64),
    /// Nothing, until this time.
    Rest(u64),
}

impl Schedule {
    /// Resets the history if the order or the certificate has changed.
    pub fn keep_to(&mut self, order: &str, held: Option<&Held>) {
        if self.order != order {
            *self = Self {
                order: order.to_owned(),
                ..Self::default()
            };
        }
        if let Some(held) = held
            && self.certificate != held.fingerprint
        {
            *self = Self {
                order: order.to_owned(),
                not_before: self.not_before,
                certificate: held.fingerprint,
                ..Self::default()
            };
        }
    }

    /// What to do at `now`.
    pub fn step(&self, held: Option<&Held>, now: u64) -> Step {
        let renew_at = held.map_or(0, |held| held.renew_at(self.window));
        let reason = match held {
            None => Some(MISSING),
            Some(held) if !held.is_as_planned => Some(CHANGED),
            Some(_) => (now >= renew_at).then_some(DUE),
        };
        match reason {
            Some(_) if is_ahead(self.not_before, now) => Step::Wait(self.not_before),
            Some(reason) => Step::Order(reason),
            None if is_ahead(self.ask_at, now) => Step::Rest(self.ask_at.min(renew_at)),
            None => Step::Ask,
        }
    }

    /// Counts an attempt before it is made, so that a process that is killed repeatedly during an order does not order each
    /// time. `dice` is random.
    pub fn attempt(&mut self, now: u64, dice: u64) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.saturating_add(self.back_off(dice));
    }

    /// Records that the attempt failed at `now`. The wait begins then.
    pub fn fail(&mut self, failure: Failure, now: u64, dice: u64) {
        self.not_before = now.saturating_add(self.back_off(dice).max(failure.wait));
        self.failed_at = now;
        self.failure = Some(failure);
    }

    /// Records the certificate of a successful attempt, and the authority's [answer](Self::answer) about it.
    pub fn succeed(&mut self, held: &Held, answer: Option<RenewalInfo>, now: u64) {
        *self = Self {
            order: std::mem::take(&mut self.order),
            certificate: held.fingerprint,
            ..Self::default()
        };
        self.answer(answer, now);
        let is_due = held.renew_at(self.window) <= now;
        let rest = if is_due {
            LEAST_AFTER_DUE_CERTIFICATE
        } else {
            LEAST_BETWEEN
        };
        self.not_before = now.saturating_add(rest);
    }

    /// Records the authority's answer. None if it gave none.
    pub fn answer(&mut self, answer: Option<RenewalInfo>, now: u64) {
        let next = match answer {
            Some(answer) => {
                self.window = Some(answer.window);
                answer
                    .lasts
                    .clamp(*ANSWER_VALIDITY.start(), *ANSWER_VALIDITY.end())
            }
            None => ASK_AFTER_NO_ANSWER,
        };
        self.ask_at = now.saturating_add(next);
    }

    fn back_off(&self, dice: u64) -> u64 {
        let doubled = FIRST_WAIT << self.failures.saturating_sub(1).min(16);
        let wait = doubled.min(LONGEST_WAIT);
        wait + dice % (wait / 8)
    }
}

/// Whether a scheduled time is in the future.
fn is_ahead(moment: u64, now: u64) -> bool {
    moment > now && moment - now <= FARTHEST
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const ORDER: &str = "ACME certificate of a for b";

    fn held(from: u64, to: u64) -> Held {
        Held {
            fingerprint: 5 * HOUR,
            validity: Validity {
                not_before: from,
                not_after: to,
            },
            is_as_planned: true,
            identifier: None,
        }
    }

    fn fresh() -> Schedule {
        let mut schedule = Schedule::default();
        schedule.keep_to(ORDER, None);
        schedule
    }

    fn failed(wait: u64, now: u64) -> Schedule {
        let failure = Failure::new("no", "try");
        let mut schedule = fresh();
        schedule.attempt(now, 0);
        schedule.fail(Failure { wait, ..failure }, now, 0);
        schedule
    }

    fn issued(held: &Held, window: Option<Window>) -> Schedule {
        let mut schedule = fresh();
        schedule.succeed(
            held,
            window.map(|window| RenewalInfo {
                window,
                lasts: 6 * HOUR,
            }),
            NOW,
        );
        schedule
    }

    #[test]
    fn what_is_missing_or_changed_is_ordered_at_once() {
        assert_eq!(fresh().step(None, NOW), Step::Order(MISSING));
        let mut changed = held(NOW, NOW + 90 * DAY);
        changed.is_as_planned = false;
        let mut schedule = Schedule::default();
        schedule.keep_to(ORDER, Some(&changed));
        assert_eq!(schedule.step(Some(&changed), NOW), Step::Order(CHANGED));
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life_at_no_common_moment() {
        for fingerprint in [0, 7, u64::MAX] {
            let held = Held {
                fingerprint,
                ..held(NOW, NOW + 90 * DAY)
            };
            let mut schedule = issued(&held, None);
            let due = held.renew_at(None);
            assert!((NOW + 60 * DAY..NOW + 63 * DAY).contains(&due), "{fingerprint}");
            schedule.ask_at = due + 1;
            assert_eq!(schedule.step(Some(&held), due - 1), Step::Rest(due));
            assert_eq!(schedule.step(Some(&held), due), Step::Order(DUE));
        }
    }

    #[test]
    fn the_authoritys_window_counts_and_the_moment_in_it_stays() {
        let held = held(NOW, NOW + 90 * DAY);
        let window = (NOW + 30 * DAY, NOW + 31 * DAY);
        let mut schedule = issued(&held, Some(window));
        assert_eq!(held.renew_at(schedule.window), window.0 + 5 * HOUR);
        assert_eq!(schedule.step(Some(&held), NOW + 1), Step::Rest(NOW + 6 * HOUR));
        assert_eq!(schedule.step(Some(&held), NOW + 6 * HOUR), Step::Ask);
        let answer = |window, lasts| Some(RenewalInfo { window, lasts });
        schedule.answer(answer(window, 0), NOW);
        assert_eq!(schedule.ask_at, NOW + MINUTE);
        schedule.answer(None, NOW);
        assert_eq!((schedule.window, schedule.ask_at), (Some(window), NOW + 6 * HOUR));
        schedule.answer(answer((NOW - 2, NOW - 1), u64::MAX), NOW);
        assert_eq!(schedule.ask_at, NOW + DAY);
        let moved = schedule.step(Some(&held), NOW + LEAST_BETWEEN);
        assert_eq!(moved, Step::Order(DUE));
    }

    #[test]
    fn no_window_lets_a_certificate_expire() {
        let held = held(NOW, NOW + 90 * DAY);
        for window in [
            (NOW + 100 * DAY, NOW + 200 * DAY),
            (u64::MAX - 1, u64::MAX),
            (NOW + 99 * DAY, NOW),
        ] {
            assert!(held.renew_at(Some(window)) <= NOW + 81 * DAY, "{window:?}");
        }
    }

    #[test]
    fn waits_double_from_two_minutes_to_half_a_day() {
        let (mut schedule, mut now, mut in_first_hour) = (fresh(), NOW, 0);
        for attempt in 0..40 {
            let step = schedule.step(None, now);
            assert_eq!(step, Step::Order(MISSING), "{attempt}");
            schedule.attempt(now, u64::MAX);
            let wait = schedule.not_before - now;
            let longest = LONGEST_WAIT + LONGEST_WAIT / 8;
            assert!((FIRST_WAIT..=longest).contains(&wait), "{wait}");
            schedule.fail(Failure::new("no", "try"), now + 1, u64::MAX);
            assert_eq!(schedule.step(None, now + wait), Step::Wait(now + 1 + wait));
            in_first_hour += u32::from(now < NOW + HOUR);
            now += 1 + wait;
        }
        assert_eq!((in_first_hour, schedule.failures), (5, 40));
    }

    #[test]
    fn an_authority_gets_the_time_it_asks_for_and_an_attempt_that_was_cut_off_counts_as_one_that_failed() {
        assert_eq!(failed(DAY, NOW).step(None, NOW + 1), Step::Wait(NOW + DAY));
        let mut cut = fresh();
        cut.attempt(NOW, 0);
        cut.keep_to(ORDER, None);
        assert_eq!(cut.step(None, NOW + 1), Step::Wait(NOW + FIRST_WAIT));
    }

    #[test]
    fn a_changed_order_forgets_what_failed_and_a_certificate_that_came_unnoticed_counts() {
        let mut changed = failed(0, NOW);
        changed.keep_to("another", None);
        assert_eq!(changed.step(None, NOW), Step::Order(MISSING));
        let held = held(NOW, NOW + 90 * DAY);
        let mut noticed = failed(0, NOW);
        noticed.keep_to(ORDER, Some(&held));
        assert_eq!((noticed.failures, noticed.not_before), (0, NOW + FIRST_WAIT));
        assert_eq!(noticed.step(Some(&held), NOW), Step::Ask);
    }

    #[test]
    fn a_certificate_that_is_due_when_it_comes_does_not_make_for_a_flood_of_orders() {
        let gone = held(NOW - DAY, NOW - 1);
        assert_eq!(
            issued(&gone, None).step(Some(&gone), NOW),
            Step::Wait(NOW + 12 * HOUR)
        );
        let good = held(NOW, NOW + 90 * DAY);
        let unwanted = issued(&good, Some((NOW - 2, NOW - 1)));
        assert_eq!(unwanted.step(Some(&good), NOW), Step::Wait(NOW + 12 * HOUR));
        let short = held(NOW, NOW + 2 * MINUTE);
        let waited = issued(&short, None).step(Some(&short), NOW + 2 * MINUTE);
        assert_eq!(waited, Step::Wait(NOW + LEAST_BETWEEN));
    }

    #[test]
    fn a_clock_that_was_wrong_does_not_keep_the_service_from_ordering() {
        let ahead = failed(0, NOW + 1000 * DAY);
        assert_eq!(ahead.step(None, NOW), Step::Order(MISSING));
        let held = held(NOW, NOW + 90 * DAY);
        let mut ahead = issued(&held, None);
        ahead.answer(None, NOW + 1000 * DAY);
        assert_eq!(ahead.step(Some(&held), NOW), Step::Ask);
    }
}
