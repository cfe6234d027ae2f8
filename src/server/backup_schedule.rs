//! Backups that nobody has to think of: made at intervals inside the running service, the oldest removed.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::admin::backup;
use crate::admin::backup::BackUp;
use crate::app::App;
use crate::cli::backup::name;
use crate::clock::Timestamp;
use crate::config::Backups;
use crate::data_dir::atomic_file::AtomicFile;
use crate::data_dir::disk::{Space, space};
use crate::data_dir::{BACKUPS, DataDirError, make_folder_in};
use crate::flow::Core;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::backup::{BackupError, Incoming};

const STEM: &str = "scheduled";
/// How often is looked whether a backup is due.
const TICK: Duration = Duration::from_mins(1);
/// After how many bytes of a backup is looked whether there is room for more.
const STRIDE: usize = 1 << 20;
/// How long a failed attempt is not repeated, at most.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);

/// Why there is no backup where one was due.
#[derive(Debug, thiserror::Error)]
enum Missed {
    #[error(
        "only {} MiB are free where it was to be, and {} are kept for the service: what there was of it is removed",
        free >> 20,
        kept >> 20
    )]
    NoRoom { free: u64, kept: u64 },
    #[error(transparent)]
    Folder(#[from] DataDirError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error("{} cannot be written: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
}

/// Makes a backup whenever one is due, for as long as the service runs.
pub async fn keep(app: Arc<App>, data_dir: PathBuf, interval: Duration, plan: Backups) {
    loop {
        let (worker, folder) = (Arc::clone(&app), data_dir.clone());
        let round =
            tokio::task::spawn_blocking(move || round(&worker.core, &folder, interval, plan.keep, &space))
                .await;
        let pause = match round {
            Ok(Ok(_)) => TICK,
            Ok(Err(error)) => {
                tracing::error!(%error, "no scheduled backup");
                interval.min(LONGEST_PAUSE)
            }
            Err(error) => {
                tracing::error!(%error, "no scheduled backup");
                LONGEST_PAUSE
            }
        };
        tokio::time::sleep(pause.max(Duration::from_secs(1))).await;
    }
}

/// Who knows what room a disk has.
type Measure<'a> = &'a dyn Fn(&Path) -> io::Result<Space>;

/// Makes a backup if one is due, and says which.
fn round(
    core: &Core,
    data_dir: &Path,
    interval: Duration,
    keep: usize,
    space: Measure<'_>,
) -> Result<Option<PathBuf>, Missed> {
    let now = core.clock.now();
    let folder = make_folder_in(data_dir, BACKUPS)?;
    let existing = scheduled(&folder)?;
    let is_due = newest(&existing, now).is_none_or(|(at, _)| now.since(*at) >= interval);
    if !is_due {
        return Ok(None);
    }
    remove_unfinished(&folder)?;
    let file = folder.join(name(STEM, now));
    // A file takes a little more than its bytes. So what should have had room once and had none needs more.
    let mut more = 0;
    loop {
        match write(core, data_dir, &file, &|| find_room(space, &folder)) {
            Err(Missed::NoRoom { .. }) if make_room(core, space, &folder, now, more)? => more = 1,
            written => break written?,
        }
    }
    audit::record(&Event::BackedUp {
        file: &file.display().to_string(),
    });
    // The new one is there, whatever becomes of the old ones.
    if let Err(error) = prune(&folder, &file, keep, now) {
        tracing::warn!(%error, "old backups were not removed");
    }
    Ok(Some(file))
}

