//! The interface between tables and engines: the operations that an engine offers, on bytes.
//!
//! [`crate::store::table`] builds tables, records and keys on these operations. A second engine is a further
//! implementation of [`Backend`] that passes the same tests.

mod merge;
#[cfg(feature = "postgres")]
pub(in crate::store) mod postgres;
pub mod redb;
pub mod writer;

#[cfg(test)]
pub(crate) mod counted;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::Metadata;
use std::hash::{Hash, Hasher};
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use crate::store::StoreError;

/// A table: its number, by which an opened table is found, its name in the file, and what an engine must know of its
/// keys and its use.
#[derive(Clone, Copy, Debug)]
pub struct TableId {
    index: u8,
    group_len: u8,
    is_in_catalog: bool,
    user_mark: &'static [u8],
    name: &'static str,
}

/// The number alone identifies a table.
impl PartialEq for TableId {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Eq for TableId {}

impl Hash for TableId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}

impl TableId {
    /// How many tables there can be.
    pub const LIMIT: usize = 64;

    /// Names a table. Neither the index nor the name may belong to another table.
    ///
    /// # Panics
    /// When `index` is not below [`TableId::LIMIT`] or `name` is empty; for a constant, at compile time.
    pub const fn new(index: u8, name: &'static str) -> Self {
        assert!(
            (index as usize) < Self::LIMIT,
            "a table's index is below TableId::LIMIT"
        );
        assert!(!name.is_empty(), "a table has a name");
        Self {
            index,
            group_len: 0,
            is_in_catalog: false,
            user_mark: &[],
            name,
        }
    }

    /// Declares that the rows are grouped by the first `len` bytes of their keys.
    #[must_use]
    pub const fn grouped_by_first(self, len: u8) -> Self {
        Self {
            group_len: len,
            ..self
        }
    }

    /// Declares that the table is read into memory, or decides how tokens are made.
    #[must_use]
    pub const fn in_catalog(self) -> Self {
        Self {
            is_in_catalog: true,
            ..self
        }
    }

    /// Declares that each row names a user: the 16 bytes after the first place of `mark` in the value are the user's key.
    #[must_use]
    pub const fn with_user_after(self, mark: &'static [u8]) -> Self {
        Self {
            user_mark: mark,
            ..self
        }
    }

    /// The table's number, below [`TableId::LIMIT`].
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The table's name in the file.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The length of the prefix of a key by which the rows are grouped; 0 if they are not grouped.
    pub const fn group_len(self) -> usize {
        self.group_len as usize
    }

    /// Whether the table is read into memory, or decides how tokens are made.
    pub const fn is_in_catalog(self) -> bool {
        self.is_in_catalog
    }

    /// What comes before the user in the value of a row; empty if the rows name no user.
    pub const fn user_mark(self) -> &'static [u8] {
        self.user_mark
    }
}

/// The callback of [`Snapshot::range`]. It gets key and value of each row; `Break` ends the visit.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError> + 'a;

/// A consistent state of the store. It changes only by the writes of its own transaction.
pub trait Snapshot {
    /// The value under `key`. `None` also if the table was never written to.
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits the rows between two keys in the order of their bytes.
    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError>;

    /// Says that the row under `key` will be read, so that a server is asked for it together with other rows.
    fn will_get(&self, _table: TableId, _key: &[u8]) {}

    /// The same for a range of rows.
    fn will_range(&self, _table: TableId, _from: Bound<&[u8]>, _to: Bound<&[u8]>) {}

    /// The same for a row of the user whom the row under `key` names. Its key is the user's with `rest` after it.
    fn will_get_of_user(&self, _naming: TableId, _key: &[u8], _table: TableId, _rest: &[u8]) {}

    /// Whether the records of the catalog that are used here are those that are stored: an outcome counts only if they are. If
    /// not, the rows have to be read.
    fn has_stored_catalog(&self) -> bool {
        false
    }
}

/// A transaction. Only the transaction itself sees its writes before the commit.
pub trait Tx: Snapshot {
    /// Writes a row, or replaces it.
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Removes a row. Returns whether it existed.
    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError>;
}

/// Identifies a file on this machine while a process has it open, even if it is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The identity of the file with this metadata.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitDecision {
    /// Keeps all writes. They are on the disk before the call returns.
    Commit,
    /// Discards all writes.
    RollBack,
}

/// An engine: consistent reads, and one atomic transaction at a time.
pub trait Backend: Send + Sync {
    /// Shows the last committed state to `look`. Fails with [`StoreError::Busy`] at once while the storage is compacted,
    /// reopened or closed.
    fn read(&self, look: &mut dyn FnMut(&dyn Snapshot) -> Result<(), StoreError>) -> Result<(), StoreError>;

    /// Runs `work` in one transaction. After the store was opened, only the writer thread calls this.
    fn transact(&self, work: &mut dyn FnMut(&mut dyn Tx) -> CommitDecision) -> Result<(), StoreError>;

    /// Brings the storage to a state that opens quickly. The writer calls this while the store is idle.
    fn checkpoint(&self) -> Result<(), StoreError>;

    /// Reopens the storage, as is needed after a failure. Running reads may fail.
    fn recover(&self) -> Result<(), StoreError>;

    /// Tries whether the disk takes writes, without writing to the storage: after a failed write the storage could not be
    /// read before it is reopened.
    fn probe(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The bytes of the disk that are allocated to the storage; 0 in memory.
    fn allocated_bytes(&self) -> u64 {
        0
    }

    /// The bytes of all rows, as of the last checkpoint.
    fn live_bytes(&self) -> u64 {
        0
    }

    /// The allocated bytes that the storage can still write without growing. The number may be too small, but not too
    /// large. Reads no row.
    fn unused_bytes(&self) -> u64 {
        0
    }

    /// The open file, if the storage is a file.
    fn file(&self) -> Option<FileId> {
        None
    }

    /// Moves rows together and returns free space to the disk. Reads fail during that. Returns whether anything moved.
    fn compact(&self) -> Result<bool, StoreError>;

    /// Releases the storage and the lock on it. Later calls fail with [`StoreError::Closed`].
    fn close(&self);
}
