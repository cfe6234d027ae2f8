//! Typed tables: records under keys whose bytes sort like their values.

mod hints;

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow, RangeBounds};

use uuid::Uuid;

use super::StoreError;
use super::engine::{Snapshot, TableId, Tx};
use super::record::{DecodeError, Record};

const USUAL_RECORD_LEN: usize = 512;
const USUAL_KEY_LEN: usize = 48;

/// A value that can be written as a key. The order of the bytes is the order of the values.
pub trait KeyBytes {
    /// Appends the key as the last part.
    fn encode(&self, out: &mut Vec<u8>);

    /// Appends the key as a part that other parts follow. A key of varying length gets a terminator, by which a reader
    /// finds its end. For a key of fixed length this is [`Self::encode`].
    fn encode_part(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
}

/// A key that can also be read back.
pub trait Key: KeyBytes + Sized {
    /// Reads a key that takes all of `bytes`; `None` if the bytes are malformed.
    fn decode(bytes: &[u8]) -> Option<Self> {
        match Self::decode_part(bytes)? {
            (key, []) => Some(key),
            _ => None,
        }
    }

    /// Reads a key from the front and returns the bytes after it.
    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])>;
}

impl KeyBytes for Uuid {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl Key for Uuid {
    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, rest) = bytes.split_first_chunk()?;
        Some((Self::from_bytes(*bytes), rest))
    }
}

/// Four bytes, the most significant first.
impl KeyBytes for u32 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }
}

impl Key for u32 {
    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, rest) = bytes.split_first_chunk()?;
        Some((Self::from_be_bytes(*bytes), rest))
    }
}

impl<const N: usize> KeyBytes for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<const N: usize> Key for [u8; N] {
    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, rest) = bytes.split_first_chunk()?;
        Some((*bytes, rest))
    }
}

/// Text as the last part is written as it is. Before another part, zero bytes are escaped as `00 FF`, and the text ends
/// with `00 00`, which sorts below any continuation of a longer text.
impl KeyBytes for str {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        for byte in self.bytes() {
            out.push(byte);
            if byte == 0 {
                out.push(0xFF);
            }
        }
        out.extend_from_slice(&[0, 0]);
    }
}

impl KeyBytes for String {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_str().encode(out);
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        self.as_str().encode_part(out);
    }
}

impl Key for String {
    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::from_utf8(bytes.to_vec()).ok()
    }

    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut text = Vec::new();
        let mut rest = bytes;
        loop {
            let (byte, after) = rest.split_first()?;
            rest = after;
            if *byte == 0 {
                let (mark, after) = rest.split_first()?;
                rest = after;
                match mark {
                    0 => return Some((Self::from_utf8(text).ok()?, rest)),
                    0xFF => {}
                    _ => return None,
                }
            }
            text.push(*byte);
        }
    }
}

impl<K: KeyBytes + ?Sized> KeyBytes for &K {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        (**self).encode_part(out);
    }
}

impl<A: KeyBytes, B: KeyBytes> KeyBytes for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode_part(out);
        self.1.encode(out);
    }

    fn encode_part(&self, out: &mut Vec<u8>) {
        self.0.encode_part(out);
        self.1.encode_part(out);
    }
}

impl<A: Key, B: Key> Key for (A, B) {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (first, rest) = A::decode_part(bytes)?;
        Some((first, B::decode(rest)?))
    }

    fn decode_part(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (first, rest) = A::decode_part(bytes)?;
        let (second, rest) = B::decode_part(rest)?;
        Some(((first, second), rest))
    }
}

/// A key of two parts, whose rows can be found by the first part.
pub trait Compound: Key {
    /// The part that the rows are grouped by.
    type First: Key;
}

impl<A: Key, B: Key> Compound for (A, B) {
    type First = A;
}

/// A table of records `R` under keys `K`: a name and two types, no data.
#[derive(Debug)]
pub struct Table<K, R> {
    id: TableId,
    rows: PhantomData<fn() -> (K, R)>,
}

impl<K, R> Clone for Table<K, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, R> Copy for Table<K, R> {}

impl<K, R> Table<K, R> {
    /// Declares a table. No other table may have the same `index` or `name`; see [`TableId::new`].
    pub const fn new(index: u8, name: &'static str) -> Self {
        Self {
            id: TableId::new(index, name),
            rows: PhantomData,
        }
    }

    /// Declares that the table is read into the in-memory catalog, or decides how tokens are made.
    #[must_use]
    pub const fn in_catalog(self) -> Self {
        Self {
            id: self.id.in_catalog(),
            rows: PhantomData,
        }
    }

