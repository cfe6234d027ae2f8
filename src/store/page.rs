//! Reads a table in pages, so that a list of any length takes the memory of one page.

use std::ops::Bound;

use super::engine::Snapshot;
use super::record::Record;
use super::table::{Key, Table};
use super::{Store, StoreError};

/// The most rows of one page. The longest records have some tens of KiB.
const PAGE_ROWS: usize = 100;

/// Some records of a list, from one short snapshot.
#[derive(Debug)]
pub struct Page<T, K> {
    /// The records, in the order of their keys.
    pub records: Vec<T>,
    /// The key after which the next page begins. `None` at the end of the table.
    pub next: Option<K>,
}

impl<T, K> Page<T, K> {
    /// The last page of a list.
    pub fn last(records: Vec<T>) -> Self {
        Self { records, next: None }
    }
}

impl<T, K: Key> Page<T, K> {
    /// Reads the rows after a key and keeps what `select` makes of them. Blocks.
    ///
    /// A list takes as long as its reader, and a count has the lowest priority. A snapshot of that duration would keep
    /// replaced pages of the file, which would grow. So each page has its own snapshot: a record that is added or changed in the meantime is in the list as
    /// it was before or as it is after, and no other record is missing or repeated.
    pub fn read<R: Record>(
        store: &Store,
        table: Table<K, R>,
        after: Option<K>,
        select: impl Fn(&dyn Snapshot, &K, R) -> Result<Option<T>, StoreError>,
    ) -> Result<Self, StoreError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        store.read_blocking(|snapshot| {
            let rows = table.scan(snapshot, (from.as_ref(), Bound::Unbounded), PAGE_ROWS)?;
            let is_full = rows.len() == PAGE_ROWS;
            let mut page = Self {
                records: Vec::new(),
                next: None,
            };
            for (key, record) in rows {
                page.records.extend(select(snapshot, &key, record)?);
                page.next = is_full.then_some(key);
            }
            Ok(page)
        })
    }

    /// Reads all rows in such pages, and calls `visit` with what `select` makes of them. Blocks.
    pub fn visit_all<R: Record>(
        store: &Store,
        table: Table<K, R>,
        select: impl Fn(&dyn Snapshot, &K, R) -> Result<Option<T>, StoreError>,
        mut visit: impl FnMut(T),
    ) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = Self::read(store, table, after, &select)?;
            page.records.into_iter().for_each(&mut visit);
            if page.next.is_none() {
                return Ok(());
            }
            after = page.next;
        }
    }
}
