//! A transaction over rows that are known. It records what it reads, what it would have to know, and what it writes.
//!
//! A row that is not known looks as if it did not exist. The run goes on, so that it also finds the other rows that it
//! needs, and its outcome is discarded.

use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};

use super::rows::{KeyRange, KnownRows, ReadRange, Reads, RowOfUser, Writes};
use crate::store::StoreError;
use crate::store::engine::merge::merge;
use crate::store::engine::{Snapshot, TableId, Tx, Visit};

/// How many rows of a range are asked for first.
const FIRST_ROWS: usize = 64;
/// How many times more rows are asked for if these were not enough.
const GROWTH: usize = 16;
/// The longest key. PostgreSQL indexes no longer ones.
const KEY_LIMIT: usize = 2600;

/// One run of a transaction.
pub(super) struct View<'a> {
    known: &'a KnownRows,
    pub(super) reads: RefCell<Reads>,
    pub(super) writes: Writes,
}

impl<'a> View<'a> {
    pub(super) fn new(known: &'a KnownRows) -> Self {
        Self {
            known,
            reads: RefCell::default(),
            writes: Writes::default(),
        }
    }
}

impl Snapshot for View<'_> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(written) = self.writes.get(table, key) {
            return Ok(written.clone());
        }
        let mut reads = self.reads.borrow_mut();
        let place = (table.index(), key.to_vec());
        let Some(row) = self.known.get(table, key) else {
            reads.missed.keys.insert(place);
            return Ok(None);
        };
        let stamp = row.as_ref().map(|row| row.stamp);
        reads.rows.insert(place, stamp);
        Ok(row.as_ref().map(|row| row.value.clone()))
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let range = KeyRange::new(from, to);
        if range.is_empty() {
            return Ok(());
        }
        let place = (table.index(), range.clone());
        let Some(known) = self.known.ranges.get(&place) else {
            self.reads.borrow_mut().missed.ranges.insert(place, FIRST_ROWS);
            return Ok(());
        };
        let mut visited = Vec::new();
        let mut has_ended = false;
        merge(
            self.writes.range(table, &range),
            |visit| {
                for (key, row) in &known.rows {
                    visited.push((key.clone(), row.stamp));
                    if visit(key, &row.value)?.is_break() {
                        has_ended = true;
                        break;
                    }
                }
                Ok(())
            },
            &mut |key, value| {
                // The rows after the known ones may be between those that this transaction has written.
                let is_beyond =
                    !known.is_whole() && known.rows.last().is_some_and(|(last, _)| key > last.as_slice());
                if is_beyond {
                    Ok(ControlFlow::Break(()))
                } else {
                    visit(key, value)
                }
            },
        )?;
        let mut reads = self.reads.borrow_mut();
        if !has_ended && !known.is_whole() {
            reads
                .missed
                .ranges
                .insert(place, known.limit.saturating_mul(GROWTH));
        }
        reads.ranges.push(ReadRange {
            table,
            range,
            visited,
            to_end: !has_ended,
        });
        Ok(())
    }

    fn will_get(&self, table: TableId, key: &[u8]) {
        if self.known.get(table, key).is_none() {
            let place = (table.index(), key.to_vec());
            self.reads.borrow_mut().missed.keys.insert(place);
        }
    }

    fn will_range(&self, table: TableId, from: Bound<&[u8]>, to: Bound<&[u8]>) {
        let place = (table.index(), KeyRange::new(from, to));
        if !self.known.ranges.contains_key(&place) {
            self.reads.borrow_mut().missed.ranges.insert(place, FIRST_ROWS);
        }
    }

    fn will_get_of_user(&self, naming: TableId, key: &[u8], table: TableId, rest: &[u8]) {
        if self.known.get(naming, key).is_none() {
            let row = RowOfUser {
                table: table.index(),
                rest: rest.to_vec(),
                named_by: (naming.index(), key.to_vec()),
            };
            self.reads.borrow_mut().missed.of_users.insert(row);
        }
    }

    fn has_stored_catalog(&self) -> bool {
        true
    }
}

impl Tx for View<'_> {
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        if key.len() > KEY_LIMIT {
            return Err(StoreError::TooLarge(key.len()));
        }
        self.writes.set(table, key, Some(value.to_vec()));
        Ok(())
    }

    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        let was_there = self.get(table, key)?.is_some();
        if was_there {
            self.writes.set(table, key, None);
        }
        Ok(was_there)
    }
}
