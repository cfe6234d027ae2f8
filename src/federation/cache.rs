//! A cache of documents that others publish. It follows their `max-age`, and keeps stale documents if a server is down.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::random::Random;

/// How documents of one kind are kept.
#[derive(Clone, Copy, Debug)]
pub struct CachePolicy {
    /// How long a document without `max-age` is fresh.
    default_max_age: Duration,
    /// The upper bound for `max-age`.
    highest_max_age: Duration,
    /// How long a stale document is used if no new one can be fetched.
    stale_period: Duration,
    /// The most documents.
    most: usize,
    /// Whether a failure is logged.
    logs_failures: bool,
}

impl CachePolicy {
    /// What providers and the operator's clients publish. The upper bound is how long a withdrawn key is still accepted.
    pub const PUBLISHED: Self = Self {
        default_max_age: Duration::from_mins(30),
        highest_max_age: Duration::from_hours(1),
        stale_period: Duration::from_hours(24),
        most: usize::MAX,
        logs_failures: true,
    };
    /// Metadata documents of clients. Anyone may name one, so their number is bounded, and the refused request is logged
    /// instead of the failure.
    pub const CLIENT_DOCUMENTS: Self = Self {
        default_max_age: LOWEST_MAX_AGE,
        highest_max_age: Duration::from_hours(24),
        stale_period: Duration::ZERO,
        most: 500,
        logs_failures: false,
    };
    /// Keys of clients that registered themselves. Anyone may register one, so their number is bounded.
    pub const REGISTRANT_KEYS: Self = Self {
        stale_period: Duration::ZERO,
        most: Self::CLIENT_DOCUMENTS.most,
        ..Self::PUBLISHED
    };
}

/// The lower bound for `max-age`.
const LOWEST_MAX_AGE: Duration = Duration::from_mins(5);
/// The least time between two attempts if there is no document.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The least time between two attempts to fetch a newer document.
const RENEWAL_INTERVAL: Duration = Duration::from_mins(1);
/// A document that was not used for this long is removed.
const UNUSED_PERIOD: Duration = Duration::from_hours(24);

/// A fetched document and its `max-age`, or why it was not fetched.
pub type Fetched<T> = Result<(T, Option<Duration>), String>;

/// A document is not available. The text says why and names the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Documents of one kind by address.
pub struct Cache<T> {
    policy: CachePolicy,
    entries: Mutex<HashMap<String, Arc<CacheEntry<T>>>>,
    random: Random,
}

struct CacheEntry<T> {
    /// Held during a fetch, so that other requests for the document wait for its result.
    fetching: tokio::sync::Mutex<()>,
    state: Mutex<EntryState<T>>,
}

struct EntryState<T> {
    document: Option<Arc<T>>,
    fetched_at: Timestamp,
    fresh_until: Timestamp,
    attempted_at: Option<Timestamp>,
    problem: Option<String>,
    requested_at: Timestamp,
}

/// Whether `span` has passed since `earlier`, or the clock jumped back.
fn has_passed(earlier: Timestamp, span: Duration, now: Timestamp) -> bool {
    now < earlier || now.since(earlier) >= span
}

impl<T> EntryState<T> {
    /// The document, if it may still be used.
    fn usable(&self, stale_period: Duration, now: Timestamp) -> Option<&Arc<T>> {
        self.document
            .as_ref()
            .filter(|_| now < self.fresh_until + stale_period)
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        self.document.is_some() && now < self.fresh_until && now >= self.fetched_at
    }

    fn may_attempt(&self, least: Duration, now: Timestamp) -> bool {
        self.attempted_at.is_none_or(|at| has_passed(at, least, now))
    }

    fn unavailable(&self) -> Unavailable {
        Unavailable(
            self.problem
                .clone()
                .unwrap_or_else(|| "not fetched yet".to_owned()),
        )
    }
}

impl<T> Cache<T> {
    /// An empty cache. `random` spreads the times at which documents are fetched again.
    pub fn new(policy: CachePolicy, random: Random) -> Self {
        Self {
            policy,
            entries: Mutex::default(),
            random,
        }
    }

