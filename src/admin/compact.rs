//! The disk space of the database.

use serde::{Deserialize, Serialize};

use super::{Admin, AdminResult};

/// The disk space of the database, in bytes. 0 in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseSize {
    /// The size of the file.
    pub taken: u64,
    /// The bytes of all rows.
    pub live: u64,
}

/// The result of a compaction, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// The size of the file before.
    pub bytes_before: u64,
    /// The size of the file now.
    pub bytes: u64,
}

/// Measures the database. No row is read.
pub fn measure(admin: Admin<'_>) -> DatabaseSize {
    let store = &admin.core.store;
    DatabaseSize {
        taken: store.allocated_bytes(),
        live: store.live_bytes(),
    }
}

/// Returns unused space to the file system. Reads and writes wait during that.
pub async fn compact(admin: Admin<'_>) -> AdminResult<Compacted> {
    let store = &admin.core.store;
    let bytes_before = store.allocated_bytes();
    store.compact().await?;
    let bytes = store.allocated_bytes();
    admin.record("compact", "database");
    Ok(Compacted { bytes_before, bytes })
}
