//! Lines that a thread of its own writes, so that nobody else waits for a disk, or for whoever reads the log.
//!
//! A request hands its line over and goes on. What waits to be written is bounded. When it is full, whoever has more
//! waits a moment until half of it is taken: much that comes at once is not lost while it is being written. When that is
//! too slow, nobody waits again before it is taken: a reader that takes a little now and then would hold up somebody
//! each time. Lines that find no room are dropped and counted. Whoever writes takes all that is before them at once and
//! is told how many they are, so that it stands where they would have stood; what comes after them has room again.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::line_chunks::{count, whole};

/// How much may wait to be written, in bytes.
const ROOM: usize = 2 << 20;
/// How much is written before there is room for more, in bytes, but for the rest of a line. While as much waits, lines
/// do not gather.
const PIECE: usize = ROOM / 8;
/// When less than so much waits, it is worth waiting again for room, in bytes.
const LITTLE: usize = ROOM / 2;
/// How long a line waits until there is little before it. So slow readers hold up nobody for longer, and that once
/// for each time that they have let much gather.
const FOR_ROOM: Duration = Duration::from_millis(100);
/// How long lines gather after those before were written: so a busy service wakes the thread, and writes, fifty times
/// a second and not for each line.
const GATHER: Duration = Duration::from_millis(20);

/// The way to one such thread.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    handed: Condvar,
    taken: Condvar,
    done: Condvar,
}

/// What was handed over and is not being written yet.
#[derive(Default)]
struct Waiting {
    text: Vec<u8>,
    /// How many lines were dropped behind that text.
    lost: u64,
    /// Whether somebody has waited for room and there is not much yet. Nobody waits as long as that is so.
    is_slow: bool,
    /// How much was handed over ever, in bytes.
    handed: u64,
    /// How much of that is done with: written, or told to be lost.
    done: u64,
}

impl Waiting {
    /// Behind a gap nothing is taken in until the gap can be told of in its place.
    fn has_gap(&self) -> bool {
        self.lost > 0
    }

    fn has_room_for(&self, text: &[u8]) -> bool {
        self.text.len().saturating_add(text.len()) <= ROOM
    }

    fn is_little(&self) -> bool {
        self.text.len() < LITTLE
    }

    /// Whether waiting may make room for what finds none.
    fn is_worth_waiting(&self) -> bool {
        !self.has_gap() && !self.is_slow && !self.text.is_empty()
    }

    /// Takes the next piece, how many lines were lost behind it, and how much is done with once it is. Before a gap that
    /// is all there is: so the gap ends here, and what comes next is taken in.
    fn take(&mut self) -> (Vec<u8>, u64, u64) {
        let end = if self.has_gap() {
            self.text.len()
        } else {
            whole(&self.text, PIECE)
        };
        let rest = self.text.split_off(end);
        let piece = std::mem::replace(&mut self.text, rest);
        self.is_slow = self.is_slow && !self.is_little();
        if self.text.is_empty() {
            (piece, std::mem::take(&mut self.lost), self.handed)
        } else {
            let done = self.done.saturating_add(bytes(&piece));
            (piece, 0, done)
        }
    }
}

