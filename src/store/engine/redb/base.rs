//! What redb itself holds: its last commit, as a snapshot.

use std::cell::OnceCell;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::redb::{ReadOnlyTable, ReadTransaction, StorageError, TableDefinition, TableError};

use super::errors::{storage_failed, table_failed, unexpected};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, TableId, Visit};

/// The type of keys and of values in every table.
pub(super) type Bytes = &'static [u8];

/// The table of that name.
pub(super) fn definition(name: &str) -> TableDefinition<'_, Bytes, Bytes> {
    TableDefinition::new(name)
}

/// A table, once it was looked for; `None` if it does not exist.
type OpenedTable = OnceCell<Option<Box<ReadOnlyTable<Bytes, Bytes>>>>;

/// One commit of redb's. Each table is opened once.
pub(super) struct BaseSnapshot {
    transaction: ReadTransaction,
    tables: [OpenedTable; TableId::LIMIT],
}

impl BaseSnapshot {
    pub(super) fn new(transaction: ReadTransaction) -> Self {
        Self {
            transaction,
            tables: [const { OnceCell::new() }; TableId::LIMIT],
        }
    }

    fn table(&self, table: TableId) -> Result<Option<&ReadOnlyTable<Bytes, Bytes>>, StoreError> {
        let cell = self.tables.get(table.index());
        let cell = cell.ok_or_else(|| unexpected("the table's index"))?;
        if let Some(opened) = cell.get() {
            return Ok(opened.as_deref());
        }
        let opened = match guarded(|| self.transaction.open_table(definition(table.name()))) {
            Ok(opened) => Some(Box::new(opened)),
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(table_failed(error)),
        };
        Ok(cell.get_or_init(|| opened).as_deref())
    }
}

impl Snapshot for BaseSnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(opened) = self.table(table)? else {
            return Ok(None);
        };
        guarded(|| Ok(opened.get(key)?.map(|value| value.value().to_vec()))).map_err(storage_failed)
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let Some(opened) = self.table(table)?.filter(|_| !is_empty(from, to)) else {
            return Ok(());
        };
        let mut rows = guarded(|| opened.range::<&[u8]>((from, to))).map_err(storage_failed)?;
        let mut next = || {
            guarded(|| {
                let row = rows.next().transpose()?;
                // Some damaged pages are noticed only here.
                if let Some((key, value)) = &row {
                    let _ = (key.value(), value.value());
                }
                Ok(row)
            })
        };
        while let Some((key, value)) = next().map_err(storage_failed)? {
            if visit(key.value(), value.value())?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Calls redb where it reads pages: a damaged page can make it panic.
pub(super) fn guarded<T, E: From<StorageError>>(ask: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(ask))
        .unwrap_or_else(|_| Err(StorageError::Corrupted("the engine panicked over a page".to_owned()).into()))
}

/// Whether no key lies between the two. `BTreeMap::range` panics on some of these.
pub(super) fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}
