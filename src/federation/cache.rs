//! Documents that others publish, kept as long as they allow, and longer when they cannot be reached.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as Turn;

use crate::clock::Timestamp;
use crate::random::Random;

/// How long a document is fresh when its sender does not say.
const USUAL: Duration = Duration::from_mins(30);
/// The bounds of what a sender may say. The upper one is how long a key that was withdrawn is still believed.
const SHORTEST: Duration = Duration::from_mins(5);
const LONGEST: Duration = Duration::from_hours(1);
/// How long a document is used after it stopped being fresh, while no new one can be had.
const STALE: Duration = Duration::from_hours(24);
/// The least time between two attempts, when there is nothing yet.
const RETRY: Duration = Duration::from_secs(5);
/// The least time between two attempts to get something newer than what is there.
const RENEW: Duration = Duration::from_mins(1);
/// A document that nobody asked for this long is forgotten.
const FORGET: Duration = Duration::from_hours(24);

/// What was fetched: the document, and how long its sender lets it be kept.
pub type Fetched<T> = Result<(T, Option<Duration>), String>;

/// A document cannot be had; the text says why and names the host, nothing else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Documents of one kind by address.
pub struct Cache<T> {
    entries: Mutex<HashMap<String, Arc<Entry<T>>>>,
    random: Random,
}

struct Entry<T> {
    /// Held by whoever fetches: others that need the same document wait for that one answer.
    turn: Turn<()>,
    state: Mutex<State<T>>,
}

struct State<T> {
    document: Option<Arc<T>>,
    fetched_at: Timestamp,
    fresh_until: Timestamp,
    tried_at: Option<Timestamp>,
    problem: Option<String>,
    asked_at: Timestamp,
}

/// Whether `span` has passed since `earlier`; a clock that jumped back counts as that.
fn has_passed(earlier: Timestamp, span: Duration, now: Timestamp) -> bool {
    now < earlier || now.since(earlier) >= span
}

impl<T> State<T> {
    /// The document, while it may still be used.
    fn usable(&self, now: Timestamp) -> Option<&Arc<T>> {
        self.document.as_ref().filter(|_| now < self.fresh_until + STALE)
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        self.document.is_some() && now < self.fresh_until && now >= self.fetched_at
    }

    fn may_try(&self, least: Duration, now: Timestamp) -> bool {
        self.tried_at.is_none_or(|at| has_passed(at, least, now))
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
    /// An empty one; `random` spreads the moments at which documents are fetched again.
    pub fn new(random: Random) -> Self {
        Self {
            entries: Mutex::default(),
            random,
        }
    }

    fn entry(&self, address: &str, now: Timestamp) -> Arc<Entry<T>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.entry(address.to_owned()).or_insert_with(|| {
            Arc::new(Entry {
                turn: Turn::new(()),
                state: Mutex::new(State {
                    document: None,
                    fetched_at: now,
                    fresh_until: now,
                    tried_at: None,
                    problem: None,
                    asked_at: now,
                }),
            })
        });
        Arc::clone(entry)
    }

