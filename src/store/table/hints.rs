//! What a closure says it will read, so that a server is asked for all of it at once.

use std::borrow::Borrow;
use std::ops::{Bound, RangeBounds};

use super::{Compound, Key, KeyBytes, Table, as_slice, bounds, encoded, prefix};
use crate::store::engine::{Snapshot, TableId};
use crate::store::record::Record;

impl<K: Key, R: Record> Table<K, R> {
    /// Says that the record under `key` will be read ([`Snapshot::will_get`]).
    pub fn will_get<Q>(&self, snapshot: &dyn Snapshot, key: &Q)
    where
        K: Borrow<Q>,
        Q: KeyBytes + ?Sized,
    {
        snapshot.will_get(self.id, &encoded(key));
    }

    /// Says that a row of the user whom the record under `key` names will be read ([`Snapshot::will_get_of_user`]).
    pub fn will_get_of_user<Q>(&self, snapshot: &dyn Snapshot, key: &Q, table: TableId, rest: &str)
    where
        K: Borrow<Q>,
        Q: KeyBytes + ?Sized,
    {
        snapshot.will_get_of_user(self.id, &encoded(key), table, rest.as_bytes());
    }

    /// Says that this range of keys will be scanned ([`Snapshot::will_range`]).
    pub fn will_scan(&self, snapshot: &dyn Snapshot, keys: &impl RangeBounds<K>) {
        let (from, to) = bounds(keys);
        snapshot.will_range(self.id, as_slice(&from), as_slice(&to));
    }

    /// Says that the rows whose key has this first part will be scanned ([`Snapshot::will_range`]).
    pub fn will_scan_prefix<Q>(&self, snapshot: &dyn Snapshot, first: &Q)
    where
        K: Compound,
        K::First: Borrow<Q>,
        Q: KeyBytes + ?Sized,
    {
        let (from, to) = prefix(first);
        snapshot.will_range(self.id, Bound::Included(&from), as_slice(&to));
    }
}
