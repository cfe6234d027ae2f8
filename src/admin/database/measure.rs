use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};

/// A request for the size of the database. No row is read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasureDatabase;

/// The disk space of the database, in bytes. 0 in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseSize {
    /// The size of the file.
    pub taken: u64,
    /// The bytes of all rows.
    pub live: u64,
}

impl Operation for MeasureDatabase {
    const NAME: &'static str = "database size";
    const EFFECT: Effect = Effect::Read;
    type Output = DatabaseSize;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<DatabaseSize>> {
        let store = &admin.core.store;
        Ok(Done::unrecorded(DatabaseSize {
            taken: store.allocated_bytes(),
            live: store.live_bytes(),
        }))
    }
}
