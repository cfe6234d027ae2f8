//! The waist of the store: all that an engine has to offer, in bytes.
//!
//! Tables, records and keys are made of these few operations in [`crate::store::table`], so a second engine
//! is one more implementation of [`Backend`] that passes the same tests.

pub mod redb;
pub mod writer;

#[cfg(test)]
pub(crate) mod counted;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::Metadata;
use std::ops::{Bound, ControlFlow};
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use crate::store::StoreError;

/// Which table: a small number for finding an opened one, and the name that the file knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableId {
    index: u8,
    name: &'static str,
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
        Self { index, name }
    }

    /// The table's number, below [`TableId::LIMIT`].
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The table's name in the file.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

/// What [`Snapshot::range`] calls for every row, key before value; `Break` ends the visit.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError> + 'a;

/// A state of the store that does not change while it is looked at, except by the one who looks.
pub trait Snapshot {
    /// The value under `key`; `None` also when the table was never written to.
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits the rows between two keys in the order of their bytes.
    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError>;
}

/// A transaction under way. It sees its own writes; nobody else does before the commit.
pub trait Tx: Snapshot {
    /// Writes a row, over the one that was there.
    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Removes a row; says whether there was one.
    fn remove(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError>;
}

/// What tells a file from every other on this machine for as long as somebody has it open, whatever its name is by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Of the file that this was read of.
    pub fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
        }
    }
}

/// How a transaction is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything written is kept, on the disk before the call returns.
    Commit,
    /// Nothing written is kept.
    RollBack,
}

/// An engine: consistent reads, and one transaction at a time that is wholly kept or wholly lost.
pub trait Backend: Send + Sync {
    /// Shows the last committed state to `look`; [`StoreError::Busy`] at once while it is compacted, opened afresh or
    /// closed.
    fn read(&self, look: &mut dyn FnMut(&dyn Snapshot) -> Result<(), StoreError>) -> Result<(), StoreError>;

    /// Runs `work` in one transaction. Only the writer thread calls this once the store is open.
    fn transact(&self, work: &mut dyn FnMut(&mut dyn Tx) -> Verdict) -> Result<(), StoreError>;

    /// Brings the storage to a state that costs nothing to open: for a moment when nothing is asked of it.
    fn settle(&self) -> Result<(), StoreError>;

    /// Opens the storage afresh, which is needed after a failure. Reads under way may fail.
    fn recover(&self) -> Result<(), StoreError>;

    /// Sees whether the disk takes writes, without writing to the storage: after a write of its own that failed that
    /// could not be read before it was opened afresh.
    fn probe(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The bytes of the disk that the storage has taken; 0 where nothing lasts.
    fn taken(&self) -> u64 {
        0
    }

    /// The bytes of the disk that the storage has taken and that hold nothing, so that it can write as much without
    /// taking more; never too many. Looks at everything that is in it. Only the writer thread calls this.
    fn spare(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// The file that is open, where there is one.
    fn file(&self) -> Option<FileId> {
        None
    }

    /// Moves rows together and gives free space back; nothing is read meanwhile. Says whether anything moved.
    fn compact(&self) -> Result<bool, StoreError>;

    /// Releases the storage and the lock on it. Whatever is asked afterwards fails with [`StoreError::Closed`].
    fn close(&self);
}
