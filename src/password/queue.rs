//! The order in which passwords are checked, and who gives up a place when there are too many.
//!
//! There are two lines: one for known browsers and operators, one for strangers. While both wait, they take turns, so
//! neither keeps the other waiting. Within a line, the attempt of the network that tried least goes first. So a network
//! that tries much waits behind all others, however many attempts it sends at once.
//!
//! When the queue is full, the longer line loses the attempt that would be checked last. So each line has half of the
//! places for certain, and all places that the other does not use.

use std::collections::BTreeMap;

use crate::limit::password_attempt::PasswordAttempt;

/// The rank of an attempt, then its number, so that equal ranks are checked in the order of their arrival.
type Place = (u64, u64);

/// Attempts that wait, and the subjects of those that are being checked.
pub(super) struct Queue<J> {
    known: Line<J>,
    strangers: Line<J>,
    /// Whose turn it is, if both lines wait.
    is_turn_of_known: bool,
    checking: Vec<Option<u64>>,
    arrivals: u64,
    /// The most jobs that may run and wait together.
    limit: usize,
}

struct Line<J>(BTreeMap<Place, Attempt<J>>);

/// A job, and whose password it checks. The user or the name is a hash.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attempt<J> {
    pub(super) subject: Option<u64>,
    pub(super) job: J,
}

impl<J> Line<J> {
    /// Takes the first job whose subject is not being checked.
    fn take(&mut self, checking: &[Option<u64>]) -> Option<Attempt<J>> {
        let is_free = |subject: &Option<u64>| subject.is_none() || !checking.contains(subject);
        let mut waiting = self.0.iter();
        let (place, _) = waiting.find(|(_, attempt)| is_free(&attempt.subject))?;
        let place = *place;
        self.0.remove(&place)
    }
}

