//! Checks that the files on the disk are still those that the running service has open.

use std::fs;
use std::io;
use std::path::Path;

use super::finding::{Finding, Level};
use crate::admin::installation::InstallationState;
use crate::data_dir::DATABASE;
use crate::data_dir::master_key::sealer_of;
use crate::store::engine::FileId;

/// Checks the master key and the database against those that the service was started with.
pub(super) fn examine(data_dir: &Path, running: &InstallationState, findings: &mut Vec<Finding>) {
    if let Some(fingerprint) = &running.master_key_fingerprint {
        let subject = "master key";
        findings.push(match sealer_of(data_dir, fingerprint) {
            Ok(_) => Finding::good("data", subject, "the key that the database is sealed under"),
            Err(error) => Finding::good("data", subject, error.to_string()).at_level(
                Level::Mend,
                "do so before the service stops: it does not start again without the key. idsvc backup needs the key as well. Until then, idsvc export --with-hashes saves clients and users",
            ),
        });
    }
    if let Some(seconds) = running.stalled {
        let message = format!("the disk does not answer: a write has waited for {seconds} seconds");
        findings.push(Finding::mend("data", "disk", message,
            "see whether its file system is frozen (fsfreeze, a running snapshot) or its network storage is gone. Until it answers, requests that write get 503",
        ));
    }
    let Some(open_database) = running.database else {
        return;
    };
    let database = data_dir.join(DATABASE);
    let finding = |message: String| Finding::good("data", database.display().to_string(), message);
    let save = "the service still has the data: save it with idsvc backup FILE, then stop the service";
    findings.push(match fs::metadata(&database) {
        Ok(found) if FileId::of(&found) == open_database => finding("the database that is open".to_owned()),
        Ok(_) => finding(
            "it is not the file that the service has open: that one was removed or renamed".to_owned(),
        )
        .at_level(
            Level::Mend,
            format!("{save}, move this file away and idsvc restore FILE"),
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            finding("it is not there: the service goes on with a file that was removed or renamed".to_owned())
                .at_level(Level::Mend, format!("{save} and idsvc restore FILE"))
        }
        Err(error) => finding(format!("it cannot be looked at: {error}"))
            .at_level(Level::Mend, "run this as the user of the service"),
    });
}