/// Removes the oldest backups until there is room for one of what is in the store now, and at least for `more` bytes
/// than there is room for; the newest stays. Nothing is removed where that would not be enough. Says whether there is room.
///
/// What is removed may be free only later, or never: where others hold it too, in a snapshot or by another name, or the
/// disk frees it by and by. Then no further one is removed in vain: the next round finds what has become free.
fn make_room(
    core: &Core,
    space: Measure<'_>,
    folder: &Path,
    now: Timestamp,
    more: u64,
) -> Result<bool, Missed> {
    let mut existing = scheduled(folder)?;
    existing.sort_by_key(|made| oldest_last(made, now));
    let Some((_, older @ [_, ..])) = existing.split_first() else {
        return Ok(false);
    };
    let mut counted = Counted(0);
    backup::copy(core, BackUp::default(), &mut counted)?;
    let Ok(found) = space(folder) else {
        return Ok(false);
    };
    let size = |(_, file): &Made| {
        let found = fs::metadata(file).ok().filter(fs::Metadata::is_file);
        found.map_or(0, |found| found.len())
    };
    let needed = found.reserve() + counted.0;
    let mut free = found.free;
    let mut lacking = needed.saturating_sub(free).max(more);
    if older.iter().map(size).sum::<u64>() < lacking {
        return Ok(false);
    }
    for made in older.iter().rev() {
        if lacking == 0 {
            break;
        }
        let removed = size(made);
        let (_, file) = made;
        if !remove(file) {
            continue;
        }
        tracing::warn!(file = %file.display(), "an old backup made room for a new one");
        let Ok(found) = space(folder) else {
            return Ok(false);
        };
        // About as much, for others write meanwhile.
        if found.free.saturating_sub(free) < removed / 2 {
            return Ok(false);
        }
        free = found.free;
        lacking = needed.saturating_sub(free);
    }
    Ok(lacking == 0)
}

/// Whether the disk has more room than is kept of it. One that nobody knows is taken to have.
fn find_room(space: Measure<'_>, folder: &Path) -> Result<(), Missed> {
    match space(folder) {
        Ok(found) if found.lacking() > 0 => Err(Missed::NoRoom {
            free: found.free,
            kept: found.reserve(),
        }),
        _ => Ok(()),
    }
}

/// Counts the bytes that a backup has, and keeps none.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is written to for as long as there is room.
struct Sparing<'a> {
    file: File,
    find_room: &'a dyn Fn() -> Result<(), Missed>,
    /// What was written since room was last looked for.
    since: usize,
    /// Why nothing more is written.
    missed: Option<Missed>,
}

