//! The files of events: each kind of events has one that grows, and older ones. They are bounded by size and by age.
//!
//! Only whole files are removed, the oldest first. So that this removes little at a time, a file is closed when it holds a
//! sixteenth of the size, or spans a sixteenth of the time.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::audit;
use super::background_writer::LineSink;
use crate::clock::{Clock, EARLIEST, Timestamp};
use crate::config::EventRetention;
use crate::files::Folder;

#[cfg(test)]
mod tests;

/// The folder in the data directory.
pub const EVENTS: &str = "events";
/// The most files of one kind.
pub const FILES: u32 = 64;
/// The part of the size, and of the time, that one file holds.
const PARTS: u32 = 16;
/// The longest line whose time is found from the end of a file. Events are far shorter.
const TAIL_BYTES: u16 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// All events that are not routine.
    Security,
    /// The events for which [`audit::is_routine`] holds.
    Routine,
}

impl EventKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Security, Self::Routine];

    /// How the names of its files begin.
    pub fn stem(self) -> &'static str {
        match self {
            Self::Security => "events",
            Self::Routine => "tokens",
        }
    }

    /// The name of a file. Number zero is the one that grows. A higher number means an older file.
    pub fn file_name(self, number: u32) -> String {
        match number {
            0 => format!("{}.jsonl", self.stem()),
            number => format!("{}.{number}.jsonl", self.stem()),
        }
    }

    /// The name of an empty file, which says that older events have been removed.
    pub fn removal_mark(self) -> String {
        format!("{}.removed", self.stem())
    }
}

/// The time of an event. Its line begins with `{"time":`.
pub fn time_of(line: &[u8]) -> Option<Timestamp> {
    let rest = line.strip_prefix(b"{\"time\":")?;
    let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
    let seconds = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(Timestamp::from_seconds(seconds))
}

/// The times of the first and the last event in a file.
pub fn time_range(folder: &Folder, name: &str) -> io::Result<[Option<Timestamp>; 2]> {
    let mut file = folder.file(name)?;
    let mut start = Vec::new();
    Read::by_ref(&mut file).take(32).read_to_end(&mut start)?;
    let size = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES.into())))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES.into()).read_to_end(&mut tail)?;
    let last = tail.rsplit(|byte| *byte == b'\n').find_map(time_of);
    Ok([time_of(&start), last])
}

/// What the files of a kind hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub bytes: u64,
    /// The time of the oldest event.
    pub oldest: Option<Timestamp>,
}

/// Measures the files of a kind. The oldest of them is opened.
pub fn extent(data_dir: &Path, kind: EventKind) -> io::Result<Extent> {
    let folder = Folder::open_below(data_dir, &data_dir.join(EVENTS))?;
    let mut extent = Extent {
        bytes: 0,
        oldest: None,
    };
    for name in (0..FILES).rev().map(|number| kind.file_name(number)) {
        let Ok(found) = folder.stat(&name) else { continue };
        extent.bytes += u64::try_from(found.st_size).unwrap_or(0);
        if extent.oldest.is_none() {
            let times = time_range(&folder, &name).unwrap_or_default();
            extent.oldest = times.into_iter().flatten().next();
        }
    }
    Ok(extent)
}

/// The file of one kind that grows, and those before it.
pub(super) struct EventFile {
    data_dir: PathBuf,
    kind: EventKind,
    max_bytes: u64,
    keep: Option<Duration>,
    file: Option<File>,
    clock: Clock,
    has_failed: bool,
    /// Whether the last write ended in the middle of a line. The rest must go to the same file.
    is_mid_line: bool,
}

