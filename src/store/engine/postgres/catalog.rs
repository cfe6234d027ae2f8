//! The catalog of the node: which generation of it is in memory, and how it is read.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::changes::{Change, RecentChanges, all_between};
use super::rows::Wanted;
use super::{RepeatedRead, State};
use crate::store::catalog_use::UsedClients;
use crate::store::{CatalogReader, CatalogUpdate, ChangedRows, StoreError};

/// The generation before the catalog was read for the first time. A generation is a time.
const NO_GENERATION: i64 = 0;

#[derive(Default)]
pub(super) struct CatalogState {
    reader: OnceLock<CatalogReader>,
    /// The generation in memory, or [`NO_GENERATION`].
    generation: AtomicI64,
    reload_lock: Mutex<()>,
    recent: RwLock<RecentChanges>,
}

impl CatalogState {
    pub(super) fn set_reader(&self, reader: CatalogReader) {
        let _ = self.reader.set(reader);
    }

    pub(super) fn generation(&self) -> i64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The generation whose later changes a fetch asks for. Before the first, the whole catalog is read.
    pub(super) fn known_generation(&self) -> i64 {
        match self.generation() {
            NO_GENERATION => i64::MAX,
            known => known,
        }
    }

    /// Whether any of these clients, or anything else of the catalog, was changed after this generation.
    pub(super) fn has_changed_since(&self, generation: i64, used: &UsedClients) -> bool {
        let recent = self.recent.read().unwrap_or_else(PoisonError::into_inner);
        recent.concern(generation, used)
    }
}

impl State {
    /// Reads what has changed if the catalog in memory is of another generation than the database.
    /// The database had this generation, and these changes since the one in memory, when it was asked.
    pub(super) async fn catch_up(
        &self,
        generation: i64,
        changes: &[Change],
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
            return self.read_catalog(deadline).await;
        }
        let Some(changes) = all_between(changes, known, generation) else {
            return self.read_catalog(deadline).await;
        };
        let mut changed = ChangedRows::default();
        for change in changes {
            changed.add(change.table, &change.key);
        }
        // The rows may be newer than this generation. Then they are read once more, with the next one.
        let read = self.run_reader(Some(&changed), deadline).await?;
        if read.generation < generation {
            return Err(StoreError::Unreachable(
                "an answer came from a primary from before a failover".to_owned(),
            ));
        }
        (read.update)()?;
        let mut recent = self
            .catalog
            .recent
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        recent.add(changes);
        drop(recent);
        self.catalog.generation.store(generation, Ordering::Release);
        self.note_current(asked_at);
        Ok(())
    }

    /// Reads what has changed since the catalog in memory, if anything has.
    pub(super) async fn reload_catalog(&self) -> Result<(), StoreError> {
        self.fetch(Wanted::default(), self.deadline()).await.map(drop)
    }

    /// Reads the whole catalog for the first time.
    pub(super) async fn load_catalog(&self) -> Result<(), StoreError> {
        let _guard = self.catalog.reload_lock.lock().await;
        self.read_catalog(self.deadline()).await
    }

    /// Reads the whole catalog. The lock of the catalog is held.
    async fn read_catalog(&self, deadline: Instant) -> Result<(), StoreError> {
        let read = self.run_reader(None, deadline).await?;
        (read.update)()?;
        let mut recent = self
            .catalog
            .recent
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        recent.begin_again(read.generation);
        drop(recent);
        self.catalog.generation.store(read.generation, Ordering::Release);
        self.note_current(read.asked_at);
        Ok(())
    }

    /// Runs the reader until all rows are known that it reads, of one snapshot.
    async fn run_reader(
        &self,
        changed: Option<&ChangedRows>,
        deadline: Instant,
    ) -> Result<ReadCatalog, StoreError> {
        let mut read = RepeatedRead::default();
        let mut fetched = self.fetch_rows(Wanted::default(), deadline).await?;
        loop {
            let ran = match self.catalog.reader.get() {
                Some(reader) => read.run(&|snapshot| reader(snapshot, changed)),
                None => Ok(Ok(Box::new(|| Ok(())) as CatalogUpdate)),
            };
            match ran {
                Ok(update) => {
                    return Ok(ReadCatalog {
                        update: update?,
                        generation: fetched.generation,
                        asked_at: fetched.asked_at,
                    });
                }
                Err(wanted) => {
                    fetched = self.fetch_rows(wanted?, deadline).await?;
                    read.known = std::mem::take(&mut fetched.known);
                }
            }
        }
    }
}

/// What the reader has read, of the catalog of this generation.
struct ReadCatalog {
    update: CatalogUpdate,
    generation: i64,
    /// The [`crate::clock::uptime`] at which the last rows were asked for.
    asked_at: Duration,
}
