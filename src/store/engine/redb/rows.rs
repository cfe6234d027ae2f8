//! Rows: of a committed state, and of the transaction under way.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use ::redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable, StorageError, Table, TableDefinition, TableError,
    WriteTransaction,
};

use super::errors::{storage_failed, table_failed, unexpected};
use super::journal::{Change, Record};
use super::overlay::{Changes, View, over};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, TableId, Tx, Visit};

/// What a table holds on either side.
pub(in crate::store::engine::redb) type Bytes = &'static [u8];

/// The table of that name.
pub(in crate::store::engine::redb) fn raw_definition(name: &str) -> TableDefinition<'_, Bytes, Bytes> {
    TableDefinition::new(name)
}

fn definition(table: TableId) -> TableDefinition<'static, Bytes, Bytes> {
    raw_definition(table.name())
}

/// A table that was looked for, and what there was.
type SeenTable = OnceLock<Option<Box<ReadOnlyTable<Bytes, Bytes>>>>;

/// A state of the engine's, and those of its tables that were looked for.
pub(in crate::store::engine::redb) struct Below {
    transaction: ReadTransaction,
    tables: Vec<SeenTable>,
}

impl Below {
    pub(in crate::store::engine::redb) fn new(transaction: ReadTransaction) -> Self {
        let mut tables = Vec::new();
        tables.resize_with(TableId::LIMIT, OnceLock::new);
        Self { transaction, tables }
    }

    /// The table, if anything was ever written to it.
    fn table(&self, table: TableId) -> Result<Option<&ReadOnlyTable<Bytes, Bytes>>, StoreError> {
        let place = self.tables.get(table.index());
        let place = place.ok_or_else(|| unexpected("the table's index"))?;
        if let Some(opened) = place.get() {
            return Ok(opened.as_deref());
        }
        let opened = match guarded(|| self.transaction.open_table(definition(table))) {
            Ok(opened) => Some(Box::new(opened)),
            Err(TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(table_failed(error)),
        };
        Ok(place.get_or_init(|| opened).as_deref())
    }
}

/// A state that was committed: what the engine has, and above it what it has not been given yet.
pub(in crate::store::engine::redb) struct ReadSnapshot {
    above: View,
    below: Arc<Below>,
}

impl ReadSnapshot {
    pub(in crate::store::engine::redb) fn new(above: View, below: Arc<Below>) -> Self {
        Self { above, below }
    }

    /// Whether the other one looks at the engine through the same transaction.
    #[cfg(test)]
    pub(in crate::store::engine::redb) fn shares_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.below, &other.below)
    }
}

impl Snapshot for ReadSnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(value) = self.above.get(table, key) {
            return Ok(value);
        }
        let Some(opened) = self.below.table(table)? else {
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
        if is_empty(from, to) {
            return Ok(());
        }
        let opened = self.below.table(table)?;
        let rows = opened
            .map(|opened| guarded(|| opened.range::<&[u8]>((from, to))))
            .transpose()
            .map_err(storage_failed)?;
        over(
            self.above.range(table, from, to),
            |visit| rows.map_or(Ok(()), |rows| visit_rows(rows, visit)),
            visit,
        )
    }
}

/// The transaction under way: above a committed state, for as long as the journal can take it, and else in the engine.
pub(in crate::store::engine::redb) struct WriteTx<'txn, 'begin> {
    work: Work<'txn>,
    /// Where a transaction of the engine is, once one is needed.
    place: &'txn OnceCell<WriteTransaction>,
    begin: &'begin mut dyn FnMut() -> Result<WriteTransaction, StoreError>,
}

enum Work<'txn> {
    Journaled {
        before: Box<ReadSnapshot>,
        changes: Changes,
        record: Record,
        looked_at: RefCell<LookedAt>,
    },
    Direct(Tables<'txn>),
}

/// The rows that were looked at last: most of what is written was looked at just before.
#[derive(Default)]
struct LookedAt {
    rows: VecDeque<(TableId, Vec<u8>)>,
}

impl LookedAt {
    const MOST: usize = 8;

    fn note(&mut self, table: TableId, key: &[u8]) {
        // What falls out gives its room to what comes.
        let oldest = if self.rows.len() < Self::MOST {
            None
        } else {
            self.rows.pop_front()
        };
        let mut row = oldest.map_or_else(Vec::new, |(_, row)| row);
        row.clear();
        row.extend_from_slice(key);
        self.rows.push_back((table, row));
    }

    fn has(&self, table: TableId, key: &[u8]) -> bool {
        self.rows.iter().any(|(id, row)| *id == table && row == key)
    }
}

/// What is left to do when the work is done.
pub(in crate::store::engine::redb) enum Done {
    /// Nothing was changed.
    Nothing,
    /// These rows, and their record for the journal, which may be too long for it.
    Rows(Changes, Record),
    /// The engine's transaction is to be committed.
    Directly,
}

