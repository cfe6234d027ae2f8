//! Makes scheduled backups inside the running service, and removes the oldest ones.
//!
//! A backup is due when the newest one is older than the interval, by the time in its name. So a service that was off
//! makes one when it starts. Of several nodes, one makes the backups, in its own data directory.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use time::PrimitiveDateTime;
use time::format_description::parse_borrowed;

use crate::admin::backup;
use crate::admin::backup::BackUp;
use crate::age::{self, AgeError, EncryptingWriter, FileKey, Recipients};
use crate::app::App;
use crate::background;
use crate::clock::Timestamp;
use crate::config::Backups;
use crate::data_dir::atomic_file;
use crate::data_dir::atomic_file::{AtomicFile, IfExists};
use crate::data_dir::disk::{RESERVE, Space, space};
use crate::data_dir::{BACKUPS, DataDirError, ENCRYPTED_ENDING, backup_name, make_folder_in};
use crate::files::Folder;
use crate::files::slice_writer::SliceWriter;
use crate::flow::{Core, lease};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::backup::{BackupError, BackupReader};

/// How the names of scheduled backups begin.
const STEM: &str = "scheduled";
/// How often the schedule is checked.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// The longest pause after a failed attempt.
const MAX_RETRY_PAUSE: Duration = Duration::from_hours(1);