    /// Declares that each record names a user ([`TableId::with_user_after`]).
    #[must_use]
    pub const fn with_user_after(self, mark: &'static [u8]) -> Self {
        Self {
            id: self.id.with_user_after(mark),
            rows: PhantomData,
        }
    }

    /// The table's id, for access to its bytes.
    pub const fn id(&self) -> TableId {
        self.id
    }
}

impl<K: Compound, R> Table<K, R> {
    /// Declares that rows are read and removed in groups, by the first part of their keys, which has this length.
    #[must_use]
    pub const fn grouped_by_first(self, len: u8) -> Self {
        Self {
            id: self.id.grouped_by_first(len),
            rows: PhantomData,
        }
    }
}

impl<K: Key, R: Record> Table<K, R> {
    /// The record under `key`.
    pub fn get<Q>(&self, snapshot: &dyn Snapshot, key: &Q) -> Result<Option<R>, StoreError>
    where
        K: Borrow<Q>,
        Q: KeyBytes + ?Sized,
    {
        match snapshot.get(self.id, &encoded(key))? {
            Some(stored) => self.record(&stored).map(Some),
            None => Ok(None),
        }
    }

    /// Whether there is a row under `key`.
    pub fn contains<Q>(&self, snapshot: &dyn Snapshot, key: &Q) -> Result<bool, StoreError>
    where
        K: Borrow<Q>,
        Q: KeyBytes + ?Sized,
    {
        Ok(snapshot.get(self.id, &encoded(key))?.is_some())
    }

    /// Writes a record, or replaces it.
    pub fn put<Q>(&self, tx: &mut dyn Tx, key: &Q, record: &R) -> Result<(), StoreError>
    where
        K: Borrow<Q>,
        Q: KeyBytes + ?Sized,
    {
        let mut stored = Vec::with_capacity(USUAL_RECORD_LEN);
        record
            .encode(&mut stored)
            .map_err(|error| StoreError::Unencodable {
                table: self.id.name(),
                what: error.to_string(),
            })?;
        tx.put(self.id, &encoded(key), &stored)
    }

    /// Removes a row. Returns whether it existed.
    pub fn remove<Q>(&self, tx: &mut dyn Tx, key: &Q) -> Result<bool, StoreError>
    where
        K: Borrow<Q>,
        Q: KeyBytes + ?Sized,
    {
        tx.remove(self.id, &encoded(key))
    }