impl Write for Sparing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.since >= STRIDE {
            self.since = 0;
            if let Err(missed) = (self.find_room)() {
                self.missed = Some(missed);
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let written = self.file.write(bytes)?;
        self.since += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn write(
    core: &Core,
    data_dir: &Path,
    file: &Path,
    find_room: &dyn Fn() -> Result<(), Missed>,
) -> Result<(), Missed> {
    find_room()?;
    let failed = |source| Missed::Io {
        path: file.to_owned(),
        source,
    };
    let mut unfinished = AtomicFile::beside(file, &core.random);
    let mut sink = BufWriter::new(Sparing {
        file: unfinished.create(Some(data_dir)).map_err(failed)?,
        find_room,
        since: STRIDE,
        missed: None,
    });
    let copied = backup::copy(core, BackUp::default(), &mut sink);
    let (sparing, _) = sink.into_parts();
    if let Some(missed) = sparing.missed {
        return Err(missed);
    }
    // It has flushed what it wrote.
    copied?;
    let again = BufReader::new(File::open(unfinished.path()).map_err(failed)?);
    let mut rows = Incoming::open(again)?.rows(core.sealer.backup_key());
    while rows.next_row()?.is_some() {}
    unfinished.place(file, true).map_err(failed)
}

/// Removes what a killed process left unfinished.
fn remove_unfinished(folder: &Path) -> Result<(), Missed> {
    for entry in entries(folder)? {
        let name = entry
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if name.starts_with(&format!("{STEM}-")) && name.ends_with(".partial") {
            // No process but this one makes such files here.
            let _ = fs::remove_file(entry);
        }
    }
    Ok(())
}

/// In what order backups are worth keeping: the newest first, those whose names are ahead of the clock last.
fn oldest_last(made: &Made, now: Timestamp) -> Reverse<(bool, Made)> {
    Reverse((made.0 <= now, made.clone()))
}

/// Removes the oldest, and before them those whose names are ahead of the clock: when they were made, nobody knows.
/// The newest one stays in any case.
fn prune(folder: &Path, newest: &Path, keep: usize, now: Timestamp) -> Result<(), Missed> {
    let mut existing = scheduled(folder)?;
    existing.sort_by_key(|made| oldest_last(made, now));
    existing.retain(|(_, file)| file != newest);
    for (_, file) in existing.into_iter().skip(keep.saturating_sub(1)) {
        remove(&file);
    }
    Ok(())
}

/// Removes an old backup, and says whether it is gone. One that stays is for the operator to look at and in nobody's way.
fn remove(file: &Path) -> bool {
    fs::remove_file(file)
        .inspect_err(|error| {
            tracing::warn!(file = %file.display(), %error, "an old backup cannot be removed: remove it by hand");
        })
        .is_ok()
}

/// A scheduled backup: the moment that its name tells, and where it is.
pub type Made = (Timestamp, PathBuf);

/// The scheduled backups in a folder.
fn scheduled(folder: &Path) -> Result<Vec<Made>, Missed> {
    let dated = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let text = name
            .strip_prefix(STEM)?
            .strip_prefix('-')?
            .strip_suffix(".backup")?;
        Some((moment_of(text)?, path))
    };
    Ok(entries(folder)?.into_iter().filter_map(dated).collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Missed> {
    let failed = |source| Missed::Unreadable {
        path: folder.to_owned(),
        source,
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    Ok(paths)
}

/// The scheduled backups of a data directory, or why they cannot be known.
pub fn made_in(data_dir: &Path) -> Result<Vec<Made>, String> {
    match scheduled(&data_dir.join(BACKUPS)) {
        Err(Missed::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found.map_err(|error| error.to_string()),
    }
}

/// The newest of these whose name is not ahead of the clock.
pub fn newest(existing: &[Made], now: Timestamp) -> Option<&Made> {
    existing.iter().filter(|(at, _)| *at <= now).max()
}

/// Reads `20260102T030405Z`.
fn moment_of(text: &str) -> Option<Timestamp> {
    if text.len() != 16 || !text.is_ascii() {
        return None;
    }
    let (day, time) = text.split_once('T')?;
    let dashed = format!(
        "{}-{}-{}T{}:{}:{}",
        day.get(..4)?,
        day.get(4..6)?,
        day.get(6..)?,
        time.get(..2)?,
        time.get(2..4)?,
        time.get(4..)?
    );
    let parsed = time::OffsetDateTime::parse(&dashed, &time::format_description::well_known::Rfc3339).ok()?;
    u64::try_from(parsed.unix_timestamp())
        .ok()
        .map(Timestamp::from_seconds)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use tempfile::TempDir;

    use super::*;
    use crate::admin::tests::core;
    use crate::store::schema::meta_put;

    const HOUR: Duration = Duration::from_hours(1);

    /// A disk that nobody knows the room of.
    fn unmeasured(_: &Path) -> io::Result<Space> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A disk with so many bytes beside the reserve, for what is in the folder.
    fn disk(room: u64) -> impl Fn(&Path) -> io::Result<Space> {
        let full = Space {
            free: 0,
            total: 1 << 26,
        };
        move |folder| {
            let entries = fs::read_dir(folder)?;
            let files = entries.map(|entry| entry.unwrap().metadata().unwrap());
            let taken: u64 = files.filter(fs::Metadata::is_file).map(|file| file.len()).sum();
            let free = (full.reserve() + room).saturating_sub(taken);
            Ok(Space { free, ..full })
        }
    }

    fn there(made: &[PathBuf]) -> Vec<bool> {
        made.iter().map(|file| file.exists()).collect()
    }

    #[test]
    fn a_backup_is_made_when_one_is_due_and_the_oldest_go() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let mut made = Vec::new();
        for _ in 0..5 {
            made.push(round(&core, data.path(), HOUR, 3, &unmeasured).unwrap().unwrap());
            assert_eq!(round(&core, data.path(), HOUR, 3, &unmeasured).unwrap(), None);
            core.clock.advance(HOUR);
        }
        let mut kept: Vec<_> = scheduled(&data.path().join(BACKUPS))
            .unwrap()
            .into_iter()
            .map(|(_, file)| file)
            .collect();
        kept.sort();
        assert_eq!(kept, made[2..]);
        let existing = made_in(data.path()).unwrap();
        assert_eq!(newest(&existing, core.clock.now()).unwrap().1, made[4]);
    }

    #[test]
    fn an_old_backup_that_cannot_be_removed_is_in_nobodys_way() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let folder = make_folder_in(data.path(), BACKUPS).unwrap();
        let ago = |hours| folder.join(name(STEM, core.clock.now() - HOUR * hours));
        let (stuck, old) = (ago(2), ago(3));
        fs::create_dir(&stuck).unwrap();
        fs::write(&old, "x").unwrap();
        let first = round(&core, data.path(), HOUR, 1, &unmeasured).unwrap().unwrap();
        assert_eq!(there(&[stuck.clone(), old, first.clone()]), [true, false, true]);
        // It is the oldest one now, and makes no room either.
        core.clock.advance(HOUR);
        let made = [vec![stuck, first], several(&core, &data, 2)].concat();
        let size = fs::metadata(&made[3]).unwrap().len();
        round(&core, data.path(), HOUR, 7, &disk(size * 5 / 2))
            .unwrap()
            .unwrap();
        assert_eq!(there(&made), [true, false, false, true]);
    }

    #[test]
    fn a_backup_from_the_future_does_not_keep_others_from_being_made() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let folder = make_folder_in(data.path(), BACKUPS).unwrap();
        let ahead = folder.join(name(STEM, core.clock.now() + HOUR * 1000));
        fs::write(&ahead, "x").unwrap();
        let made = round(&core, data.path(), HOUR, 1, &unmeasured).unwrap().unwrap();
        assert!(made.exists() && !ahead.exists());
        assert_eq!(round(&core, data.path(), HOUR, 1, &unmeasured).unwrap(), None);
    }

    #[test]
    fn names_ahead_of_the_clock_push_no_true_backup_out() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let folder = make_folder_in(data.path(), BACKUPS).unwrap();
        let first = round(&core, data.path(), HOUR, 2, &unmeasured).unwrap().unwrap();
        for days in [1, 2, 3] {
            let ahead = folder.join(name(STEM, core.clock.now() + HOUR * 24 * days));
            fs::write(&ahead, "x").unwrap();
        }
        core.clock.advance(HOUR);
        let second = round(&core, data.path(), HOUR, 2, &unmeasured).unwrap().unwrap();
        let existing = made_in(data.path()).unwrap();
        assert_eq!(existing.len(), 2);
        assert!(first.exists() && second.exists());
        let ahead = (core.clock.now() + HOUR, folder.join("ahead"));
        let existing = [existing, vec![ahead]].concat();
        assert_eq!(newest(&existing, core.clock.now()).unwrap().1, second);
    }

    #[test]
    fn what_the_operator_put_there_stays_and_what_was_cut_off_goes() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let folder = make_folder_in(data.path(), BACKUPS).unwrap();
        for file in [
            "idsvc-20260102T030405Z.backup",
            "scheduled-notes.backup",
            "mine.partial",
        ] {
            fs::write(folder.join(file), "x").unwrap();
        }
        let cut = folder.join("scheduled-20260102T030405Z.backup.0.partial");
        fs::write(&cut, "x").unwrap();
        round(&core, data.path(), HOUR, 1, &unmeasured).unwrap();
        assert!(!cut.exists());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
    }

