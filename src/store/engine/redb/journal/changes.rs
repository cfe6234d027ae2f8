//! The rows that one transaction changed, in memory and as the content of a record.

use std::collections::BTreeMap;
use std::ops::Bound;

use ::redb::WriteTransaction;

use super::RECORD_LIMIT;
use crate::store::StoreError;
use crate::store::engine::TableId;
use crate::store::engine::redb::base::{definition, guarded, is_empty};
use crate::store::engine::redb::errors::{storage_failed, table_failed};

const PUT: u8 = 1;
const REMOVE: u8 = 2;

/// What is under a key: `None` where the row was removed.
pub(in crate::store::engine::redb) type Value = Option<Vec<u8>>;

/// Rows by table name and key.
pub(super) type Tables<T> = BTreeMap<Box<str>, BTreeMap<Vec<u8>, T>>;

/// The last value of each row that was changed.
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

    /// The row, if it was changed.
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

    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Writes all rows in a transaction of redb's.
    pub(super) fn write_to(&self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        for (table, rows) in &self.0 {
            write_rows(transaction, table, rows.iter())?;
        }
        Ok(())
    }

    /// The content of the record; `None` if it is longer than a record may be.
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

    /// Adds what [`Changes::to_content`] wrote; `None` if the bytes are not that.
    pub(super) fn add_content(&mut self, mut content: &[u8]) -> Option<()> {
        while let Some((kind, rest)) = content.split_first() {
            content = rest;
            let table = std::str::from_utf8(part(&mut content)?).ok()?;
            let key = part(&mut content)?;
            let value = match *kind {
                PUT => Some(part(&mut content)?.to_vec()),
                REMOVE => None,
                _ => return None,
            };
            self.set(table, key, value);
        }
        Some(())
    }
}

fn part<'a>(content: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = content.split_first_chunk()?;
    let (part, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *content = rest;
    Some(part)
}

/// Writes rows of one table in a transaction of redb's.
pub(super) fn write_rows<'a>(
    transaction: &WriteTransaction,
    table: &str,
    rows: impl Iterator<Item = (&'a Vec<u8>, &'a Value)>,
) -> Result<(), StoreError> {
    let opened = guarded(|| transaction.open_table(definition(table)));
    let mut opened = opened.map_err(table_failed)?;
    for (key, value) in rows {
        let key = key.as_slice();
        let done = match value {
            Some(value) => guarded(|| opened.insert(key, value.as_slice()).map(|_| ())),
            None => guarded(|| opened.remove(key).map(|_| ())),
        };
        done.map_err(storage_failed)?;
    }
    Ok(())
}