impl Lines {
    /// Starts the thread of this name. `write` gets whole lines and how many are missing behind them, which it has to
    /// say there. It returns how many are missing still, to be said after the next ones: none if all was written.
    pub(crate) fn start(
        name: &str,
        mut write: impl FnMut(Vec<u8>, u64) -> u64 + Send + 'static,
    ) -> io::Result<Self> {
        let lines = Self::default();
        let taken = lines.clone();
        let work = move || {
            let mut missing = 0_u64;
            loop {
                let (text, lost, done) = taken.next();
                missing = write(text, missing.saturating_add(lost));
                let mut waiting = taken.lock();
                waiting.done = done;
                let is_more = waiting.text.len() >= PIECE;
                drop(waiting);
                taken.0.done.notify_all();
                if !is_more {
                    thread::sleep(GATHER);
                }
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(lines)
    }

    /// Hands over one line, or several, each with its end.
    pub(crate) fn push(&self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        let mut waiting = self.lock();
        if !waiting.has_room_for(text) && waiting.is_worth_waiting() {
            let must_wait = |waiting: &mut Waiting| {
                waiting.is_worth_waiting() && !(waiting.is_little() && waiting.has_room_for(text))
            };
            let waited = self.0.taken.wait_timeout_while(waiting, FOR_ROOM, must_wait);
            (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if !waiting.is_little() {
                waiting.is_slow = true;
                self.0.taken.notify_all();
            }
        }
        let was_idle = waiting.text.is_empty() && !waiting.has_gap();
        waiting.handed = waiting.handed.saturating_add(bytes(text));
        let begins_gap = !waiting.has_gap() && !waiting.has_room_for(text);
        if begins_gap || waiting.has_gap() {
            waiting.lost = waiting.lost.saturating_add(count(text));
        } else {
            waiting.text.extend_from_slice(text);
        }
        drop(waiting);
        if was_idle {
            self.0.handed.notify_one();
        }
        if begins_gap {
            self.0.taken.notify_all();
        }
    }

    /// Waits until what was handed over so far has been written, but no longer than `patience`.
    pub(crate) fn flush(&self, patience: Duration) {
        let waiting = self.lock();
        let last = waiting.handed;
        let _ = self
            .0
            .done
            .wait_timeout_while(waiting, patience, |waiting| waiting.done < last);
    }

    /// What waits; none without a thread.
    pub(crate) fn waiting(&self) -> Vec<u8> {
        self.lock().text.clone()
    }

    /// Waits for something and takes it.
    fn next(&self) -> (Vec<u8>, u64, u64) {
        let is_idle = |waiting: &mut Waiting| waiting.text.is_empty() && !waiting.has_gap();
        let waiting = self.0.handed.wait_while(self.lock(), is_idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let piece = waiting.take();
        drop(waiting);
        self.0.taken.notify_all();
        piece
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each time, whole lines: as those do who format a line and write it at once.
impl Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.push(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn bytes(text: &[u8]) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, sync_channel};
    use std::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_mins(1);

    #[test]
    fn what_finds_no_room_is_counted_in_its_place_and_nobody_waits_for_who_writes() {
        let (goes_on, gate) = sync_channel::<()>(0);
        let (written, reports) = channel();
        let lines = Lines::start("test", move |text, lost| {
            written.send((text, lost)).unwrap();
            gate.recv().unwrap();
            0
        })
        .unwrap();
        lines.push(b"first\n");
        assert_eq!(reports.recv().unwrap(), (b"first\n".to_vec(), 0));
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        let room = ROOM / line.len();
        for _ in 0..room + 2 {
            lines.push(&line);
        }
        // It would fit where a longer one did not, but comes after the gap.
        lines.push(b"a\nb\n");
        lines.flush(Duration::from_millis(1));
        goes_on.send(()).unwrap();
        let (text, lost) = reports.recv().unwrap();
        assert!(text == line.repeat(room));
        assert_eq!(lost, 4);
        lines.push(b"last\n");
        goes_on.send(()).unwrap();
        assert_eq!(reports.recv().unwrap(), (b"last\n".to_vec(), 0));
        goes_on.send(()).unwrap();
        lines.flush(PATIENCE);
        assert_eq!(lines.waiting(), b"");
    }

    #[test]
    fn a_gap_ends_as_soon_as_what_is_before_it_is_taken() {
        let lines = Lines::default();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        for _ in 0..ROOM / line.len() + 3 {
            lines.push(&line);
        }
        let (text, lost, done) = lines.next();
        assert_eq!(
            (text.len(), lost, done),
            (ROOM, 3, bytes(&line.repeat(3)) + bytes(&text))
        );
        lines.push(b"after\n");
        assert_eq!(lines.waiting(), b"after\n");
    }

    /// Whoever reads a piece now and then would otherwise have somebody wait for each of them. On a machine that is busy
    /// elsewhere the piece may be taken too late: that says nothing, and is tried again.
    #[test]
    fn who_has_waited_once_waits_again_only_after_much_was_taken() {
        assert!((0..20).any(|_| waits_once()));
    }

    /// Whether nothing was lost while a piece was taken, and nobody waited afterwards.
    fn waits_once() -> bool {
        let lines = Lines::default();
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        let fill = || {
            while lines.waiting().len() < ROOM {
                lines.push(&line);
            }
        };
        let time = || {
            let begun = Instant::now();
            lines.push(&line);
            begun.elapsed()
        };
        fill();
        let taken = thread::scope(|scope| {
            scope.spawn(time);
            thread::sleep(FOR_ROOM / 4);
            lines.next().0.len()
        });
        if taken != PIECE || lines.waiting().len() != ROOM - PIECE + line.len() {
            return false;
        }
        fill();
        let is_quick = time() < FOR_ROOM;
        assert_eq!(lines.next().1, 1);
        fill();
        assert!(time() >= FOR_ROOM, "much was taken");
        is_quick
    }

    #[test]
    fn nothing_is_lost_while_lines_are_written_however_many_come_at_once() {
        let (written, reports) = channel();
        let lines = Lines::start("test", move |text, lost| {
            written.send((text, lost)).unwrap();
            0
        })
        .unwrap();
        let line = |number: usize| {
            [
                number.to_string().into_bytes(),
                b"x".repeat(50_000),
                b"\n".to_vec(),
            ]
            .concat()
        };
        let all: Vec<u8> = (0..400).flat_map(line).collect();
        assert!(all.len() > 8 * ROOM);
        for number in 0..400 {
            lines.push(&line(number));
        }
        lines.flush(PATIENCE);
        let (texts, lost): (Vec<_>, Vec<_>) = reports.try_iter().unzip();
        assert!(lost.iter().all(|lost| *lost == 0), "{lost:?}");
        assert!(texts.concat() == all);
    }

    #[test]
    fn what_could_not_be_written_is_said_with_the_next_lines() {
        let (written, reports) = channel();
        let lines = Lines::start("test", move |text, lost| {
            let missing = lost + count(&text);
            written.send((text, lost)).unwrap();
            missing
        })
        .unwrap();
        for lost in 0..3 {
            lines.push(b"line\n");
            lines.flush(PATIENCE);
            assert_eq!(reports.recv().unwrap(), (b"line\n".to_vec(), lost));
        }
    }
}
