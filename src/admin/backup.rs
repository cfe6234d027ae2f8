//! A backup of the running store, from one snapshot.

use std::io::Write;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{SecretString, installation};
use crate::flow::Core;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::backup::{self, BackupError, Header};
use crate::store::schema::{meta_get, stored};

/// What a backup is to hold beside the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackUp {
    /// The master key, in hexadecimal digits, if it is to be in the backup.
    pub master_key: Option<SecretString>,
}

/// Writes a backup that an administrator asked for. Writes go on meanwhile; the snapshot does not see them. Blocks.
pub fn write(core: &Core, request: BackUp, sink: &mut dyn Write) -> Result<Header, BackupError> {
    let header = copy(core, request, sink)?;
    audit::record(&Event::Administered {
        command: "backup",
        subject: &header.master_key_fingerprint,
    });
    Ok(header)
}

/// The same without an account of it, for a backup that nobody asked for. Blocks.
pub fn copy(core: &Core, request: BackUp, sink: &mut dyn Write) -> Result<Header, BackupError> {
    let mut written = Err(BackupError::CutOff);
    let now = core.clock.now();
    let master_key = request
        .master_key
        .map(|key| Zeroizing::new(key.reveal().to_owned()));
    core.store.read(|snapshot| {
        let header = Header {
            schema: stored(snapshot)?.unwrap_or_default(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            created_at: now,
            issuer: meta_get(snapshot, installation::ISSUER)?,
            master_key_fingerprint: core.sealer.fingerprint(),
            rows: 0,
            master_key,
        };
        written = backup::write(snapshot, header, core.sealer.backup_key(), sink);
        Ok(())
    })?;
    written
}
