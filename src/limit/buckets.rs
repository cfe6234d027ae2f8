//! Many leaky buckets in a fixed amount of memory.
//!
//! A bucket is one number: the moment at which everything that was put into it will have run out again (the
//! generic cell rate algorithm). Who does nothing has an empty bucket, and an empty bucket is the same as none.
//!
//! # What happens when there are more buckets than room
//!
//! A bucket lives in one of eight places that a keyed digest of its name picks, so nobody outside can tell which
//! names share places. When all eight hold something, the newcomer takes over the least filled one **with what
//! is in it**. So a bucket that is pushed out was never fuller than the emptiest one that stays, and its
//! owner, coming back, takes over at least what was left behind: nobody empties a bucket by filling others, at
//! whatever price. The error is on the safe side and small: a stranger may inherit what somebody else did,
//! and only while more has been tried than all the places together can hold. Then the table as a whole is
//! the limit. Whoever is only looked at ([`Buckets::check`]) inherits nothing: no flood keeps out those who have
//! done nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Timestamp;

/// Places in one table: a mebibyte in all.
const PLACES: usize = 1 << 16;
const WAYS: usize = 8;
const SHARDS: usize = 64;
const SETS_PER_SHARD: usize = PLACES / SHARDS / WAYS;

/// How far the moments of requests that are answered side by side may lie apart, in milliseconds. A clock that
/// goes back further than this was set anew.
const OUT_OF_ORDER: u64 = 120_000;

/// How much may be done at once, and how often again after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    every: u64,
    full: u64,
}

impl Rule {
    /// `burst` at once; each is forgotten after a further `every`.
    pub const fn new(burst: u64, every: Duration) -> Self {
        let every = every.as_secs() * 1_000 + every.subsec_millis() as u64;
        Self {
            every,
            full: every.saturating_mul(burst),
        }
    }

    /// So many within an hour, all of them at once if need be.
    pub const fn hourly(count: u32) -> Self {
        let count = if count == 0 { 1 } else { count as u64 };
        let every = 3_600_000_u64.div_ceil(count);
        Self {
            every,
            full: every.saturating_mul(count),
        }
    }
}

/// How long to wait until something may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait(u64);

impl Wait {
    /// The same for `Retry-After`: whole seconds, at least one.
    pub fn seconds(self) -> u64 {
        self.0.div_ceil(1_000).max(1)
    }
}

/// The name of a bucket, of which nothing can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    place: u64,
    tag: u64,
    /// What one thing costs here: this part of what it costs in an ordinary bucket.
    share: u32,
}

impl Key {
    /// The bucket of a digest. `share` above one makes it that many times as large and as quick to empty.
    pub fn new(digest: &[u8], share: u32) -> Self {
        let (place, rest) = digest.split_first_chunk().unwrap_or((&[0; 8], digest));
        let tag = rest.first_chunk().unwrap_or(&[0; 8]);
        Self {
            place: u64::from_le_bytes(*place),
            tag: u64::from_le_bytes(*tag).max(1),
            share,
        }
    }
}

/// Many buckets of one kind.
#[derive(Debug)]
pub struct Buckets {
    rule: Rule,
    shards: Vec<Mutex<Shard>>,
    /// No bucket holds anything after this moment.
    empty_from: AtomicU64,
}

/// A part of the places, behind a lock of its own.
#[derive(Debug, Default)]
struct Shard {
    /// Tag and moment of running out; made when the first one is needed.
    places: Vec<[u64; 2]>,
    latest: u64,
}

