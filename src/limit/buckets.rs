//! Many leaky buckets in a fixed amount of memory.
//!
//! A bucket is one number: the moment at which it will be empty again (the generic cell rate algorithm). An empty bucket
//! and a missing bucket are the same.
//!
//! # What happens when there are more buckets than slots
//!
//! A keyed digest of the bucket's name picks eight slots, and the bucket lives in one of them. An attacker therefore
//! cannot tell which names share slots. When all eight slots are in use, a new bucket takes over the least filled slot
//! **with its content**. The evicted bucket was never fuller than the emptiest one that stays. When its owner comes
//! back, the owner takes over at least as much as was evicted: filling other buckets empties none.
//!
//! The error is on the safe side and small. A bucket may start with the content of another, but only after more names
//! were charged than the table has slots; then the table as a whole is the limit. A [check](Buckets::check) takes
//! nothing over: no flood keeps out a name that has done nothing.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::charges::{self, Charge};
use crate::clock::Timestamp;

const WAYS: usize = 8;
const SHARDS: usize = 64;
/// The sets of one shard. With the most, a table takes a mebibyte.
const SETS_PER_SHARD: RangeInclusive<usize> = 4..=128;

/// How far the times of concurrent requests may lie apart, in milliseconds. A clock that goes back further was set
/// back.
const MAX_CLOCK_JITTER: u64 = 120_000;

/// A rate limit: a burst, then one more in each interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    interval_ms: u64,
    /// How long a full bucket takes to empty.
    capacity_ms: u64,
}

impl Rule {
    /// Allows `burst` at once, then one more every `interval`.
    pub const fn new(burst: u64, interval: Duration) -> Self {
        let interval_ms = interval.as_secs() * 1_000 + interval.subsec_millis() as u64;
        Self {
            interval_ms,
            capacity_ms: interval_ms.saturating_mul(burst),
        }
    }

    /// The time in which one is forgotten, in milliseconds.
    pub const fn interval_ms(self) -> u64 {
        self.interval_ms
    }

    /// Allows `count` within an hour, all of them at once if need be.
    pub const fn hourly(count: u32) -> Self {
        let count = if count == 0 { 1 } else { count as u64 };
        Self::new(count, Duration::from_millis(3_600_000_u64.div_ceil(count)))
    }
}

/// How long to wait before the next attempt, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RetryAfter(u64);

impl RetryAfter {
    /// The value of the `Retry-After` header: whole seconds, at least one.
    pub fn seconds(self) -> u64 {
        self.0.div_ceil(1_000).max(1)
    }
}

/// The digest of a bucket's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    set: u64,
    tag: u64,
    /// The bucket is this many times as large as an ordinary one.
    multiplier: u32,
}

impl Key {
    /// The key of a digest. A bucket with a `multiplier` is that many times as large, and empties as many times faster.
    pub fn new(digest: &[u8], multiplier: u32) -> Self {
        let (set, rest) = digest.split_first_chunk().unwrap_or((&[0; 8], digest));
        let tag = rest.first_chunk().unwrap_or(&[0; 8]);
        Self {
            set: u64::from_le_bytes(*set),
            tag: u64::from_le_bytes(*tag).max(1),
            multiplier,
        }
    }

    /// A number that identifies the bucket.
    pub fn tag(self) -> u64 {
        self.tag
    }
}

/// Buckets with the same rule.
#[derive(Debug)]
pub struct Buckets {
    rule: Rule,
    shards: Vec<Mutex<Shard>>,
    sets_per_shard: usize,
    /// All buckets are empty from this moment on.
    all_empty_at: AtomicU64,
}

/// A part of the slots, with its own lock.
#[derive(Debug, Default)]
struct Shard {
    /// Allocated at the first use.
    slots: Vec<Slot>,
    latest: u64,
}

/// One bucket: the tag of its key, and the moment at which it is empty.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tag: u64,
    empty_at: u64,
}

impl Buckets {
    /// A table of empty buckets that takes at most so many bytes. It takes no less than 32 KiB, and no more than a
    /// mebibyte.
    pub fn new(rule: Rule, bytes: usize) -> Self {
        let sets = bytes / (SHARDS * WAYS * size_of::<Slot>());
        Self {
            rule,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            sets_per_shard: sets.clamp(*SETS_PER_SHARD.start(), *SETS_PER_SHARD.end()),
            all_empty_at: AtomicU64::new(0),
        }
    }

