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
        .map(|shard| size_of::<Mutex<Shard>>() + shard.lock().unwrap().slots.capacity() * size_of::<Slot>())
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
