use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::oauth::FaultCode;

/// Unused space is to be returned to the file system. Reads and writes wait during that. Refused if the database is not a
/// file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Compact;

/// The result of a compaction, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// The size of the file before.
    pub bytes_before: u64,
    /// The size of the file now.
    pub bytes: u64,
}

impl Operation for Compact {
    const NAME: &'static str = "compact";
    const EFFECT: Effect = Effect::Write;
    type Output = Compacted;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Compacted>> {
        let store = &admin.core.store;
        if store.file().is_none() {
            let detail = "nothing to compact: PostgreSQL reuses free space by itself (autovacuum). VACUUM removes what is dead at once";
            return Err(FaultCode::NotAllowed.of("database", "", detail).into());
        }
        let bytes_before = store.allocated_bytes();
        store.compact().await?;
        let bytes = store.allocated_bytes();
        Ok(Done::about("database", Compacted { bytes_before, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::{admin, core, refusal};

    #[tokio::test]
    async fn a_database_without_a_file_is_not_compacted() {
        let core = core();
        let refused = refusal(admin(&core).call(Compact).await);
        assert_eq!(refused[0].code, FaultCode::NotAllowed);
        assert!(refused[0].detail.contains("autovacuum"));
    }
}
