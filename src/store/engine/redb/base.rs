//! A snapshot of redb's last commit, without the rows of the journal.

use std::cell::OnceCell;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ::redb::{ReadOnlyTable, ReadTransaction, StorageError, TableDefinition, TableError};

use super::errors::{engine_failed, unexpected};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, TableId, Visit};

/// The type of keys and of values in every table.
pub(super) type Bytes = &'static [u8];

pub(super) fn definition(name: &str) -> TableDefinition<'_, Bytes, Bytes> {
    TableDefinition::new(name)
}

/// A table once it was opened; `None` if it does not exist.
type OpenedTable = OnceCell<Option<Box<ReadOnlyTable<Bytes, Bytes>>>>;

/// A snapshot of redb. Each table is opened once.
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
            Err(error) => return Err(engine_failed(error)),
        };
        Ok(cell.get_or_init(|| opened).as_deref())
    }
}

impl Snapshot for BaseSnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(opened) = self.table(table)? else {
            return Ok(None);
        };
        let found = call_redb(|| opened.get(key))?;
        call_redb(|| Ok::<_, StorageError>(found.map(|value| value.value().to_vec())))
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
        let mut rows = call_redb(|| opened.range::<&[u8]>((from, to)))?;
        let mut next = || {
            call_redb(|| {
                let row = rows.next().transpose()?;
                // redb notices some damaged pages only when the bytes are read.
                if let Some((key, value)) = &row {
                    let _ = (key.value(), value.value());
                }
                Ok::<_, StorageError>(row)
            })
        };
        while let Some((key, value)) = next()? {
            if visit(key.value(), value.value())?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Calls redb, and turns a panic into an error: redb may panic over a damaged page.
pub(super) fn guarded<T, E: From<StorageError>>(call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(StorageError::Corrupted("the engine panicked over a page".to_owned()).into()))
}

/// Calls redb as [`guarded`] does, and turns its errors into those of the store.
pub(super) fn call_redb<T, E: From<StorageError> + Into<::redb::Error>>(
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, StoreError> {
    guarded(call).map_err(engine_failed)
}

/// Whether no key can lie between the bounds. `BTreeMap::range` panics on some of these.
pub(super) fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}