    /// Whether one more may be taken now. This is cheap while all buckets are empty.
    pub fn check(&self, key: impl FnOnce() -> Key, now: Timestamp) -> Result<(), RetryAfter> {
        let now = millis(now);
        if self.all_empty_at.load(Ordering::Relaxed) <= now {
            return Ok(());
        }
        let key = key();
        self.with_slot(key, now, |slot| {
            if slot.tag == key.tag {
                self.admit(key, slot.empty_at, now)?;
            }
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    /// How long this bucket takes to empty, in milliseconds.
    pub fn fill(&self, key: Key, now: Timestamp) -> u64 {
        let now = millis(now);
        self.with_slot(key, now, |slot| {
            let own = if slot.tag == key.tag { slot.empty_at } else { 0 };
            own.saturating_sub(now)
        })
        .unwrap_or_default()
    }

    /// Takes one, unless the bucket is full.
    pub fn take(&self, key: Key, now: Timestamp) -> Result<(), RetryAfter> {
        if charges::is_paid(self.charge(key)) {
            return Ok(());
        }
        let now = millis(now);
        let taken = self.with_slot(key, now, |slot| {
            let empty_at = self.admit(key, slot.empty_at, now)?;
            self.set(slot, key, empty_at);
            charges::note_paid(self.charge(key));
            Ok(())
        });
        taken.unwrap_or(Ok(()))
    }

    /// Charges one that was not [taken](Buckets::take) before. A full bucket stays full.
    pub fn add(&self, key: Key, now: Timestamp) {
        if charges::is_paid(self.charge(key)) {
            return;
        }
        charges::note_paid(self.charge(key));
        let now = millis(now);
        self.with_slot(key, now, |slot| {
            let more = slot.empty_at.max(now).saturating_add(self.cost(key));
            let full = now.saturating_add(self.rule.capacity_ms);
            self.set(slot, key, more.min(full).max(slot.empty_at));
        });
    }

    /// Takes back the charge of [`Buckets::take`].
    pub fn refund(&self, key: Key, now: Timestamp) {
        charges::note_refund(self.charge(key));
        self.with_slot(key, millis(now), |slot| {
            if slot.tag == key.tag {
                slot.empty_at = slot.empty_at.saturating_sub(self.cost(key));
            }
        });
    }

    fn charge(&self, key: Key) -> Charge {
        Charge::new(std::ptr::from_ref(self).addr(), key.tag)
    }

    fn cost(&self, key: Key) -> u64 {
        (self.rule.interval_ms / u64::from(key.multiplier.max(1))).max(1)
    }

    fn set(&self, slot: &mut Slot, key: Key, empty_at: u64) {
        *slot = Slot {
            tag: key.tag,
            empty_at,
        };
        self.all_empty_at.fetch_max(empty_at, Ordering::Relaxed);
    }

    /// When the bucket will be empty after one more charge.
    fn admit(&self, key: Key, empty_at: u64, now: u64) -> Result<u64, RetryAfter> {
        let empty_at = empty_at.max(now).saturating_add(self.cost(key));
        let fill = empty_at.saturating_sub(now);
        match fill.saturating_sub(self.rule.capacity_ms) {
            0 => Ok(empty_at),
            excess => Err(RetryAfter(excess)),
        }
    }

    /// Works on the slot of a key: its own, or the least filled one that it would take over.
    fn with_slot<T>(&self, key: Key, now: u64, work: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let shard = usize::try_from(key.set).unwrap_or(0) % SHARDS;
        let mut shard = self
            .shards
            .get(shard)?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        shard.notice_time(now);
        shard.slot(key, self.sets_per_shard).map(work)
    }
}

impl Shard {
    /// Empties all buckets if the clock was set back. They would otherwise stay full for as long as the clock was wrong.
    fn notice_time(&mut self, now: u64) {
        if now.saturating_add(MAX_CLOCK_JITTER) < self.latest {
            self.slots.fill(Slot::default());
            self.latest = now;
        }
        self.latest = self.latest.max(now);
    }

    fn slot(&mut self, key: Key, sets: usize) -> Option<&mut Slot> {
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); sets * WAYS];
        }
        let set = usize::try_from(key.set / SHARDS as u64).unwrap_or(0) % sets;
        let slots = self.slots.chunks_exact_mut(WAYS).nth(set)?;
        match slots.iter().position(|slot| slot.tag == key.tag) {
            Some(own) => slots.get_mut(own),
            None => slots.iter_mut().min_by_key(|slot| slot.empty_at),
        }
    }
}

