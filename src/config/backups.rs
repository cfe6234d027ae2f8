//! The settings of scheduled backups.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use zeroize::Zeroizing;

use super::reader::Reader;
use super::{Backups, Fault};
use crate::age::{MAX_PASSPHRASE, MAX_STANZAS, Passphrase, Recipients};
use crate::net::certificate::exposure_warning;

const SHORTEST_INTERVAL: Duration = Duration::from_mins(1);
/// More bytes than a passphrase may have.
const PASSPHRASE_LIMIT: u64 = 2 * MAX_PASSPHRASE as u64;

/// The settings of backups. The development server makes none.
pub(super) fn backups(reader: &mut Reader<'_>) -> Backups {
    let (interval, keep) = (
        reader.duration_or_off("backup.interval"),
        reader.number_within("backup.keep", 1..=1000),
    );
    if let Some((interval, origin)) = &interval
        && *interval < SHORTEST_INTERVAL
    {
        reader.fault(origin, "backup.interval must be at least a minute, or off");
    }
    Backups {
        interval: interval
            .map(|(interval, _)| interval)
            .filter(|_| !reader.sources.is_dev),
        keep: usize::try_from(keep).unwrap_or(1),
        recipients: recipients(reader),
    }
}

/// Whom backups are encrypted to. A passphrase is the only recipient of a file.
fn recipients(reader: &mut Reader<'_>) -> Option<Recipients> {
    let (texts, origin) = reader.list("backup.to");
    let mut keys = Vec::new();
    for (number, text) in (1..).zip(&texts) {
        match text.parse() {
            Ok(key) => keys.push(key),
            // A text that is an identity by mistake is not repeated.
            Err(error) => reader.fault(&origin, format!("backup.to, value {number}: {error}")),
        }
    }
    if texts.len() > MAX_STANZAS {
        reader.fault(
            &origin,
            format!("backup.to has more than {MAX_STANZAS} recipients"),
        );
    }
    let keys = (!keys.is_empty()).then_some(Recipients::Keys(keys));
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
    match read_passphrase(&file) {
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

fn read_passphrase(file: &Path) -> io::Result<Passphrase> {
    let mut text = Zeroizing::new(String::new());
    File::open(file)?
        .take(PASSPHRASE_LIMIT)
        .read_to_string(&mut text)?;
    Passphrase::new(&text).map_err(io::Error::other)
}
