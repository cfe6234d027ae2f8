//! Writes lines on a thread of its own, so that no request waits for a disk or for the reader of the log.
//!
//! `tracing-appender` is not used: it drops lines while the disk is full, cannot flush before a panic aborts the process,
//! and may block on standard output when it ends.

use std::io::{self, ErrorKind, Write};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::clock::Timestamp;

/// The length of the queue in lines. If the queue is full, lines are dropped and counted.
const QUEUED_LINES: usize = 4096;
/// The most bytes in one write. Writes to a pipe up to this size are not mixed with those of other processes
/// (`PIPE_BUF`, POSIX.1-2017 `write`).
const CHUNK_BYTES: usize = 4096;
/// The pause after a batch, in which lines gather. A busy service thereby does not wake the thread for each line.
const GATHER: Duration = Duration::from_millis(20);
/// The pause of a flush between two tries while the queue is full.
const RETRY: Duration = Duration::from_millis(10);

/// The destination of the lines.
pub(crate) trait LineSink: Write + Send + 'static {
    /// The line that says how many lines were lost.
    fn lost_note(&self, lines: u64) -> Vec<u8>;

    /// Called once with the number of lost lines.
    fn count_lost(&self, _lines: u64) {}

    /// Removes what is too old at this time.
    fn remove_expired(&mut self, _now: Timestamp) {}
}

/// A handle of the writing thread.
#[derive(Clone)]
pub(crate) struct BackgroundWriter {
    queue: SyncSender<Message>,
    lost: Arc<AtomicU64>,
    worker: Thread,
}

enum Message {
    Line(Vec<u8>),
    RemoveExpired(Timestamp),
    Flush(Sender<()>),
}

