//! A transaction: its changes in memory, over a snapshot.

use std::cell::RefCell;
use std::ops::Bound;

use super::changes::Changes;
use super::overlay::ReadSnapshot;
use crate::store::StoreError;
use crate::store::engine::merge::merge;
use crate::store::engine::{Snapshot, TableId, Tx, Visit};

pub(in crate::store::engine::redb) struct WriteTx {
    before: ReadSnapshot,
    changes: Changes,
    /// The row that was read last. Most rows are read just before they are written.
    last_read: RefCell<Option<(TableId, Vec<u8>)>>,
}

impl WriteTx {
    pub(in crate::store::engine::redb) fn new(before: ReadSnapshot) -> Self {
        Self {
            before,
            changes: Changes::default(),
            last_read: RefCell::default(),
        }
    }

    pub(in crate::store::engine::redb) fn into_changes(self) -> Changes {
        self.changes
    }
}

impl Snapshot for WriteTx {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(value) = self.changes.get(table, key) {
            return Ok(value.clone());
        }
        let found = self.before.get(table, key)?;
        *self.last_read.borrow_mut() = Some((table, key.to_vec()));
        Ok(found)
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        merge(
            self.changes.range(table, from, to),
            |visit| self.before.range(table, from, to, visit),
            visit,
        )
    }
}

impl Tx for WriteTx {
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let last_read = self.last_read.get_mut().as_ref();
        let was_read = last_read.is_some_and(|(last, row)| *last == table && row == key);
        // An unreadable page should fail this write, not the checkpoint with all writes.
        if !was_read && self.changes.get(table, key).is_none() {
            self.before.get(table, key)?;
        }
        self.changes.set(table.name(), key, Some(value.to_vec()));
        Ok(())
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        let was_there = self.get(table, key)?.is_some();
        if was_there {
            self.changes.set(table.name(), key, None);
        }
        Ok(was_there)
    }
}
