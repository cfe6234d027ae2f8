//! The rows in memory that the journal holds and redb does not hold yet.
//!
//! There are two layers. The *growing* layer takes each batch. A checkpoint turns it into the *frozen* layer, which
//! another thread writes to redb, and starts a new growing layer. A row of the growing layer hides the same row of the
//! frozen layer, which hides the same row of redb.
//!
//! A row keeps all its versions until its layer is dropped, each with the number of its batch. A snapshot sees the
//! versions up to the last batch that was published before it began.
//!
//! The commit of a checkpoint changes nothing for a snapshot: it writes the rows of the frozen layer, which hide redb's
//! rows anyway. All other commits to redb happen while both layers are empty.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ::redb::{ReadTransaction, WriteTransaction};
use arc_swap::ArcSwap;

use super::changes::{Changes, Tables, Value, write_rows};
use crate::store::StoreError;
use crate::store::engine::merge::merge;
use crate::store::engine::redb::base::{BaseSnapshot, is_empty};
use crate::store::engine::{Snapshot, TableId, Visit};

/// The versions of a row with the numbers of their batches, oldest first.
type Versions = Vec<(u64, Value)>;

fn version_at(versions: &Versions, last: u64) -> Option<&Value> {
    let mut newest_first = versions.iter().rev();
    newest_first
        .find(|(number, _)| *number <= last)
        .map(|(_, value)| value)
}

#[derive(Default)]
struct Layer(RwLock<Tables<Versions>>);

impl Layer {
    fn tables(&self) -> RwLockReadGuard<'_, Tables<Versions>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: u64, changes: Changes) {
        let mut tables = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (table, rows) in changes.0 {
            let layer = tables.entry(table).or_default();
            for (key, value) in rows {
                layer.entry(key).or_default().push((number, value));
            }
        }
    }

    /// The new value of the row, if a batch up to `last` changed it.
    fn get(&self, last: u64, table: TableId, key: &[u8]) -> Option<Value> {
        let tables = self.tables();
        version_at(tables.get(table.name())?.get(key)?, last).cloned()
    }

    /// The rows between two keys that a batch up to `last` changed, in order. The lock is not held between two rows.
    fn range(
        &self,
        last: u64,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl Iterator<Item = (Vec<u8>, Value)> {
        let mut from = from.map(<[u8]>::to_vec);
        std::iter::from_fn(move || {
            let start = from.as_ref().map(Vec::as_slice);
            if is_empty(start, to) {
                return None;
            }
            let tables = self.tables();
            let mut rows = tables.get(table.name())?.range::<[u8], _>((start, to));
            let (key, value) =
                rows.find_map(|(key, versions)| Some((key.clone(), version_at(versions, last)?.clone())))?;
            from = Bound::Excluded(key.clone());
            Some((key, value))
        })
        .fuse()
    }
}

#[derive(Default)]
struct Layers {
    frozen: Option<Arc<Layer>>,
    growing: Arc<Layer>,
}

/// Both layers. The writer publishes and freezes; the checkpoint thread drops the frozen layer.
#[derive(Default)]
pub(in crate::store::engine::redb) struct Overlay {
    layers: ArcSwap<Layers>,
    /// The number of the last published batch.
    last: AtomicU64,
}

impl Overlay {
    /// A snapshot of all committed rows. `begin` starts a read of redb.
    pub(in crate::store::engine::redb) fn snapshot(
        &self,
        begin: impl Fn() -> Result<ReadTransaction, StoreError>,
    ) -> Result<ReadSnapshot, StoreError> {
        loop {
            let layers = self.layers.load_full();
            let last = self.last.load(Ordering::Acquire);
            let base = BaseSnapshot::new(begin()?);
            // If a checkpoint has ended in between, redb may show rows that are newer than `last`.
            if Arc::ptr_eq(&self.layers.load(), &layers) {
                return Ok(ReadSnapshot { layers, last, base });
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let layers = self.layers.load();
        layers.frozen.is_none() && layers.growing.tables().is_empty()
    }

    /// Whether a checkpoint is being written, or has failed.
    pub(super) fn is_frozen(&self) -> bool {
        self.layers.load().frozen.is_some()
    }

    /// Publishes a batch atomically.
    pub(super) fn publish(&self, changes: Changes) {
        let number = self.last.load(Ordering::Relaxed) + 1;
        self.layers.load().growing.add(number, changes);
        self.last.store(number, Ordering::Release);
    }

    /// Freezes the growing layer. No layer may be frozen yet.
    pub(super) fn freeze(&self) {
        let frozen = Some(Arc::clone(&self.layers.load().growing));
        let growing = Arc::default();
        self.layers.store(Arc::new(Layers { frozen, growing }));
    }

    /// Drops the frozen layer. Redb must hold its rows.
    pub(super) fn drop_frozen(&self) {
        let growing = Arc::clone(&self.layers.load().growing);
        let frozen = None;
        self.layers.store(Arc::new(Layers { frozen, growing }));
    }

    /// Drops both layers.
    pub(super) fn clear(&self) {
        self.layers.store(Arc::default());
    }

    /// Writes the frozen rows in a redb transaction, in the order of their keys. Returns by how many bytes they grew.
    pub(super) fn write_frozen_to(&self, transaction: &WriteTransaction) -> Result<i64, StoreError> {
        let mut growth = 0;
        let layers = self.layers.load_full();
        let Some(frozen) = &layers.frozen else {
            return Ok(growth);
        };
        for (table, rows) in frozen.tables().iter() {
            let newest = rows
                .iter()
                .filter_map(|(key, versions)| Some((key, &versions.last()?.1)));
            growth += write_rows(transaction, table, newest)?;
        }
        Ok(growth)
    }
}

/// A snapshot of all committed rows.
pub(in crate::store::engine::redb) struct ReadSnapshot {
    layers: Arc<Layers>,
    /// The number of the last batch that it sees.
    last: u64,
    base: BaseSnapshot,
}

impl Snapshot for ReadSnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let frozen = self.layers.frozen.as_deref();
        let changed = self.layers.growing.get(self.last, table, key);
        match changed.or_else(|| frozen?.get(self.last, table, key)) {
            Some(value) => Ok(value),
            None => self.base.get(table, key),
        }
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let visit_frozen = |visit: &mut Visit<'_>| {
            let frozen = self.layers.frozen.iter();
            merge(
                frozen.flat_map(|layer| layer.range(self.last, table, from, to)),
                |visit| self.base.range(table, from, to, visit),
                visit,
            )
        };
        let growing = self.layers.growing.range(self.last, table, from, to);
        merge(growing, visit_frozen, visit)
    }
}
