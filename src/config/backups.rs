//! The settings of scheduled backups.

use std::fs;
use std::time::Duration;

use super::form::{File, List, Number, Time, TimeOrOff};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::age::{Passphrase, Recipients};
use crate::net::certificate::exposure_warning;

pub(super) const SETTINGS: &[&Setting] = &[&INTERVAL, &KEEP, &TO, &PASSPHRASE_FILE];

pub(super) static INTERVAL: Setting<TimeOrOff> = Setting {
    key: "backup.interval",
    doc: "How often the running service puts a backup into backups/ of the data directory; off for never.\n\
     With store.url the default is off.",
    default: Some(Literal::Text("24h")),
    example: Literal::Text("6h"),
    value_name: "TIME",
    help: Some("How often a backup is made"),
    form: TimeOrOff(Time::at_least(Duration::from_mins(1))),
};

pub(super) static KEEP: Setting<Number<usize>> = Setting {
    key: "backup.keep",
    doc: "How many of these backups are kept.",
    default: Some(Literal::Number(7)),
    example: Literal::Number(30),
    value_name: "COUNT",
    help: Some("How many backups are kept"),
    form: Number::within(1, 1000),
};

pub(super) static TO: Setting<List<String>> = Setting {
    key: "backup.to",
    doc: "Recipients of age that these backups are encrypted to. Any one of their identities restores one.",
    default: Some(Literal::List(&[])),
    example: Literal::List(&["age1n4eqzg9cm6awzpf5r7m7hpmh5kt4j4cswrvnk8fjmdfxezrcyv8qjcenzd"]),
    value_name: "RECIPIENT",
    help: Some("A recipient (age1…) that backups are encrypted to"),
    form: List::of_texts(),
};

pub(super) static PASSPHRASE_FILE: Setting<File> = Setting {
    key: "backup.passphrase_file",
    doc: "The file of a passphrase that these backups are encrypted with, instead of backup.to; read at the start.\n\
         An encryption takes 128 MiB of memory.",
    default: None,
    example: Literal::Text("/etc/idsvc/backup-passphrase"),
    value_name: "FILE",
    help: Some("The file of the passphrase for backups"),
    form: File,
};

/// The settings of scheduled backups.
#[derive(Clone, Debug)]
pub struct Backups {
    /// The time between two backups; none to make no backups.
    pub interval: Option<Duration>,
    /// The number of backups that are kept, at least one.
    pub keep: usize,
    /// Whom they are encrypted to, if they are encrypted.
    pub recipients: Option<Recipients>,
}

/// The settings of backups. The development server makes none. A database server has backups of its own, so with one they
/// are made only if an interval is set.
pub(super) fn backups(reader: &mut Reader<'_>, has_database_server: Read<bool>) -> Read<Backups> {
    reader.check(SETTINGS);
    let recipients = recipients(reader);
    let is_off = reader.sources.is_dev || (has_database_server? && !reader.is_set(&INTERVAL));
    Ok(Backups {
        interval: reader.read(&INTERVAL)?.filter(|_| !is_off),
        keep: reader.read(&KEEP)?,
        recipients: recipients?,
    })
}

/// Whom backups are encrypted to. A passphrase is the only recipient of a file.
fn recipients(reader: &mut Reader<'_>) -> Read<Option<Recipients>> {
    let texts = reader.read(&TO)?;
    let mut keys = Ok(None);
    match Recipients::parse(&texts) {
        Ok(parsed) => keys = Ok(parsed),
        Err(problems) => {
            for problem in problems {
                keys = Err(reader.fault(&TO, format!("backup.to: {problem}")));
            }
        }
    }
    let Some(file) = reader.read_if_set(&PASSPHRASE_FILE)? else {
        return keys;
    };
    if !texts.is_empty() {
        reader.fault(
            &PASSPHRASE_FILE,
            "backup.passphrase_file and backup.to are both set: a backup has a passphrase or recipients, so take one of them out",
        );
    }
    let passphrase = fs::File::open(&file)
        .and_then(Passphrase::read)
        .map_err(|error| {
            let file = file.display();
            let message = format!("backup.passphrase_file: {file} cannot be read: {error}");
            reader.fault(&PASSPHRASE_FILE, message)
        })?;
    if let Some(message) = exposure_warning(&file, "the passphrase") {
        reader.warn(&PASSPHRASE_FILE, message);
    }
    Ok(Some(Recipients::Passphrase(passphrase)))
}
