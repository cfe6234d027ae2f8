//! What the journal holds and the database file does not yet: its rows, in memory, above the engine's.
//!
//! The engine copies a page for each row that changes in it, so it is given many changes at once, by another thread,
//! while the writer goes on. There are two layers: one that *grows* with each batch, and, while a checkpoint is under
//! way, one that stands *still* and is being written. A row of the upper one hides those below.
//!
//! A [`View`] is one moment of both. It sees the batches that were published before it was taken: a row keeps all its
//! versions for as long as its layer lasts, each with the number of its batch.
//!
//! While a layer stands still, the engine commits its rows and no others, so a view shows the same above the engine's
//! state before and after that commit. What else is written in the engine is written while there is no row here at all.
//! So while no transaction of the engine's is under way its state can be looked at once, for all who read.
//!
//! What a journal still holds when the database is opened comes here too, so that opening and reading write nothing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use ::redb::{ReadTransaction, WriteTransaction};
use arc_swap::ArcSwap;

use super::errors::{storage_failed, table_failed};
use super::rows::{Below, ReadSnapshot, guarded, is_empty, raw_definition};
use crate::store::StoreError;
use crate::store::engine::{TableId, Visit};

/// What is under a key: nothing where a row was removed.
pub(in crate::store::engine::redb) type Value = Option<Vec<u8>>;

/// A row of one table.
pub(in crate::store::engine::redb) type Row = (Vec<u8>, Value);

/// The rows of a table, by key.
type Rows<T> = BTreeMap<Vec<u8>, T>;

/// The rows of each table, by its name.
type Tables<T> = BTreeMap<Box<str>, Rows<T>>;

/// The rows that one transaction changed.
#[derive(Default)]
pub(in crate::store::engine::redb) struct Changes {
    tables: Tables<Value>,
}

impl Changes {
    /// Sets a row, over what was changed in it before.
    pub(in crate::store::engine::redb) fn set(&mut self, table: &str, key: &[u8], value: Value) {
        let rows = self.tables.entry(table.into()).or_default();
        rows.insert(key.to_vec(), value);
    }

    /// What was made of a row, if it was changed.
    pub(in crate::store::engine::redb) fn get(&self, table: TableId, key: &[u8]) -> Option<&Value> {
        self.tables.get(table.name())?.get(key)
    }

    /// The rows that were changed between two keys, in their order.
    pub(in crate::store::engine::redb) fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&Vec<u8>, Option<&Vec<u8>>)> {
        let rows = self.tables.get(table.name()).filter(|_| !is_empty(from, to));
        rows.into_iter()
            .flat_map(move |rows| rows.range::<[u8], _>((from, to)))
            .map(|(key, value)| (key, value.as_ref()))
    }

    /// Writes them in a transaction of the engine's.
    pub(in crate::store::engine::redb) fn write_to(
        &self,
        transaction: &WriteTransaction,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables.iter();
        tables.try_for_each(|(table, rows)| write(transaction, table, rows.iter()).map(|_| ()))
    }
}

/// Writes rows of a table, and says how many they were.
fn write<'a>(
    transaction: &WriteTransaction,
    table: &str,
    mut rows: impl Iterator<Item = (&'a Vec<u8>, &'a Value)>,
) -> Result<usize, StoreError> {
    let opened = guarded(|| transaction.open_table(raw_definition(table)));
    let mut opened = opened.map_err(table_failed)?;
    rows.try_fold(0, |written, (key, value)| {
        let key = key.as_slice();
        let done = match value {
            Some(value) => guarded(|| opened.insert(key, value.as_slice()).map(|_| ())),
            None => guarded(|| opened.remove(key).map(|_| ())),
        };
        done.map_err(storage_failed)?;
        Ok(written + 1)
    })
}

/// A row as its batches left it, each under the batch's number.
struct Versions {
    newest: (u64, Value),
    /// Those before it, the oldest first.
    older: Vec<(u64, Value)>,
}

impl Versions {
    /// The one that was there once the batch `last` had been published.
    fn at(&self, last: u64) -> Option<&Value> {
        let older = self.older.iter().rev();
        let mut all = std::iter::once(&self.newest).chain(older);
        all.find(|(number, _)| *number <= last).map(|(_, value)| value)
    }
}

#[derive(Default)]
struct Layer {
    tables: RwLock<Tables<Versions>>,
}