impl<'txn, 'begin> WriteTx<'txn, 'begin> {
    /// Above `before`, or at once in a transaction of the engine's. That is what `begin` begins.
    pub(in crate::store::engine::redb) fn new(
        before: Option<ReadSnapshot>,
        place: &'txn OnceCell<WriteTransaction>,
        begin: &'begin mut dyn FnMut() -> Result<WriteTransaction, StoreError>,
    ) -> Result<Self, StoreError> {
        let work = match before {
            Some(before) => Work::Journaled {
                before: Box::new(before),
                changes: Changes::default(),
                record: Record::default(),
                looked_at: RefCell::default(),
            },
            None => Work::Direct(Tables::of(place.get_or_init_with(begin)?)),
        };
        Ok(Self { work, place, begin })
    }

    /// Ends the work.
    pub(in crate::store::engine::redb) fn done(self) -> Done {
        match self.work {
            Work::Direct(tables) if tables.changed => Done::Directly,
            Work::Journaled { changes, record, .. } if !record.is_empty() => Done::Rows(changes, record),
            _ => Done::Nothing,
        }
    }

    /// Goes on in the engine, as more is changed than the journal takes at once.
    fn go_on_directly(&mut self) -> Result<(), StoreError> {
        if let Work::Journaled { changes, .. } = &self.work {
            let transaction = self.place.get_or_init_with(self.begin)?;
            changes.write_to(transaction)?;
            let changed = true;
            self.work = Work::Direct(Tables {
                changed,
                ..Tables::of(transaction)
            });
        }
        Ok(())
    }
}

/// What [`OnceCell`] will have for making a value that may fail.
trait GetOrInitWith<T> {
    fn get_or_init_with(&self, make: &mut dyn FnMut() -> Result<T, StoreError>) -> Result<&T, StoreError>;
}

impl<T> GetOrInitWith<T> for OnceCell<T> {
    fn get_or_init_with(&self, make: &mut dyn FnMut() -> Result<T, StoreError>) -> Result<&T, StoreError> {
        if let Some(made) = self.get() {
            return Ok(made);
        }
        let made = make()?;
        Ok(self.get_or_init(|| made))
    }
}

impl Snapshot for WriteTx<'_, '_> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match &self.work {
            Work::Direct(tables) => tables.get(table, key),
            Work::Journaled {
                before,
                changes,
                looked_at,
                ..
            } => {
                if let Some(value) = changes.get(table, key) {
                    return Ok(value.clone());
                }
                let found = before.get(table, key)?;
                looked_at.borrow_mut().note(table, key);
                Ok(found)
            }
        }
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        match &self.work {
            Work::Direct(tables) => tables.range(table, from, to, visit),
            Work::Journaled { before, changes, .. } => over(
                changes.range(table, from, to),
                |visit| before.range(table, from, to, visit),
                visit,
            ),
        }
    }
}

impl Tx for WriteTx<'_, '_> {
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        match &mut self.work {
            Work::Direct(tables) => return tables.put(table, key, value),
            Work::Journaled {
                before,
                changes,
                record,
                looked_at,
            } => {
                // A page that cannot be read is better met now, by this write, than by the checkpoint, for all.
                if changes.get(table, key).is_none() && !looked_at.get_mut().has(table, key) {
                    before.get(table, key)?;
                }
                record.note(Change::Put(table.name(), key, value));
                changes.set(table.name(), key, Some(value.to_vec()));
                if !record.is_too_long() {
                    return Ok(());
                }
            }
        }
        self.go_on_directly()
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        if let Work::Direct(tables) = &mut self.work {
            return tables.remove(table, key);
        }
        if self.get(table, key)?.is_none() {
            return Ok(false);
        }
        if let Work::Journaled { changes, record, .. } = &mut self.work {
            record.note(Change::Remove(table.name(), key));
            changes.set(table.name(), key, None);
            if record.is_too_long() {
                self.go_on_directly()?;
            }
        }
        Ok(true)
    }
}

/// The tables of a transaction of the engine's, and whether something was changed in them.
struct Tables<'txn> {
    transaction: &'txn WriteTransaction,
    opened: Vec<OnceCell<Table<'txn, Bytes, Bytes>>>,
    changed: bool,
}

impl<'txn> Tables<'txn> {
    fn of(transaction: &'txn WriteTransaction) -> Self {
        let mut opened = Vec::new();
        opened.resize_with(TableId::LIMIT, OnceCell::new);
        Self {
            transaction,
            opened,
            changed: false,
        }
    }

    fn table(&self, table: TableId) -> Result<&Table<'txn, Bytes, Bytes>, StoreError> {
        let cell = self
            .opened
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
        let cell = self.opened.get_mut(table.index()).and_then(OnceCell::get_mut);
        cell.ok_or_else(|| unexpected("the table's index"))
    }

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

    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.changed = true;
        let opened = self.table_mut(table)?;
        guarded(|| opened.insert(key, value).map(|_| ())).map_err(storage_failed)
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        let opened = self.table_mut(table)?;
        let was_there = guarded(|| Ok(opened.remove(key)?.is_some())).map_err(storage_failed)?;
        self.changed |= was_there;
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
pub(in crate::store::engine::redb) fn guarded<T, E: From<StorageError>>(
    ask: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(ask))
        .unwrap_or_else(|_| Err(StorageError::Corrupted("the engine panicked over a page".to_owned()).into()))
}

pub(in crate::store::engine::redb) fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}
