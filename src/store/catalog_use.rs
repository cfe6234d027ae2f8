//! Which catalog a request uses, if several nodes share the store.
//!
//! The catalog in memory may be older than the one in the database. The first access of a request to the database shows
//! that. If a record that the request has used is another one now, the request is dropped before it has written anything,
//! and can run again with the newer catalog. A transaction has a use of its own: it is committed only if the records that
//! it has used are still the same.

use std::collections::BTreeSet;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use super::Store;

tokio::task_local! {
    static CURRENT: Arc<CatalogUse>;
}

/// The clients whose records a request or a transaction has taken from memory, by the bytes of their keys. The other records
/// change seldom, so they count as used.
#[derive(Clone, Debug, Default)]
pub struct UsedClients {
    keys: BTreeSet<Vec<u8>>,
    /// Whether it has counted the clients, so that any other client changes its outcome.
    pub(super) has_counted: bool,
}

impl UsedClients {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.has_counted || self.keys.contains(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.keys.iter()
    }
}

/// What a request has learned of the catalog that it began with.
#[derive(Debug)]
pub struct CatalogUse {
    generation: i64,
    used: Mutex<UsedClients>,
    /// Whether a transaction of the request has asked the database.
    has_asked: AtomicBool,
    is_confirmed: AtomicBool,
    is_outdated: AtomicBool,
    has_missed: AtomicBool,
}

impl CatalogUse {
    pub(super) fn new(generation: i64) -> Arc<Self> {
        Arc::new(Self {
            generation,
            used: Mutex::default(),
            has_asked: AtomicBool::new(false),
            is_confirmed: AtomicBool::new(false),
            is_outdated: AtomicBool::new(false),
            has_missed: AtomicBool::new(false),
        })
    }

    /// The [`CatalogUse`] of the current request. `None` once an access to the database has confirmed the catalog.
    pub(super) fn unconfirmed() -> Option<Arc<Self>> {
        let current = CURRENT.try_with(Arc::clone).ok()?;
        (!current.is_confirmed.load(Ordering::Relaxed)).then_some(current)
    }

    /// Runs a request. Returns `None` if its catalog is outdated; then it has written nothing.
    pub async fn run<T>(self: &Arc<Self>, request: impl Future<Output = T>) -> Option<T> {
        let mut running = pin!(CURRENT.scope(Arc::clone(self), request));
        poll_fn(|context| match running.as_mut().poll(context) {
            Poll::Pending if self.is_outdated.load(Ordering::Relaxed) => Poll::Ready(None),
            polled => polled.map(Some),
        })
        .await
    }

    /// Runs a transaction, and returns the clients that it has used.
    pub(super) fn of_transaction(generation: i64, run: impl FnOnce()) -> UsedClients {
        let current = Self::new(generation);
        CURRENT.sync_scope(Arc::clone(&current), run);
        current.used()
    }

    fn used(&self) -> UsedClients {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether what the request has used is still the same. If not, the request will be dropped.
    pub(super) fn check(&self, store: &Store) -> bool {
        let is_same = !store.catalog_has_changed_since(self.generation, &self.used());
        if !is_same {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
        is_same
    }

    /// Lets the transaction that runs now count as if it had used what the request has used.
    pub(super) fn pass_on(&self) {
        let used = self.used();
        let _ = CURRENT.try_with(|current| {
            let mut all = current.used.lock().unwrap_or_else(PoisonError::into_inner);
            all.keys.extend(used.keys);
            all.has_counted |= used.has_counted;
        });
    }

    pub(super) fn note_asked(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
    }

    /// Ends a write of the request. One that has asked the database nothing confirms nothing.
    pub(super) async fn end_write(&self) {
        if self.has_asked.load(Ordering::Relaxed) || self.is_outdated.load(Ordering::Relaxed) {
            self.confirm().await;
        }
    }

    /// Ends an access of the request to the database. If the catalog was outdated, it waits for ever, because [`Self::run`]
    /// drops the request.
    pub(super) async fn confirm(&self) {
        if self.is_outdated.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
        self.is_confirmed.store(true, Ordering::Relaxed);
    }

    /// Whether the catalog in memory is still the one that the request began with.
    pub fn is_newest(&self, store: &Store) -> bool {
        store.catalog_generation() == self.generation
    }

    /// Whether the request named something that its catalog does not have, and nothing has confirmed the catalog.
    pub fn has_missed(&self) -> bool {
        self.has_missed.load(Ordering::Relaxed) && !self.is_confirmed.load(Ordering::Relaxed)
    }
}

/// Notes that the current request or transaction has used the record of this client, or that there is none.
pub fn note_client(client_id: &str) {
    let _ = CURRENT.try_with(|current| {
        let mut used = current.used.lock().unwrap_or_else(PoisonError::into_inner);
        if !used.keys.contains(client_id.as_bytes()) {
            used.keys.insert(client_id.as_bytes().to_vec());
        }
    });
}

/// Notes that the current transaction has counted the clients.
pub fn note_count() {
    let _ = CURRENT.try_with(|current| {
        let mut used = current.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.has_counted = true;
    });
}

/// Notes that the current request named something that its catalog does not have.
pub fn note_miss() {
    // Work that no request has caused has no current one.
    let _ = CURRENT.try_with(|current| current.has_missed.store(true, Ordering::Relaxed));
}
