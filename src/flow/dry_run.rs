//! A transaction that is only tried.

use std::ops::Bound;

use crate::store::StoreError;
use crate::store::engine::{Snapshot, TableId, Tx, Visit};

/// A transaction that writes nothing and records whether it would have.
pub(super) struct DryRunTx<'a> {
    snapshot: &'a dyn Snapshot,
    would_write: bool,
}

impl<'a> DryRunTx<'a> {
    /// A transaction over this snapshot.
    pub(super) fn new(snapshot: &'a dyn Snapshot) -> Self {
        Self {
            snapshot,
            would_write: false,
        }
    }

    /// Whether it would have written.
    pub(super) fn would_write(&self) -> bool {
        self.would_write
    }
}

impl Snapshot for DryRunTx<'_> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.snapshot.get(table, key)
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.snapshot.range(table, from, to, visit)
    }
}

impl Tx for DryRunTx<'_> {
    fn put(&mut self, _: TableId, _: &[u8], _: &[u8]) -> Result<(), StoreError> {
        self.would_write = true;
        Ok(())
    }

    fn remove(&mut self, _: TableId, _: &[u8]) -> Result<bool, StoreError> {
        self.would_write = true;
        Ok(true)
    }
}
