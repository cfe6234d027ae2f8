//! The log on standard error, as text or JSON.
//!
//! The reader of standard error may stop reading, and a pipe holds little. Once the service logs, [a
//! thread](super::background_writer) therefore writes to it. All other output to standard error takes the same way, so
//! that it stays in order.

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

use super::audit_file::{self, EventLog, TARGET};
use super::background_writer::{BackgroundWriter, LineSink};
use super::json_fields::JsonObject;
use crate::clock::Clock;
use crate::config::{Log, LogFormat, Settings};

/// Starts the audit without the log, for commands that open the store themselves.
pub fn keep_events(settings: &Settings) {
    if let Some(events) = events(settings) {
        let _ = registry().with(events).try_init();
    }
}

/// The layer that writes the audit to the data directory. If it cannot start, the service runs without it.
fn events(settings: &Settings) -> Option<impl Layer<Registry> + Send + Sync> {
    let started = EventLog::start(&settings.data_dir, &settings.events, Clock::System);
    let log = started.ok()?;
    Some(log.with_filter(Targets::new().with_target(TARGET, LevelFilter::DEBUG)))
}

/// How long the process waits for the reader of the log before it ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a panic waits for the reader of the log. The process may end after it.
const PANIC_FLUSH_TIMEOUT: Duration = Duration::from_millis(100);

/// The thread that writes to standard error, once the service logs.
static LOG_WRITER: OnceLock<BackgroundWriter> = OnceLock::new();

/// Standard error. Once the service logs, its thread writes the text, and the caller does not wait.
pub struct StandardError;

impl Write for StandardError {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match LOG_WRITER.get() {
            Some(writer) => writer.clone().write(text),
            None => stderr().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}

/// Waits until all log lines and audit events so far are written, at most for a fixed time each.
pub fn flush() {
    if let Some(writer) = LOG_WRITER.get() {
        writer.flush(FLUSH_TIMEOUT);
    }
    audit_file::flush(FLUSH_TIMEOUT);
}

/// Starts the log and the audit. Below `info` only lines of this crate appear. Security events appear at every level,
/// routine ones from `debug` on.
pub fn start(log: Log, settings: &Settings) -> io::Result<()> {
    let is_terminal = stderr().is_terminal();
    let as_json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !is_terminal,
    };
    let writer = BackgroundWriter::start("log", LogSink { as_json })?;
    let line_writer = writer.clone();
    let lines = layer().with_writer(move || line_writer.clone());
    let lines = if as_json {
        lines.event_format(JsonLines).boxed()
    } else {
        let has_colours = is_terminal && allows_colours(|name| env::var_os(name));
        lines.with_ansi(has_colours).boxed()
    };
    let targets = Targets::new()
        .with_default(log.level.min(Level::INFO))
        .with_target("idsvc", log.level)
        .with_target(TARGET, log.level.max(Level::INFO));
    // Fails if the process has a subscriber already, as in tests.
    let subscriber = registry().with(events(settings)).with(lines.with_filter(targets));
    if subscriber.try_init().is_ok() {
        let _ = LOG_WRITER.set(writer.clone());
        log_panics(writer);
    }
    Ok(())
}

/// Whether the environment allows colours on a terminal (<https://no-color.org>).
fn allows_colours(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_plain = variable("NO_COLOR").is_some_and(|wish| !wish.is_empty());
    !is_plain && variable("TERM").is_none_or(|term| term != "dumb")
}

/// Standard error as the destination of the log's thread.
struct LogSink {
    as_json: bool,
}

impl Write for LogSink {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        stderr().write(lines)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LineSink for LogSink {
    fn lost_note(&self, lines: u64) -> Vec<u8> {
        let (timestamp, target) = (timestamp(), module_path!());
        let message = "log lines were lost here: they could not be written";
        if self.as_json {
            let fields = serde_json::json!({"message": message, "lines": lines});
            json_line(&timestamp, "ERROR", target, |line| line.add("fields", fields))
        } else {
            format!("{timestamp} ERROR {target}: {message} lines={lines}\n").into_bytes()
        }
    }
}

/// Writes panics through the log's thread, in the format of Rust's own hook.
fn log_panics(writer: BackgroundWriter) {
    panic::set_hook(Box::new(move |panic| {
        let current = thread::current();
        let name = current.name().unwrap_or("<unnamed>");
        let mut text = format!("thread '{name}' {panic}\n");
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            text = format!("{text}stack backtrace:\n{backtrace}\n");
        }
        writer.push(text.as_bytes());
        writer.flush(PANIC_FLUSH_TIMEOUT);
    }));
}

/// Formats a line as one JSON object. The format of `tracing-subscriber` takes three times as long.
struct JsonLines;

/// The typical length of a line.
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
        let metadata = event.metadata();
        let fill = |line: &mut JsonObject| line.add_object("fields", |fields| event.record(fields));
        let line = json_line(&timestamp(), metadata.level().as_str(), metadata.target(), fill);
        writer.write_str(std::str::from_utf8(&line).map_err(|_| fmt::Error)?)
    }
}

/// Formats a line. `fill` adds the fields.
fn json_line(timestamp: &str, level: &str, target: &str, fill: impl FnOnce(&mut JsonObject)) -> Vec<u8> {
    let mut line = JsonObject::with_capacity(TYPICAL_BYTES);
    line.add("timestamp", timestamp);
    line.add("level", level);
    fill(&mut line);
    line.add("target", target);
    let mut line = line.into_object();
    line.push(b'\n');
    line
}

fn timestamp() -> String {
    let mut timestamp = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    timestamp
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
            allows_colours(|name| {
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
        let told = |as_json| String::from_utf8(LogSink { as_json }.lost_note(7)).unwrap();
        let line: Value = serde_json::from_str(&told(true)).unwrap();
        assert_eq!(
            (&line["level"], &line["fields"]["lines"]),
            (&json!("ERROR"), &json!(7))
        );
        let message = line["fields"]["message"].as_str().unwrap();
        assert!(!message.is_empty());
        let line = told(false);
        assert!(line.ends_with(&format!("{message} lines=7\n")), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
