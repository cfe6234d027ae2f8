//! A backup of the running store, from one snapshot.

use std::io::Write;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::operation::Done;
use super::stream::{StreamError, StreamOperation};
use super::{Admin, SecretString, installation};
use crate::flow::Core;
use crate::store::backup::{self, BackupError, Header};
use crate::store::schema::{meta_get, stored};

/// What a backup holds beside the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackUp {
    /// The master key, in hexadecimal digits, if it is to be in the backup.
    pub master_key: Option<SecretString>,
}

impl StreamOperation for BackUp {
    const NAME: &'static str = "backup";

    /// Writes a backup from one snapshot: writes during the backup are not in it.
    fn write(self, admin: Admin<'_>, sink: &mut dyn Write) -> Result<Done<()>, StreamError> {
        let header = copy(admin.core, self, sink)?;
        Ok(Done::about(header.master_key_fingerprint, ()))
    }
}

/// Writes a scheduled backup, without an audit event. Blocks.
pub fn copy(core: &Core, request: BackUp, sink: &mut dyn Write) -> Result<Header, BackupError> {
    let mut written = Err(BackupError::CutOff);
    let now = core.clock.now();
    let master_key = request
        .master_key
        .map(|key| Zeroizing::new(key.reveal().to_owned()));
    // Counting the rows on a database server takes as long as reading them.
    let initial_row_count = (!core.store.is_shared()).then_some(0);
    core.store.stream(|snapshot| {
        let header = Header {
            schema: stored(snapshot)?.unwrap_or_default(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            created_at: now,
            issuer: meta_get(snapshot, installation::ISSUER)?,
            master_key_fingerprint: core.sealer.fingerprint(),
            rows: initial_row_count,
            master_key,
        };
        written = backup::write(snapshot, header, core.sealer.backup_key(), sink);
        Ok(())
    })?;
    written
}