    #[test]
    fn a_backup_ends_when_there_is_no_more_room_and_leaves_nothing() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let folder = make_folder_in(data.path(), BACKUPS).unwrap();
        let cut = folder.join("scheduled-20260102T030405Z.backup.0.partial");
        fs::write(&cut, "x").unwrap();
        for looks in [0, 1] {
            let looked = Cell::new(0);
            let fills = |_: &Path| {
                let free = if looked.replace(looked.get() + 1) < looks {
                    1 << 30
                } else {
                    15 << 20
                };
                Ok(Space { free, total: 1 << 26 })
            };
            let missed = round(&core, data.path(), HOUR, 1, &fills).unwrap_err();
            assert!(matches!(missed, Missed::NoRoom { .. }), "{missed}");
            assert!(missed.to_string().contains("15 MiB are free"), "{missed}");
            assert_eq!(looked.get(), looks + 1);
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        }
        let sparse = File::create(data.path().join("idsvc.redb")).unwrap();
        sparse.set_len(1 << 42).unwrap();
        round(&core, data.path(), HOUR, 1, &unmeasured).unwrap().unwrap();
    }

    #[test]
    fn older_backups_make_room_for_a_new_one_if_that_is_enough_and_the_newest_stays() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let folder = data.path().join(BACKUPS);
        let mut made = Vec::new();
        for _ in 0..4 {
            made.push(round(&core, data.path(), HOUR, 7, &unmeasured).unwrap().unwrap());
            core.clock.advance(HOUR);
        }
        let size = fs::metadata(&made[3]).unwrap().len();
        let missed = round(&core, data.path(), HOUR, 7, &disk(size / 2)).unwrap_err();
        assert!(matches!(missed, Missed::NoRoom { .. }), "{missed}");
        assert_eq!(there(&made), [true; 4], "what would not be enough stays");
        made.push(
            round(&core, data.path(), HOUR, 7, &disk(size * 7 / 2))
                .unwrap()
                .unwrap(),
        );
        assert_eq!(there(&made), [false, false, true, true, true]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
    }

    /// Makes so many backups, one an hour.
    fn several(core: &Core, data: &TempDir, count: usize) -> Vec<PathBuf> {
        let made = (0..count).map(|_| {
            let made = round(core, data.path(), HOUR, 7, &unmeasured).unwrap().unwrap();
            core.clock.advance(HOUR);
            made
        });
        made.collect()
    }

    #[test]
    fn where_what_is_removed_is_not_free_at_once_no_more_is_removed() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let made = several(&core, &data, 5);
        let full = Space {
            free: 0,
            total: 1 << 26,
        };
        // It lacks the room for one, and a little of its reserve.
        let free = full.reserve() - 1;
        let never_frees = |_: &Path| Ok(Space { free, ..full });
        let missed = round(&core, data.path(), HOUR, 7, &never_frees).unwrap_err();
        assert!(matches!(missed, Missed::NoRoom { .. }), "{missed}");
        assert_eq!(there(&made), [false, true, true, true, true]);
        // What was removed is free by the next round.
        let next = round(&core, data.path(), HOUR, 7, &unmeasured).unwrap().unwrap();
        assert_eq!(there(&made), [false, true, true, true, true]);
        assert!(next.exists());
    }

    #[test]
    fn room_that_came_meanwhile_is_used_before_anything_is_removed() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let made = several(&core, &data, 3);
        let looked = Cell::new(0);
        let is_full_at_first = |_: &Path| {
            let free = if looked.replace(looked.get() + 1) == 0 {
                0
            } else {
                1 << 30
            };
            Ok(Space { free, total: 1 << 26 })
        };
        let next = round(&core, data.path(), HOUR, 7, &is_full_at_first)
            .unwrap()
            .unwrap();
        assert!(next.exists());
        assert_eq!(there(&made), [true; 3]);
    }

    #[test]
    fn older_backups_make_room_for_one_that_is_larger_than_they_are() {
        let (data, core) = (TempDir::new().unwrap(), core());
        let grow = |name: &'static str, mebibytes: usize| {
            let ballast = "x".repeat(mebibytes << 20);
            let grown = core
                .store
                .write_blocking("grow", move |tx| meta_put(tx, name, &ballast));
            grown.unwrap();
        };
        grow("some", 2);
        let mut made = Vec::new();
        for _ in 0..4 {
            made.push(round(&core, data.path(), HOUR, 7, &unmeasured).unwrap().unwrap());
            core.clock.advance(HOUR);
        }
        grow("more", 3);
        // The newest would fit in once more, and what is to be made does not.
        made.push(
            round(&core, data.path(), HOUR, 7, &disk(12 << 20))
                .unwrap()
                .unwrap(),
        );
        assert_eq!(there(&made), [false, true, true, true, true]);
        core.clock.advance(HOUR);
        made.push(
            round(&core, data.path(), HOUR, 7, &disk(14 << 20))
                .unwrap()
                .unwrap(),
        );
        assert_eq!(there(&made), [false, false, false, true, true, true]);
        core.clock.advance(HOUR);
        let missed = round(&core, data.path(), HOUR, 7, &disk(9 << 20)).unwrap_err();
        assert!(matches!(missed, Missed::NoRoom { .. }), "{missed}");
        assert_eq!(there(&made), [false, false, false, true, true, true]);
    }

    #[test]
    fn names_tell_the_moment() {
        let moment = Timestamp::from_seconds(1_767_323_045);
        let name = name(STEM, moment);
        assert_eq!(name, "scheduled-20260102T030405Z.backup");
        assert_eq!(moment_of("20260102T030405Z"), Some(moment));
        for odd in ["", "20260102T0304", "2026é102T03040Z", "99999999T999999Z"] {
            assert_eq!(moment_of(odd), None, "{odd}");
        }
    }
}
