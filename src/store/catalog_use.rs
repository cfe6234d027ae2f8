//! Which catalog a request uses, if several nodes share the store.
//!
//! The catalog in memory may be older than the one in the database. The first access of a request to the database shows
//! that. Then the request is dropped before it has written anything, and can run again with the newer catalog.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use super::Store;

tokio::task_local! {
    static CURRENT: Arc<CatalogUse>;
}

/// What a request has learned of the catalog that it began with.
#[derive(Debug)]
pub struct CatalogUse {
    generation: i64,
    is_confirmed: AtomicBool,
    is_outdated: AtomicBool,
    has_missed: AtomicBool,
}

impl CatalogUse {
    pub(super) fn new(generation: i64) -> Arc<Self> {
        Arc::new(Self {
            generation,
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

    /// Like [`Self::is_current`]. If it is not, the request will be dropped.
    pub(super) fn check(&self, store: &Store) -> bool {
        let is_current = self.is_current(store);
        if !is_current {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
        is_current
    }

    /// Ends an access of the request to the database. If the catalog was outdated, it waits for ever, because [`Self::run`]
    /// drops the request.
    pub(super) async fn confirm(&self) {
        if self.is_outdated.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
        self.is_confirmed.store(true, Ordering::Relaxed);
    }

    /// Whether the catalog in memory is the one that the request began with.
    pub fn is_current(&self, store: &Store) -> bool {
        store.catalog_generation() == self.generation
    }

    /// Whether the request named something that its catalog does not have, and nothing has confirmed the catalog.
    pub fn has_missed(&self) -> bool {
        self.has_missed.load(Ordering::Relaxed) && !self.is_confirmed.load(Ordering::Relaxed)
    }
}

/// Notes that the current request named something that its catalog does not have.
pub fn note_miss() {
    // Work that no request has caused has no current one.
    let _ = CURRENT.try_with(|current| current.has_missed.store(true, Ordering::Relaxed));
}