impl Buckets {
    /// No bucket holds anything.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            empty_from: AtomicU64::new(0),
        }
    }

    /// Whether something may be done now. Costs next to nothing while no bucket holds anything.
    pub fn check(&self, key: impl FnOnce() -> Key, now: Timestamp) -> Result<(), Wait> {
        let now = millis(now);
        if self.empty_from.load(Ordering::Relaxed) <= now {
            return Ok(());
        }
        let key = key();
        self.at(key, now, |[tag, held]| {
            if *tag == key.tag {
                self.admit(key, *held, now)?;
            }
            Ok(())
        })
    }

    /// Does something now, if it may be done.
    pub fn take(&self, key: Key, now: Timestamp) -> Result<(), Wait> {
        let now = millis(now);
        self.at(key, now, |place| {
            let [_, held] = *place;
            let until = self.admit(key, held, now)?;
            *place = [key.tag, until];
            self.empty_from.fetch_max(until, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Puts something in that was done already. The bucket does not get fuller than full.
    pub fn add(&self, key: Key, now: Timestamp) {
        let now = millis(now);
        self.at(key, now, |place| {
            let [_, held] = *place;
            let more = held.max(now).saturating_add(self.cost(key));
            let until = more.min(now.saturating_add(self.rule.full)).max(held);
            *place = [key.tag, until];
            self.empty_from.fetch_max(until, Ordering::Relaxed);
            Ok(())
        })
        .unwrap_or_default();
    }

    /// Takes back what [`Buckets::take`] put in.
    pub fn refund(&self, key: Key, now: Timestamp) {
        self.at(key, millis(now), |[tag, until]| {
            if *tag == key.tag {
                *until = until.saturating_sub(self.cost(key));
            }
            Ok(())
        })
        .unwrap_or_default();
    }

    fn cost(&self, key: Key) -> u64 {
        (self.rule.every / u64::from(key.share.max(1))).max(1)
    }

    /// When the bucket will have run out if one thing more is put in.
    fn admit(&self, key: Key, held: u64, now: u64) -> Result<u64, Wait> {
        let until = held.max(now).saturating_add(self.cost(key));
        match until.saturating_sub(now).saturating_sub(self.rule.full) {
            0 => Ok(until),
            over => Err(Wait(over)),
        }
    }

    /// Works on the place of a key: its own, or the least filled one that it would take over.
    fn at(
        &self,
        key: Key,
        now: u64,
        work: impl FnOnce(&mut [u64; 2]) -> Result<(), Wait>,
    ) -> Result<(), Wait> {
        let shard = usize::try_from(key.place).unwrap_or(0) % SHARDS;
        let Some(shard) = self.shards.get(shard) else {
            return Ok(());
        };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        shard.tell_time(now);
        shard.place(key).map_or(Ok(()), work)
    }
}

impl Shard {
    /// After a clock was set back nothing is known of how long ago things were, and all begin anew: they
    /// would otherwise wait for as long as the clock was wrong.
    fn tell_time(&mut self, now: u64) {
        if now.saturating_add(OUT_OF_ORDER) < self.latest {
            self.places.fill([0; 2]);
            self.latest = now;
        }
        self.latest = self.latest.max(now);
    }

    fn place(&mut self, key: Key) -> Option<&mut [u64; 2]> {
        if self.places.is_empty() {
            self.places = vec![[0; 2]; SETS_PER_SHARD * WAYS];
        }
        let set = usize::try_from(key.place / SHARDS as u64).unwrap_or(0) % SETS_PER_SHARD;
        let places = self.places.chunks_exact_mut(WAYS).nth(set)?;
        match places.iter().position(|[tag, _]| *tag == key.tag) {
            Some(own) => places.get_mut(own),
            None => places.iter_mut().min_by_key(|[_, until]| *until),
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

    /// Every byte that the table may ever take.
    pub(crate) fn most_bytes() -> usize {
        SHARDS * (size_of::<Mutex<Shard>>() + SETS_PER_SHARD * WAYS * size_of::<[u64; 2]>())
    }

    pub(crate) fn bytes(buckets: &Buckets) -> usize {
        let shards = buckets.shards.iter();
        shards
            .map(|shard| {
                size_of::<Mutex<Shard>>() + shard.lock().unwrap().places.capacity() * size_of::<[u64; 2]>()
            })
            .sum()
    }

    #[test]
    fn a_few_may_be_done_at_once_and_then_one_at_a_time() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
        assert_eq!(taken(&buckets, 1, 12, START), 10);
        assert_eq!(buckets.take(key(1), START), Err(Wait(60_000)));
        assert_eq!(buckets.take(key(1), START + seconds(59)), Err(Wait(1_000)));
        assert_eq!(taken(&buckets, 1, 3, START + seconds(60)), 1);
        assert_eq!(taken(&buckets, 1, 20, START + seconds(60 + 300)), 5);
        assert_eq!(taken(&buckets, 2, 12, START), 10, "another's bucket is its own");
    }

    #[test]
    fn what_is_refused_costs_nothing() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
        assert_eq!(taken(&buckets, 1, 5_000, START), 10);
        assert_eq!(taken(&buckets, 1, 1, START + seconds(60)), 1);
    }

    #[test]
    fn what_is_given_back_may_be_done_again() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
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
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
        let untouched = || -> Key { panic!("no key is needed while nothing is held") };
        assert_eq!(buckets.check(untouched, START), Ok(()));
        for _ in 0..1_000 {
            buckets.add(key(1), START);
        }
        assert_eq!(buckets.check(|| key(1), START), Err(Wait(60_000)));
        assert_eq!(buckets.check(|| key(2), START), Ok(()));
        assert_eq!(buckets.check(|| key(1), START + seconds(60)), Ok(()));
        assert_eq!(buckets.check(untouched, START + seconds(600)), Ok(()));
    }

    #[test]
    fn a_wide_bucket_holds_as_many_times_more() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
        let wide = Key { share: 8, ..key(1) };
        assert_eq!((0..100).filter(|_| buckets.take(wide, START).is_ok()).count(), 80);
        assert_eq!(buckets.take(wide, START), Err(Wait(7_500)));
        assert_eq!(Wait(7_500).seconds(), 8);
    }

    #[test]
    fn a_million_names_take_a_mebibyte() {
        let buckets = Buckets::new(Rule::new(30, Duration::from_secs(20)));
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

    /// The attack: fill one's own bucket, push it out by filling others, and come back.
    #[test]
    fn nobody_empties_a_bucket_by_filling_others() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
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
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
        let same_set = |tag: u64| Key {
            place: 7,
            tag,
            share: 1,
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
        assert_eq!(left, 8, "two of ten were used up by the one before");
        assert!(buckets.take(same_set(8), START).is_ok());
    }

    /// Otherwise whoever gets in by a password of their own would take back the guesses of others.
    #[test]
    fn who_was_pushed_out_gives_back_nothing_of_anybody_else() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
        let same_set = |tag: u64| Key {
            place: 7,
            tag,
            share: 1,
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
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
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
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
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
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
        assert_eq!(taken(&buckets, 1, 10, START), 10);
        assert_eq!(taken(&buckets, 1, 20, START + Duration::from_hours(24)), 10);
    }

    #[test]
    fn a_clock_that_jumps_back_locks_nobody_out() {
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
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
        let buckets = Buckets::new(TEN_THEN_ONE_A_MINUTE);
        assert_eq!(taken(&buckets, 1, 10, START), 10);
        assert_eq!(taken(&buckets, 1, 10, START - seconds(30)), 0);
    }

    #[test]
    fn of_many_at_once_no_more_get_in_than_one_after_the_other() {
        let buckets = Arc::new(Buckets::new(TEN_THEN_ONE_A_MINUTE));
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