fn millis(now: Timestamp) -> u64 {
    now.seconds().saturating_mul(1_000)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use ring::digest::{SHA256, digest};

    use super::*;

    const START: Timestamp = Timestamp::from_seconds(1_800_000_000);
    const TEN_THEN_ONE_A_MINUTE: Rule = Rule::new(10, Duration::from_mins(1));
    const MOST: usize = 1 << 20;

    fn key(number: u64) -> Key {
        Key::new(digest(&SHA256, &number.to_be_bytes()).as_ref(), 1)
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn taken(buckets: &Buckets, number: u64, times: u32, now: Timestamp) -> u32 {
        let done = (0..times).filter(|_| buckets.take(key(number), now).is_ok());
        u32::try_from(done.count()).unwrap()
    }

    /// The bytes of a table in which every slot is allocated.
    pub(crate) fn most_bytes() -> usize {
        SHARDS * (size_of::<Mutex<Shard>>() + SETS_PER_SHARD.end() * WAYS * size_of::<Slot>())
    }

    pub(crate) fn bytes(buckets: &Buckets) -> usize {
        let shards = buckets.shards.iter();
        shards
            .map(|shard| {
                size_of::<Mutex<Shard>>() + shard.lock().unwrap().slots.capacity() * size_of::<Slot>()
            })
            .sum()
    }

    #[test]
    fn a_few_may_be_done_at_once_and_then_one_at_a_time() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        assert_eq!(taken(&buckets, 1, 12, START), 10);
        assert_eq!(buckets.take(key(1), START), Err(RetryAfter(60_000)));
        assert_eq!(buckets.take(key(1), START + seconds(59)), Err(RetryAfter(1_000)));
        assert_eq!(taken(&buckets, 1, 3, START + seconds(60)), 1);
        assert_eq!(taken(&buckets, 1, 20, START + seconds(60 + 300)), 5);
        assert_eq!(taken(&buckets, 2, 12, START), 10, "another's bucket is its own");
    }

    #[test]
    fn what_is_refused_costs_nothing() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        assert_eq!(taken(&buckets, 1, 5_000, START), 10);
        assert_eq!(taken(&buckets, 1, 1, START + seconds(60)), 1);
    }

    #[test]
    fn what_is_given_back_may_be_done_again() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        for _ in 0..100 {
            buckets.take(key(1), START).unwrap();
            buckets.refund(key(1), START);
        }
        assert_eq!(taken(&buckets, 1, 12, START), 10);
        buckets.refund(key(2), START);
        assert_eq!(taken(&buckets, 2, 12, START), 10, "nobody gets more than a burst");
    }

    #[test]
    fn looking_costs_nothing_and_what_was_done_counts() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        let untouched = || -> Key { panic!("no key is needed while nothing is held") };
        assert_eq!(buckets.check(untouched, START), Ok(()));
        for _ in 0..1_000 {
            buckets.add(key(1), START);
        }
        assert_eq!(buckets.check(|| key(1), START), Err(RetryAfter(60_000)));
        assert_eq!(buckets.check(|| key(2), START), Ok(()));
        assert_eq!(buckets.check(|| key(1), START + seconds(60)), Ok(()));
        assert_eq!(buckets.check(untouched, START + seconds(600)), Ok(()));
    }

    #[test]
    fn a_wide_bucket_holds_as_many_times_more() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        let wide = Key {
            multiplier: 8,
            ..key(1)
        };
        assert_eq!((0..100).filter(|_| buckets.take(wide, START).is_ok()).count(), 80);
        assert_eq!(buckets.take(wide, START), Err(RetryAfter(7_500)));
        assert_eq!(RetryAfter(7_500).seconds(), 8);
    }

    #[test]
    fn a_million_names_take_a_mebibyte() {
        let buckets = Buckets::new(Rule::new(30, Duration::from_secs(20)), MOST);
        assert!(bytes(&buckets) < 8 * 1024, "an idle table takes next to nothing");
        for number in 0..1_000_000 {
            let second = number / 4_000;
            assert_eq!(
                buckets.take(key(number), START + seconds(second)),
                Ok(()),
                "{number}"
            );
        }
        assert!(bytes(&buckets) <= most_bytes());
        assert!(most_bytes() < (1 << 20) + 8 * 1024);
    }

    /// A small table is soon full, and what was pushed out of it still counts.
    #[test]
    fn a_table_takes_no_more_than_it_is_given() {
        for bytes_given in [0, 100_000, 200_000, MOST, usize::MAX] {
            let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, bytes_given);
            let own = u64::MAX;
            assert_eq!(taken(&buckets, own, 20, START), 10);
            for number in 0..100_000 {
                let _ = buckets.take(key(number), START);
            }
            assert_eq!(taken(&buckets, own, 1, START), 0);
            let most = bytes_given.clamp(32 << 10, MOST) + SHARDS * size_of::<Mutex<Shard>>();
            assert!(bytes(&buckets) <= most, "{bytes_given}: {}", bytes(&buckets));
        }
    }

    /// The attack: an attacker fills their own bucket, evicts it by filling others, and comes back.
    #[test]
    fn nobody_empties_a_bucket_by_filling_others() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        let own = u64::MAX;
        assert_eq!(taken(&buckets, own, 20, START), 10);
        for number in 0..1_000_000 {
            let _ = buckets.take(key(number), START);
        }
        assert_eq!(taken(&buckets, own, 1, START), 0);
        let one = START + seconds(60);
        assert!(taken(&buckets, own, 20, one) <= 1);
    }

    #[test]
    fn a_bucket_that_is_pushed_out_leaves_what_was_in_it() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        let same_set = |tag: u64| Key {
            set: 7,
            tag,
            multiplier: 1,
        };
        for tag in 1..=8 {
            for _ in 0..tag {
                buckets.take(same_set(tag), START).unwrap();
            }
        }
        buckets.take(same_set(9), START).unwrap();
        let left = (0..20)
            .filter(|_| buckets.take(same_set(1), START).is_ok())
            .count();
        assert_eq!(left, 8, "the evicted bucket left two of ten");
        assert!(buckets.take(same_set(8), START).is_ok());
    }

    /// Otherwise a sign-in with the right password would refund the guesses of another person.
    #[test]
    fn who_was_pushed_out_gives_back_nothing_of_anybody_else() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        let same_set = |tag: u64| Key {
            set: 7,
            tag,
            multiplier: 1,
        };
        buckets.take(same_set(9), START).unwrap();
        for tag in [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8] {
            buckets.take(same_set(tag), START).unwrap();
        }
        buckets.refund(same_set(9), START);
        for tag in 1..=7 {
            let left = (0..20).filter(|_| buckets.take(same_set(tag), START).is_ok());
            assert_eq!(left.count(), 8, "{tag}");
        }
    }

    #[test]
    fn a_flood_keeps_nobody_out_who_is_only_looked_at_and_nobody_in_who_is_full() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        let own = u64::MAX;
        let fill = |number: u64| (0..10).for_each(|_| buckets.add(key(number), START));
        fill(own);
        (0..200_000).for_each(fill);
        let admitted = |number: &u64| buckets.check(|| key(*number), START).is_ok();
        assert_eq!((1_000_000..1_000_100).filter(admitted).count(), 100);
        let guesses = (0..100).filter(|_| {
            let is_looked_at = admitted(&own);
            buckets.add(key(own), START);
            is_looked_at
        });
        assert!(guesses.count() <= 1);
    }

    #[test]
    fn after_a_flood_everything_is_as_before() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        for number in 0..1_000_000 {
            let _ = buckets.take(key(number), START);
        }
        let later = START + seconds(600);
        for number in 2_000_000..2_000_100 {
            assert_eq!(taken(&buckets, number, 12, later), 10);
        }
    }

    #[test]
    fn a_clock_that_jumps_forward_forgives() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        assert_eq!(taken(&buckets, 1, 10, START), 10);
        assert_eq!(taken(&buckets, 1, 20, START + Duration::from_hours(24)), 10);
    }

    #[test]
    fn a_clock_that_jumps_back_locks_nobody_out() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        assert_eq!(taken(&buckets, 1, 10, START), 10);
        let earlier = START - Duration::from_hours(24);
        assert_eq!(taken(&buckets, 1, 20, earlier), 10);
        assert_eq!(
            taken(&buckets, 1, 20, earlier + seconds(60)),
            1,
            "and goes on counting"
        );
        let end = Timestamp::from_seconds(u64::MAX);
        let _ = buckets.take(key(1), end);
        assert_eq!(taken(&buckets, 1, 20, START), 10);
    }

    #[test]
    fn requests_that_overtake_each_other_do_not_empty_a_bucket() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST);
        assert_eq!(taken(&buckets, 1, 10, START), 10);
        assert_eq!(taken(&buckets, 1, 10, START - seconds(30)), 0);
    }

    #[test]
    fn of_many_at_once_no_more_get_in_than_one_after_the_other() {
        let buckets = Arc::new(Buckets::new(TEN_THEN_ONE_A_MINUTE, MOST));
        let admitted = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (buckets, admitted) = (Arc::clone(&buckets), Arc::clone(&admitted));
                std::thread::spawn(move || {
                    admitted.fetch_add(taken(&buckets, 1, 1_000, START), Ordering::SeqCst);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(admitted.load(Ordering::SeqCst), 10);
    }
}
