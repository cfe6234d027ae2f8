//! The parameters of one call that commits several transactions, and the locks that it takes.

use std::collections::BTreeMap;
use std::time::Instant;

use ring::digest;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::Ran;
use crate::store::engine::postgres::connection::Connection;
use crate::store::engine::postgres::errors::CallError;
use crate::store::engine::postgres::fetch::number;
use crate::store::engine::postgres::rows::group_of;
use crate::store::engine::postgres::sql;
use crate::store::tables::CLIENTS;

/// The parameters of [`sql::COMMIT`].
#[derive(Default)]
pub(in crate::store::engine::postgres) struct CommitBatch<'a> {
    lock_hashes: Vec<i64>,
    lock_is_exclusive: Vec<bool>,
    /// The generation of the catalog of each member.
    generations: Vec<i64>,
    used_members: Vec<i16>,
    /// The client that the member used; `None` if it has counted all.
    used_clients: Vec<Option<&'a [u8]>>,
    read_members: Vec<i16>,
    read_tables: Vec<i16>,
    read_keys: Vec<&'a [u8]>,
    read_stamps: Vec<Option<i64>>,
    range_members: Vec<i16>,
    range_tables: Vec<i16>,
    range_from: Vec<&'a [u8]>,
    range_to: Vec<Option<&'a [u8]>>,
    range_limits: Vec<i32>,
    range_rows: Vec<Vec<u8>>,
    write_members: Vec<i16>,
    write_tables: Vec<i16>,
    write_keys: Vec<&'a [u8]>,
    write_values: Vec<Option<&'a [u8]>>,
}

impl<'a> CommitBatch<'a> {
    pub(in crate::store::engine::postgres) fn new(members: impl Iterator<Item = &'a Ran>) -> Self {
        let mut batch = Self::default();
        let mut locks = Locks::default();
        for (index, ran) in members.enumerate() {
            let member = number(index);
            locks.lock(CATALOG_LOCK, ran.changes_for_all());
            batch.generations.push(ran.generation);
            for client in ran.used.keys() {
                locks.lock(lock_of(CLIENTS.id().index(), client), false);
                batch.used_members.push(member);
                batch.used_clients.push(Some(client.as_slice()));
            }
            if ran.used.has_counted {
                locks.lock(lock_of(CLIENTS.id().index(), &[]), true);
                batch.used_members.push(member);
                batch.used_clients.push(None);
            }
            for ((table, key), stamp) in &ran.reads.rows {
                locks.lock(lock_of(*table, key), false);
                batch.read_members.push(member);
                batch.read_tables.push(number(*table));
                batch.read_keys.push(key);
                batch.read_stamps.push(*stamp);
            }
            for read in &ran.reads.ranges {
                let group = read.range.group(read.table).unwrap_or_default();
                locks.lock(lock_of(read.table.index(), group), true);
                batch.range_members.push(member);
                batch.range_tables.push(number(read.table.index()));
                batch.range_from.push(&read.range.from);
                batch.range_to.push(read.range.to.as_deref());
                // One more row than was visited shows whether a row was added at the end.
                let rows = read.visited.len() + usize::from(read.to_end);
                batch.range_limits.push(i32::try_from(rows).unwrap_or(i32::MAX));
                let visited = read.visited.iter();
                let compared = visited.flat_map(|(key, stamp)| as_compared(key, *stamp));
                batch.range_rows.push(compared.collect());
            }
            for (table, key, value) in ran.writes.rows() {
                locks.lock(lock_of(table.index(), &[]), false);
                if let Some(group) = group_of(table, key) {
                    locks.lock(lock_of(table.index(), group), false);
                }
                locks.lock(lock_of(table.index(), key), true);
                batch.write_members.push(member);
                batch.write_tables.push(number(table.index()));
                batch.write_keys.push(key);
                batch.write_values.push(value.map(Vec::as_slice));
            }
        }
        (batch.lock_hashes, batch.lock_is_exclusive) = locks.0.into_iter().unzip();
        batch
    }

    /// The same without locks, for a batch of which nothing can be stored.
    pub(in crate::store::engine::postgres) fn without_locks(self) -> Self {
        Self {
            lock_hashes: Vec::new(),
            lock_is_exclusive: Vec::new(),
            ..self
        }
    }

    /// Calls the function once.
    pub(in crate::store::engine::postgres) async fn call(
        &self,
        connection: &mut Connection,
        id: &[u8],
        is_sent_again: bool,
        deadline: Instant,
    ) -> Result<Vec<Row>, CallError> {
        let range_rows: Vec<_> = self.range_rows.iter().map(Vec::as_slice).collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 21] = [
            (&id, Type::BYTEA),
            (&is_sent_again, Type::BOOL),
            (&self.lock_hashes, Type::INT8_ARRAY),
            (&self.lock_is_exclusive, Type::BOOL_ARRAY),
            (&self.generations, Type::INT8_ARRAY),
            (&self.used_members, Type::INT2_ARRAY),
            (&self.used_clients, Type::BYTEA_ARRAY),
            (&self.read_members, Type::INT2_ARRAY),
            (&self.read_tables, Type::INT2_ARRAY),
            (&self.read_keys, Type::BYTEA_ARRAY),
            (&self.read_stamps, Type::INT8_ARRAY),
            (&self.range_members, Type::INT2_ARRAY),
            (&self.range_tables, Type::INT2_ARRAY),
            (&self.range_from, Type::BYTEA_ARRAY),
            (&self.range_to, Type::BYTEA_ARRAY),
            (&self.range_limits, Type::INT4_ARRAY),
            (&range_rows, Type::BYTEA_ARRAY),
            (&self.write_members, Type::INT2_ARRAY),
            (&self.write_tables, Type::INT2_ARRAY),
            (&self.write_keys, Type::BYTEA_ARRAY),
            (&self.write_values, Type::BYTEA_ARRAY),
        ];
        connection.call(&sql::COMMIT, &parameters, deadline).await
    }
}

/// The lock of the catalog: shared by every transaction, exclusive for one that changes more of it than clients.
pub(in crate::store::engine::postgres) const CATALOG_LOCK: i64 = i64::MIN;

/// Locks in the order in which they are taken, and whether each is exclusive.
#[derive(Default)]
struct Locks(BTreeMap<i64, bool>);

impl Locks {
    fn lock(&mut self, hash: i64, is_exclusive: bool) {
        *self.0.entry(hash).or_default() |= is_exclusive;
    }
}

/// A visited row as `commit_v2` compares it. The stamp alone is not enough: all rows of a batch have the same one.
fn as_compared(key: &[u8], stamp: i64) -> Vec<u8> {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    [&stamp.to_be_bytes()[..], &length.to_be_bytes(), key].concat()
}

/// The lock of a row, of a group of rows, or, with an empty key, of a table. All releases must agree on it.
fn lock_of(table: usize, key: &[u8]) -> i64 {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&number(table).to_be_bytes());
    context.update(key);
    let digest = context.finish();
    let (first, _) = digest.as_ref().split_first_chunk().unwrap_or((&[0; 8], &[]));
    i64::from_be_bytes(*first)
}