impl Write for EventFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let written = self
            .current_file(lines.len())
            .and_then(|mut file| file.write(lines));
        match &written {
            Ok(bytes) => {
                self.is_mid_line = lines.get(..*bytes).is_some_and(|text| !text.ends_with(b"\n"));
                self.has_failed = false;
            }
            Err(error) if !self.has_failed => {
                tracing::error!(%error, "events are not kept");
                self.has_failed = true;
            }
            Err(_) => {}
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LineSink for EventFile {
    fn lost_note(&self, lines: u64) -> Vec<u8> {
        let time = self.clock.now().seconds();
        let note = serde_json::json!({"time": time, "event": "events_lost", "count": lines});
        format!("{note}\n").into_bytes()
    }

    fn count_lost(&self, lines: u64) {
        audit::lost(lines);
    }

    fn remove_expired(&mut self, now: Timestamp) {
        if let Err(error) = self.remove_older(now) {
            tracing::error!(%error, "events that are too old were not removed");
        }
    }
}

impl EventFile {
    pub(super) fn new(data_dir: &Path, kind: EventKind, retention: &EventRetention, clock: Clock) -> Self {
        let parts = if retention.routine.is_some() { 2 } else { 1 };
        Self {
            data_dir: data_dir.to_owned(),
            kind,
            max_bytes: retention.max_bytes / parts,
            keep: match kind {
                EventKind::Security => retention.keep,
                EventKind::Routine => Some(retention.routine.unwrap_or_default()),
            },
            file: None,
            clock,
            has_failed: false,
            is_mid_line: false,
        }
    }

    /// The file for the next lines, of so many bytes. A new one is created if the last one has no room for them, or was
    /// moved or removed.
    fn current_file(&mut self, bytes: usize) -> io::Result<&File> {
        if let Some(file) = &self.file
            && !self.is_mid_line
        {
            let folder = folder(&self.data_dir)?;
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            match size_if_same(file, &folder, &self.kind.file_name(0))? {
                // Readers of the path would not find further lines.
                None => {
                    let current = folder.path().join(self.kind.file_name(0));
                    tracing::warn!(file = %current.display(), "the file of events was taken away: what happens is in a new one");
                    self.file = None;
                }
                Some(size) if size > 0 && size.saturating_add(bytes) > self.file_bytes() => {
                    self.rotate(&folder)?;
                    self.remove_excess(&folder)?;
                }
                Some(_) => {}
            }
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => open(&self.data_dir, &self.kind.file_name(0))?,
        };
        Ok(self.file.insert(file))
    }

    /// The most bytes of one file.
    fn file_bytes(&self) -> u64 {
        self.max_bytes / u64::from(PARTS)
    }

    /// Makes the current file the newest of the older ones.
    fn rotate(&mut self, folder: &Folder) -> io::Result<()> {
        for number in (0..FILES - 1).rev() {
            let (from, to) = (self.kind.file_name(number), self.kind.file_name(number + 1));
            match folder.rename(from, to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        self.file = None;
        Ok(())
    }

    /// The older files with their sizes, the oldest first.
    fn older_files(&self, folder: &Folder) -> Vec<(String, u64)> {
        let names = (1..FILES).rev().map(|number| self.kind.file_name(number));
        let sized = names.filter_map(|name| {
            let found = folder.stat(&name).ok()?;
            Some((name, u64::try_from(found.st_size).unwrap_or(0)))
        });
        sized.collect()
    }

    /// Removes the oldest files until the others and a full current one are within the size and the number of files.
    fn remove_excess(&self, folder: &Folder) -> io::Result<()> {
        let files = self.older_files(folder);
        let mut bytes = files.iter().map(|(_, size)| size).sum::<u64>() + self.file_bytes();
        let most = usize::try_from(FILES).unwrap_or(0) - 2;
        for (index, (name, size)) in files.iter().enumerate() {
            if bytes <= self.max_bytes && files.len() - index <= most {
                break;
            }
            self.remove(folder, name)?;
            bytes -= size;
        }
        Ok(())
    }

    /// Removes the files whose events are all older than the time that they are kept for.
    ///
    /// The clock may have been wrong when a file was written. So a file is taken to be as new as the newest one before it,
    /// and a time before [`EARLIEST`] or ahead of the clock is ignored: a file with no other time is removed together with the
    /// next newer file.
    fn remove_older(&mut self, now: Timestamp) -> io::Result<()> {
        let Some(keep) = self.keep else { return Ok(()) };
        if self.is_mid_line || now < EARLIEST {
            return Ok(());
        }
        let folder = folder(&self.data_dir)?;
        let is_possible = |time: &Timestamp| *time >= EARLIEST && !time.is_ahead_of(now);
        let current = self.kind.file_name(0);
        let times = match time_range(&folder, &current) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => [None; 2],
            times => times?,
        };
        if let Some(first) = times.into_iter().flatten().next()
            && (!is_possible(&first) || now.since(first) > keep / PARTS)
        {
            self.rotate(&folder)?;
        }
        let mut undated = Vec::new();
        let mut newest: Option<Timestamp> = None;
        for (name, _) in self.older_files(&folder) {
            let times = time_range(&folder, &name)?;
            newest = newest.max(times.into_iter().flatten().filter(is_possible).max());
            undated.push(name);
            match newest {
                None => {}
                Some(newest) if now.since(newest) > keep => {
                    for name in undated.drain(..) {
                        self.remove(&folder, &name)?;
                    }
                }
                Some(_) => break,
            }
        }
        self.remove_excess(&folder)
    }

    /// Removes a file. Readers find a mark that there were older events.
    fn remove(&self, folder: &Folder, name: &str) -> io::Result<()> {
        // A full disk may refuse the mark. The file is removed nevertheless, and the next removal creates the mark.
        if let Ok(made) = folder.create_file(self.kind.removal_mark(), 0o600) {
            folder.give_to_owner(&made)?;
        }
        folder.remove(name)
    }
}

/// The size of `file`, if it still has this name.
fn size_if_same(file: &File, folder: &Folder, name: &str) -> io::Result<Option<u64>> {
    let own = rustix::fs::fstat(file)?;
    let found = match folder.stat(name) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_same = (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino);
    Ok(is_same.then_some(u64::try_from(found.st_size).unwrap_or(0)))
}

/// The folder of the events, which is created if it is missing.
fn folder(data_dir: &Path) -> io::Result<Folder> {
    Folder::create_below(data_dir, &data_dir.join(EVENTS), 0o700)
}

/// Opens or creates a file. If a killed process left an unfinished line, it is ended first.
fn open(data_dir: &Path, name: &str) -> io::Result<File> {
    let folder = folder(data_dir)?;
    match folder.create_file(name, 0o600) {
        Ok(made) => folder.give_to_owner(&made)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let mut file = folder.open_file(name, OFlags::RDWR.union(OFlags::APPEND))?;
    let size = file.seek(SeekFrom::End(0))?;
    if size > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}
