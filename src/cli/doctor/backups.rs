//! Checks the scheduled backups: whether the newest is recent and readable.

use std::io::{self, BufReader, Read};

use super::clock::TOLERANCE;
use super::finding::{Finding, Level};
use crate::age::{AgeError, Header, SHORTEST_PAYLOAD};
use crate::cli::output::moment;
use crate::clock::Timestamp;
use crate::config::Config;
use crate::files::{self, owner};
use crate::server::backup_schedule::{self, ScheduledBackup};
use crate::store::backup::{BackupError, check_ends};

/// Checks the newest scheduled backup. `oldest` is the time of the oldest record in the database.
pub(super) fn examine(
    config: &Config,
    oldest: Option<Timestamp>,
    is_running: bool,
    now: Timestamp,
    findings: &mut Vec<Finding>,
) {
    let finding = |message: String| Finding::good("backup", "schedule", message);
    let Some(interval) = config.backups.interval else {
        if config.settings.store.is_some() {
            findings.push(finding(
                "no backups are scheduled here: back up the PostgreSQL server".to_owned(),
            ));
        } else if !config.is_dev {
            findings.push(finding("no backups are scheduled".to_owned()).at_level(
                Level::Advice,
                "set backup.interval, unless something else runs idsvc backup",
            ));
        }
        return;
    };
    let is_late = |at: Timestamp| now.since(at) > interval * 2;
    let made = match backup_schedule::backups_of(&config.settings.data_dir) {
        Ok(made) => made,
        Err(error) => {
            let remedy = "run this as the user of the service, or give that user the folder";
            findings.push(finding(error).at_level(Level::Mend, remedy));
            return;
        }
    };
    let latest = now + TOLERANCE;
    for ahead in made.iter().filter(|backup| backup.at > latest) {
        let message = "its name is ahead of the clock, so it counts as the oldest and is removed first";
        let remedy = "see that the clock is right, and move the file away or remove it";
        let subject = ahead.file.display().to_string();
        findings.push(Finding::advice("backup", subject, message, remedy));
    }
    let (message, is_late) = match backup_schedule::newest(&made, latest) {
        Some(newest) => {
            findings.extend(check_file(newest));
            let encrypted = if newest.is_encrypted() {
                "encrypted"
            } else {
                "not encrypted"
            };
            (
                format!("the newest is of {}, {encrypted}", moment(newest.at)),
                is_late(newest.at),
            )
        }
        None if oldest.is_some_and(is_late) => ("there is none".to_owned(), true),
        None => ("the first is made when the service runs".to_owned(), false),
    };
    let finding = finding(message);
    findings.push(if !is_late {
        finding
    } else if is_running {
        let remedy =
            "look into the log of the service for why there is no newer one; idsvc backup makes one at once";
        finding.at_level(Level::Mend, remedy)
    } else {
        let remedy = "start the service, which makes one; idsvc backup makes one at once";
        finding.at_level(Level::Mend, remedy)
    });
}

