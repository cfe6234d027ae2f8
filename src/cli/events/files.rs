//! Reads the files of events, while they grow and change their names.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::filter::{Filter, Line};
use crate::clock::{Clock, Timestamp};
use crate::files;
use crate::files::owner;
use crate::observe::event_files::{EventKind, FILES, time_of};

/// The longest line that is read whole; events are far shorter. A longer one is read in parts.
const LINE_LIMIT: usize = 1 << 20;

/// A file of events, read line by line.
struct EventFile {
    file: BufReader<File>,
    inode: u64,
    /// The number of bytes that were read.
    position: u64,
    /// Where to stop.
    end: u64,
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
                end: u64::MAX,
                unfinished: Vec::new(),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next whole line, or `None` if there is none yet.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.position >= self.end {
            return Ok(None);
        }
        let room = LINE_LIMIT.saturating_sub(self.unfinished.len());
        let read = Read::by_ref(&mut self.file)
            .take(room.try_into().unwrap_or(u64::MAX))
            .read_until(b'\n', &mut self.unfinished)?;
        self.position = self.position.saturating_add(read.try_into().unwrap_or(u64::MAX));
        let is_whole = self.unfinished.ends_with(b"\n") || self.unfinished.len() >= LINE_LIMIT;
        Ok(is_whole.then(|| std::mem::take(&mut self.unfinished)))
    }

    /// Goes back to the beginning. The file is then read to the last whole line that was read before.
    fn rewind(&mut self) -> io::Result<()> {
        let unfinished = self.unfinished.len().try_into().unwrap_or(u64::MAX);
        self.end = self.position.saturating_sub(unfinished);
        self.position = 0;
        self.unfinished.clear();
        self.file.rewind()
    }

    /// Whether the file was cut since it was read.
    fn is_cut(&self) -> bool {
        self.file
            .get_ref()
            .metadata()
            .is_ok_and(|found| found.len() < self.position)
    }

    /// Whether there is another file at the path now, or the file was cut.
    fn is_replaced(&self, path: &Path) -> bool {
        let is_other = |found: std::fs::Metadata| found.ino() != self.inode;
        path.symlink_metadata().is_ok_and(is_other) || self.is_cut()
    }
}

/// Opens all files of a kind, and returns them with the oldest first. They are opened from the newest on: a file that is
/// renamed at the same time is found again under its older name, and not missed.
fn open_files(
    folder: &Path,
    kind: EventKind,
    mut open: impl FnMut(&Path) -> io::Result<Option<EventFile>>,
) -> io::Result<Vec<EventFile>> {
    let mut files: Vec<EventFile> = Vec::new();
    for number in 0..FILES {
        if let Some(file) = open(&folder.join(kind.file_name(number)))?
            && files.iter().all(|known| known.inode != file.inode)
        {
            files.push(file);
        }
    }
    files.reverse();
    Ok(files)
}

/// The events of one kind, in the order in which they were written.
struct KindReader {
    folder: PathBuf,
    kind: EventKind,
    /// The oldest first.
    files: Vec<EventFile>,
    /// The index of the file that is being read.
    index: usize,
    /// The next event that is asked for.
    next: Option<(Timestamp, Value)>,
}

impl KindReader {
    fn open(folder: &Path, kind: EventKind) -> io::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            kind,
            files: open_files(folder, kind, EventFile::open)?,
            index: 0,
            next: None,
        })
    }

    /// The next line, or `None` if there is none yet.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let newest = self.files.len().saturating_sub(1);
        while let Some(file) = self.files.get_mut(self.index) {
            if let Some(line) = file.next_line()? {
                return Ok(Some(line));
            }
            if self.index >= newest {
                break;
            }
            self.index += 1;
            // Only the newest file can grow.
            if !file.unfinished.is_empty() {
                return Ok(Some(std::mem::take(&mut file.unfinished)));
            }
        }
        Ok(None)
    }

    /// Reads on to the next event that is asked for. Returns the number of lines that were no event.
    fn find_next(&mut self, filter: &Filter) -> io::Result<u64> {
        let mut broken = 0;
        while self.next.is_none()
            && let Some(line) = self.next_line()?
        {
            match filter.read(&line) {
                Line::Event(time, event) => self.next = Some((time, event)),
                Line::Other => {}
                Line::Broken => broken += 1,
            }
        }
        Ok(broken)
    }

    /// Whether the newest file was replaced, so that there are others to read after it.
    fn is_replaced(&self) -> bool {
        let current = self.folder.join(self.kind.file_name(0));
        match self.files.last() {
            Some(newest) => newest.is_replaced(&current),
            None => current.symlink_metadata().is_ok(),
        }
    }

    /// Goes on with the files after the newest one that was read.
    fn open_newer(&mut self) -> io::Result<()> {
        let mut files = open_files(&self.folder, self.kind, EventFile::open)?;
        if let Some(read) = self.files.last() {
            let newer = match files.iter().position(|file| file.inode == read.inode) {
                // A file that was cut is read again.
                Some(index) => index + usize::from(!read.is_cut()),
                // It was removed. Those before it were read.
                None => files.len().saturating_sub(1),
            };
            files.drain(..newer);
            if files.is_empty() {
                return Ok(());
            }
        }
        self.files = files;
        self.index = 0;
        Ok(())
    }
}

