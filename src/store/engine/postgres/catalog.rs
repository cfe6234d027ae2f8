//! The catalog of the node: which generation of it is in memory, and how it is read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::rows::Wanted;
use super::{RepeatedRead, State};
use crate::store::{CatalogReader, CatalogUpdate, StoreError};

#[derive(Default)]
pub(super) struct CatalogState {
    reader: OnceLock<CatalogReader>,
    /// The generation in memory; 0 before the first.
    generation: AtomicI64,
    reload_lock: Mutex<()>,
}

impl CatalogState {
    pub(super) fn set_reader(&self, reader: CatalogReader) {
        let _ = self.reader.set(reader);
    }

    pub(super) fn generation(&self) -> i64 {
        self.generation.load(Ordering::Acquire)
    }
}

impl State {
    /// Reads the catalog if the one in memory is of another generation than the database.
    /// The database had this generation when it was asked.
    pub(super) async fn catch_up(
        &self,
        generation: i64,
        asked_at: Duration,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        if self.catalog.generation() == generation {
            self.note_current(asked_at);
            return Ok(());
        }
        let _guard = self.catalog.reload_lock.lock().await;
        let known = self.catalog.generation();
        if known == generation {
            return Ok(());
        }
        if known > generation {
            // An answer that was under way while the catalog was read is older, and harmless.
            let newest = self.fetch_rows(Wanted::default(), deadline).await?.generation;
            if newest >= known {
                return Ok(());
            }
            tracing::error!(known, newest, "the database has gone back to an earlier state");
        }
        self.read_catalog(deadline).await
    }

    pub(super) async fn reload_catalog(&self) -> Result<(), StoreError> {
        let deadline = self.deadline();
        let _guard = self.catalog.reload_lock.lock().await;
        self.read_catalog(deadline).await
    }

    /// Reads the catalog, unless the one of this generation was replaced already.
    pub(super) async fn replace_catalog(&self, generation: i64, deadline: Instant) -> Result<(), StoreError> {
        let _guard = self.catalog.reload_lock.lock().await;
        if self.catalog.generation() != generation {
            return Ok(());
        }
        self.read_catalog(deadline).await
    }

    async fn read_catalog(&self, deadline: Instant) -> Result<(), StoreError> {
        let mut read = RepeatedRead::default();
        let mut answered = None;
        loop {
            let ran = match self.catalog.reader.get() {
                Some(reader) => read.run(&|snapshot| reader(snapshot)),
                None => Ok(Ok(Box::new(|| Ok(())) as CatalogUpdate)),
            };
            match (ran, answered) {
                (Ok(update), Some((generation, asked_at))) => {
                    update?()?;
                    self.catalog.generation.store(generation, Ordering::Release);
                    self.note_current(asked_at);
                    return Ok(());
                }
                (Ok(_), None) => {
                    let fetched = self.fetch_rows(Wanted::default(), deadline).await?;
                    answered = Some((fetched.generation, fetched.asked_at));
                }
                (Err(wanted), _) => {
                    let fetched = self.fetch_rows(wanted?, deadline).await?;
                    answered = Some((fetched.generation, fetched.asked_at));
                    read.known = fetched.known;
                }
            }
        }
    }
}
