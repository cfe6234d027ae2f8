use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::clock::EARLIEST;

const URL: &str = "https://up.example/jwks";

fn published<T>(document: T, weight: usize) -> Published<T> {
    Published {
        document,
        max_age: None,
        weight,
    }
}

struct Source {
    cache: Cache<u32>,
    fetched: AtomicU32,
    now: Timestamp,
}

impl Source {
    fn new() -> Self {
        Self {
            cache: Cache::new(CachePolicy::PUBLISHED, Random::seeded(1)),
            fetched: AtomicU32::new(0),
            now: Timestamp::from_seconds(1_000_000),
        }
    }

    async fn fetch(&self) -> Fetched<u32> {
        tokio::task::yield_now().await;
        Ok(published(self.fetched.fetch_add(1, Ordering::SeqCst) + 1, 10))
    }

    async fn get(&self) -> Result<u32, Unavailable> {
        self.cache
            .get(URL, self.now, || self.fetch())
            .await
            .map(|found| *found)
    }

    fn fetched(&self) -> u32 {
        self.fetched.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn concurrent_requests_fetch_a_document_once() {
    let source = Source::new();
    let (one, two, three) = tokio::join!(source.get(), source.get(), source.get());
    assert_eq!((one, two, three), (Ok(1), Ok(1), Ok(1)));
    assert_eq!(source.fetched(), 1);
}

#[tokio::test]
async fn a_stale_document_is_used_if_no_new_one_is_available() {
    let mut source = Source::new();
    source.get().await.unwrap();
    source.now = source.now + Duration::from_hours(2);
    assert_eq!(source.get().await, Ok(1));
    source
        .cache
        .refresh(source.now, |_| async { Err("down".to_owned()) })
        .await;
    assert_eq!(source.get().await, Ok(1));
    source.now = source.now + RENEWAL_INTERVAL;
    source.cache.refresh(source.now, |_| source.fetch()).await;
    assert_eq!(source.get().await, Ok(2));
    source.now = source.now + Duration::from_hours(1) + Duration::from_hours(24);
    let gone = source
        .cache
        .get(URL, source.now, || async { Err("down".to_owned()) })
        .await;
    assert_eq!(gone, Err(Unavailable("down".to_owned())));
}

#[tokio::test]
async fn a_newer_document_is_fetched_at_most_once_a_minute() {
    let mut source = Source::new();
    source.get().await.unwrap();
    let known = source
        .cache
        .get(URL, source.now, || source.fetch())
        .await
        .unwrap();
    assert!(
        source
            .cache
            .newer(URL, &known, source.now, || source.fetch())
            .await
            .is_none()
    );
    source.now = source.now + RENEWAL_INTERVAL;
    let newer = source
        .cache
        .newer(URL, &known, source.now, || source.fetch())
        .await;
    assert_eq!(newer.as_deref(), Some(&2));
    for _ in 0..10 {
        let newer = newer.as_ref().unwrap();
        assert!(
            source
                .cache
                .newer(URL, newer, source.now, || source.fetch())
                .await
                .is_none()
        );
    }
    assert_eq!(source.fetched(), 2);
}

#[tokio::test]
async fn a_failed_fetch_is_not_repeated_at_once() {
    let mut source = Source::new();
    let attempts = AtomicU32::new(0);
    for _ in 0..10 {
        let refused = source
            .cache
            .get(URL, source.now, || async {
                attempts.fetch_add(1, Ordering::SeqCst);
                Err("down".to_owned())
            })
            .await;
        assert_eq!(refused, Err(Unavailable("down".to_owned())));
    }
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
    source.now = source.now + RETRY_INTERVAL;
    assert_eq!(source.get().await, Ok(1));
}

#[tokio::test]
async fn requests_that_wait_for_a_silent_host_get_the_result_of_one_fetch() {
    let source = Source::new();
    let (attempts, answer) = (AtomicU32::new(0), tokio::sync::Notify::new());
    let get = |seconds| {
        let fetch = || async {
            if attempts.fetch_add(1, Ordering::SeqCst) == 0 {
                answer.notified().await;
            }
            Err("silent".to_owned())
        };
        let now = source.now + Duration::from_secs(seconds);
        source.cache.get(URL, now, fetch)
    };
    let end = async { answer.notify_one() };
    let (first, second, third, fourth, ()) = tokio::join!(get(0), get(4), get(5), get(9), end);
    for result in [first, second, third, fourth] {
        assert_eq!(result, Err(Unavailable("silent".to_owned())));
    }
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_without_a_permit_does_not_delay_the_next_one() {
    let mut source = Source::new();
    let policy = CachePolicy {
        most_fetches: 1,
        ..CachePolicy::PUBLISHED
    };
    source.cache = Cache::new(policy, Random::seeded(1));
    let other = || async {
        assert!(source.get().await.is_err(), "the only permit is taken");
        Err("silent".to_owned())
    };
    let taken = source.cache.get("https://other.example", source.now, other);
    assert!(taken.await.is_err());
    assert_eq!(source.get().await, Ok(1));
}

#[tokio::test]
async fn a_clock_that_jumps_back_does_not_stop_fetches() {
    let mut source = Source::new();
    source.get().await.unwrap();
    source.now = source.now - Duration::from_hours(48);
    let known = source
        .cache
        .get(URL, source.now, || source.fetch())
        .await
        .unwrap();
    let newer = source
        .cache
        .newer(URL, &known, source.now, || source.fetch())
        .await;
    assert_eq!(newer.as_deref(), Some(&2));
}

#[tokio::test]
async fn the_document_that_was_unused_the_longest_makes_room() {
    let policy = CachePolicy {
        most: 2,
        ..CachePolicy::CLIENT_DOCUMENTS
    };
    let cache = Cache::new(policy, Random::seeded(1));
    let at = |seconds: u64| Timestamp::from_seconds(1_000_000 + seconds);
    for (seconds, address) in [(0, "one"), (1, "two"), (2, "one"), (3, "three")] {
        let fetched = cache.get(address, at(seconds), || async { Ok(published((), 10)) });
        fetched.await.unwrap();
    }
    let is_kept = |address| !cache.would_fetch(address, |()| true, at(4));
    assert!(is_kept("one") && is_kept("three") && !is_kept("two"));
    let end = at(2) + LOWEST_MAX_AGE;
    assert!(
        cache.would_fetch("one", |()| true, end),
        "a stale document is not used"
    );
}

#[tokio::test]
async fn long_documents_make_room_for_each_other_by_their_bytes() {
    let cache = Cache::new(CachePolicy::CLIENT_DOCUMENTS.within(200_000), Random::seeded(1));
    let at = |seconds: u64| Timestamp::from_seconds(1_000_000 + seconds);
    for number in 0..20 {
        let address = number.to_string();
        let fetched = cache.get(&address, at(number), || async { Ok(published((), 65_536)) });
        fetched.await.unwrap();
    }
    let is_kept = |number: &u64| !cache.would_fetch(&number.to_string(), |()| true, at(20));
    assert_eq!((0..20).filter(is_kept).collect::<Vec<_>>(), [17, 18, 19]);
    for number in 100..200 {
        let address = number.to_string();
        let fetched = cache.get(&address, at(number), || async { Ok(published((), 400)) });
        fetched.await.unwrap();
    }
    assert_eq!((100..200).filter(is_kept).count(), 100);
}

#[tokio::test]
async fn an_unused_document_is_removed() {
    let mut source = Source::new();
    source.get().await.unwrap();
    source.now = source.now + UNUSED_PERIOD;
    source.cache.refresh(source.now, |_| source.fetch()).await;
    assert_eq!(source.cache.entries.lock().unwrap().len(), 0);
    assert_eq!(source.fetched(), 1);
}

/// Nothing fetches the documents of clients in the background, so a withdrawn key would be used for as long as the clock was
/// ahead.
#[tokio::test]
async fn a_document_that_was_fetched_while_the_clock_was_ahead_is_fetched_again() {
    for policy in [CachePolicy::PUBLISHED, CachePolicy::REGISTRANT_KEYS] {
        let mut source = Source::new();
        source.cache = Cache::new(policy, Random::seeded(1));
        let right = EARLIEST + Duration::from_hours(24);
        source.now = right + Duration::from_hours(24 * 365);
        assert_eq!(source.get().await, Ok(1));
        // A clock that is corrected by minutes changes nothing.
        source.now = source.now - Duration::from_mins(10);
        assert_eq!(source.get().await, Ok(1));
        source.now = right;
        assert!(source.cache.would_fetch(URL, |_| true, source.now));
        assert_eq!(source.get().await, Ok(2));
        source.now = right + Duration::from_mins(10);
        assert_eq!(source.get().await, Ok(2));
    }
}
