//! Checks the data directory: the modes of its files, the free space, and the unused part of the database.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::finding::Finding;
use crate::admin::database::MeasureDatabase;
use crate::cli::admin_connection::AdminConnection;
use crate::cli::output::CliError;
use crate::data_dir::DATABASE;
use crate::data_dir::access::shared_with_group;
use crate::data_dir::disk::{LEAST_TO_WRITE, RESERVE, Space, space};
use crate::data_dir::master_key::MASTER_KEY;

/// The mode bits of group and others.
pub(super) const BEYOND_OWNER: u32 = 0o077;
/// The mode bits of others.
const BEYOND_GROUP: u32 = 0o007;
/// The least free space, in bytes.
const MIN_FREE_SPACE: u64 = 256 << 20;
/// The smallest database that is worth a compaction.
const MIN_COMPACT_SIZE: u64 = 64 << 20;

/// Checks that a file or folder has none of the mode bits in `forbidden`.
pub(super) fn check_mode(path: &Path, forbidden: u32, what: &str, findings: &mut Vec<Finding>) {
    let Ok(metadata) = fs::metadata(path) else {
        return;
    };
    let subject = path.display().to_string();
    let mode = metadata.permissions().mode() & 0o777;
    findings.push(if mode & forbidden == 0 {
        Finding::good("permissions", subject, format!("{what} is closed to others"))
    } else {
        let message = format!("{what} is open to others ({mode:03o})");
        let remedy = format!("chmod {:03o} {subject}", mode & !forbidden);
        Finding::mend("permissions", subject, message, remedy)
    });
}

/// Checks modes, and the free space if the database is in the directory.
pub(super) fn examine(data_dir: &Path, has_database_server: bool, findings: &mut Vec<Finding>) {
    let database = data_dir.join(DATABASE);
    let mut forbidden = BEYOND_OWNER;
    if let Some(shared) = shared_with_group(data_dir) {
        forbidden = BEYOND_GROUP;
        let remedy =
            "name a folder in it, which the service makes for itself, if other programs are in that group";
        findings.push(Finding::advice(
            "permissions",
            data_dir.display().to_string(),
            shared,
            remedy,
        ));
    } else {
        check_mode(data_dir, BEYOND_OWNER, "the data directory", findings);
    }
    for (file, what) in [
        (&database, "the database"),
        (&data_dir.join(MASTER_KEY), "the master key"),
    ] {
        // The remedy would change what a link leads to.
        if !file.is_symlink() {
            check_mode(file, forbidden, what, findings);
        }
    }
    if let (false, Ok(space)) = (has_database_server, space(data_dir)) {
        findings.push(check_space(data_dir, file_size(&database), space));
    }
}

fn file_size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

/// Checks that the disk has space for a database of this size and its backups.
fn check_space(data_dir: &Path, database_size: u64, space: Space) -> Finding {
    let subject = data_dir.display().to_string();
    let message = format!("{} MiB are free", space.free >> 20);
    let needed = database_size.saturating_mul(3).max(MIN_FREE_SPACE);
    let lacking = needed.saturating_sub(space.free).div_ceil(1 << 20);
    if lacking == 0 {
        return Finding::good("disk", subject, message);
    }
    let needed = needed.div_ceil(1 << 20);
    let reason = format!("The database and its backups need {needed} MiB.");
    let remedy = if space.free < LEAST_TO_WRITE {
        let least = LEAST_TO_WRITE >> 20;
        format!(
            "make room for {lacking} MiB now: with fewer than {least} free a write may fail. Then the service is not ready, unless the database file has unused room. {reason}"
        )
    } else if space.lacking() > 0 {
        let kept = RESERVE >> 20;
        format!(
            "make room for {lacking} MiB soon: with fewer than {kept} free, new anonymous users are answered with 503, unless the database file has unused room. A scheduled backup then replaces older ones, or is not made. {reason}"
        )
    } else {
        format!("make room for {lacking} MiB. {reason}")
    };
    Finding::mend("disk", subject, message, remedy)
}

/// Checks how much of a large database holds rows.
pub(super) fn examine_database(session: &AdminConnection) -> Result<Option<Finding>, CliError> {
    let size = session.call(MeasureDatabase)?;
    Ok(check_live(size.taken, size.live))
}

/// The pages of a compact database are at least half full. So a file of four times its rows is half empty.
fn check_live(size: u64, live: u64) -> Option<Finding> {
    if size < MIN_COMPACT_SIZE || live >= size / 4 {
        return None;
    }
    let message = format!(
        "its rows are {} MiB, and the file takes {}",
        live >> 20,
        size >> 20
    );
    let remedy = "idsvc compact gives the rest back to the disk; requests wait while it runs";
    Some(Finding::advice("data", "database", message, remedy))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_full_disk_is_told_with_the_figures_that_count() {
        let found = |size, free| check_space(Path::new("/data"), size, Space { free, total: 1 << 40 });
        let (mib, gib) = (1_u64 << 20, 1_u64 << 30);
        assert_eq!(found(mib, MIN_FREE_SPACE).level, Level::Good);
        let scarce = found(gib, 3 * gib - 1);
        assert_eq!(scarce.level, Level::Mend);
        assert_eq!(
            scarce.remedy.as_deref(),
            Some("make room for 1 MiB. The database and its backups need 3072 MiB.")
        );
        let short = found(mib, LEAST_TO_WRITE).remedy.unwrap();
        assert!(
            short.starts_with("make room for 224 MiB soon: with fewer than 64 free, new anonymous users are answered with 503"),
            "{short}"
        );
        let full = found(mib, LEAST_TO_WRITE - 1).remedy.unwrap();
        assert!(
            full.starts_with("make room for 225 MiB now: with fewer than 32 free a write may fail")
                && full.ends_with("need 256 MiB."),
            "{full}"
        );
    }

    #[test]
    fn a_large_database_that_is_mostly_empty_is_named_with_the_command_that_helps() {
        let mib = 1_u64 << 20;
        for (size, live) in [(63, 1), (64, 16), (0, 0)] {
            assert_eq!(check_live(size * mib, live * mib), None);
        }
        let found = check_live(64 * mib, 15 * mib).unwrap();
        assert_eq!(found.message, "its rows are 15 MiB, and the file takes 64");
        assert!(found.remedy.unwrap().starts_with("idsvc compact "));
    }
}