/// The events of several kinds, merged by time. Each kind stays in the order in which it was written: a clock that was set
/// back changes no order.
pub(super) struct EventReader {
    kinds: Vec<KindReader>,
    opened_at: Timestamp,
    /// The number of lines that were no event.
    pub(super) broken: u64,
}

impl EventReader {
    /// Opens all files of the kinds that are asked for. Routine events of an earlier release are in the files of security
    /// events, so these are always read.
    pub(super) fn open(folder: &Path, filter: &Filter) -> io::Result<Self> {
        let kinds = EventKind::ALL
            .into_iter()
            .filter(|kind| *kind == EventKind::Security || filter.includes(*kind))
            .map(|kind| KindReader::open(folder, kind));
        Ok(Self {
            kinds: kinds.collect::<io::Result<_>>()?,
            opened_at: Clock::System.now(),
            broken: 0,
        })
    }

    /// The next event that is asked for. Of the same second, security events come first. An event whose time lies ahead
    /// holds up no event of the other kind.
    pub(super) fn next_event(&mut self, filter: &Filter) -> io::Result<Option<Value>> {
        for kind in &mut self.kinds {
            self.broken += kind.find_next(filter)?;
        }
        let next = self.kinds.iter_mut().filter_map(|kind| {
            let time = kind.next.as_ref()?.0;
            Some((time, kind))
        });
        let opened_at = self.opened_at;

        let first = next.min_by_key(|(time, _)| (!time.is_ahead_of(opened_at), *time));
        Ok(first
            .and_then(|(_, kind)| kind.next.take())
            .map(|(_, event)| event))
    }

