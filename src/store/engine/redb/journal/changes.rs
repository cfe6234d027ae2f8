//! The rows that a transaction changed, in memory and as the content of a record.

use std::collections::BTreeMap;
use std::ops::Bound;

use ::redb::{StorageError, WriteTransaction};

use super::RECORD_LIMIT;
use crate::store::StoreError;
use crate::store::engine::TableId;
use crate::store::engine::redb::base::{call_redb, definition, is_empty};
use crate::store::engine::redb::live::row_bytes;

const PUT: u8 = 1;
const REMOVE: u8 = 2;

/// The new value of a row; `None` if it was removed.
pub(in crate::store::engine::redb) type Value = Option<Vec<u8>>;

/// Rows by table name and key.
pub(super) type Tables<T> = BTreeMap<Box<str>, BTreeMap<Vec<u8>, T>>;

/// The last value of each changed row.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::store::engine::redb) struct Changes(pub(super) Tables<Value>);

impl Changes {
    pub(super) fn set(&mut self, table: &str, key: &[u8], value: Value) {
        if let Some(rows) = self.0.get_mut(table) {
            rows.insert(key.to_vec(), value);
        } else {
            self.0
                .insert(table.into(), BTreeMap::from([(key.to_vec(), value)]));
        }
    }

    /// The new value of the row, if it was changed.
    pub(super) fn get(&self, table: TableId, key: &[u8]) -> Option<&Value> {
        self.0.get(table.name())?.get(key)
    }

    /// The changed rows between two keys, in order.
    pub(super) fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&Vec<u8>, Option<&Vec<u8>>)> {
        let rows = self.0.get(table.name()).filter(|_| !is_empty(from, to));
        rows.into_iter()
            .flat_map(move |rows| rows.range::<[u8], _>((from, to)))
            .map(|(key, value)| (key, value.as_ref()))
    }

    pub(in crate::store::engine::redb) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of changed rows.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Writes all rows in a redb transaction. Returns by how many bytes they grew.
    pub(super) fn write_to(&self, transaction: &WriteTransaction) -> Result<i64, StoreError> {
        let mut growth = 0;
        for (table, rows) in &self.0 {
            growth += write_rows(transaction, table, rows.iter())?;
        }
        Ok(growth)
    }

    /// The content of the record; `None` if it exceeds [`RECORD_LIMIT`].
    pub(super) fn to_content(&self) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        for (table, rows) in &self.0 {
            for (key, value) in rows {
                content.push(if value.is_some() { PUT } else { REMOVE });
                for part in [Some(table.as_bytes()), Some(key), value.as_deref()]
                    .into_iter()
                    .flatten()
                {
                    let length = u32::try_from(part.len()).ok()?.to_be_bytes();
                    if content.len() + length.len() + part.len() > RECORD_LIMIT {
                        return None;
                    }
                    content.extend_from_slice(&length);
                    content.extend_from_slice(part);
                }
            }
        }
        Some(content)
    }

    /// Adds the changes of a content from [`Changes::to_content`]; `None` if it is malformed.
    pub(super) fn add_content(&mut self, mut content: &[u8]) -> Option<()> {
        while let Some((kind, rest)) = content.split_first() {
            content = rest;
            let table = std::str::from_utf8(read_part(&mut content)?).ok()?;
            let key = read_part(&mut content)?;
            let value = match *kind {
                PUT => Some(read_part(&mut content)?.to_vec()),
                REMOVE => None,
                _ => return None,
            };
            self.set(table, key, value);
        }
        Some(())
    }
}

fn read_part<'a>(content: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = content.split_first_chunk()?;
    let (part, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *content = rest;
    Some(part)
}

/// Writes rows of one table in a redb transaction. Returns by how many bytes the table grew.
pub(super) fn write_rows<'a>(
    transaction: &WriteTransaction,
    table: &str,
    rows: impl Iterator<Item = (&'a Vec<u8>, &'a Value)>,
) -> Result<i64, StoreError> {
    let mut opened = call_redb(|| transaction.open_table(definition(table)))?;
    let mut growth = 0;
    for (key, value) in rows {
        let key = key.as_slice();
        let replaced = call_redb(|| {
            let replaced = match value {
                Some(value) => opened.insert(key, value.as_slice())?,
                None => opened.remove(key)?,
            };
            Ok::<_, StorageError>(replaced.map(|row| row.value().len()))
        })?;
        let bytes = |value: Option<usize>| value.map_or(0, |value| row_bytes(key.len(), value));
        growth += bytes(value.as_ref().map(Vec::len)) - bytes(replaced);
    }
    Ok(growth)
}
