//! The number of bytes in all rows. Each commit updates it, so nothing has to walk the tables to know it.

use ::redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction};

use super::base::{call_redb, guarded};
use super::errors::engine_failed;
use crate::store::StoreError;

/// No table of the store, so that no backup holds it.
const TABLE: TableDefinition<'static, &str, u64> = TableDefinition::new("size");
const LIVE_BYTES: &str = "live_bytes";

/// The bytes that redb needs for a row besides its key and its value: the ends of both.
const ROW_OVERHEAD: usize = 8;

/// Redb merges a page with its neighbour when less than a third of it is used. So rows take at most this many times their
/// bytes.
const MAX_BYTES_PER_LIVE_BYTE: u64 = 3;

/// The bytes that rows of `live_bytes` take in the file at most. That does not include pages of an earlier commit.
pub(super) fn most_taken_by(live_bytes: u64) -> u64 {
    live_bytes.saturating_mul(MAX_BYTES_PER_LIVE_BYTE)
}

pub(super) fn row_bytes(key: usize, value: usize) -> i64 {
    i64::try_from(key + value + ROW_OVERHEAD).unwrap_or(i64::MAX)
}

/// The bytes of all rows in the last commit. If no commit has stored them, as in a database of an earlier release, they
/// are counted: that walks all tables, and counts a few percent too much.
pub(super) fn read_or_count(database: &Database) -> Result<u64, StoreError> {
    if let Some(live_bytes) = read(database)? {
        return Ok(live_bytes);
    }
    let transaction = call_redb(|| database.begin_write())?;
    let stats = call_redb(|| transaction.stats())?;
    Ok(stats.stored_bytes().saturating_add(stats.metadata_bytes()))
}

/// The bytes of all rows in the last commit; `None` if no commit has stored them.
pub(super) fn read(database: &Database) -> Result<Option<u64>, StoreError> {
    let transaction = call_redb(|| database.begin_read())?;
    let table = match guarded(|| transaction.open_table(TABLE)) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(engine_failed(error)),
    };
    Ok(call_redb(|| table.get(LIVE_BYTES))?.map(|row| row.value()))
}

/// Stores the bytes of all rows, which grew by `growth` in this transaction, and returns them. The first commit to a
/// database takes the number that was `counted`.
pub(super) fn update(transaction: &WriteTransaction, counted: u64, growth: i64) -> Result<u64, StoreError> {
    let mut table = call_redb(|| transaction.open_table(TABLE))?;
    let stored = call_redb(|| table.get(LIVE_BYTES))?.map(|row| row.value());
    let live_bytes = stored.unwrap_or(counted).saturating_add_signed(growth);
    call_redb(|| table.insert(LIVE_BYTES, live_bytes).map(drop))?;
    Ok(live_bytes)
}
