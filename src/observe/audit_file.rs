//! The audit in the data directory: one JSON object a line, in a few files of bounded size.
//!
//! The events are the log lines of the target `audit`. [A thread](super::background_writer) writes them, so that no
//! request waits for the disk. If the disk is too slow, events are dropped, and a line says how many.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::OFlags;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::audit;
use super::background_writer::{BackgroundWriter, LineSink};
use super::json_fields::JsonObject;
use crate::clock::Clock;
use crate::files::Folder;

/// The folder in the data directory.
pub const EVENTS: &str = "events";
/// The current file. Older files have a number before the ending.
pub const CURRENT: &str = "events.jsonl";
/// The number of files.
pub const FILES: u64 = 4;
/// The target under which the audit logs.
pub const TARGET: &str = "audit";

/// The typical length of a line.
const TYPICAL_BYTES: usize = 320;

/// The thread that writes the events of this process.
static EVENT_WRITER: OnceLock<BackgroundWriter> = OnceLock::new();

/// Waits until all events so far are written, at most for `timeout`.
pub fn flush(timeout: Duration) {
    if let Some(writer) = EVENT_WRITER.get() {
        writer.flush(timeout);
    }
}

/// Picks the audit's events out of the log and passes them to the writing thread.
pub struct EventLog {
    writer: BackgroundWriter,
    clock: Clock,
}

impl EventLog {
    /// Starts the thread that writes to `data_dir`. The files have at most `max_bytes` in total.
    pub fn start(data_dir: &Path, max_bytes: u64, clock: Clock) -> io::Result<Self> {
        let writer = BackgroundWriter::start("events", EventFile::new(data_dir, max_bytes, clock.clone()))?;
        let _ = EVENT_WRITER.set(writer.clone());
        Ok(Self { writer, clock })
    }
}

impl<S: Subscriber> Layer<S> for EventLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != TARGET {
            return;
        }
        let mut members = JsonObject::with_capacity(TYPICAL_BYTES);
        members.add("time", self.clock.now().seconds());
        event.record(&mut members);
        let mut line = members.into_object();
        line.push(b'\n');
        self.writer.push(&line);
    }
}

/// The current file, which is rotated when it is full.
struct EventFile {
    data_dir: PathBuf,
    file: Option<File>,
    file_bytes: u64,
    clock: Clock,
    has_failed: bool,
    /// Whether the last write ended in the middle of a line. The rest must go to the same file.
    is_mid_line: bool,
}

impl Write for EventFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let written = self.current_file().and_then(|mut file| file.write(lines));
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
}

impl EventFile {
    fn new(data_dir: &Path, max_bytes: u64, clock: Clock) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            file: None,
            file_bytes: (max_bytes / FILES).max(1),
            clock,
            has_failed: false,
            is_mid_line: false,
        }
    }

    /// The current file. A new one is created if the last one is full or was moved or removed.
    fn current_file(&mut self) -> io::Result<&File> {
        if let Some(file) = &self.file
            && !self.is_mid_line
        {
            let folder = folder(&self.data_dir)?;
            match size_if_same(file, &folder)? {
                // Readers of the path would not find further lines.
                None => {
                    let current = folder.path().join(CURRENT);
                    tracing::warn!(file = %current.display(), "the file of events was taken away: what happens is in a new one");
                    self.file = None;
                }
                Some(size) if size >= self.file_bytes => {
                    for number in (1..FILES - 1).rev() {
                        rename(&folder, &older(number), &older(number + 1))?;
                    }
                    rename(&folder, CURRENT, &older(1))?;
                    self.file = None;
                }
                Some(_) => {}
            }
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => open(&self.data_dir)?,
        };
        Ok(self.file.insert(file))
    }
}

/// The size of `file`, if it is still the current one.
fn size_if_same(file: &File, folder: &Folder) -> io::Result<Option<u64>> {
    let own = rustix::fs::fstat(file)?;
    let found = match folder.stat(CURRENT) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_same = (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino);
    Ok(is_same.then_some(u64::try_from(found.st_size).unwrap_or(0)))
}

/// Renames a file, if it exists.
fn rename(folder: &Folder, from: &str, to: &str) -> io::Result<()> {
    match folder.rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What the event files hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Their bytes.
    pub bytes: u64,
    /// The time of the oldest event, in seconds since the epoch; `None` without events.
    pub oldest: Option<u64>,
}

/// Measures the event files. One line is read.
pub fn extent(data_dir: &Path) -> io::Result<Extent> {
    let folder = Folder::open_below(data_dir, &data_dir.join(EVENTS))?;
    let mut extent = Extent {
        bytes: 0,
        oldest: None,
    };
    let oldest_first = (1..FILES).rev().map(older).chain([CURRENT.to_owned()]);
    for name in oldest_first {
        let Ok(found) = folder.stat(&name) else { continue };
        extent.bytes += u64::try_from(found.st_size).unwrap_or(0);
        if extent.oldest.is_none() {
            extent.oldest = first_time(&folder, &name);
        }
    }
    Ok(extent)
}

