//! Rows: of a committed state, and of the transaction under way.

use std::cell::{OnceCell, RefCell};
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable, StorageError, Table, TableDefinition, TableError,
    WriteTransaction,
};

use super::errors::{storage_failed, table_failed, unexpected};
use super::journal::{Change, Record};
use crate::store::StoreError;
use crate::store::backend::{Snapshot, TableId, Tx, Visit};

/// What a table holds on either side.
pub(super) type Bytes = &'static [u8];

/// The table of that name.
pub(super) fn raw_definition(name: &str) -> TableDefinition<'_, Bytes, Bytes> {
    TableDefinition::new(name)
}

fn definition(table: TableId) -> TableDefinition<'static, Bytes, Bytes> {
    raw_definition(table.name())
}

/// A table that was looked for, and what there was.
type SeenTable = (TableId, Option<ReadOnlyTable<Bytes, Bytes>>);

/// A state that was committed.
pub(super) struct ReadSnapshot {
    transaction: ReadTransaction,
    tables: RefCell<Vec<SeenTable>>,
}

impl ReadSnapshot {
    pub(super) fn new(transaction: ReadTransaction) -> Self {
        Self {
            transaction,
            tables: RefCell::new(Vec::new()),
        }
    }

    fn with_table<T>(
        &self,
        table: TableId,
        look: impl FnOnce(&ReadOnlyTable<Bytes, Bytes>) -> Result<T, StorageError>,
    ) -> Result<Option<T>, StoreError> {
        let mut tables = self.tables.borrow_mut();
        if !tables.iter().any(|(id, _)| *id == table) {
            let opened = match guarded(|| self.transaction.open_table(definition(table))) {
                Ok(opened) => Some(opened),
                Err(TableError::TableDoesNotExist(_)) => None,
                Err(error) => return Err(table_failed(error)),
            };
            tables.push((table, opened));
        }
        match tables.iter().find(|(id, _)| *id == table) {
            Some((_, Some(opened))) => guarded(|| look(opened)).map(Some).map_err(storage_failed),
            _ => Ok(None),
        }
    }
}

impl Snapshot for ReadSnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.with_table(table, |opened| {
            Ok(opened.get(key)?.map(|value| value.value().to_vec()))
        })?;
        Ok(found.flatten())
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        if is_empty(from, to) {
            return Ok(());
        }
        match self.with_table(table, |opened| opened.range::<&[u8]>((from, to)))? {
            Some(rows) => visit_rows(rows, visit),
            None => Ok(()),
        }
    }
}

/// The transaction under way, and what it changed so far.
pub(super) struct WriteTx<'txn> {
    transaction: &'txn WriteTransaction,
    tables: Vec<OnceCell<Table<'txn, Bytes, Bytes>>>,
    record: Record,
}

impl<'txn> WriteTx<'txn> {
    pub(super) fn new(transaction: &'txn WriteTransaction) -> Self {
        let mut tables = Vec::new();
        tables.resize_with(TableId::LIMIT, OnceCell::new);
        Self {
            transaction,
            tables,
            record: Record::default(),
        }
    }

    /// Ends the work: what was changed, in its order.
    pub(super) fn into_record(self) -> Record {
        self.record
    }

    fn table(&self, table: TableId) -> Result<&Table<'txn, Bytes, Bytes>, StoreError> {
        let cell = self
            .tables
            .get(table.index())
            .ok_or_else(|| unexpected("the table's index"))?;
        if let Some(opened) = cell.get() {
            return Ok(opened);
        }
        let opened = guarded(|| self.transaction.open_table(definition(table))).map_err(table_failed)?;
        Ok(cell.get_or_init(|| opened))
    }

    fn table_mut(&mut self, table: TableId) -> Result<&mut Table<'txn, Bytes, Bytes>, StoreError> {
        self.table(table)?;
        let cell = self.tables.get_mut(table.index()).and_then(OnceCell::get_mut);
        cell.ok_or_else(|| unexpected("the table's index"))
    }
}

impl Snapshot for WriteTx<'_> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let opened = self.table(table)?;
        guarded(|| Ok(opened.get(key)?.map(|value| value.value().to_vec()))).map_err(storage_failed)
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        if is_empty(from, to) {
            return Ok(());
        }
        let opened = self.table(table)?;
        let rows = guarded(|| opened.range::<&[u8]>((from, to))).map_err(storage_failed)?;
        visit_rows(rows, visit)
    }
}

impl Tx for WriteTx<'_> {
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let opened = self.table_mut(table)?;
        guarded(|| opened.insert(key, value).map(|_| ())).map_err(storage_failed)?;
        self.record.note(Change::Put(table.name(), key, value));
        Ok(())
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        let opened = self.table_mut(table)?;
        let was_there = guarded(|| Ok(opened.remove(key)?.is_some())).map_err(storage_failed)?;
        if was_there {
            self.record.note(Change::Remove(table.name(), key));
        }
        Ok(was_there)
    }
}

fn visit_rows(mut rows: ::redb::Range<'_, Bytes, Bytes>, visit: &mut Visit<'_>) -> Result<(), StoreError> {
    let mut next = || {
        guarded(|| {
            let row = rows.next().transpose()?;
            // A damaged page may show only here.
            if let Some((key, value)) = &row {
                let _ = (key.value(), value.value());
            }
            Ok(row)
        })
    };
    while let Some((key, value)) = next().map_err(storage_failed)? {
        if visit(key.value(), value.value())? == ControlFlow::Break(()) {
            break;
        }
    }
    Ok(())
}

/// Asks the engine for something that makes it read pages: a damaged one can make it panic.
pub(super) fn guarded<T, E: From<StorageError>>(ask: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(ask))
        .unwrap_or_else(|_| Err(StorageError::Corrupted("the engine panicked over a page".to_owned()).into()))
}

fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}
