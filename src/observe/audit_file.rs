//! The audit kept in the data directory: one JSON object a line, in a few files of bounded size.
//!
//! Events come as log lines of the target `audit`, so nothing is kept that is not logged. A request hands its
//! event over and goes on; [a thread of its own](super::background_writer) writes what has gathered, without waiting for the
//! disk. When it cannot keep up, events are dropped, and the next line says how many.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::audit;
use super::background_writer::Lines;
use super::json_fields::Members;
use super::line_chunks;
use super::line_chunks::{Unwritten, count};
use crate::clock::Clock;
use crate::store::owner;

/// The folder in the data directory.
pub const EVENTS: &str = "events";
/// The file that is written to; older ones have a number before the ending.
pub const CURRENT: &str = "events.jsonl";
/// How many files there are.
pub const FILES: u64 = 4;
/// The target under which the audit logs.
pub const TARGET: &str = "audit";

/// What most lines take.
const TYPICAL_BYTES: usize = 320;
/// How long the end of the process waits for them.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes the audit's events out of the log and hands them to the thread that writes.
pub struct EventLog {
    lines: Lines,
    clock: Clock,
}

/// Those of the one log of this process.
static STARTED: OnceLock<Lines> = OnceLock::new();

/// Waits until what was recorded so far has been written.
pub fn flush() {
    if let Some(lines) = STARTED.get() {
        lines.flush(PATIENCE);
    }
}

impl EventLog {
    /// Starts the thread that writes below `data_dir`, at most `max_bytes` in all.
    pub fn start(data_dir: &Path, max_bytes: u64, clock: Clock) -> io::Result<Self> {
        let mut writer = Writer {
            data_dir: data_dir.to_owned(),
            file: None,
            file_bytes: (max_bytes / FILES).max(1),
            clock: clock.clone(),
            has_failed: false,
            counted: 0,
        };
        let lines = Lines::start("events", move |text, lost| writer.write(text, lost))?;
        let _ = STARTED.set(lines.clone());
        Ok(Self { lines, clock })
    }
}

impl<S: Subscriber> Layer<S> for EventLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != TARGET {
            return;
        }
        let mut members = Members::with_capacity(TYPICAL_BYTES);
        members.add("time", self.clock.now().seconds());
        event.record(&mut members);
        let mut line = members.into_object();
        line.push(b'\n');
        self.lines.push(&line);
    }
}

struct Writer {
    data_dir: PathBuf,
    file: Option<File>,
    file_bytes: u64,
    clock: Clock,
    has_failed: bool,
    /// How many of those that have still to be said to be lost are counted.
    counted: u64,
}

impl Writer {
    /// Writes events, then how many others were lost. How many have to be said to be lost after that.
    fn write(&mut self, mut text: Vec<u8>, lost: u64) -> u64 {
        let has_note = lost > 0;
        if has_note {
            let note = serde_json::json!({"time": self.clock.now().seconds(), "event": "events_lost", "count": lost});
            let _ = writeln!(text, "{note}");
        }
        let appended = self.append(&text);
        let missing = match &appended {
            Ok(()) => lost,
            // The note is the last of those that are not written, and no event.
            Err(unwritten) => lost + count(unwritten.lines).saturating_sub(u64::from(has_note)),
        };
        audit::lost(missing.saturating_sub(self.counted));
        match appended {
            Ok(()) => {
                self.has_failed = false;
                self.counted = 0;
                0
            }
            Err(Unwritten { error, .. }) => {
                self.file = None;
                if !self.has_failed {
                    tracing::error!(%error, "events are not kept");
                }
                self.has_failed = true;
                self.counted = missing;
                missing
            }
        }
    }

    /// A part of a line that stays behind is ended when the file is opened again.
    fn append<'a>(&mut self, text: &'a [u8]) -> Result<(), Unwritten<'a>> {
        let mut file = self.take_file().map_err(|error| Unwritten::all(text, error))?;
        line_chunks::write(&mut file, text, text.len())?;
        self.file = Some(file);
        Ok(())
    }

    /// The file that is written to, another one when that is full or gone.
    fn take_file(&mut self) -> io::Result<File> {
        let folder = self.data_dir.join(EVENTS);
        let current = folder.join(CURRENT);
        if let Some(file) = &self.file {
            match of_same_file(file, &current)? {
                // Whoever reads it cannot find what would be written to it.
                None => {
                    tracing::warn!(file = %current.display(), "the file of events was taken away: what happens is in a new one");
                    self.file = None;
                }
                Some(size) if size >= self.file_bytes => {
                    self.file = None;
                    for number in (1..FILES - 1).rev() {
                        rename(&folder.join(older(number)), &folder.join(older(number + 1)))?;
                    }
                    rename(&current, &folder.join(older(1)))?;
                }
                Some(_) => {}
            }
        }
        match self.file.take() {
            Some(open) => Ok(open),
            None => open(&self.data_dir),
        }
    }
}

