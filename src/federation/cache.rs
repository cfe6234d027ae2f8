//! A cache of documents that others publish. It follows their `max-age`, and keeps stale documents if a server is down.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::clock::Timestamp;
use crate::random::Random;

/// How a cache keeps its documents.
#[derive(Clone, Copy, Debug)]
pub struct CachePolicy {
    /// How long a document without `max-age` is fresh.
    default_max_age: Duration,
    /// The upper bound for `max-age`.
    highest_max_age: Duration,
    /// How long a stale document is used if no new one can be fetched.
    stale_period: Duration,
    /// The most documents that are kept.
    most: usize,
    /// The most memory that they take, in bytes.
    room: usize,
    /// The most documents that requests fetch at one moment.
    most_fetches: usize,
    logs_failures: bool,
}

impl CachePolicy {
    /// Documents of providers and of the operator's clients. A withdrawn key is accepted for at most `highest_max_age`.
    pub const PUBLISHED: Self = Self {
        default_max_age: Duration::from_mins(30),
        highest_max_age: Duration::from_hours(1),
        stale_period: Duration::from_hours(24),
        most: usize::MAX,
        room: usize::MAX,
        most_fetches: Semaphore::MAX_PERMITS,
        logs_failures: true,
    };
    /// Metadata documents of clients. Anyone may name one, so their number is bounded. The log has the refused request
    /// instead of the failed fetch. A fetch can last ten seconds.
    pub const CLIENT_DOCUMENTS: Self = Self {
        default_max_age: LOWEST_MAX_AGE,
        highest_max_age: Duration::from_hours(24),
        stale_period: Duration::ZERO,
        most: 500,
        room: usize::MAX,
        most_fetches: 64,
        logs_failures: false,
    };
    /// Keys of clients that registered themselves. Anyone may register one, so their number is bounded.
    pub const REGISTRANT_KEYS: Self = Self {
        stale_period: Duration::ZERO,
        most: Self::CLIENT_DOCUMENTS.most,
        room: Self::CLIENT_DOCUMENTS.room,
        most_fetches: Self::CLIENT_DOCUMENTS.most_fetches,
        ..Self::PUBLISHED
    };

    /// The same, with this room in bytes.
    #[must_use]
    pub fn within(self, room: usize) -> Self {
        Self { room, ..self }
    }
}

/// What an entry of the cache takes beside its document.
const ENTRY_BYTES: usize = 512;

/// The lower bound for `max-age`.
const LOWEST_MAX_AGE: Duration = Duration::from_mins(5);
/// The least time between two attempts if there is no document.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The least time between two attempts to fetch a newer document.
const RENEWAL_INTERVAL: Duration = Duration::from_mins(1);
/// [`Cache::refresh`] removes a document that was not used for this long.
const UNUSED_PERIOD: Duration = Duration::from_hours(24);

/// A document that was fetched.
pub struct Published<T> {
    pub document: T,
    pub max_age: Option<Duration>,
    /// The memory that it takes, in bytes.
    pub weight: usize,
}

/// A fetched document, or why it was not fetched.
pub type Fetched<T> = Result<Published<T>, String>;

/// A document is not available. The text says why and names the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Documents of one kind by address.
pub struct Cache<T> {
    policy: CachePolicy,
    entries: Mutex<HashMap<String, Arc<CacheEntry<T>>>>,
    fetches: Semaphore,
    /// Whether a document was removed because others had no room.
    is_full: AtomicBool,
    random: Random,
}

struct CacheEntry<T> {
    /// Held during a fetch, so that other requests for the document wait for its result.
    fetching: tokio::sync::Mutex<()>,
    state: Mutex<EntryState<T>>,
}

