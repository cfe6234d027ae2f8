//! What has changed in the catalog, by generation.

use std::collections::VecDeque;

use tokio_postgres::Row;

use super::sql;
use crate::store::catalog_use::UsedClients;
use crate::store::tables::CLIENTS;

/// How many changes are remembered. A request that began before them runs again.
const MOST_REMEMBERED: usize = 4096;

/// A row of the catalog that was changed.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) table: usize,
    pub(super) key: Vec<u8>,
    /// The generation of the catalog before the change, and after it.
    before: i64,
    generation: i64,
}

impl Change {
    /// The change in a row of [`sql::GET`], if it has one.
    pub(super) fn of(row: &Row) -> Option<Self> {
        if row.get::<_, i32>(0) != sql::CHANGE_ROW {
            return None;
        }
        let (table, key) = row.get::<_, &[u8]>(1).split_first_chunk()?;
        let before = row.get::<_, &[u8]>(2).first_chunk()?;
        Some(Self {
            table: usize::from(u16::from_be_bytes(*table)),
            key: key.to_vec(),
            before: i64::from_be_bytes(*before),
            generation: row.get(3),
        })
    }

    fn concerns(&self, used: &UsedClients) -> bool {
        self.table != CLIENTS.id().index() || used.contains(&self.key)
    }
}

/// The changes between two generations, if none is missing.
pub(super) fn all_between(changes: &[Change], known: i64, newest: i64) -> Option<&[Change]> {
    let since = changes.partition_point(|change| change.generation <= known);
    let changes = changes.get(since..)?;
    if changes.len() > sql::MOST_CHANGES {
        return None;
    }
    let mut last = known;
    for change in changes {
        if change.generation != last {
            if change.before != last {
                return None;
            }
            last = change.generation;
        }
    }
    (last == newest).then_some(changes)
}

/// The changes that this node has read of late.
#[derive(Default)]
pub(super) struct RecentChanges {
    /// In the order of their generations.
    changes: VecDeque<Change>,
    /// All changes after this generation are known.
    complete_after: i64,
    /// The generation in memory. After a database went back, it is below that of earlier requests.
    newest: i64,
}

impl RecentChanges {
    /// Whether a change after this generation concerns who has used these clients.
    pub(super) fn concern(&self, generation: i64, used: &UsedClients) -> bool {
        let newest_first = self.changes.iter().rev();
        let mut later = newest_first.take_while(|change| change.generation > generation);
        generation < self.complete_after
            || generation > self.newest
            || later.any(|change| change.concerns(used))
    }

    pub(super) fn add(&mut self, changes: &[Change]) {
        self.newest = changes.last().map_or(self.newest, |change| change.generation);
        self.changes.extend(changes.iter().cloned());
        while self.changes.len() > MOST_REMEMBERED
            && let Some(oldest) = self.changes.pop_front()
        {
            self.complete_after = oldest.generation;
        }
    }

    /// Forgets them, because the whole catalog of this generation was read.
    pub(super) fn begin_again(&mut self, generation: i64) {
        self.changes.clear();
        self.complete_after = generation;
        self.newest = generation;
    }
}