/// The size in bytes of what is at `path`, if that is this file.
fn of_same_file(file: &File, path: &Path) -> io::Result<Option<u64>> {
    let (own, found) = match (file.metadata()?, fs::metadata(path)) {
        (own, Ok(found)) => (own, found),
        (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        (_, Err(error)) => return Err(error),
    };
    let is_same = (own.dev(), own.ino()) == (found.dev(), found.ino());
    Ok(is_same.then_some(found.len()))
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The name of an older file; the higher the number, the older.
pub fn older(number: u64) -> String {
    format!("events.{number}.jsonl")
}

/// The file that is written to. A line that a killed process left unfinished is ended first.
fn open(data_dir: &Path) -> io::Result<File> {
    let folder = data_dir.join(EVENTS);
    owner::make_folder(&folder, 0o700, data_dir)?;
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    let mut file = owner::open_or_make(&folder.join(CURRENT), &options, data_dir)?;
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
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixStream;

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
        let lines = log.lines.clone();
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
            });
        });
        lines.flush(PATIENCE);
        let text = fs::read_to_string(data.path().join(EVENTS).join(CURRENT)).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            lines,
            [
                serde_json::json!({"time": 5, "event": "tokens_issued", "user": uuid::Uuid::nil(), "client_id": "web", "grant_type": "refresh_token", "jti": uuid::Uuid::nil()}),
                serde_json::json!({"time": 5, "event": "administered", "command": "client add", "subject": "a \"quoted\"\nname"}),
            ]
        );
    }

    #[test]
    fn the_files_stay_small_and_the_oldest_goes() {
        let data = TempDir::new().unwrap();
        let mut writer = Writer {
            data_dir: data.path().to_owned(),
            file: None,
            file_bytes: 100,
            clock: Clock::System,
            has_failed: false,
            counted: 0,
        };
        for number in 0..60 {
            writer.write(format!("{{\"number\":{number}}}\n").into_bytes(), 0);
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
    fn a_cut_off_line_is_ended_and_what_could_not_be_written_is_counted() {
        let data = TempDir::new().unwrap();
        let folder = data.path().join(EVENTS);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(CURRENT), "{\"cut\":").unwrap();
        let mut writer = Writer {
            data_dir: data.path().to_owned(),
            file: None,
            file_bytes: 1000,
            clock: Clock::System,
            has_failed: false,
            counted: 0,
        };
        assert_eq!(writer.write(b"{}\n".to_vec(), 0), 0);
        assert_eq!(
            fs::read_to_string(folder.join(CURRENT)).unwrap(),
            "{\"cut\":\n{}\n"
        );
        assert_eq!(writer.write(Vec::new(), 3), 0);
        assert!(
            fs::read_to_string(folder.join(CURRENT))
                .unwrap()
                .contains("\"count\":3")
        );
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "in the way").unwrap();
        writer.file = None;
        assert_eq!(writer.write(b"{}\n".to_vec(), 3), 4);
    }

    #[test]
    fn only_what_is_not_in_the_file_counts_as_lost() {
        let data = TempDir::new().unwrap();
        let folder = data.path().join(EVENTS);
        fs::create_dir(&folder).unwrap();
        // A file that takes so much and no more.
        let (mut kept, full) = UnixStream::pair().unwrap();
        for end in [&kept, &full] {
            end.set_nonblocking(true).unwrap();
        }
        let path = format!("/proc/self/fd/{}", full.as_raw_fd());
        symlink(path, folder.join(CURRENT)).unwrap();
        let mut writer = Writer {
            data_dir: data.path().to_owned(),
            file: Some(File::from(OwnedFd::from(full))),
            file_bytes: 1000,
            clock: Clock::System,
            has_failed: false,
            counted: 0,
        };
        let line = [b"x".repeat(9_999), b"\n".to_vec()].concat();
        let missing = writer.write(line.repeat(1000), 3);
        let mut text = Vec::new();
        let _ = kept.read_to_end(&mut text);
        let whole = text.split(|byte| *byte == b'\n').count() - 1;
        assert!((1..1000).contains(&whole), "{whole}");
        assert_eq!(missing, 3 + 1000 - u64::try_from(whole).unwrap());
        assert_eq!(writer.counted, missing);
    }
}
