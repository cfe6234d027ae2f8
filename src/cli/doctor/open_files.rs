//! What a running service holds open and in memory, and the next start looks for on the disk.

use std::fs;
use std::io;
use std::path::Path;

use super::finding::{Finding, Level};
use crate::admin::installation::SetUp;
use crate::data_dir::DATABASE;
use crate::data_dir::master_key::sealer_of;
use crate::store::engine::FileId;

/// Whether the master key and the database are still those that the service was started with. One that does not run was
/// opened for this, so that they are.
pub(super) fn examine(data_dir: &Path, held: &SetUp, findings: &mut Vec<Finding>) {
    if let Some(fingerprint) = &held.master_key_fingerprint {
        let subject = "master key";
        findings.push(match sealer_of(data_dir, fingerprint) {
            Ok(_) => Finding::good("data", subject, "the key that the database is sealed under"),
            Err(error) => Finding::good("data", subject, error.to_string()).but(
                Level::Mend,
                "do so before the service stops: without the key it does not start again, and idsvc backup needs it too; idsvc export --with-hashes saves clients and users meanwhile",
            ),
        });
    }
    if let Some(seconds) = held.stalled {
        let message = format!("the disk does not answer: a write has waited for {seconds} seconds");
        findings.push(Finding::good("data", "disk", message).but(
            Level::Mend,
            "see whether its file system is frozen (fsfreeze, a snapshot under way) or its network storage is gone; what has to be written is answered with 503 meanwhile",
        ));
    }
    let Some(open) = held.database else { return };
    let database = data_dir.join(DATABASE);
    let finding = |message: String| Finding::good("data", database.display().to_string(), message);
    let save = "the service still has the data: save it with idsvc backup FILE, then stop the service";
    findings.push(match fs::metadata(&database) {
        Ok(found) if FileId::of(&found) == open => finding("the database that is open".to_owned()),
        Ok(_) => finding(
            "it is not the file that the service has open: that one was removed or renamed".to_owned(),
        )
        .but(
            Level::Mend,
            format!("{save}, move this file away and idsvc restore FILE"),
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            finding("it is not there: the service goes on with a file that was removed or renamed".to_owned())
                .but(Level::Mend, format!("{save} and idsvc restore FILE"))
        }
        Err(error) => finding(format!("it cannot be looked at: {error}"))
            .but(Level::Mend, "run this as the user of the service"),
    });
}