/// The time of the first event in a file. A line begins with `{"time":`.
fn first_time(folder: &Folder, name: &str) -> Option<u64> {
    let mut start = [0; 32];
    folder.file(name).ok()?.read_exact(&mut start).ok()?;
    let rest = start.strip_prefix(b"{\"time\":")?;
    let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The name of an older file. A higher number means an older file.
pub fn older(number: u64) -> String {
    format!("events.{number}.jsonl")
}

/// The folder of the events, which is created if it is missing.
fn folder(data_dir: &Path) -> io::Result<Folder> {
    Folder::create_below(data_dir, &data_dir.join(EVENTS), 0o700)
}

/// Opens or creates the current file. If a killed process left an unfinished line, it is ended first.
fn open(data_dir: &Path) -> io::Result<File> {
    let folder = folder(data_dir)?;
    match folder.create_file(CURRENT, 0o600) {
        Ok(made) => folder.give_to_owner(&made)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let mut file = folder.open_file(CURRENT, OFlags::RDWR.union(OFlags::APPEND))?;
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

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;
    use tempfile::TempDir;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::observe::audit;

    #[test]
    fn events_are_lines_of_json_and_other_log_lines_are_not_kept() {
        let data = TempDir::new().unwrap();
        let clock = Clock::manual(crate::clock::Timestamp::from_seconds(5));
        let log = EventLog::start(data.path(), 1 << 20, clock).unwrap();
        let writer = log.writer.clone();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(log), || {
            tracing::info!("something else");
            audit::record(&audit::Event::TokensIssued {
                user: uuid::Uuid::nil(),
                client_id: "web",
                grant_type: "refresh_token",
                jti: uuid::Uuid::nil(),
                family: None,
            });
            audit::record(&audit::Event::Administered {
                command: "client add",
                subject: "a \"quoted\"\nname",
                actor: "uid 0",
            });
        });
        writer.flush(Duration::from_mins(1));
        let text = fs::read_to_string(data.path().join(EVENTS).join(CURRENT)).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            lines,
            [
                serde_json::json!({"time": 5, "event": "tokens_issued", "user": uuid::Uuid::nil(), "client_id": "web", "grant_type": "refresh_token", "jti": uuid::Uuid::nil()}),
                serde_json::json!({"time": 5, "event": "administered", "command": "client add", "subject": "a \"quoted\"\nname", "actor": "uid 0"}),
            ]
        );
    }

    #[test]
    fn the_files_stay_small_and_the_oldest_goes() {
        let data = TempDir::new().unwrap();
        let mut file = EventFile::new(data.path(), 400, Clock::System);
        for number in 0..60 {
            writeln!(file, "{{\"number\":{number}}}").unwrap();
        }
        let folder = data.path().join(EVENTS);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
        for entry in fs::read_dir(&folder).unwrap() {
            assert!(entry.unwrap().metadata().unwrap().len() < 130);
        }
        assert!(fs::read_to_string(folder.join(CURRENT)).unwrap().contains("59"));
        assert!(
            !fs::read_to_string(folder.join(older(3)))
                .unwrap()
                .contains("{\"number\":0}")
        );
    }

    #[test]
    fn the_extent_is_that_of_all_files_and_its_oldest_event_the_first_of_the_oldest_file() {
        let data = TempDir::new().unwrap();
        assert!(extent(data.path()).is_err(), "there is no folder");
        let mut file = EventFile::new(data.path(), 400, Clock::System);
        for time in 100..107 {
            writeln!(file, "{{\"time\":{time},\"event\":\"sign_in_failed\"}}").unwrap();
        }
        let found = extent(data.path()).unwrap();
        assert_eq!((found.bytes, found.oldest), (7 * 38, Some(100)));
        for time in 107..130 {
            writeln!(file, "{{\"time\":{time},\"event\":\"sign_in_failed\"}}").unwrap();
        }
        let oldest = extent(data.path()).unwrap().oldest.unwrap();
        assert!((101..130).contains(&oldest), "{oldest}");
    }

    #[test]
    fn a_line_that_a_killed_process_cut_is_ended() {
        let data = TempDir::new().unwrap();
        let folder = data.path().join(EVENTS);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(CURRENT), "{\"cut\":").unwrap();
        let mut file = EventFile::new(data.path(), 4000, Clock::System);
        file.write_all(b"{}\n").unwrap();
        file.write_all(&file.lost_note(3)).unwrap();
        let text = fs::read_to_string(folder.join(CURRENT)).unwrap();
        assert!(text.starts_with("{\"cut\":\n{}\n"), "{text}");
        assert!(text.contains("\"event\":\"events_lost\""), "{text}");
        assert!(text.contains("\"count\":3"), "{text}");
    }

    #[test]
    fn a_line_goes_on_in_the_file_where_it_began() {
        let data = TempDir::new().unwrap();
        let mut file = EventFile::new(data.path(), 4, Clock::System);
        file.write_all(b"{\"half\":").unwrap();
        file.write_all(b"1}\n").unwrap();
        file.write_all(b"{}\n").unwrap();
        let folder = data.path().join(EVENTS);
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(
            (read(&older(1)), read(CURRENT)),
            ("{\"half\":1}\n".to_owned(), "{}\n".to_owned())
        );
    }
}