struct EntryState<T> {
    document: Option<Arc<T>>,
    /// The memory that it takes, in bytes.
    weight: usize,
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
    /// The document, if it may still be used. One that was fetched while the clock was ahead is not, because it would last
    /// too long.
    fn usable(&self, stale_period: Duration, now: Timestamp) -> Option<&Arc<T>> {
        self.document
            .as_ref()
            .filter(|_| now < self.fresh_until + stale_period && !self.fetched_at.is_ahead_of(now))
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
            fetches: Semaphore::new(policy.most_fetches),
            is_full: AtomicBool::new(false),
            random,
        }
    }

    fn entry(&self, address: &str, now: Timestamp) -> Arc<CacheEntry<T>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.policy.most && !entries.contains_key(address) {
            remove_oldest(&mut entries);
        }
        let entry = entries.entry(address.to_owned()).or_insert_with(|| {
            Arc::new(CacheEntry {
                fetching: tokio::sync::Mutex::new(()),
                state: Mutex::new(EntryState {
                    document: None,
                    weight: 0,
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

    /// Whether [`Cache::get`] would fetch the document, and either the last attempt failed or the cache is full.
    pub fn would_retry(&self, address: &str, now: Timestamp) -> bool {
        let has_failed = |entry: &Arc<CacheEntry<T>>| entry.state().problem.is_some();
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = entries.len() >= self.policy.most || self.is_full.load(Ordering::Relaxed);
        let failed = entries.get(address).map_or(is_full, has_failed);
        drop(entries);
        failed && self.would_fetch(address, |_| true, now)
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
        // Without a permit no attempt is recorded, so the next request may make one.
        let Ok(_permit) = self.fetches.try_acquire() else {
            return Err(Unavailable("too many documents are being fetched".to_owned()));
        };
        self.record_attempt(address, &entry, now, fetch().await);
        self.make_room();
        let state = entry.state();
        usable(&state).ok_or_else(|| state.unavailable())
    }

    /// Forgets a document that cannot be used. It is fetched again after `RETRY_INTERVAL`.
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
        let _permit = self.fetches.try_acquire().ok()?;
        self.record_attempt(address, &entry, now, fetch().await);
        self.make_room();
        let state = entry.state();
        other(&state)
    }

    /// Removes the documents that were unused the longest until the others have room.
    fn make_room(&self) {
        if self.policy.room == usize::MAX {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = |(address, entry): (&String, &Arc<CacheEntry<T>>)| {
            ENTRY_BYTES + address.len() + entry.state().weight
        };
        while entries.iter().map(taken).sum::<usize>() > self.policy.room {
            remove_oldest(&mut entries);
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    /// Removes the documents at addresses that are not wanted.
    pub fn retain(&self, is_wanted: impl Fn(&str) -> bool) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|address, _| is_wanted(address));
    }

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
            self.record_attempt(&address, &entry, now, fetch(address.clone()).await);
        }
    }

    /// Records the result of an attempt. A failure is logged here and not for each request, because strangers could
    /// flood the log with requests.
    fn record_attempt(&self, address: &str, entry: &CacheEntry<T>, now: Timestamp, fetched: Fetched<T>) {
        if let Err(problem) = &fetched
            && self.policy.logs_failures
        {
            tracing::warn!(
                address,
                problem,
                "a document that others publish could not be fetched"
            );
        }
        let mut state = entry.state();
        state.attempted_at = Some(now);
        match fetched {
            Ok(Published {
                document,
                max_age,
                weight,
            }) => {
                state.weight = weight;
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

/// Removes the document that was unused the longest.
fn remove_oldest<T>(entries: &mut HashMap<String, Arc<CacheEntry<T>>>) {
    let requested_at = |entry: &CacheEntry<T>| entry.state().requested_at;
    let oldest = entries.iter().min_by_key(|(_, entry)| requested_at(entry));
    if let Some(address) = oldest.map(|(address, _)| address.clone()) {
        entries.remove(&address);
    }
}

impl<T> CacheEntry<T> {
    fn state(&self) -> std::sync::MutexGuard<'_, EntryState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
