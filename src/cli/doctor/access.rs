//! Checks that the service can use its own files: they must belong to the owner of the data directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::finding::Finding;
use crate::data_dir::access::chmod_command;
use crate::data_dir::master_key::MASTER_KEY;
use crate::data_dir::{BACKUPS, DATABASE};
use crate::files::SymbolicLink;
use crate::observe::event_files::{EVENTS, EventKind};
use crate::store::engine::redb::journal_of;

/// Checks every file and folder that the service opens.
pub(super) fn examine(data_dir: &Path, findings: &mut Vec<Finding>) {
    let Ok(owner) = fs::metadata(data_dir) else { return };
    let (database, events) = (data_dir.join(DATABASE), data_dir.join(EVENTS));
    let journal = journal_of(&database);
    let [security, routine] = EventKind::ALL.map(|kind| events.join(kind.file_name(0)));
    let before = findings.len();
    for path in [
        data_dir.to_owned(),
        database,
        journal,
        data_dir.join(MASTER_KEY),
        data_dir.join(BACKUPS),
        events,
        security,
        routine,
    ] {
        // The operator may have put a link in the place of the directory.
        let found = if path == data_dir {
            fs::metadata(&path)
        } else {
            fs::symlink_metadata(&path)
        };
        let Ok(found) = found else { continue };
        let subject = path.display().to_string();
        if found.is_symlink() {
            let remedy = "replace the link by the file or folder that it leads to";
            findings.push(Finding::mend(
                "permissions",
                subject,
                SymbolicLink.to_string(),
                remedy,
            ));
            continue;
        }
        // Root can use every file, so the owner is checked instead.
        if geteuid().is_root() {
            if owner.uid() != 0 && found.uid() != owner.uid() {
                let message = "it belongs to another user than the data directory: the service cannot use it";
                let remedy = format!("chown -R {}:{} {}", owner.uid(), owner.gid(), path.display());
                findings.push(Finding::mend("permissions", subject, message, remedy));
            }
            continue;
        }
        let wanted = if found.is_dir() {
            Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK
        } else {
            Access::READ_OK | Access::WRITE_OK
        };
        if accessat(CWD, &path, wanted, AtFlags::EACCESS) == Err(Errno::ACCESS) {
            let message = "the user of this command cannot write to it";
            let remedy = chmod_command(&path).unwrap_or_else(|| {
                "run this as the user of the service, and give that user the file or folder".to_owned()
            });
            findings.push(Finding::mend("permissions", subject, message, remedy));
        }
    }
    if findings.len() == before {
        let subject = data_dir.display().to_string();
        findings.push(Finding::good(
            "permissions",
            subject,
            "the service can use all files in it",
        ));
    }
}