/// Why a backup is not in order.
#[derive(Debug, thiserror::Error)]
enum BadBackup {
    #[error(transparent)]
    Plain(#[from] BackupError),
    #[error(transparent)]
    Encrypted(#[from] AgeError),
}

/// Checks the beginning and the end of a backup. Of an encrypted one only the beginning can be checked.
fn check_file(backup: &ScheduledBackup) -> Option<Finding> {
    let file = &backup.file;
    let data_dir = owner::folder_of(owner::folder_of(file));
    let opened = files::open_below(data_dir, file).map_err(|error| BackupError::Unreadable(error).into());
    let checked = opened.and_then(|opened| {
        let source = BufReader::new(opened);
        if backup.is_encrypted() {
            return check_encrypted(source).map_err(BadBackup::from);
        }
        check_ends(source).map(|_| ()).map_err(BadBackup::from)
    });
    let error = checked.err()?;
    let remedy = match error {
        BadBackup::Plain(BackupError::Unreadable(_)) | BadBackup::Encrypted(AgeError::Unreadable(_)) => {
            "run this as the user of the service, or give that user the file"
        }
        _ => "remove it: the service makes another one soon, and idsvc backup makes one at once",
    };
    let subject = file.display().to_string();
    Some(Finding::mend("backup", subject, error.to_string(), remedy))
}

/// Checks that the header of an encrypted file can be read, and that a payload follows it.
fn check_encrypted(mut source: impl Read) -> Result<(), AgeError> {
    Header::read(&mut source)?;
    let payload = io::copy(&mut source.take(SHORTEST_PAYLOAD), &mut io::sink());
    if payload.map_err(AgeError::Unreadable)? < SHORTEST_PAYLOAD {
        return Err(AgeError::CutOff);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::admin::backup;
    use crate::admin::backup::BackUp;
    use crate::admin::tests::core;
    use crate::age::{EncryptingWriter, FileKey, Recipients};
    use crate::config::Sources;
    use crate::config::resolve::resolve;
    use crate::data_dir::{BACKUPS, make_folder_in};
    use crate::random::Random;

    #[test]
    fn a_service_that_has_had_the_time_for_a_backup_has_one() {
        let data = TempDir::new().unwrap();
        let data = data.path();
        let flags = [
            ("data_dir", data.to_str().unwrap().to_owned()),
            ("base_url", "http://localhost:8080".to_owned()),
            ("listen", "127.0.0.1:8080".to_owned()),
            ("tls.mode", "off".to_owned()),
            ("backup.interval", "1h".to_owned()),
        ];
        let file = data.join("idsvc.toml");
        std::fs::write(&file, "").unwrap();
        let config = resolve(&Sources::collect(&flags, &[], Some(&file))).unwrap();
        let now = Timestamp::from_seconds(1_800_000_000);
        let hours = |count| now - Duration::from_hours(count);
        let look = |oldest, is_running| {
            let mut findings = Vec::new();
            examine(&config, oldest, is_running, now, &mut findings);
            findings.remove(0)
        };
        assert_eq!(look(None, true).level, Level::Good);
        assert_eq!(look(Some(hours(2)), true).level, Level::Good);
        let none = look(Some(hours(3)), true);
        assert_eq!(
            (none.level, none.message.as_str()),
            (Level::Mend, "there is none")
        );
        assert!(none.remedy.unwrap().contains("the log of the service"));
        assert!(
            look(Some(hours(3)), false)
                .remedy
                .unwrap()
                .contains("start the service")
        );
        let folder = make_folder_in(data, BACKUPS).unwrap().path().to_owned();
        let made = folder.join(crate::data_dir::backup_name("scheduled", hours(1), false));
        let mut whole = Vec::new();
        backup::copy(&core(), BackUp::default(), &mut whole).unwrap();
        fs::write(&made, &whole).unwrap();
        let good = look(Some(hours(3)), true);
        assert_eq!(good.level, Level::Good);
        assert!(good.message.ends_with(", not encrypted"), "{}", good.message);
        for left in [&whole[..0], &whole[..whole.len() - 1]] {
            fs::write(&made, left).unwrap();
            let broken = look(Some(hours(3)), true);
            assert_eq!(
                (broken.level, &broken.subject[..]),
                (Level::Mend, made.to_str().unwrap())
            );
        }
        fs::remove_file(&made).unwrap();
        let recipient = "age16ua0d5zkwf58egyk2zwxgc2kpq5uawsrk252pv8cdmwh7eh9devshc397d";
        let recipients = Recipients::Keys(vec![recipient.parse().unwrap()]);
        let made = folder.join(crate::data_dir::backup_name("scheduled", hours(1), true));
        let mut encrypted = Vec::new();
        let key = FileKey::generate(&Random::system());
        let mut writer = EncryptingWriter::new(&mut encrypted, &recipients, &key, &Random::system());
        writer.write_all(&whole).unwrap();
        writer.finish().unwrap();
        fs::write(&made, &encrypted).unwrap();
        let good = look(Some(hours(3)), true);
        assert_eq!(good.level, Level::Good);
        assert!(good.message.ends_with(", encrypted"), "{}", good.message);
        for left in [&encrypted[..0], &encrypted[..100], &encrypted[..190], &whole] {
            fs::write(&made, left).unwrap();
            let broken = look(Some(hours(3)), true);
            assert_eq!(
                (broken.level, &broken.subject[..]),
                (Level::Mend, made.to_str().unwrap())
            );
        }
        let ahead = folder.join(crate::data_dir::backup_name(
            "scheduled",
            now + Duration::from_hours(1),
            false,
        ));
        fs::rename(&made, &ahead).unwrap();
        let early = look(None, true);
        assert_eq!(
            (early.level, &early.subject[..]),
            (Level::Advice, ahead.to_str().unwrap())
        );
        fs::remove_file(&ahead).unwrap();
        assert_eq!(look(Some(hours(3)), true).message, "there is none");
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "in the way").unwrap();
        let unreadable = look(None, true);
        assert_eq!(unreadable.level, Level::Mend);
        assert!(
            unreadable.message.contains("backups cannot be read"),
            "{}",
            unreadable.message
        );
    }
}
