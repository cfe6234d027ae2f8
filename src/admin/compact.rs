//! The room that the database takes on the disk.

use serde::{Deserialize, Serialize};

use super::{Admin, Done};
use crate::observe::audit;
use crate::observe::audit::Event;

/// How much room the database takes, in bytes; 0 in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// What the file has taken of the disk.
    pub taken: u64,
    /// What of that holds nothing.
    pub spare: u64,
}

/// What came of a compaction, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// What the file had taken of the disk.
    pub bytes_before: u64,
    /// What it takes now.
    pub bytes: u64,
}

/// How much room the database takes. Writes wait while everything in it is looked at.
pub async fn measure(admin: Admin<'_>) -> Done<Room> {
    let store = &admin.core.store;
    let spare = store.spare().await?;
    Ok(Room {
        taken: store.taken(),
        spare,
    })
}

/// Gives back what holds nothing. Reads and writes wait meanwhile.
pub async fn compact(admin: Admin<'_>) -> Done<Compacted> {
    let store = &admin.core.store;
    let bytes_before = store.taken();
    store.compact().await?;
    let bytes = store.taken();
    audit::record(&Event::Administered {
        command: "compact",
        subject: "database",
    });
    Ok(Compacted { bytes_before, bytes })
}
