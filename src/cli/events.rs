//! Runs `idsvc events`: it prints audit events, and follows new ones.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;

use super::admin_connection::AdminConnector;
use super::output::{CliError, Output, moment};
use super::progress::Progress;
use crate::clock::{Clock, Timestamp};
use crate::config::reader::parse_duration;
use crate::control::protocol::{Command, Reply};
use crate::data_dir::{DATABASE, DataDirError, io_error};
use crate::files::{self, owner};
use crate::observe::audit::NAMES;
use crate::observe::audit_file::{CURRENT, EVENTS, FILES, older};

/// The flags of `idsvc events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Go on with what happens from now on, until interrupted
    #[arg(long, short)]
    pub follow: bool,
    /// Show at most so many of what has happened
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    pub limit: usize,
    /// Show only events of this name; may be repeated
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES))]
    pub event: Vec<String>,
    /// Show only events about this user, client, session, command or actor; a user that was removed goes by its uuid
    #[arg(long, value_name = "TEXT")]
    pub about: Option<String>,
    /// Show only what happened within this time, as in 24h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub since: Option<Duration>,
    /// The uuid of the user that `about` names. Events name a user only by it.
    #[arg(skip)]
    pub about_user: Option<String>,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "write a time with its unit, as in 24h, 90d, 30m or 60s".to_owned())
}

/// How often the file is checked for new lines.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The longest line that is read; events are far shorter.
const LINE_LIMIT: u64 = 1 << 20;

impl Events {
    /// The event on a line, if the flags ask for it.
    fn matching_event(&self, line: &[u8], earliest: Timestamp) -> Option<Value> {
        let event: Value = serde_json::from_slice(line).ok()?;
        let name = event.get("event")?.as_str()?;
        let at = event.get("time")?.as_u64()?;
        let is_named = self.event.is_empty() || self.event.iter().any(|wanted| wanted == name);
        let is_about = self.about.as_deref().is_none_or(|about| {
            let mut members = event.as_object().into_iter().flat_map(|members| members.values());
            members.any(|value| {
                let text = value.as_str();
                text == Some(about) || (text.is_some() && text == self.about_user.as_deref())
            })
        });
        (is_named && is_about && at >= earliest.seconds()).then_some(event)
    }
}

/// A file of events, read line by line.
struct EventFile {
    file: BufReader<File>,
    inode: u64,
    /// The number of bytes that were read.
    position: u64,
    unfinished: Vec<u8>,
}

