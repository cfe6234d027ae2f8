//! How a store that several nodes share hands its catalog to this process.

use std::collections::BTreeSet;

use super::StoreError;
use super::engine::{Snapshot, TableId};
use super::table::{Key, Table};

/// Puts a catalog that was read into memory.
pub type CatalogUpdate = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

/// Reads the catalog from a snapshot: the whole, or these rows of it. It may run more than once, and only its last update is
/// carried out.
pub type CatalogReader =
    Box<dyn Fn(&dyn Snapshot, Option<&ChangedRows>) -> Result<CatalogUpdate, StoreError> + Send + Sync>;

/// The rows of the catalog that were added, changed or removed: the index of the table and the key.
#[derive(Debug, Default)]
pub struct ChangedRows(BTreeSet<(usize, Vec<u8>)>);

impl ChangedRows {
    #[cfg(feature = "postgres")]
    pub(super) fn add(&mut self, table: usize, key: &[u8]) {
        self.0.insert((table, key.to_vec()));
    }

    /// Whether a row of this table is among them.
    pub fn has_any_of(&self, table: TableId) -> bool {
        self.of(table).next().is_some()
    }

    /// The keys of the rows of this table.
    pub fn keys<K: Key, R>(&self, table: &Table<K, R>) -> Vec<K> {
        self.of(table.id()).filter_map(|key| K::decode(key)).collect()
    }

    fn of(&self, table: TableId) -> impl Iterator<Item = &[u8]> {
        let first = (table.index(), Vec::new());
        let of_table = self
            .0
            .range(first..)
            .take_while(move |(index, _)| *index == table.index());
        of_table.map(|(_, key)| key.as_slice())
    }
}