    fn entry(&self, address: &str, now: Timestamp) -> Arc<CacheEntry<T>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.policy.most && !entries.contains_key(address) {
            let requested_at = |entry: &CacheEntry<T>| entry.state().requested_at;
            let oldest = entries.iter().min_by_key(|(_, entry)| requested_at(entry));
            if let Some(address) = oldest.map(|(address, _)| address.clone()) {
                entries.remove(&address);
            }
        }
        let entry = entries.entry(address.to_owned()).or_insert_with(|| {
            Arc::new(CacheEntry {
                fetching: tokio::sync::Mutex::new(()),
                state: Mutex::new(EntryState {
                    document: None,
                    fetched_at: now,
                    fresh_until: now,
                    attempted_at: None,
                    problem: None,
                    requested_at: now,
                }),
            })
        });
        Arc::clone(entry)
    }

    /// Whether [`Cache::get`] would fetch the document, or [`Cache::newer`] if the cached one does not suffice.
    pub fn would_fetch(&self, address: &str, suffices: impl FnOnce(&T) -> bool, now: Timestamp) -> bool {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(address).is_none_or(|entry| {
            let state = entry.state();
            match state.usable(self.policy.stale_period, now) {
                Some(document) => !suffices(document) && state.may_attempt(RENEWAL_INTERVAL, now),
                None => state.may_attempt(RETRY_INTERVAL, now),
            }
        })
    }

    /// The cached document. It may be stale, because [`Cache::refresh`] fetches new ones. If there is none, it is
    /// fetched now, once for all waiting requests.
    pub async fn get<F>(
        &self,
        address: &str,
        now: Timestamp,
        fetch: impl FnOnce() -> F,
    ) -> Result<Arc<T>, Unavailable>
    where
        F: Future<Output = Fetched<T>>,
    {
        let entry = self.entry(address, now);
        let usable = |state: &EntryState<T>| state.usable(self.policy.stale_period, now).cloned();
        let touch = |state: &mut EntryState<T>| {
            state.requested_at = now;
            usable(state)
        };
        if let Some(document) = touch(&mut entry.state()) {
            return Ok(document);
        }
        let attempted_before = entry.state().attempted_at;
        let _guard = entry.fetching.lock().await;
        if let Some(document) = touch(&mut entry.state()) {
            return Ok(document);
        }
        {
            // The attempt that this request waited for may have lasted longer than the pause between two attempts.
            let state = entry.state();
            if state.attempted_at != attempted_before || !state.may_attempt(RETRY_INTERVAL, now) {
                return Err(state.unavailable());
            }
        }
        self.record_attempt((address, &entry), now, fetch().await);
        let state = entry.state();
        usable(&state).ok_or_else(|| state.unavailable())
    }

    /// Forgets a document that cannot be used. It is fetched again after a pause, as if it had not been fetched.
    pub fn reject(&self, address: &str, problem: String) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(address) {
            let mut state = entry.state();
            state.document = None;
            state.problem = Some(problem);
        }
    }

    /// A document that is newer than `known`, if one is available. At most one attempt a minute is made.
    pub async fn newer<F>(
        &self,
        address: &str,
        known: &Arc<T>,
        now: Timestamp,
        fetch: impl FnOnce() -> F,
    ) -> Option<Arc<T>>
    where
        F: Future<Output = Fetched<T>>,
    {
        let entry = self.entry(address, now);
        let _guard = entry.fetching.lock().await;
        let other = |state: &EntryState<T>| state.document.clone().filter(|kept| !Arc::ptr_eq(kept, known));
        if let Some(document) = other(&entry.state()) {
            return Some(document);
        }
        if !entry.state().may_attempt(RENEWAL_INTERVAL, now) {
            return None;
        }
        self.record_attempt((address, &entry), now, fetch().await);
        let state = entry.state();
        other(&state)
    }

    /// Removes the documents at addresses that are not wanted.
    pub fn retain(&self, is_wanted: impl Fn(&str) -> bool) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|address, _| is_wanted(address));
    }

    /// All cached documents.
    pub fn documents(&self) -> Vec<Arc<T>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let documents = entries.values().map(|entry| entry.state().document.clone());
        documents.flatten().collect()
    }

    /// Fetches stale documents again, and removes unused ones.
    pub async fn refresh<F>(&self, now: Timestamp, fetch: impl Fn(String) -> F)
    where
        F: Future<Output = Fetched<T>>,
    {
        let due: Vec<_> = {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.retain(|_, entry| now.since(entry.state().requested_at) < UNUSED_PERIOD);
            let is_due =
                |state: &EntryState<T>| !state.is_fresh(now) && state.may_attempt(RENEWAL_INTERVAL, now);
            let due = entries.iter().filter(|(_, entry)| is_due(&entry.state()));
            due.map(|(address, entry)| (address.clone(), Arc::clone(entry)))
                .collect()
        };
        for (address, entry) in due {
            let Ok(_guard) = entry.fetching.try_lock() else {
                continue;
            };
            self.record_attempt((&address, &entry), now, fetch(address.clone()).await);
        }
    }

    /// Records the result of an attempt. A failure is logged here and not for each request, because strangers could
    /// flood the log with requests.
    fn record_attempt(&self, (address, entry): (&str, &CacheEntry<T>), now: Timestamp, fetched: Fetched<T>) {
        if let Err(problem) = &fetched
            && self.policy.logs_failures
        {
            tracing::warn!(address, problem, "a document that others publish cannot be had");
        }
        let mut state = entry.state();
        state.attempted_at = Some(now);
        match fetched {
            Ok((document, max_age)) => {
                let fresh_for = max_age
                    .unwrap_or(self.policy.default_max_age)
                    .clamp(LOWEST_MAX_AGE, self.policy.highest_max_age);
                let [share] = self.random.bytes::<1>();
                state.document = Some(Arc::new(document));
                state.fetched_at = now;
                let earlier = fresh_for * u32::from(share) / 2560;
                state.fresh_until = now + fresh_for.saturating_sub(earlier);
                state.problem = None;
            }
            Err(problem) => state.problem = Some(problem),
        }
    }
}

impl<T> CacheEntry<T> {
    fn state(&self) -> std::sync::MutexGuard<'_, EntryState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const URL: &str = "https://up.example/jwks";

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

        fn fetch(&self) -> impl Future<Output = Fetched<u32>> {
            std::future::ready(Ok((self.fetched.fetch_add(1, Ordering::SeqCst) + 1, None)))
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
        assert!(!source.cache.would_fetch(URL, |_| false, source.now));
        source.now = source.now + RENEWAL_INTERVAL;
        assert!(source.cache.would_fetch(URL, |_| false, source.now));
        assert!(!source.cache.would_fetch(URL, |_| true, source.now));
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
            let fetched = cache.get(address, at(seconds), || async { Ok(((), None)) });
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
    async fn an_unused_document_is_removed() {
        let mut source = Source::new();
        source.get().await.unwrap();
        source.now = source.now + UNUSED_PERIOD;
        source.cache.refresh(source.now, |_| source.fetch()).await;
        assert_eq!(source.cache.entries.lock().unwrap().len(), 0);
        assert_eq!(source.fetched(), 1);
    }
}
