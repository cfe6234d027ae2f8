//! Log lines: to standard error, for people or for machines.
//!
//! Who reads standard error may stop to, and a pipe holds little. So [a thread of its own](super::background_writer) writes it, from
//! the moment on that the service logs: whatever else the process has to say there goes the same way and stays in order.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal, Write, stderr};
use std::panic;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, registry};

use super::audit_file::{EventLog, TARGET};
use super::background_writer::Lines;
use super::json_fields::Members;
use super::line_chunks;
use super::line_chunks::count;
use crate::clock::Clock;
use crate::config::{Log, LogFormat, Settings};

/// Keeps the audit, and nothing else of the log. For commands that open the store themselves.
pub fn keep_events(settings: &Settings) {
    if let Some(events) = events(settings) {
        let _ = registry().with(events).try_init();
    }
}

/// Keeps the audit in the data directory. A service without its events is better than none.
fn events(settings: &Settings) -> Option<impl Layer<Registry> + Send + Sync> {
    let started = EventLog::start(&settings.data_dir, settings.events_max_bytes, Clock::System);
    let log = started.ok()?;
    Some(log.with_filter(Targets::new().with_target(TARGET, LevelFilter::INFO)))
}

/// How long the end of the process waits for whoever reads the log.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a panic does, which may be the end of the process.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// So many bytes written at once stay together in a pipe that others write to as well (`PIPE_BUF`, POSIX.1-2017
/// `write`).
const TOGETHER: usize = 4096;

/// Standard error of this process, once the service logs.
static STARTED: OnceLock<Lines> = OnceLock::new();

/// Standard error: by way of the log once there is one, without waiting for whoever reads it.
pub struct StandardError;

impl Write for StandardError {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match STARTED.get() {
            Some(lines) => lines.clone().write(text),
            None => stderr().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}

/// Waits until what was logged so far has been written, unless nobody reads it.
pub fn flush() {
    if let Some(lines) = STARTED.get() {
        lines.flush(PATIENCE);
    }
}

/// How lines look.
#[derive(Clone, Copy)]
struct Form {
    as_json: bool,
    has_colours: bool,
}

impl Form {
    /// Lines of this form, each written at once.
    fn to<S, W>(self, writer: impl Fn() -> W + Send + Sync + 'static) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
        W: Write + 'static,
    {
        let layer = layer().with_writer(writer);
        if self.as_json {
            layer.event_format(JsonLines).boxed()
        } else {
            layer.with_ansi(self.has_colours).boxed()
        }
    }

    /// The line in place of those that were lost.
    fn of_lost(self, lines: u64) -> Vec<u8> {
        let line = Lines::default();
        let written = line.clone();
        let note = registry().with(self.to(move || written.clone()));
        tracing::subscriber::with_default(note, || {
            tracing::error!(lines, "log lines were lost here: they could not be written");
        });
        line.waiting()
    }
}

/// Begins to log, and to keep the audit. Below `info` only our own lines appear; the audit's appear at every level.
pub fn start(log: Log, settings: &Settings) -> io::Result<()> {
    let is_terminal = stderr().is_terminal();
    let targets = Targets::new()
        .with_default(log.level.min(Level::INFO))
        .with_target("idsvc", log.level)
        .with_target(TARGET, LevelFilter::INFO);
    let form = Form {
        as_json: match log.format {
            LogFormat::Json => true,
            LogFormat::Text => false,
            LogFormat::Auto => !is_terminal,
        },
        has_colours: is_terminal && may_be_coloured(|name| env::var_os(name)),
    };
    let mut paper = Paper {
        form,
        to: stderr(),
        is_cut: false,
    };
    let lines = Lines::start("log", move |text, lost| paper.write(&text, lost))?;
    let written = lines.clone();
    let layer = form.to(move || written.clone()).with_filter(targets);
    // A second subscriber in one process, as in tests, leaves the first in place.
    if registry().with(events(settings)).with(layer).try_init().is_ok() {
        let _ = STARTED.set(lines.clone());
        log_panics(lines);
    }
    Ok(())
}

/// Whether a terminal has colours and nobody said that they are not wanted (<https://no-color.org>), by its environment.
fn may_be_coloured(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_plain = variable("NO_COLOR").is_some_and(|wish| !wish.is_empty());
    !is_plain && variable("TERM").is_none_or(|term| term != "dumb")
}

/// What the log is written on.
struct Paper<W> {
    form: Form,
    to: W,
    /// Whether it ends in a part of a line, the rest of which could not be written.
    is_cut: bool,
}

impl<W: Write> Paper<W> {
    /// Writes lines, then that others were lost. How many have to be said to be lost after that.
    fn write(&mut self, text: &[u8], lost: u64) -> u64 {
        if let Err(unwritten) = self.write_together(text) {
            return lost.saturating_add(count(unwritten));
        }
        if lost > 0 && self.write_together(&self.form.of_lost(lost)).is_err() {
            return lost;
        }
        0
    }

    /// Writes as many whole lines at once as stay together. Which lines were not written, or only in part, otherwise.
    fn write_together<'a>(&mut self, text: &'a [u8]) -> Result<(), &'a [u8]> {
        if self.is_cut {
            self.to.write_all(b"\n").map_err(|_| text)?;
            self.is_cut = false;
        }
        line_chunks::write(&mut self.to, text, TOGETHER).map_err(|unwritten| {
            self.is_cut = unwritten.is_cut;
            unwritten.lines
        })
    }
}

/// Has what a panic says written in the order of the log, as the language's own way has it otherwise.
fn log_panics(lines: Lines) {
    panic::set_hook(Box::new(move |panic| {
        let current = thread::current();
        let name = current.name().unwrap_or("<unnamed>");
        let mut text = format!("thread '{name}' {panic}\n");
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            text = format!("{text}stack backtrace:\n{backtrace}\n");
        }
        lines.push(text.as_bytes());
        lines.flush(LAST_WORDS);
    }));
}