impl BackgroundWriter {
    /// Starts the thread with this name.
    pub(crate) fn start(name: &str, sink: impl LineSink) -> io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUED_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let worker = Worker {
            sink,
            pending: Vec::new(),
            lost: Arc::clone(&lost),
            unreported: 0,
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || worker.run(&messages))?;
        Ok(Self {
            queue,
            lost,
            worker: thread.thread().clone(),
        })
    }

    /// Queues a line with its newline, or drops it if the queue is full.
    pub(crate) fn push(&self, line: &[u8]) {
        if self.queue.try_send(Message::Line(line.to_owned())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has the thread remove what is too old at this time, unless the queue is full.
    pub(crate) fn remove_expired(&self, now: Timestamp) {
        let _ = self.queue.try_send(Message::RemoveExpired(now));
    }

    /// Waits until all lines so far are written, at most for `timeout`.
    pub(crate) fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let (done, is_done) = channel();
        let mut message = Message::Flush(done);
        while let Err(TrySendError::Full(unsent)) = self.queue.try_send(message) {
            if Instant::now() >= deadline {
                return;
            }
            message = unsent;
            thread::sleep(RETRY);
        }
        self.worker.unpark();
        let _ = is_done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Each call queues one line.
impl Write for BackgroundWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Worker<S> {
    sink: S,
    /// Lines that are not written yet. The beginning of the first line may be written already.
    pending: Vec<u8>,
    /// The number of lines that were lost since the last note was prepared.
    lost: Arc<AtomicU64>,
    /// The number of lost lines without a note.
    unreported: u64,
}

impl<S: LineSink> Worker<S> {
    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(first) = messages.recv() {
            let mut flushes = Vec::new();
            for message in iter::once(first).chain(messages.try_iter()).take(QUEUED_LINES) {
                match message {
                    Message::Flush(done) => flushes.push(done),
                    Message::Line(line) => self.take(&line),
                    Message::RemoveExpired(now) => self.sink.remove_expired(now),
                }
            }
            self.note_lost();
            // Lines that cannot be written now are tried again with the next ones.
            let _ = self.write_pending();
            for done in flushes {
                let _ = done.send(());
            }
            thread::park_timeout(GATHER);
        }
    }

    fn take(&mut self, line: &[u8]) {
        if self.push(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note_lost(&mut self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            self.sink.count_lost(lost);
            self.unreported = self.unreported.saturating_add(lost);
        }
        if self.unreported > 0 && self.push(&self.sink.lost_note(self.unreported)).is_ok() {
            self.unreported = 0;
        }
    }

    /// Appends a line to the pending ones. Fails if there is no space and they cannot be written.
    fn push(&mut self, line: &[u8]) -> io::Result<()> {
        if self.pending.len().saturating_add(line.len()) > CHUNK_BYTES {
            self.write_pending()?;
        }
        self.pending.extend_from_slice(line);
        Ok(())
    }

    /// Writes the pending lines. After an error the rest stays pending, so that no line stays incomplete.
    fn write_pending(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            match self.sink.write(&self.pending) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const TIMEOUT: Duration = Duration::from_mins(1);

    /// Records the written chunks, up to a number of bytes.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(usize, Vec<Vec<u8>>)>>);

    impl Disk {
        fn with_room(room: usize) -> Self {
            Self(Arc::new(Mutex::new((room, Vec::new()))))
        }

        fn set_room(&self, room: usize) {
            self.0.lock().unwrap().0 = room;
        }

        fn chunks(&self) -> Vec<Vec<u8>> {
            self.0.lock().unwrap().1.clone()
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            let fits = bytes.len().min(disk.0);
            if fits == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            disk.0 -= fits;
            disk.1.push(bytes[..fits].to_owned());
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl LineSink for Disk {
        fn lost_note(&self, lines: u64) -> Vec<u8> {
            format!("{lines} lost\n").into_bytes()
        }
    }

    fn line(bytes: usize) -> Vec<u8> {
        [b"x".repeat(bytes - 1), b"\n".to_vec()].concat()
    }

    #[test]
    fn a_stalled_reader_holds_nobody_up_and_the_lines_that_were_dropped_are_counted() {
        let disk = Disk::with_room(usize::MAX);
        let stalled = disk.0.lock().unwrap();
        let writer = BackgroundWriter::start("test", disk.clone()).unwrap();
        writer.push(b"first\n");
        writer.flush(Duration::from_millis(100));
        for _ in 0..QUEUED_LINES + 7 {
            writer.push(b"x\n");
        }
        writer.flush(Duration::from_millis(1));
        drop(stalled);
        writer.flush(TIMEOUT);
        let text = disk.chunks().concat();
        // If the thread has not started yet, the first flush takes the place of a line in the queue.
        let kept = text
            .split(|byte| *byte == b'\n')
            .filter(|line| *line == b"x")
            .count();
        assert!(kept + 1 >= QUEUED_LINES, "{kept}");
        let note = format!("{} lost\n", QUEUED_LINES + 7 - kept);
        assert!(String::from_utf8(text).unwrap().contains(&note), "{note}");
    }

    fn worker(disk: &Disk) -> Worker<Disk> {
        Worker {
            sink: disk.clone(),
            pending: Vec::new(),
            lost: Arc::default(),
            unreported: 0,
        }
    }

    #[test]
    fn whole_lines_are_written_together() {
        let disk = Disk::with_room(usize::MAX);
        let mut worker = worker(&disk);
        for bytes in [4000, 96, 1, 5000, 10] {
            worker.take(&line(bytes));
        }
        worker.write_pending().unwrap();
        let lengths: Vec<_> = disk.chunks().iter().map(Vec::len).collect();
        assert_eq!(lengths, [4096, 1, 5000, 10]);
    }

    #[test]
    fn a_full_disk_cuts_no_line_and_the_lines_that_it_refused_are_counted() {
        let disk = Disk::with_room(5000);
        let mut worker = worker(&disk);
        for _ in 0..12 {
            worker.take(&line(1024));
        }
        worker.note_lost();
        assert!(worker.write_pending().is_err());
        disk.set_room(usize::MAX);
        worker.take(b"last\n");
        worker.write_pending().unwrap();
        let expected = [line(1024).repeat(8), b"4 lost\nlast\n".to_vec()].concat();
        assert_eq!(disk.chunks().concat(), expected);
    }
}
