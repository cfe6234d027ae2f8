//! Log lines: to standard error, for people or for machines.

use std::fmt;
use std::io::{IsTerminal, stderr};

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

use super::event_log::{EventLog, TARGET};
use super::members::Members;
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

/// Begins to log, and to keep the audit. Below `info` only our own lines appear; the audit's appear at every level.
pub fn start(log: Log, settings: &Settings) {
    let is_terminal = stderr().is_terminal();
    let targets = Targets::new()
        .with_default(log.level.min(Level::INFO))
        .with_target("idsvc", log.level)
        .with_target(TARGET, LevelFilter::INFO);
    let as_json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !is_terminal,
    };
    let layer = layer().with_writer(stderr);
    let layer = if as_json {
        layer.event_format(JsonLines).boxed()
    } else {
        layer.with_ansi(is_terminal).boxed()
    };
    // A second subscriber in one process, as in tests, leaves the first in place.
    let _ = registry()
        .with(events(settings))
        .with(layer.with_filter(targets))
        .try_init();
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
    use crate::audit;

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
}