impl<J> Queue<J> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            known: Line(BTreeMap::new()),
            strangers: Line(BTreeMap::new()),
            is_turn_of_known: true,
            checking: Vec::new(),
            arrivals: 0,
            limit,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.known.0.len() + self.strangers.0.len()
    }

    pub(super) fn running(&self) -> usize {
        self.checking.len()
    }

    /// Adds a job. If there are too many, returns the one that loses its place, which may be the new one.
    pub(super) fn push(
        &mut self,
        attempt: &PasswordAttempt,
        job: J,
        is_abandoned: impl Fn(&J) -> bool,
    ) -> Option<J> {
        let place = (attempt.rank, self.arrivals);
        self.arrivals = self.arrivals.wrapping_add(1);
        let line = if attempt.is_known {
            &mut self.known
        } else {
            &mut self.strangers
        };
        let subject = attempt.subject;
        line.0.insert(place, Attempt { subject, job });
        if self.is_overfull() {
            for line in [&mut self.known, &mut self.strangers] {
                line.0.retain(|_, waiting| !is_abandoned(&waiting.job));
            }
        }
        if !self.is_overfull() {
            return None;
        }
        let longer = if self.known.0.len() > self.strangers.0.len() {
            &mut self.known
        } else {
            &mut self.strangers
        };
        longer.0.pop_last().map(|(_, last)| last.job)
    }

    fn is_overfull(&self) -> bool {
        self.waiting() + self.running() > self.limit
    }

    /// Takes the next job. Its subject must be [finished](Self::finish) when the job is done.
    pub(super) fn pop(&mut self) -> Option<Attempt<J>> {
        let (first, second) = if self.is_turn_of_known {
            (&mut self.known, &mut self.strangers)
        } else {
            (&mut self.strangers, &mut self.known)
        };
        let from_first = first.take(&self.checking);
        if from_first.is_some() {
            self.is_turn_of_known = !self.is_turn_of_known;
        }
        let next = from_first.or_else(|| second.take(&self.checking))?;
        self.checking.push(next.subject);
        Some(next)
    }

    /// Ends the check of a job with this subject.
    pub(super) fn finish(&mut self, subject: Option<u64>) {
        if let Some(at) = self.checking.iter().position(|checking| *checking == subject) {
            self.checking.swap_remove(at);
        }
    }

    /// Takes all jobs that wait.
    pub(super) fn drain(&mut self) -> Vec<J> {
        let lines = [&mut self.known, &mut self.strangers];
        let waiting = lines.map(|line| std::mem::take(&mut line.0));
        waiting
            .into_iter()
            .flat_map(BTreeMap::into_values)
            .map(|attempt| attempt.job)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::config::Sources;
    use crate::config::resolve::resolve;
    use crate::limit::Limiter;
    use crate::random::Random;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
    const LIMIT: usize = 128;

    fn attempt(is_known: bool, rank: u64, subject: Option<u64>) -> PasswordAttempt {
        let mut attempt = PasswordAttempt::trusted();
        attempt.is_known = is_known;
        attempt.rank = rank;
        attempt.subject = subject;
        attempt
    }

    fn stranger(rank: u64) -> PasswordAttempt {
        attempt(false, rank, None)
    }

    /// The jobs in the order in which they are checked.
    fn order<J>(queue: &mut Queue<J>) -> Vec<J> {
        let next = || {
            let Attempt { subject, job } = queue.pop()?;
            queue.finish(subject);
            Some(job)
        };
        std::iter::from_fn(next).collect()
    }

    fn push<J>(queue: &mut Queue<J>, attempt: &PasswordAttempt, job: J) -> Option<J> {
        queue.push(attempt, job, |_| false)
    }

    #[test]
    fn the_lowest_rank_goes_first_and_equals_in_the_order_of_arrival() {
        let mut queue = Queue::new(LIMIT);
        for (job, rank) in [(1, 7), (2, 0), (3, 7), (4, 0)] {
            assert_eq!(push(&mut queue, &stranger(rank), job), None);
        }
        assert_eq!(order(&mut queue), [2, 4, 1, 3]);
    }

    #[test]
    fn known_browsers_and_strangers_take_turns() {
        let mut queue = Queue::new(LIMIT);
        for job in ["stranger 1", "stranger 2", "stranger 3"] {
            push(&mut queue, &stranger(0), job);
        }
        for job in ["known 1", "known 2"] {
            push(&mut queue, &attempt(true, 9, None), job);
        }
        assert_eq!(
            order(&mut queue),
            ["known 1", "stranger 1", "known 2", "stranger 2", "stranger 3"]
        );
    }

    #[test]
    fn each_line_has_half_of_the_places_and_what_the_other_leaves() {
        let mut queue = Queue::new(4);
        for job in 0..4 {
            assert_eq!(
                push(&mut queue, &stranger(job), job),
                None,
                "nobody else wants it"
            );
        }
        assert_eq!(push(&mut queue, &stranger(4), 4), Some(4));
        let known = attempt(true, 0, None);
        assert_eq!(push(&mut queue, &known, 10), Some(3));
        assert_eq!(push(&mut queue, &known, 11), Some(2));
        assert_eq!(push(&mut queue, &known, 12), Some(12));
        assert_eq!(
            push(&mut queue, &stranger(0), 5),
            Some(1),
            "a lower rank takes the place"
        );
        assert_eq!(order(&mut queue), [10, 0, 11, 5]);
    }

    #[test]
    fn running_jobs_take_places_and_abandoned_ones_give_them_back() {
        let mut queue = Queue::new(2);
        push(&mut queue, &stranger(0), 1);
        let Attempt { subject, .. } = queue.pop().unwrap();
        push(&mut queue, &stranger(0), 2);
        assert_eq!(push(&mut queue, &stranger(0), 3), Some(3));
        let is_abandoned = |job: &i32| *job == 2;
        assert_eq!(queue.push(&stranger(9), 4, is_abandoned), None);
        assert_eq!((queue.waiting(), queue.running()), (1, 1));
        queue.finish(subject);
        assert_eq!(queue.running(), 0);
        assert_eq!(queue.drain(), [4]);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn one_subject_is_checked_once_at_a_time_and_delays_no_other() {
        let mut queue = Queue::new(LIMIT);
        for (job, subject) in [(1, Some(7)), (2, Some(7)), (3, Some(8)), (4, None), (5, None)] {
            push(&mut queue, &attempt(false, 0, subject), job);
        }
        let mut pop = || queue.pop().map(|attempt| (attempt.subject, attempt.job));
        let taken: Vec<_> = std::iter::from_fn(&mut pop).collect();
        assert_eq!(taken, [(Some(7), 1), (Some(8), 3), (None, 4), (None, 5)]);
        queue.finish(Some(8));
        assert_eq!(queue.pop(), None);
        queue.finish(Some(7));
        let subject = Some(7);
        assert_eq!(queue.pop(), Some(Attempt { subject, job: 2 }));
    }

    /// One request of a flood, or of a person whose sign-ins are counted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Sender {
        Attacker,
        Person,
    }

    /// A flood with wrong passwords from 1,100 addresses, and a queue that checks one of `arrivals` of them.
    struct Flood {
        limiter: Limiter,
        queue: Queue<(Sender, PasswordAttempt)>,
        sent: u32,
        arrivals: u32,
        checked_persons: usize,
    }

    impl Flood {
        const ADDRESSES: u32 = 1_100;

        fn start(arrivals: u32) -> Self {
            Self {
                limiter: Limiter::new(
                    resolve(&Sources::default().for_development()).unwrap().limits,
                    &Random::seeded(1),
                ),
                queue: Queue::new(LIMIT),
                sent: 0,
                arrivals,
                checked_persons: 0,
            }
        }

        fn try_password(&self, name: &str, browser: Option<&[u8]>, address: u32) -> Option<PasswordAttempt> {
            let from = std::net::Ipv4Addr::from_bits(address).into();
            self.limiter.try_password(name, browser, from, NOW).ok()
        }

        fn push(&mut self, sender: Sender, attempt: Option<PasswordAttempt>) {
            if let Some(attempt) = attempt {
                let job = (sender, attempt.clone());
                self.queue.push(&attempt, job, |_| false);
            }
        }

        /// Sends `count` attempts of the attacker.
        fn send(&mut self, count: u32) {
            for _ in 0..count {
                self.sent += 1;
                let address = 0x0100_0000 + self.sent % Self::ADDRESSES;
                let attempt = self.try_password(&format!("user {}", self.sent), None, address);
                self.push(Sender::Attacker, attempt);
                if self.sent.is_multiple_of(self.arrivals) {
                    self.check_next();
                }
            }
        }

        fn check_next(&mut self) {
            let Some(Attempt { subject, job }) = self.queue.pop() else {
                return;
            };
            let (sender, attempt) = job;
            if attempt.may_check().is_ok() {
                match sender {
                    Sender::Attacker => attempt.count_failure(),
                    Sender::Person => self.checked_persons += 1,
                }
            }
            self.queue.finish(subject);
        }
    }

    #[test]
    fn a_known_browser_gets_in_under_a_flood_from_1100_addresses() {
        let mut flood = Flood::start(20);
        flood.send(4 * Flood::ADDRESSES);
        for _ in 0..20 {
            let alice = flood.try_password("alice", Some(b"her browser"), 0x0100_0001);
            flood.push(Sender::Person, alice);
            flood.send(100);
        }
        assert_eq!(flood.checked_persons, 20);
    }

    #[test]
    fn strangers_of_quiet_networks_get_in_under_a_flood_from_1100_addresses() {
        let mut flood = Flood::start(20);
        for person in 0..20 {
            let attempt = flood.try_password(&format!("person {person}"), None, 0x0200_0000 + person);
            flood.push(Sender::Person, attempt);
            flood.send(400);
        }
        let at_the_start = flood.checked_persons;
        for person in 20..40 {
            let attempt = flood.try_password(&format!("person {person}"), None, 0x0200_0000 + person);
            flood.push(Sender::Person, attempt);
            flood.send(400);
        }
        assert!(at_the_start >= 16, "{at_the_start}");
        assert_eq!(flood.checked_persons - at_the_start, 20);
    }

    #[test]
    fn people_of_one_office_are_all_checked() {
        let mut flood = Flood::start(1);
        for person in 0..64 {
            let attempt = flood.try_password(&format!("person {person}"), None, 0x0200_0000);
            flood.push(Sender::Person, attempt);
        }
        for _ in 0..64 {
            flood.check_next();
        }
        assert_eq!(flood.checked_persons, 64);
    }
}
