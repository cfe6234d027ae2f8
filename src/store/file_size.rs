//! How large the database file is, and how it becomes smaller.

use super::{Store, StoreError};

impl Store {
    /// Returns free space in the file to the disk. Returns whether there was any. Reads and writes wait during that, or
    /// fail with [`StoreError::Stalled`]. It waits for reads that have begun, such as a backup, for up to a minute.
    ///
    /// # Errors
    /// [`StoreError::BeingRead`] if the database is still being read then.
    pub async fn compact(&self) -> Result<bool, StoreError> {
        match self.local() {
            Some(local) => local.compact().await,
            None => Ok(false),
        }
    }

    /// The bytes of the disk that are allocated to the file; 0 in memory.
    pub fn allocated_bytes(&self) -> u64 {
        self.local().map_or(0, |local| local.backend.allocated_bytes())
    }

    /// The bytes of all rows, as of the last checkpoint. Reads no row.
    pub fn live_bytes(&self) -> u64 {
        self.local().map_or(0, |local| local.backend.live_bytes())
    }

    /// The bytes that the file can still take without growing; 0 in memory. The number may be too small: rows may take
    /// three times their bytes, so of a large file whose rows have a sixth of its bytes half is unused.
    pub fn unused_bytes(&self) -> u64 {
        self.local().map_or(0, |local| local.backend.unused_bytes())
    }
}
