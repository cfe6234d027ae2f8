//! The settings of scheduled backups.

use std::fs::File;
use std::time::Duration;

use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use super::{Backups, Fault};
use crate::age::{Passphrase, Recipients};
use crate::net::certificate::exposure_warning;

pub(super) const INTERVAL: Setting = setting(
    "backup.interval",
    Kind::Duration,
    ("TIME", "How often a backup is made"),
    Some(r#""24h""#),
    r#""6h""#,
    "How often the running service puts a backup into backups/ of the data directory; off for never.\n\
     With store.url the default is off.",
);

pub(super) const KEEP: Setting = setting(
    "backup.keep",
    Kind::Number,
    ("COUNT", "How many backups are kept"),
    Some("7"),
    "30",
    "How many of these backups are kept.",
);

const SHORTEST_INTERVAL: Duration = Duration::from_mins(1);

/// The settings of backups. The development server makes none. A database server has backups of its own, so with one they
/// are made only if an interval is set.
pub(super) fn backups(reader: &mut Reader<'_>, has_database_server: bool) -> Backups {
    let (interval, keep) = (
        reader.duration_or_off(INTERVAL.key),
        reader.number_within(KEEP.key, 1..=1000),
    );
    if let Some((interval, origin)) = &interval
        && *interval < SHORTEST_INTERVAL
    {
        reader.fault(origin, "backup.interval must be at least a minute, or off");
    }
    let is_off = reader.sources.is_dev || (has_database_server && reader.explicit(INTERVAL.key).is_none());
    Backups {
        interval: interval.map(|(interval, _)| interval).filter(|_| !is_off),
        keep: usize::try_from(keep).unwrap_or(1),
        recipients: recipients(reader),
    }
}

/// Whom backups are encrypted to. A passphrase is the only recipient of a file.
fn recipients(reader: &mut Reader<'_>) -> Option<Recipients> {
    let (texts, origin) = reader.list("backup.to");
    let keys = Recipients::parse(&texts).unwrap_or_else(|faults| {
        for fault in faults {
            reader.fault(&origin, format!("backup.to: {fault}"));
        }
        None
    });
    if reader.explicit("backup.passphrase_file").is_none() {
        return keys;
    }
    let (file, file_origin) = reader.path("backup.passphrase_file")?;
    if !texts.is_empty() {
        reader.fault(
            &file_origin,
            "backup.passphrase_file and backup.to are both set: a backup has a passphrase or recipients, so take one of them out",
        );
    }
    match File::open(&file).and_then(Passphrase::read) {
        Ok(passphrase) => {
            let warning = exposure_warning(&file, "the passphrase").map(|message| Fault {
                place: file_origin.to_string(),
                message,
            });
            reader.warnings.extend(warning);
            Some(Recipients::Passphrase(passphrase))
        }
        Err(error) => {
            let file = file.display();
            reader.fault(
                &file_origin,
                format!("backup.passphrase_file: {file} cannot be read: {error}"),
            );
            None
        }
    }
}