    /// Goes back to the beginning. The same events are then read again, without those that came since.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        self.broken = 0;
        for kind in &mut self.kinds {
            kind.index = 0;
            for file in &mut kind.files {
                file.rewind()?;
            }
        }
        Ok(())
    }

    /// Lets the events that came since be read as well.
    pub(super) fn go_on(&mut self) {
        for file in self.kinds.iter_mut().flat_map(|kind| &mut kind.files) {
            file.end = u64::MAX;
        }
    }

    /// Calls `show` with each new event. Files that have been replaced are read to their end first.
    pub(super) fn read_new<E>(
        &mut self,
        filter: &Filter,
        unreadable: impl Fn(io::Error) -> E,
        mut show: impl FnMut(&Value) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            // This check comes before the rest is read, so that no line of the old file is missed.
            let replaced: Vec<bool> = self.kinds.iter().map(KindReader::is_replaced).collect();
            while let Some(event) = self.next_event(filter).map_err(&unreadable)? {
                show(&event)?;
            }
            let mut newer = false;
            for (kind, _) in self.kinds.iter_mut().zip(replaced).filter(|(_, was)| *was) {
                kind.open_newer().map_err(&unreadable)?;
                newer = true;
            }
            if !newer {
                return Ok(());
            }
        }
    }

    /// The kinds of which events were removed, each with the time of its oldest event.
    pub(super) fn removals(&mut self) -> io::Result<Vec<(EventKind, Timestamp)>> {
        let mut removals = Vec::new();
        for kind in &mut self.kinds {
            // The mark is looked for after the files were opened, so that a removal at the same time is not missed.
            if kind.folder.join(kind.kind.removal_mark()).try_exists()? {
                let oldest = match kind.files.first_mut() {
                    Some(file) => file
                        .file
                        .fill_buf()?
                        .split(|byte| *byte == b'\n')
                        .find_map(time_of),
                    None => None,
                };
                removals.push((kind.kind, oldest.unwrap_or_else(|| Clock::System.now())));
            }
        }
        Ok(removals)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    const KIND: EventKind = EventKind::Security;

    /// The folder of the events in a data directory.
    fn folder() -> (TempDir, PathBuf) {
        let data = TempDir::new().unwrap();
        let folder = data.path().join("events");
        fs::create_dir(&folder).unwrap();
        (data, folder)
    }

    fn line(time: u64) -> String {
        format!("{{\"time\":{time},\"event\":\"signed_in\"}}\n")
    }

    fn times_in(reader: &mut EventReader) -> Vec<u64> {
        let filter = Filter::default();
        std::iter::from_fn(|| reader.next_event(&filter).unwrap())
            .map(|event| event["time"].as_u64().unwrap())
            .collect()
    }

    fn new_times(reader: &mut EventReader) -> Vec<u64> {
        let mut times = Vec::new();
        let shown: Result<(), io::Error> = reader.read_new(
            &Filter::default(),
            |error| error,
            |event| {
                times.push(event["time"].as_u64().unwrap());
                Ok(())
            },
        );
        shown.unwrap();
        times
    }

    fn rotate(folder: &Path) {
        for number in (0..FILES - 1).rev() {
            let name = |number| folder.join(KIND.file_name(number));
            let _ = fs::rename(name(number), name(number + 1));
        }
    }

    fn append(path: &Path, text: &str) {
        let mut whole = fs::read_to_string(path).unwrap_or_default();
        whole.push_str(text);
        fs::write(path, whole).unwrap();
    }

    #[test]
    fn a_file_that_is_cut_is_read_anew() {
        let (_data, folder) = folder();
        let path = folder.join(KIND.file_name(0));
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
        let (_data, folder) = folder();
        for (number, time) in [(2, 1), (1, 2), (0, 3)] {
            fs::write(folder.join(KIND.file_name(number)), line(time)).unwrap();
        }
        for rename_after in 1..=FILES {
            let mut looks = 0;
            let files = open_files(&folder, KIND, |path| {
                let file = EventFile::open(path)?;
                looks += 1;
                if looks == rename_after {
                    rotate(&folder);
                }
                Ok(file)
            })
            .unwrap();
            let lines: Vec<_> = files
                .into_iter()
                .filter_map(|mut file| file.next_line().unwrap())
                .collect();
            assert_eq!(
                lines,
                [1, 2, 3].map(|time| line(time).into_bytes()),
                "{rename_after}"
            );
            for number in 0..FILES - 1 {
                let name = |number| folder.join(KIND.file_name(number));
                let _ = fs::rename(name(number + 1), name(number));
            }
        }
    }

    #[test]
    fn both_kinds_are_merged_by_time_and_a_clock_that_was_set_back_changes_no_order() {
        let (_data, folder) = folder();
        let text = |times: &[u64]| times.iter().map(|time| line(*time)).collect::<String>();
        fs::write(folder.join("events.1.jsonl"), text(&[10, 40])).unwrap();
        fs::write(folder.join("events.jsonl"), text(&[30, 50])).unwrap();
        fs::write(folder.join("tokens.jsonl"), text(&[20, 45])).unwrap();
        let mut reader = EventReader::open(&folder, &Filter::default()).unwrap();
        let expected = [10, 20, 40, 30, 45, 50];
        assert_eq!(times_in(&mut reader), expected);
        append(&folder.join("tokens.jsonl"), &line(60));
        reader.rewind().unwrap();
        assert_eq!(times_in(&mut reader), expected, "the same again");
        reader.go_on();
        assert_eq!(new_times(&mut reader), [60]);
        let ahead = u64::MAX;
        fs::write(folder.join("events.jsonl"), text(&[30, ahead, 50])).unwrap();
        let mut reader = EventReader::open(&folder, &Filter::default()).unwrap();
        assert_eq!(times_in(&mut reader), [10, 20, 40, 30, ahead, 45, 50, 60]);
        let filter = Filter {
            names: vec!["signed_in".to_owned()],
            ..Filter::default()
        };
        let mut reader = EventReader::open(&folder, &filter).unwrap();
        assert_eq!(times_in(&mut reader), [10, 40, 30, ahead, 50]);
    }

    #[test]
    fn a_broken_line_is_counted_and_hides_no_other() {
        let (_data, folder) = folder();
        let long = "x".repeat(LINE_LIMIT + 10);
        let text = format!("{}{{\"cut\":\n{}{long}\n{}", line(1), line(2), line(3));
        fs::write(folder.join("events.2.jsonl"), text).unwrap();
        fs::write(folder.join("events.1.jsonl"), format!("{}{{\"time\":5", line(4))).unwrap();
        fs::write(folder.join("events.jsonl"), format!("{}{{\"time\":7", line(6))).unwrap();
        let mut reader = EventReader::open(&folder, &Filter::default()).unwrap();
        assert_eq!(times_in(&mut reader), [1, 2, 3, 4, 6]);
        // The long line is read in two parts. The last line may still be written.
        assert_eq!(reader.broken, 4);
    }

    #[test]
    fn a_reader_who_falls_behind_misses_no_file() {
        let (_data, folder) = folder();
        let current = folder.join(KIND.file_name(0));
        let mut reader = EventReader::open(&folder, &Filter::default()).unwrap();
        assert!(new_times(&mut reader).is_empty());
        append(&current, &line(1));
        assert_eq!(new_times(&mut reader), [1]);
        append(&current, &line(2));
        for time in 3..6 {
            rotate(&folder);
            append(&current, &line(time));
        }
        assert_eq!(new_times(&mut reader), [2, 3, 4, 5]);
        rotate(&folder);
        assert!(new_times(&mut reader).is_empty());
        append(&current, &line(6));
        assert_eq!(new_times(&mut reader), [6]);
        fs::remove_file(&current).unwrap();
        append(&current, &line(7));
        assert_eq!(new_times(&mut reader), [7], "the older ones were shown");
        fs::write(&current, "").unwrap();
        assert!(new_times(&mut reader).is_empty());
        append(&current, &line(8));
        assert_eq!(new_times(&mut reader), [8]);
    }
}