/// A line is one JSON object. The library's own format puts it together from pieces that are looked at one by one, which
/// takes three times as long; and a line is written with every token.
struct JsonLines;

/// What most lines take.
const TYPICAL_BYTES: usize = 400;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut line = Members::with_capacity(TYPICAL_BYTES);
        line.add("timestamp", timestamp);
        line.add("level", event.metadata().level().as_str());
        line.add_object("fields", |fields| event.record(fields));
        line.add("target", event.metadata().target());
        let line = line.into_object();
        writer.write_str(std::str::from_utf8(&line).map_err(|_| fmt::Error)?)?;
        writer.write_char('\n')
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::observe::audit;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_terminal_without_colours_gets_none_and_who_wants_none_neither() {
        let of = |set: &[(&str, &str)]| {
            may_be_coloured(|name| {
                let mut set = set.iter();
                set.find(|(other, _)| *other == name)
                    .map(|(_, value)| value.into())
            })
        };
        assert!(of(&[]) && of(&[("TERM", "xterm"), ("NO_COLOR", "")]));
        assert!(!of(&[("TERM", "dumb")]));
        assert!(!of(&[("TERM", "xterm"), ("NO_COLOR", "1")]));
    }

    #[test]
    fn every_kind_of_field_is_json() {
        let lines = Lines::default();
        let written = lines.clone();
        let layer = layer()
            .with_writer(move || written.clone())
            .event_format(JsonLines);
        let hostile = "a \"quoted\"\n\u{1b}[2J name";
        tracing::subscriber::with_default(registry().with(layer), || {
            let missing = None::<u64>;
            tracing::warn!(text = hostile, shown = %hostile, of_debug = ?[hostile], less = -1, more = u64::MAX, half = 0.5, yes = true, missing, "said");
            audit::record(&audit::Event::SignedOut {
                user: Uuid::nil(),
                session: Uuid::nil(),
            });
            tracing::info!("nothing else");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for line in &lines {
            let timestamp = line["timestamp"].as_str().unwrap();
            let format = &time::format_description::well_known::Rfc3339;
            assert!(
                time::OffsetDateTime::parse(timestamp, format).is_ok(),
                "{timestamp}"
            );
        }
        let fields: Vec<&Value> = lines.iter().map(|line| &line["fields"]).collect();
        assert_eq!(
            fields,
            [
                &json!({"message": "said", "text": hostile, "shown": hostile, "of_debug": format!("{:?}", [hostile]), "less": -1, "more": u64::MAX, "half": 0.5, "yes": true}),
                &json!({"event": "signed_out", "user": Uuid::nil(), "session": Uuid::nil()}),
                &json!({"message": "nothing else"}),
            ]
        );
        assert_eq!(
            (&lines[0]["level"], &lines[1]["target"]),
            (&json!("WARN"), &json!("audit"))
        );
    }
    #[test]
    fn lost_lines_are_told_in_the_form_of_the_others() {
        let told = |as_json| {
            let has_colours = false;
            let line = Form { as_json, has_colours }.of_lost(7);
            String::from_utf8(line).unwrap()
        };
        let line: Value = serde_json::from_str(&told(true)).unwrap();
        let message = "log lines were lost here: they could not be written";
        assert_eq!(
            (&line["level"], &line["fields"]),
            (&json!("ERROR"), &json!({"message": message, "lines": 7}))
        );
        let line = told(false);
        assert!(line.ends_with(&format!("{message} lines=7\n")), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    /// Notes what is written at once, as long as there is room for so many bytes.
    struct Chunks(Vec<Vec<u8>>, usize);

    impl Write for Chunks {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.len().min(self.1);
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.1 -= fits;
            self.0.push(bytes[..fits].to_owned());
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn paper(room: usize) -> Paper<Chunks> {
        let (as_json, has_colours) = (true, false);
        Paper {
            form: Form { as_json, has_colours },
            to: Chunks(Vec::new(), room),
            is_cut: false,
        }
    }

    #[test]
    fn lines_stay_whole_beside_those_of_others() {
        let line = |length: usize| [b"x".repeat(length - 1), b"\n".to_vec()].concat();
        let lines = [
            line(4000),
            line(96),
            line(1),
            line(5000),
            line(10),
            b"cut".to_vec(),
        ];
        let text = lines.concat();
        let written = |room| {
            let mut paper = paper(room);
            let rest = paper.write_together(&text).err().map(count);
            (paper.to.0.iter().map(Vec::len).collect::<Vec<_>>(), rest)
        };
        assert_eq!(written(usize::MAX), (vec![4096, 1, 5000, 10, 3], None));
        assert_eq!(written(4097), (vec![4096, 1], Some(3)));
    }

    #[test]
    fn a_line_that_is_cut_spoils_no_other_and_only_what_is_missing_counts_as_lost() {
        for (room, cut) in [(20, ""), (25, "line \n")] {
            let mut paper = paper(room);
            let line = |number: u64| format!("line {number:04}\n").into_bytes();
            let text: Vec<u8> = (1..=4).flat_map(line).collect();
            assert_eq!(paper.write(&text, 0), 2);
            assert_eq!(paper.write(&line(5), 2), 3);
            paper.to.1 = usize::MAX;
            assert_eq!(paper.write(&line(6), 3), 0);
            let text = String::from_utf8(paper.to.0.concat()).unwrap();
            let whole = format!("line 0001\nline 0002\n{cut}line 0006\n");
            let told: Value = serde_json::from_str(text.strip_prefix(&whole).unwrap()).unwrap();
            assert_eq!(told["fields"]["lines"], 3);
        }
    }
}