impl Layer {
    fn look(&self) -> RwLockReadGuard<'_, Tables<Versions>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: u64, changes: Changes) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        for (table, rows) in changes.tables {
            let held = tables.entry(table).or_default();
            for (key, value) in rows {
                let newest = (number, value);
                match held.entry(key) {
                    Entry::Occupied(mut entry) => {
                        let versions = entry.get_mut();
                        let before = mem::replace(&mut versions.newest, newest);
                        versions.older.push(before);
                    }
                    Entry::Vacant(entry) => {
                        let older = Vec::new();
                        entry.insert(Versions { newest, older });
                    }
                }
            }
        }
    }

    /// What was made of a row up to the batch `last`, if it was changed at all.
    fn get(&self, last: u64, table: TableId, key: &[u8]) -> Option<Value> {
        let tables = self.look();
        let rows = tables.get(table.name())?;
        rows.get(key)?.at(last).cloned()
    }

    /// The first row between two keys that was changed up to the batch `last`.
    fn first(&self, last: u64, table: TableId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Option<Row> {
        let tables = self.look();
        let rows = tables.get(table.name())?;
        let mut rows = rows.range::<[u8], _>((from, to));
        rows.find_map(|(key, versions)| Some((key.clone(), versions.at(last)?.clone())))
    }

    fn is_empty(&self) -> bool {
        self.look().is_empty()
    }
}

/// The two layers, the lower one only while it is being written, and what is below them.
struct Layers {
    still: Option<Arc<Layer>>,
    growing: Arc<Layer>,
    /// The engine's state, once somebody has looked at it: to look at it anew would take as long as a read does.
    below: OnceLock<Arc<Below>>,
    /// Whether it is kept for whoever looks next. Not while the engine commits, as it frees the pages that were replaced
    /// only where nobody looks at them.
    keeps: bool,
}

impl Layers {
    fn new(still: Option<Arc<Layer>>, growing: Arc<Layer>, keeps: bool) -> Self {
        Self {
            keeps: keeps && still.is_none(),
            still,
            growing,
            below: OnceLock::new(),
        }
    }
}

/// All rows that the database file does not hold yet. One thread publishes and freezes; the one that writes the layer
/// that stands still thaws it, before the next is frozen.
pub(in crate::store::engine::redb) struct Overlay {
    layers: ArcSwap<Layers>,
    /// The number of the batch that was published last.
    last: AtomicU64,
}

impl Overlay {
    pub(in crate::store::engine::redb) fn new() -> Self {
        Self {
            layers: ArcSwap::new(Arc::new(Layers::new(None, Arc::default(), true))),
            last: AtomicU64::new(0),
        }
    }

    /// This moment of everything that was committed. `begin` looks at the engine's state, where nobody does.
    pub(in crate::store::engine::redb) fn look(
        &self,
        begin: impl Fn() -> Result<ReadTransaction, StoreError>,
    ) -> Result<ReadSnapshot, StoreError> {
        loop {
            let layers = self.layers.load_full();
            let last = self.last.load(Ordering::Acquire);
            let below = if let Some(kept) = layers.below.get() {
                Arc::clone(kept)
            } else {
                let begun = Arc::new(Below::new(begin()?));
                // Else the engine may show more than the layers had when they were loaded.
                if !Arc::ptr_eq(&self.layers.load(), &layers) {
                    continue;
                }
                if layers.keeps {
                    Arc::clone(layers.below.get_or_init(|| begun))
                } else {
                    begun
                }
            };
            return Ok(ReadSnapshot::new(View { layers, last }, below));
        }
    }

    /// Lets go of the engine's state, and says whether the next one that is looked at is kept. Whoever calls this, and
    /// whenever: the layers stay what they are.
    pub(in crate::store::engine::redb) fn let_go(&self, keeps: bool) {
        self.layers.rcu(|layers| {
            let growing = Arc::clone(&layers.growing);
            Layers::new(layers.still.clone(), growing, keeps)
        });
    }

    /// Whether the database file holds everything.
    pub(in crate::store::engine::redb) fn is_empty(&self) -> bool {
        let layers = self.layers.load();
        layers.still.is_none() && layers.growing.is_empty()
    }

    /// Whether a layer stands still: it is being written, or that has failed.
    pub(in crate::store::engine::redb) fn stands_still(&self) -> bool {
        self.layers.load().still.is_some()
    }

    /// Shows what a batch has changed, all of it at once.
    pub(in crate::store::engine::redb) fn publish(&self, changes: Changes) {
        let number = self.last.load(Ordering::Relaxed) + 1;
        self.layers.load().growing.add(number, changes);
        self.last.store(number, Ordering::Release);
    }

    /// Has what was published so far stand still. Nothing may stand still yet.
    pub(in crate::store::engine::redb) fn freeze(&self) {
        let growing = Arc::clone(&self.layers.load().growing);
        self.replace(Some(growing), Arc::default());
    }

    /// Drops what stood still: the database file holds it.
    pub(in crate::store::engine::redb) fn thaw(&self) {
        let growing = Arc::clone(&self.layers.load().growing);
        self.replace(None, growing);
    }

