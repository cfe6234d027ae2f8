//! Rows and ranges of rows, as they are asked for, known, read and written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use crate::store::engine::TableId;

/// A half-open range of keys in a table. Without an end, it reaches to the last row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyRange {
    pub(super) from: Vec<u8>,
    pub(super) to: Option<Vec<u8>>,
}

impl KeyRange {
    pub(super) fn new(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Self {
        let after = |key: &[u8]| [key, &[0]].concat();
        Self {
            from: match from {
                Bound::Unbounded => Vec::new(),
                Bound::Included(key) => key.to_vec(),
                Bound::Excluded(key) => after(key),
            },
            to: match to {
                Bound::Unbounded => None,
                Bound::Included(key) => Some(after(key)),
                Bound::Excluded(key) => Some(key.to_vec()),
            },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// The range of all keys that begin with `prefix`.
    fn of_group(prefix: &[u8]) -> Self {
        let mut to = prefix.to_vec();
        while let Some(last) = to.pop() {
            if let Some(next) = last.checked_add(1) {
                to.push(next);
                return Self {
                    from: prefix.to_vec(),
                    to: Some(to),
                };
            }
        }
        Self {
            from: prefix.to_vec(),
            to: None,
        }
    }

    /// The key prefix that all keys of the range share, if the table groups its rows and the range is within a group.
    pub(super) fn group(&self, table: TableId) -> Option<&[u8]> {
        let prefix = group_of(table, &self.from)?;
        let group = Self::of_group(prefix);
        let ends_within = match (&self.to, &group.to) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(to), Some(end)) => to <= end,
        };
        ends_within.then_some(prefix)
    }
}

/// The prefix by which the table groups the row of this key.
pub(super) fn group_of(table: TableId, key: &[u8]) -> Option<&[u8]> {
    match table.group_len() {
        0 => None,
        len => key.get(..len),
    }
}

/// A row in the database: its value and the stamp of the commit that wrote it last.
#[derive(Clone, Debug)]
pub(super) struct StoredRow {
    pub(super) value: Vec<u8>,
    pub(super) stamp: i64,
}

/// The first rows of a range.
#[derive(Debug, Default)]
pub(super) struct KnownRange {
    pub(super) rows: Vec<(Vec<u8>, StoredRow)>,
    /// How many rows were asked for. With fewer rows, the range has no others.
    pub(super) limit: usize,
}

impl KnownRange {
    pub(super) fn is_whole(&self) -> bool {
        self.rows.len() < self.limit
    }
}

/// A row whose key is that of a user, with `rest` after it. Another row names the user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowOfUser {
    pub(super) table: usize,
    pub(super) rest: Vec<u8>,
    /// The row that names the user: its table and its key.
    pub(super) named_by: (usize, Vec<u8>),
}

/// The rows and ranges that a transaction asks for, by the index of the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) keys: BTreeSet<(usize, Vec<u8>)>,
    /// Rows whose keys only the database can tell.
    pub(super) of_users: BTreeSet<RowOfUser>,
    /// Each range with the number of rows that are asked for.
    pub(super) ranges: BTreeMap<(usize, KeyRange), usize>,
}

impl Wanted {
    pub(super) fn tables(&self) -> BTreeSet<usize> {
        let keys = self.keys.iter().map(|(table, _)| *table);
        let ranges = self.ranges.keys().map(|(table, _)| *table);
        let of_users = self.of_users.iter();
        let of_users = of_users.flat_map(|row| [row.table, row.named_by.0]);
        keys.chain(ranges).chain(of_users).collect()
    }
}

/// Rows of one snapshot of the database.
#[derive(Debug, Default)]
pub(super) struct KnownRows {
    pub(super) rows: HashMap<usize, HashMap<Vec<u8>, Option<StoredRow>>>,
    pub(super) ranges: BTreeMap<(usize, KeyRange), KnownRange>,
}

impl KnownRows {
    /// The row under `key`, or `Some(None)` if there is none. `None` if that is not known.
    pub(super) fn get(&self, table: TableId, key: &[u8]) -> Option<&Option<StoredRow>> {
        self.rows.get(&table.index())?.get(key)
    }
}

/// A range that a transaction has read.
#[derive(Debug)]
pub(super) struct ReadRange {
    pub(super) table: TableId,
    pub(super) range: KeyRange,
    /// The keys and stamps of the rows that were visited, in order.
    pub(super) visited: Vec<(Vec<u8>, i64)>,
    /// Whether the visit went to the end of the range.
    pub(super) to_end: bool,
}

/// What one run of a transaction has read.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// The stamp of each row that was read; `None` if there was no row.
    pub(super) rows: BTreeMap<(usize, Vec<u8>), Option<i64>>,
    pub(super) ranges: Vec<ReadRange>,
    /// What was read although it is not known. The run saw no row in its place.
    pub(super) missed: Wanted,
}

impl Reads {
    pub(super) fn has_missed(&self) -> bool {
        !self.missed.keys.is_empty() || !self.missed.ranges.is_empty()
    }
}

/// The written rows of a table. A value of `None` removes the row.
type WrittenRows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The rows that a transaction writes, by the index of the table.
#[derive(Debug, Default)]
pub(super) struct Writes(BTreeMap<usize, (TableId, WrittenRows)>);

impl Writes {
    pub(super) fn set(&mut self, table: TableId, key: &[u8], value: Option<Vec<u8>>) {
        let (_, rows) = self
            .0
            .entry(table.index())
            .or_insert_with(|| (table, BTreeMap::new()));
        rows.insert(key.to_vec(), value);
    }

    pub(super) fn get(&self, table: TableId, key: &[u8]) -> Option<&Option<Vec<u8>>> {
        self.0.get(&table.index())?.1.get(key)
    }

    /// The written rows between two keys, in order.
    pub(super) fn range(
        &self,
        table: TableId,
        range: &KeyRange,
    ) -> impl Iterator<Item = (&Vec<u8>, Option<&Vec<u8>>)> {
        let from = Bound::Included(range.from.as_slice());
        let to = range
            .to
            .as_ref()
            .map_or(Bound::Unbounded, |to| Bound::Excluded(to.as_slice()));
        let rows = self.0.get(&table.index()).filter(|_| !range.is_empty());
        rows.into_iter()
            .flat_map(move |(_, rows)| rows.range::<[u8], _>((from, to)))
            .map(|(key, value)| (key, value.as_ref()))
    }

    /// Every written row with its table.
    pub(super) fn rows(&self) -> impl Iterator<Item = (TableId, &Vec<u8>, Option<&Vec<u8>>)> {
        self.0
            .values()
            .flat_map(|(table, rows)| rows.iter().map(|(key, value)| (*table, key, value.as_ref())))
    }

    /// Leaves out the rows that were read and have this value already.
    pub(super) fn drop_unchanged(&mut self, known: &KnownRows, reads: &Reads) {
        for (index, (table, rows)) in &mut self.0 {
            rows.retain(|key, value| {
                let place = (*index, key.clone());
                let is_same = |row: &Option<StoredRow>| row.as_ref().map(|row| &row.value) == value.as_ref();
                !reads.rows.contains_key(&place) || !known.get(*table, key).is_some_and(is_same)
            });
        }
        self.0.retain(|_, (_, rows)| !rows.is_empty());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