/// Why a due backup was not made.
#[derive(Debug, thiserror::Error)]
enum ScheduleError {
    #[error(
        "only {} MiB are free in its folder, and {} are kept for the service: the incomplete backup is removed",
        .0.free >> 20,
        RESERVE >> 20
    )]
    DiskFull(Space),
    #[error(transparent)]
    Folder(#[from] DataDirError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Encryption(#[from] AgeError),
    #[error("{} cannot be read or written: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

fn io_error(path: impl Into<PathBuf>) -> impl Fn(io::Error) -> ScheduleError {
    let path = path.into();
    move |source| ScheduleError::Io {
        path: path.clone(),
        source,
    }
}

/// Makes each backup when it is due, until the task is aborted.
pub async fn run(app: Arc<App>, data_dir: PathBuf, interval: Duration, settings: Backups) {
    let settings = Arc::new(settings);
    loop {
        let result = if lease::acquire_or_log(&app.core, lease::BACKUPS).await {
            let (worker, folder, settings) = (Arc::clone(&app), data_dir.clone(), Arc::clone(&settings));
            let made =
                background::run(move || back_up_if_due(&worker.core, &folder, interval, &settings, &space));
            match while_renewing(&app.core, made).await {
                Ok(made) => made.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        } else {
            Ok(None)
        };
        let pause = match result {
            Ok(made) => {
                app.metrics.backup_succeeded(made.is_some());
                CHECK_INTERVAL
            }
            Err(error) => {
                app.metrics.backup_failed();
                tracing::error!(%error, "no scheduled backup");
                interval.clamp(Duration::from_secs(1), MAX_RETRY_PAUSE)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Waits for a backup, and keeps the lease for as long as it takes.
async fn while_renewing<T>(core: &Core, backup: impl Future<Output = T>) -> T {
    let mut backup = pin!(backup);
    loop {
        match tokio::time::timeout(CHECK_INTERVAL, &mut backup).await {
            Ok(made) => return made,
            Err(_) => {
                lease::acquire_or_log(core, lease::BACKUPS).await;
            }
        }
    }
}

/// Measures the free space of a folder. This is [`space`], except in tests.
type MeasureSpace<'a> = &'a dyn Fn(&Path) -> io::Result<Space>;

/// Makes a backup if one is due, and returns its path.
fn back_up_if_due(
    core: &Core,
    data_dir: &Path,
    interval: Duration,
    settings: &Backups,
    space: MeasureSpace<'_>,
) -> Result<Option<PathBuf>, ScheduleError> {
    let now = core.clock.now();
    let folder = make_folder_in(data_dir, BACKUPS)?;
    let existing = scheduled(&folder)?;
    if newest(&existing, now).is_some_and(|newest| now.since(newest.at) < interval) {
        return Ok(None);
    }
    // Removes the unfinished file of a killed process.
    atomic_file::sweep(&folder, |name, _| name.starts_with(STEM));
    let recipients = settings.recipients.as_ref();
    let name = backup_name(STEM, now, recipients.is_some());
    let file = folder.path().join(&name);
    loop {
        match write(core, &folder, &name, recipients, space) {
            Err(ScheduleError::DiskFull(_)) if free_space(&folder, space, now)? => {}
            written => break written?,
        }
    }
    audit::record(&Event::BackedUp {
        file: &file.display().to_string(),
    });
    let all = oldest_first(scheduled(&folder)?, now);
    let surplus = all.len().saturating_sub(settings.keep);
    for old in all.iter().filter(|backup| backup.file != file).take(surplus) {
        remove(&folder, old);
    }
    Ok(Some(file))
}

/// Writes a backup under a temporary name, verifies it, and renames it.
fn write(
    core: &Core,
    folder: &Folder,
    name: &str,
    recipients: Option<&Recipients>,
    space: MeasureSpace<'_>,
) -> Result<(), ScheduleError> {
    let failed = io_error(folder.path().join(name));
    let mut unfinished = AtomicFile::new(folder, name, &core.random);
    let file = unfinished.create().map_err(&failed)?;
    folder.give_to_owner(&file).map_err(&failed)?;
    // If the disk cannot be measured, the write goes on.
    let sink = SliceWriter::new(file, || match space(folder.path()) {
        Ok(space) if space.lacking() > 0 => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    });
    let key =
        write_rows(core, recipients, BufWriter::new(sink)).map_err(|error| match space(folder.path()) {
            Ok(space) if space.lacking() > 0 => ScheduleError::DiskFull(space),
            _ => error.into(),
        })?;
    let again = BufReader::new(unfinished.open().map_err(&failed)?);
    match key {
        Some(key) => verify(core, age::decrypt(again, &key)?)?,
        None => verify(core, again)?,
    }
    unfinished.place(name, IfExists::Replace).map_err(&failed)
}

/// Writes a backup. Returns the key of the file if it is encrypted.
fn write_rows(
    core: &Core,
    recipients: Option<&Recipients>,
    mut sink: impl Write,
) -> Result<Option<FileKey>, BackupError> {
    let Some(recipients) = recipients else {
        backup::copy(core, BackUp::default(), &mut sink)?;
        return Ok(None);
    };
    let key = FileKey::generate(&core.random);
    let mut encrypted = EncryptingWriter::new(sink, recipients, &key, &core.random);
    backup::copy(core, BackUp::default(), &mut encrypted)?;
    encrypted.finish().map_err(BackupError::Unwritable)?;
    Ok(Some(key))
}

fn verify(core: &Core, source: impl Read) -> Result<(), BackupError> {
    let mut rows = BackupReader::open(source)?.rows(core.sealer.backup_key());
    while rows.next_row()?.is_some() {}
    Ok(())
}

/// Removes the oldest backup unless it is the only one, and says whether that freed space. Nothing is removed if a
/// backup as large as the newest would not fit even without all the others.
fn free_space(folder: &Folder, space: MeasureSpace<'_>, now: Timestamp) -> Result<bool, ScheduleError> {
    let existing = oldest_first(scheduled(folder)?, now);
    let (Some((newest, older)), Ok(before)) = (existing.split_last(), space(folder.path())) else {
        return Ok(false);
    };
    let size = |backup: &ScheduledBackup| {
        let found = folder.stat(backup.name());
        found.map_or(0, |found| u64::try_from(found.st_size).unwrap_or(0))
    };
    let removable: u64 = older.iter().map(size).sum();
    if before.free + removable < RESERVE + size(newest) {
        return Ok(false);
    }
    let Some(removed) = older.iter().find(|backup| remove(folder, backup)) else {
        return Ok(false);
    };
    tracing::warn!(file = %removed.file.display(), "an old backup was removed to make room for a new one");
    // A snapshot may hold the space of the file. In that case no further backup is removed.
    Ok(space(folder.path()).is_ok_and(|after| after.free > before.free))
}

/// Removes an old backup. If that fails, a log message asks the operator to remove it.
fn remove(folder: &Folder, backup: &ScheduledBackup) -> bool {
    folder
        .remove(backup.name())
        .inspect_err(|error| {
            tracing::warn!(file = %backup.file.display(), %error, "an old backup cannot be removed: remove it by hand");
        })
        .is_ok()
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScheduledBackup {
    /// The time in its name.
    pub at: Timestamp,
    pub file: PathBuf,
}

impl ScheduledBackup {
    pub fn is_encrypted(&self) -> bool {
        let path = self.file.as_os_str().as_encoded_bytes();
        path.ends_with(ENCRYPTED_ENDING.as_bytes())
    }

    fn name(&self) -> &Path {
        self.file.file_name().map_or(&self.file, Path::new)
    }
}

/// The scheduled backups of a data directory, or why they cannot be read.
pub fn backups_of(data_dir: &Path) -> Result<Vec<ScheduledBackup>, String> {
    let path = data_dir.join(BACKUPS);
    let folder = match Folder::open_below(data_dir, &path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(io_error(path)),
    };
    folder
        .and_then(|folder| scheduled(&folder))
        .map_err(|error| error.to_string())
}

/// The newest backup whose time is not ahead of the clock.
pub fn newest(existing: &[ScheduledBackup], now: Timestamp) -> Option<&ScheduledBackup> {
    existing.iter().filter(|backup| backup.at <= now).max()
}

/// Sorts backups in the order of their removal. A time ahead of the clock is wrong and counts as the oldest.
fn oldest_first(mut existing: Vec<ScheduledBackup>, now: Timestamp) -> Vec<ScheduledBackup> {
    existing.sort_by(|a, b| (a.at <= now, a).cmp(&(b.at <= now, b)));
    existing
}

fn scheduled(folder: &Folder) -> Result<Vec<ScheduledBackup>, ScheduleError> {
    let entries = folder.entries().map_err(io_error(folder.path()))?;
    let files = entries.into_iter().map(|(name, _)| folder.path().join(name));
    let backups = files.filter_map(|file| time_of(&file).map(|at| ScheduledBackup { at, file }));
    Ok(backups.collect())
}

/// The time in a name such as `scheduled-20260102T030405Z.backup`, or `….backup.age`.
fn time_of(path: &Path) -> Option<Timestamp> {
    let format = parse_borrowed::<2>("scheduled-[year][month][day]T[hour][minute][second]Z.backup").ok()?;
    let name = path.file_name()?.to_str()?;
    let at = PrimitiveDateTime::parse(name.strip_suffix(ENCRYPTED_ENDING).unwrap_or(name), &format).ok()?;
    let seconds = at.assume_utc().unix_timestamp().try_into().ok()?;
    Some(Timestamp::from_seconds(seconds))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::admin::tests::core;

    const HOUR: Duration = Duration::from_hours(1);

    /// A disk with `room` free bytes beside the reserve and the files in the folder.
    fn disk(room: u64) -> impl Fn(&Path) -> io::Result<Space> {
        move |folder| {
            let files = fs::read_dir(folder)?.map(|entry| entry.unwrap().metadata().unwrap().len());
            let total = 1 << 26;
            let free = (RESERVE + room).saturating_sub(files.sum());
            Ok(Space { free, total })
        }
    }

    fn keeping(keep: usize) -> Backups {
        Backups {
            interval: Some(HOUR),
            keep,
            recipients: None,
        }
    }

    fn back_up(core: &Core, data: &TempDir, keep: usize, space: MeasureSpace<'_>) -> Option<PathBuf> {
        back_up_if_due(core, data.path(), HOUR, &keeping(keep), space).unwrap()
    }

    /// Makes `count` backups, one an hour.
    fn hourly(core: &Core, data: &TempDir, count: usize, keep: usize) -> Vec<PathBuf> {
        let made = (0..count).map(|_| {
            let made = back_up(core, data, keep, &disk(1 << 30)).unwrap();
            assert_eq!(back_up(core, data, keep, &disk(1 << 30)), None, "none is due");
            core.clock.advance(HOUR);
            made
        });
        made.collect()
    }

    fn kept(made: &[PathBuf]) -> Vec<bool> {
        made.iter().map(|file| file.exists()).collect()
    }

    #[test]
    fn a_backup_is_made_when_one_is_due_and_the_oldest_go() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let made = hourly(&core, &data, 5, 3);
        assert_eq!(kept(&made), [false, false, true, true, true]);
        let existing = backups_of(data.path()).unwrap();
        assert_eq!(newest(&existing, core.clock.now()).unwrap().file, made[4]);
    }

    #[test]
    fn encrypted_backups_are_verified_and_counted_like_others() {
        const PLAIN: &str = "idsvc backup";
        let (data, core) = (TempDir::new().unwrap(), core());
        let recipient = "age16ua0d5zkwf58egyk2zwxgc2kpq5uawsrk252pv8cdmwh7eh9devshc397d";
        let encrypting = Backups {
            recipients: Some(Recipients::Keys(vec![recipient.parse().unwrap()])),
            ..keeping(2)
        };
        let mut made = hourly(&core, &data, 2, 2);
        for _ in 0..2 {
            let file = back_up_if_due(&core, data.path(), HOUR, &encrypting, &disk(1 << 30)).unwrap();
            made.push(file.unwrap());
            core.clock.advance(HOUR);
        }
        assert_eq!(kept(&made), [false, false, true, true]);
        assert!(made[3].to_str().unwrap().ends_with("Z.backup.age"));
        let bytes = fs::read(&made[3]).unwrap();
        assert!(age::looks_encrypted(&bytes) && !bytes.is_empty());
        assert!(!bytes.windows(PLAIN.len()).any(|part| part == PLAIN.as_bytes()));
        let existing = backups_of(data.path()).unwrap();
        assert_eq!(newest(&existing, core.clock.now()).unwrap().file, made[3]);
        made.extend(hourly(&core, &data, 1, 2));
        assert_eq!(kept(&made), [false, false, false, true, true]);
    }

    #[test]
    fn names_ahead_of_the_clock_put_off_no_backup_and_push_none_out() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let first = hourly(&core, &data, 1, 2).remove(0);
        let ahead = data
            .path()
            .join(BACKUPS)
            .join(backup_name(STEM, core.clock.now() + HOUR * 24, false));
        fs::write(&ahead, "x").unwrap();
        let second = hourly(&core, &data, 1, 2).remove(0);
        assert_eq!(kept(&[first, second, ahead]), [true, true, false]);
    }

    #[test]
    fn the_operators_files_stay_and_what_was_cut_off_goes() {
        let (data, core) = (TempDir::new().unwrap(), core());
        make_folder_in(data.path(), BACKUPS).unwrap();
        let folder = data.path().join(BACKUPS);
        for file in [
            "idsvc-20260102T030405Z.backup",
            "scheduled-notes.backup",
            "mine.partial",
        ] {
            fs::write(folder.join(file), "x").unwrap();
        }
        let stuck = folder.join("scheduled-20010102T030405Z.backup");
        fs::create_dir(&stuck).unwrap();
        let cut = format!("scheduled-20260102T030405Z.backup.{}.partial", "0".repeat(32));
        fs::write(folder.join(cut), "x").unwrap();
        hourly(&core, &data, 2, 1);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 5);
    }

    #[test]
    fn without_room_there_is_no_backup_and_older_ones_go_only_if_that_is_enough() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let mut made = hourly(&core, &data, 4, 7);
        let size = fs::metadata(&made[3]).unwrap().len();
        let full = |space: MeasureSpace<'_>| {
            let error = back_up_if_due(&core, data.path(), HOUR, &keeping(7), space).unwrap_err();
            assert!(matches!(error, ScheduleError::DiskFull(_)), "{error}");
        };
        full(&disk(size / 2));
        assert_eq!(kept(&made), [true; 4], "it would not be enough");
        let reserve = RESERVE;
        full(&|_| {
            Ok(Space {
                free: reserve - 1,
                total: 1 << 26,
            })
        });
        assert_eq!(
            kept(&made),
            [false, true, true, true],
            "their room does not come free"
        );
        made.extend(back_up(&core, &data, 7, &disk(size * 5 / 2)));
        assert_eq!(kept(&made), [false, false, true, true, true]);
    }

    #[test]
    fn a_name_tells_the_time() {
        let at = Timestamp::from_seconds(1_767_323_045);
        for (is_encrypted, name) in [
            (false, "scheduled-20260102T030405Z.backup"),
            (true, "scheduled-20260102T030405Z.backup.age"),
        ] {
            assert_eq!(backup_name(STEM, at, is_encrypted), name);
            assert_eq!(time_of(&Path::new("/a").join(name)), Some(at));
        }
        for odd in ["", "20260102T0304", "2026é102T03040Z", "99999999T999999Z"] {
            assert_eq!(
                time_of(Path::new(&format!("scheduled-{odd}.backup"))),
                None,
                "{odd}"
            );
        }
    }
}