    /// At most `limit` rows of a range of keys, in order.
    ///
    /// To continue a scan, begin the next one with `Bound::Excluded` of its last key.
    pub fn scan(
        &self,
        snapshot: &dyn Snapshot,
        keys: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<Vec<(K, R)>, StoreError> {
        let (from, to) = bounds(&keys);
        self.collect(snapshot, as_slice(&from), as_slice(&to), limit)
    }

    /// Calls `visit` for every row of a range of keys, in order, until it returns `Break`.
    pub fn visit(
        &self,
        snapshot: &dyn Snapshot,
        keys: impl RangeBounds<K>,
        mut visit: impl FnMut(K, R) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let (from, to) = bounds(&keys);
        snapshot.range(self.id, as_slice(&from), as_slice(&to), &mut |key, stored| {
            visit(self.key(key)?, self.record(stored)?)
        })
    }

    /// The keys of all rows that `is_match` selects. Reads every row: for rare work that is not worth an index.
    pub fn keys_where(
        &self,
        snapshot: &dyn Snapshot,
        is_match: impl Fn(&K, &R) -> bool,
    ) -> Result<Vec<K>, StoreError> {
        let mut keys = Vec::new();
        self.visit(snapshot, .., |key, record| {
            if is_match(&key, &record) {
                keys.push(key);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(keys)
    }

    /// The number of rows. Reads the encoded table.
    pub fn count(&self, snapshot: &dyn Snapshot) -> Result<u64, StoreError> {
        let mut rows = 0;
        snapshot.range(self.id, Bound::Unbounded, Bound::Unbounded, &mut |_, _| {
            rows += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    /// At most `limit` rows whose key has this first part, in order.
    pub fn scan_prefix<Q>(
        &self,
        snapshot: &dyn Snapshot,
        first: &Q,
        limit: usize,
    ) -> Result<Vec<(K, R)>, StoreError>
    where
        K: Compound,
        K::First: Borrow<Q>,
        Q: KeyBytes + ?Sized,
    {
        let (from, to) = prefix(first);
        self.collect(snapshot, Bound::Included(&from), as_slice(&to), limit)
    }

    fn collect(
        &self,
        snapshot: &dyn Snapshot,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(K, R)>, StoreError> {
        let mut rows = Vec::new();
        if limit == 0 {
            return Ok(rows);
        }
        snapshot.range(self.id, from, to, &mut |key, stored| {
            rows.push((self.key(key)?, self.record(stored)?));
            Ok(if rows.len() < limit {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })?;
        Ok(rows)
    }

    fn key(&self, bytes: &[u8]) -> Result<K, StoreError> {
        K::decode(bytes).ok_or_else(|| StoreError::Corrupt {
            table: self.id.name(),
            what: "a malformed key".to_owned(),
        })
    }

    fn record(&self, stored: &[u8]) -> Result<R, StoreError> {
        R::decode(stored).map_err(|error| match error {
            DecodeError::Version(found) if found > R::VERSION => StoreError::NewerRecord {
                table: self.id.name(),
                found,
                supported: R::VERSION,
            },
            other => StoreError::Corrupt {
                table: self.id.name(),
                what: other.to_string(),
            },
        })
    }
}

fn encoded<Q: KeyBytes + ?Sized>(key: &Q) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL_KEY_LEN);
    key.encode(&mut bytes);
    bytes
}

fn bounds<K: KeyBytes>(keys: &impl RangeBounds<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (keys.start_bound().map(encoded), keys.end_bound().map(encoded))
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// The bounds of all keys with this first part.
fn prefix<Q: KeyBytes + ?Sized>(first: &Q) -> (Vec<u8>, Bound<Vec<u8>>) {
    let mut from = Vec::with_capacity(USUAL_KEY_LEN);
    first.encode_part(&mut from);
    let mut to = from.clone();
    while let Some(last) = to.pop() {
        if let Some(next) = last.checked_add(1) {
            to.push(next);
            return (from, Bound::Excluded(to));
        }
    }
    (from, Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        let letters = prop::sample::select(vec!['\0', '\u{1}', 'a', 'b', '\u{7f}', 'ÿ', '\u{10FFFF}']);
        prop::collection::vec(letters, 0..5).prop_map(String::from_iter)
    }

    fn sorts_and_reads_back<K: Key + Ord + std::fmt::Debug>(one: &K, two: &K) {
        let (one_bytes, two_bytes) = (encoded(one), encoded(two));
        assert_eq!(one.cmp(two), one_bytes.cmp(&two_bytes), "{one:?} and {two:?}");
        assert_eq!(K::decode(&one_bytes).as_ref(), Some(one));
        let mut part = Vec::new();
        one.encode_part(&mut part);
        part.extend_from_slice(b"rest");
        assert_eq!(K::decode_part(&part).unwrap().0, *one);
        assert_eq!(K::decode_part(&part).unwrap().1, b"rest");
    }

    proptest! {
        #[test]
        fn keys_sort_as_their_values_do(
            one in (text(), any::<u32>(), text()),
            two in (text(), any::<u32>(), text()),
            ids in any::<(u128, u128)>(),
        ) {
            let (left, right) = (Uuid::from_u128(ids.0), Uuid::from_u128(ids.1));
            sorts_and_reads_back(&left, &right);
            sorts_and_reads_back(&one.1, &two.1);
            sorts_and_reads_back(&one.0, &two.0);
            sorts_and_reads_back(&(one.0.clone(), left), &(two.0.clone(), right));
            sorts_and_reads_back(&(left, one.0.clone()), &(left, two.0.clone()));
            sorts_and_reads_back(&(one.0.clone(), one.2.clone()), &(two.0.clone(), two.2.clone()));
            sorts_and_reads_back(&(one.1, one.2.clone()), &(two.1, two.2.clone()));
            sorts_and_reads_back(&((one.0.clone(), one.2.clone()), one.1), &((one.0, two.2), two.1));
        }

        #[test]
        fn no_bytes_make_the_reader_of_keys_panic(bytes in prop::collection::vec(prop::sample::select(vec![0, 1, 0xFF]), 0..40)) {
            if let Some(key) = <((String, Uuid), String)>::decode(&bytes) {
                prop_assert_eq!(encoded(&key), bytes);
            }
        }

        #[test]
        fn a_prefix_spans_exactly_the_keys_that_have_it(first in text(), key in (text(), any::<u32>())) {
            let (from, to) = prefix(first.as_str());
            let bytes = encoded(&key);
            let spanned = bytes >= from && match to {
                Bound::Excluded(to) => bytes < to,
                _ => true,
            };
            prop_assert_eq!(spanned, key.0 == first);
        }
    }

    #[test]
    fn the_last_prefix_has_no_end() {
        assert_eq!(prefix(&[0xFF_u8; 2]), (vec![0xFF, 0xFF], Bound::Unbounded));
        assert_eq!(
            prefix(&[0x01_u8, 0xFF]),
            (vec![0x01, 0xFF], Bound::Excluded(vec![0x02]))
        );
    }
}