impl EventFile {
    /// Opens a file in the folder of the events, which is in the data directory.
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let data_dir = owner::folder_of(owner::folder_of(path));
        match files::open_below(data_dir, path) {
            Ok(file) => Ok(Some(Self {
                inode: file.metadata()?.ino(),
                file: BufReader::new(file),
                position: 0,
                unfinished: Vec::new(),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next whole line, or `None` if there is none yet.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        use io::Read;
        let read = (&mut self.file)
            .take(LINE_LIMIT)
            .read_until(b'\n', &mut self.unfinished)?;
        self.position = self
            .position
            .saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        let is_whole = self.unfinished.last() == Some(&b'\n');
        Ok(is_whole.then(|| std::mem::take(&mut self.unfinished)))
    }

    /// Goes back to the beginning. Returns the position after the last whole line that was read.
    fn rewind(&mut self) -> io::Result<u64> {
        let unfinished = u64::try_from(self.unfinished.len()).unwrap_or(u64::MAX);
        let end = self.position.saturating_sub(unfinished);
        self.file.rewind()?;
        self.position = 0;
        self.unfinished.clear();
        Ok(end)
    }

    /// Whether the path now has another file, or the file was cut. New events are then read from its beginning.
    fn is_replaced(&self, path: &Path) -> bool {
        path.symlink_metadata()
            .is_ok_and(|found| found.ino() != self.inode || found.len() < self.position)
    }
}

/// Opens all files of events, and returns them with the oldest first. They are opened from the newest on: a file that is
/// renamed at the same time is found again under its older name, and not missed.
fn open_files(
    folder: &Path,
    mut open: impl FnMut(&Path) -> io::Result<Option<EventFile>>,
) -> io::Result<Vec<(PathBuf, EventFile)>> {
    let mut files: Vec<(PathBuf, EventFile)> = Vec::new();
    let names = std::iter::once(CURRENT.to_owned()).chain((1..FILES).map(older));
    for path in names.map(|name| folder.join(name)) {
        if let Some(file) = open(&path)?
            && files.iter().all(|(_, known)| known.inode != file.inode)
        {
            files.push((path, file));
        }
    }
    files.reverse();
    Ok(files)
}

fn is_there(path: &Path) -> Result<bool, CliError> {
    path.try_exists()
        .map_err(|error| CliError::refused(io_error(path)(error)))
}

/// The uuid of the user with this name or address. `None` if there is none, or if the store cannot be read.
fn uuid_of(who: &str, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Option<String> {
    match connector.ask(Command::UserShow(who.to_owned()), output) {
        Ok(Reply::User(user)) => Some(user.uuid.to_string()),
        _ => None,
    }
}

/// Runs `idsvc events`.
pub fn run(
    mut request: Events,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if request.limit == 0 && !request.follow {
        let message = "--limit 0 shows nothing: name 1 or more, or add --follow for what is still to come";
        return Err(CliError::Misused(message.to_owned()));
    }
    let data_dir = connector.settings(output)?.data_dir;
    let folder = data_dir.join(EVENTS);
    // A directory with neither is not the data directory.
    if !is_there(&folder)? && !is_there(&data_dir.join(DATABASE))? {
        return Err(CliError::refused(DataDirError::Absent(data_dir)));
    }
    request.about_user = request
        .about
        .as_deref()
        .and_then(|who| uuid_of(who, connector, output));
    let request = &request;
    let now = Clock::System.now();
    let earliest = request
        .since
        .map_or(Timestamp::from_seconds(0), |since| now - since);
    let unreadable =
        |error: io::Error| CliError::refused(format!("{} cannot be read: {error}", folder.display()));
    let current = folder.join(CURRENT);
    let mut files = open_files(&folder, EventFile::open).map_err(unreadable)?;
    let mut count: usize = 0;
    let (mut lines, mut progress) = (0, Progress::of("events"));
    for (_, file) in &mut files {
        while let Some(line) = file.next_line().map_err(unreadable)? {
            count += usize::from(request.matching_event(&line, earliest).is_some());
            lines += 1;
            progress.show(lines, None);
        }
    }
    drop(progress);
    let skipped = count.saturating_sub(request.limit);
    // The events are read again, so that one at a time is in memory.
    let mut last = LastEvents::of(&mut files).map_err(unreadable)?;
    let mut events = std::iter::from_fn(|| last.next_event(request, earliest).transpose())
        .map(|event| event.map_err(unreadable))
        .skip(skipped);
    if output.json && !request.follow {
        return output.array(events);
    }
    events.try_for_each(|event| show(&event?, output))?;
    if request.follow {
        let newest = files.pop().filter(|(path, _)| *path == current);
        return follow(
            request,
            newest.map(|(_, file)| file),
            &current,
            &unreadable,
            output,
        );
    }
    if count == 0 {
        let hint = "nothing of the kind has happened yet: idsvc events --follow waits for what happens";
        match &request.about {
            Some(_) if request.about_user.is_none() => output.hint(&format!(
                "{hint}; no user has that name now, and one that was removed goes by its uuid"
            )),
            _ => output.hint(hint),
        }
    }
    Ok(())
}

/// The events of files that were read before, without those that came since.
struct LastEvents<'a> {
    /// Each file with the position where it was read to.
    files: VecDeque<(&'a mut EventFile, u64)>,
}

impl<'a> LastEvents<'a> {
    fn of(files: &'a mut [(PathBuf, EventFile)]) -> io::Result<Self> {
        let files = files.iter_mut().map(|(_, file)| {
            let end = file.rewind()?;
            Ok((file, end))
        });
        Ok(Self {
            files: files.collect::<io::Result<_>>()?,
        })
    }

    /// The next event that the flags ask for.
    fn next_event(&mut self, request: &Events, earliest: Timestamp) -> io::Result<Option<Value>> {
        while let Some((file, end)) = self.files.front_mut() {
            let line = if file.position < *end {
                file.next_line()?
            } else {
                None
            };
            let Some(line) = line else {
                self.files.pop_front();
                continue;
            };
            if let Some(event) = request.matching_event(&line, earliest) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

/// Prints new events, across the change of files, until the output is closed.
fn follow(
    request: &Events,
    mut reading: Option<EventFile>,
    current: &Path,
    unreadable: &dyn Fn(io::Error) -> CliError,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    loop {
        if let Some(file) = &mut reading {
            // This check comes before the rest is read, so that no line of the old file is missed.
            let is_replaced = file.is_replaced(current);
            while let Some(line) = file.next_line().map_err(unreadable)? {
                if let Some(event) = request.matching_event(&line, Timestamp::from_seconds(0)) {
                    show(&event, output)?;
                }
            }
            if is_replaced {
                reading = None;
                continue;
            }
        } else {
            reading = EventFile::open(current).map_err(unreadable)?;
            if reading.is_some() {
                continue;
            }
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Prints one event on one line: as JSON with `--json`, else the time, the name, and the other members by name.
fn show(event: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.json_line(event);
    }
    let time = event.get("time").and_then(Value::as_u64).unwrap_or_default();
    let name = event.get("event").and_then(Value::as_str).unwrap_or_default();
    let mut line = format!("{}  {name}", moment(Timestamp::from_seconds(time)));
    for (member, value) in event.as_object().into_iter().flatten() {
        if !matches!(member.as_str(), "time" | "event") {
            let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
            let text = match value {
                Value::String(text) if plain(text) => text.clone(),
                other => other.to_string(),
            };
            let _ = write!(line, "  {member}={text}");
        }
    }
    output.line(&line)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_file_that_is_cut_is_read_anew() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(CURRENT);
        fs::write(&path, "first\nunfinis").unwrap();
        let mut reading = EventFile::open(&path).unwrap().unwrap();
        assert_eq!(reading.next_line().unwrap(), Some(b"first\n".to_vec()));
        assert_eq!(reading.next_line().unwrap(), None);
        assert!(!reading.is_replaced(&path));
        fs::write(&path, "first\nunfinished\n").unwrap();
        assert!(!reading.is_replaced(&path));
        assert_eq!(reading.next_line().unwrap(), Some(b"unfinished\n".to_vec()));
        for cut in ["", "other\n"] {
            fs::write(&path, cut).unwrap();
            assert!(reading.is_replaced(&path), "{cut:?}");
        }
        let mut reading = EventFile::open(&path).unwrap().unwrap();
        assert_eq!(reading.next_line().unwrap(), Some(b"other\n".to_vec()));
    }

    #[test]
    fn no_file_is_missed_and_none_read_twice_when_names_change() {
        let folder = TempDir::new().unwrap();
        let path = |name: String| folder.path().join(name);
        fs::write(path(CURRENT.to_owned()), "new\n").unwrap();
        fs::write(path(older(1)), "old\n").unwrap();
        fs::write(path(older(2)), "oldest\n").unwrap();
        for rename_after in 1..=FILES {
            let mut looks = 0;
            let files = open_files(folder.path(), |path| {
                let file = EventFile::open(path)?;
                looks += 1;
                if looks == rename_after {
                    for number in (1..FILES - 1).rev() {
                        let _ = fs::rename(
                            folder.path().join(older(number)),
                            folder.path().join(older(number + 1)),
                        );
                    }
                    fs::rename(folder.path().join(CURRENT), folder.path().join(older(1)))?;
                }
                Ok(file)
            })
            .unwrap();
            let lines: Vec<Vec<u8>> = files
                .into_iter()
                .filter_map(|(_, mut file)| file.next_line().unwrap())
                .collect();
            assert_eq!(
                lines,
                [b"oldest\n".to_vec(), b"old\n".to_vec(), b"new\n".to_vec()],
                "{rename_after}"
            );
            for (from, to) in [
                (older(1), CURRENT.to_owned()),
                (older(2), older(1)),
                (older(3), older(2)),
            ] {
                fs::rename(path(from), path(to)).unwrap();
            }
        }
    }
}