    /// The document, as it is kept: fresh, or stale while [`Cache::refresh`] looks for a new one. Only where there is
    /// none yet is it fetched now, and then once for all who wait.
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
        let kept = |state: &mut State<T>| {
            state.asked_at = now;
            state.usable(now).cloned()
        };
        if let Some(document) = kept(&mut entry.state()) {
            return Ok(document);
        }
        let _turn = entry.turn.lock().await;
        if let Some(document) = kept(&mut entry.state()) {
            return Ok(document);
        }
        if !entry.state().may_try(RETRY, now) {
            return Err(entry.state().unavailable());
        }
        self.fill((address, &entry), now, fetch().await);
        let state = entry.state();
        state.usable(now).cloned().ok_or_else(|| state.unavailable())
    }

    /// A document newer than `known`, if one can be had: what is asked for when the known one lacks something. At
    /// most one attempt a minute is made for it, however often it is asked for.
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
        let _turn = entry.turn.lock().await;
        let other = |state: &State<T>| state.document.clone().filter(|kept| !Arc::ptr_eq(kept, known));
        if let Some(document) = other(&entry.state()) {
            return Some(document);
        }
        if !entry.state().may_try(RENEW, now) {
            return None;
        }
        self.fill((address, &entry), now, fetch().await);
        let state = entry.state();
        other(&state)
    }

    /// Forgets what is at an address that nobody wants anything of any more.
    pub fn keep(&self, is_wanted: impl Fn(&str) -> bool) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|address, _| is_wanted(address));
    }

    /// Every document that is there.
    pub fn documents(&self) -> Vec<Arc<T>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let documents = entries.values().map(|entry| entry.state().document.clone());
        documents.flatten().collect()
    }

    /// Fetches again what is no longer fresh and still asked for, and forgets what nobody asks for.
    pub async fn refresh<F>(&self, now: Timestamp, fetch: impl Fn(String) -> F)
    where
        F: Future<Output = Fetched<T>>,
    {
        let due: Vec<_> = {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            entries.retain(|_, entry| now.since(entry.state().asked_at) < FORGET);
            let is_due = |state: &State<T>| !state.is_fresh(now) && state.may_try(RENEW, now);
            let due = entries.iter().filter(|(_, entry)| is_due(&entry.state()));
            due.map(|(address, entry)| (address.clone(), Arc::clone(entry)))
                .collect()
        };
        for (address, entry) in due {
            let Ok(_turn) = entry.turn.try_lock() else {
                continue;
            };
            self.fill((&address, &entry), now, fetch(address.clone()).await);
        }
    }

    /// Keeps what came of an attempt. Here it is told why there is nothing new: how many ask is for strangers to choose,
    /// how often something is fetched is not.
    fn fill(&self, (address, entry): (&str, &Entry<T>), now: Timestamp, fetched: Fetched<T>) {
        if let Err(problem) = &fetched {
            tracing::warn!(address, problem, "a document that others publish cannot be had");
        }
        let mut state = entry.state();
        state.tried_at = Some(now);
        match fetched {
            Ok((document, max_age)) => {
                let fresh_for = max_age.unwrap_or(USUAL).clamp(SHORTEST, LONGEST);
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

impl<T> Entry<T> {
    fn state(&self) -> std::sync::MutexGuard<'_, State<T>> {
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
                cache: Cache::new(Random::seeded(1)),
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
    async fn a_document_is_fetched_once_however_many_ask_at_once() {
        let source = Source::new();
        let (one, two, three) = tokio::join!(source.get(), source.get(), source.get());
        assert_eq!((one, two, three), (Ok(1), Ok(1), Ok(1)));
        assert_eq!(source.fetched(), 1);
    }

    #[tokio::test]
    async fn a_stale_document_is_used_while_no_new_one_can_be_had() {
        let mut source = Source::new();
        source.get().await.unwrap();
        source.now = source.now + Duration::from_hours(2);
        assert_eq!(source.get().await, Ok(1));
        source
            .cache
            .refresh(source.now, |_| async { Err("down".to_owned()) })
            .await;
        assert_eq!(source.get().await, Ok(1));
        source.now = source.now + RENEW;
        source.cache.refresh(source.now, |_| source.fetch()).await;
        assert_eq!(source.get().await, Ok(2));
        source.now = source.now + LONGEST + STALE;
        let gone = source
            .cache
            .get(URL, source.now, || async { Err("down".to_owned()) })
            .await;
        assert_eq!(gone, Err(Unavailable("down".to_owned())));
    }

    #[tokio::test]
    async fn something_newer_is_looked_for_at_most_once_a_minute() {
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
        source.now = source.now + RENEW;
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
    async fn who_cannot_be_reached_is_not_asked_over_and_over() {
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
        source.now = source.now + RETRY;
        assert_eq!(source.get().await, Ok(1));
    }

    #[tokio::test]
    async fn a_clock_that_jumps_back_stops_nothing() {
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
    async fn what_nobody_asks_for_is_forgotten() {
        let mut source = Source::new();
        source.get().await.unwrap();
        source.now = source.now + FORGET;
        source.cache.refresh(source.now, |_| source.fetch()).await;
        assert_eq!(source.cache.entries.lock().unwrap().len(), 0);
        assert_eq!(source.fetched(), 1);
    }
}
