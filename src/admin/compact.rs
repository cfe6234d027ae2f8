//! The disk space of the database.

use serde::{Deserialize, Serialize};

use super::{Admin, AdminResult};
use crate::oauth::FaultCode;

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

/// Returns unused space to the file system. Reads and writes wait during that. Refused if the database is not a file.
pub async fn compact(admin: Admin<'_>) -> AdminResult<Compacted> {
    let store = &admin.core.store;
    if store.file().is_none() {
        let detail = "nothing to compact: PostgreSQL reuses free space by itself (autovacuum)";
        return Err(FaultCode::NotAllowed.of("database", "", detail).into());
    }
    let bytes_before = store.allocated_bytes();
    store.compact().await?;
    let bytes = store.allocated_bytes();
    admin.record("compact", "database");
    Ok(Compacted { bytes_before, bytes })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{admin, core, refusal};
    use super::*;

    #[tokio::test]
    async fn a_database_without_a_file_is_not_compacted() {
        let core = core();
        let refused = refusal(compact(admin(&core)).await);
        assert_eq!(refused[0].code, FaultCode::NotAllowed);
        assert!(refused[0].detail.contains("autovacuum"));
    }
}