    /// Drops everything: the engine holds it, in its file or in memory.
    pub(in crate::store::engine::redb) fn clear(&self) {
        self.replace(None, Arc::default());
    }

    fn replace(&self, still: Option<Arc<Layer>>, growing: Arc<Layer>) {
        self.layers.store(Arc::new(Layers::new(still, growing, true)));
    }

    /// Writes what stands still, in the order of its keys: no more than `most` rows in one transaction, which `next` ends
    /// to begin another. The last is the caller's to end.
    pub(in crate::store::engine::redb) fn write_still_to(
        &self,
        mut transaction: WriteTransaction,
        most: usize,
        next: impl Fn(WriteTransaction) -> Result<WriteTransaction, StoreError>,
    ) -> Result<WriteTransaction, StoreError> {
        let layers = self.layers.load_full();
        let Some(still) = &layers.still else {
            return Ok(transaction);
        };
        let mut room = most;
        for (table, rows) in still.look().iter() {
            let newest = rows.iter().map(|(key, versions)| (key, &versions.newest.1));
            let mut rows = newest.peekable();
            while rows.peek().is_some() {
                if room == 0 {
                    transaction = next(transaction)?;
                    room = most;
                }
                room -= write(&transaction, table, rows.by_ref().take(room))?;
            }
        }
        Ok(transaction)
    }
}

/// One moment of the overlay.
pub(in crate::store::engine::redb) struct View {
    layers: Arc<Layers>,
    /// The last batch that it sees.
    last: u64,
}

impl View {
    /// What was made of a row, if it was changed.
    pub(in crate::store::engine::redb) fn get(&self, table: TableId, key: &[u8]) -> Option<Value> {
        self.layers().find_map(|layer| layer.get(self.last, table, key))
    }

    /// The rows that were changed between two keys, in their order. No lock is held between two of them.
    pub(in crate::store::engine::redb) fn range<'a>(
        &'a self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&'a [u8]>,
    ) -> impl Iterator<Item = Row> + 'a {
        let [mut growing, mut still] =
            [Some(&self.layers.growing), self.layers.still.as_ref()].map(|layer| {
                let layer = layer.map(Arc::as_ref);
                self.range_of(layer, table, from.map(<[u8]>::to_vec), to)
                    .peekable()
            });
        std::iter::from_fn(move || match (growing.peek(), still.peek()) {
            (Some((upper, _)), Some((lower, _))) if upper > lower => still.next(),
            (Some((upper, _)), Some((lower, _))) => {
                if upper == lower {
                    still.next();
                }
                growing.next()
            }
            (Some(_), None) => growing.next(),
            (None, _) => still.next(),
        })
    }

    fn range_of<'a>(
        &'a self,
        layer: Option<&'a Layer>,
        table: TableId,
        mut from: Bound<Vec<u8>>,
        to: Bound<&'a [u8]>,
    ) -> impl Iterator<Item = Row> + 'a {
        std::iter::from_fn(move || {
            let start = from.as_ref().map(Vec::as_slice);
            if is_empty(start, to) {
                return None;
            }
            let first = layer?.first(self.last, table, start, to)?;
            from = Bound::Excluded(first.0.clone());
            Some(first)
        })
        .fuse()
    }

    /// The upper one first.
    fn layers(&self) -> impl Iterator<Item = &Layer> {
        std::iter::once(&self.layers.growing)
            .chain(&self.layers.still)
            .map(Arc::as_ref)
    }
}

/// Visits the rows below, which `visit_below` does in their order, as those above change them.
pub(in crate::store::engine::redb) fn over<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    above: impl Iterator<Item = (K, Option<V>)>,
    visit_below: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
    visit: &mut Visit<'_>,
) -> Result<(), StoreError> {
    let mut above = above.peekable();
    let mut has_ended = false;
    visit_below(&mut |key, value| {
        let mut is_hidden = false;
        while let Some((upper, changed)) = above.next_if(|(upper, _)| upper.as_ref() <= key) {
            is_hidden = upper.as_ref() == key;
            if let Some(changed) = changed
                && visit(upper.as_ref(), changed.as_ref())?.is_break()
            {
                has_ended = true;
                return Ok(ControlFlow::Break(()));
            }
        }
        if is_hidden {
            return Ok(ControlFlow::Continue(()));
        }
        let flow = visit(key, value)?;
        has_ended = flow.is_break();
        Ok(flow)
    })?;
    if has_ended {
        return Ok(());
    }
    for (key, value) in above {
        if let Some(value) = value
            && visit(key.as_ref(), value.as_ref())?.is_break()
        {
            break;
        }
    }
    Ok(())
}
