//! The audit in the data directory: one JSON object a line, in [files of bounded size](super::event_files).
//!
//! The events are the log lines of the target `audit`. [Threads](super::background_writer) write them, so that no request
//! waits for the disk. If the disk is too slow, events are dropped, and a line says how many. Each kind of events has a
//! thread and files of its own: however many tokens are issued, no security event is dropped or removed for them.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::background_writer::BackgroundWriter;
use super::event_files::{EventFile, EventKind};
use super::json_fields::JsonObject;
use crate::clock::{Clock, Timestamp};
use crate::config::EventRetention;

/// The target under which the audit logs.
pub const TARGET: &str = "audit";

/// The typical length of a line.
const TYPICAL_BYTES: usize = 320;

/// The threads that write the events of this process.
static EVENT_WRITERS: OnceLock<[BackgroundWriter; 2]> = OnceLock::new();

/// Waits until all events so far are written, at most for `timeout` for each kind.
pub fn flush(timeout: Duration) {
    for writer in EVENT_WRITERS.get().into_iter().flatten() {
        writer.flush(timeout);
    }
}

/// Removes the events that are too old at this time. The caller trusts the clock.
pub fn remove_expired(now: Timestamp) {
    for writer in EVENT_WRITERS.get().into_iter().flatten() {
        writer.remove_expired(now);
    }
}

/// Picks the audit's events out of the log and passes them to the writing threads.
pub struct EventLog {
    security: BackgroundWriter,
    routine: BackgroundWriter,
    keeps_routine: bool,
    clock: Clock,
}

impl EventLog {
    /// Starts the threads that write to `data_dir`.
    pub fn start(data_dir: &Path, retention: &EventRetention, clock: Clock) -> io::Result<Self> {
        let [security, routine] = EventKind::ALL.map(|kind| {
            let file = EventFile::new(data_dir, kind, retention, clock.clone());
            BackgroundWriter::start(kind.stem(), file)
        });
        let (security, routine) = (security?, routine?);
        let _ = EVENT_WRITERS.set([security.clone(), routine.clone()]);
        Ok(Self {
            security,
            routine,
            keeps_routine: retention.routine.is_some(),
            clock,
        })
    }
}

impl<S: Subscriber> Layer<S> for EventLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != TARGET {
            return;
        }
        let writer = match *event.metadata().level() {
            Level::DEBUG if self.keeps_routine => &self.routine,
            Level::DEBUG => return,
            _ => &self.security,
        };
        let mut members = JsonObject::with_capacity(TYPICAL_BYTES);
        members.add("time", self.clock.now().seconds());
        event.record(&mut members);
        let mut line = members.into_object();
        line.push(b'\n');
        writer.push(&line);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};
    use tempfile::TempDir;
    use tracing_subscriber::layer::SubscriberExt;
    use uuid::Uuid;

    use super::super::event_files::EVENTS;
    use super::*;
    use crate::observe::audit;

    fn kept(tokens: Option<Duration>) -> [Vec<Value>; 2] {
        let data = TempDir::new().unwrap();
        let clock = Clock::manual(Timestamp::from_seconds(5));
        let retention = EventRetention {
            max_bytes: 1 << 20,
            keep: None,
            routine: tokens,
        };
        let log = EventLog::start(data.path(), &retention, clock).unwrap();
        let writers = [log.security.clone(), log.routine.clone()];
        tracing::subscriber::with_default(tracing_subscriber::registry().with(log), || {
            tracing::info!("something else");
            audit::record(&audit::Event::TokensIssued {
                user: Some(Uuid::nil()),
                client_id: "web",
                grant_type: "refresh_token",
                audience: &["https://api.example".to_owned()],
                jti: Uuid::nil(),
                family: None,
                actor: None,
                exchanged_of: None,
            });
            audit::record(&audit::Event::Administered {
                command: "client add",
                subject: "a \"quoted\"\nname",
                actor: "uid 0",
            });
        });
        for writer in writers {
            writer.flush(Duration::from_mins(1));
        }
        EventKind::ALL.map(|kind| {
            let path = data.path().join(EVENTS).join(kind.file_name(0));
            let text = fs::read_to_string(path).unwrap_or_default();
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        })
    }

    #[test]
    fn events_are_lines_of_json_in_files_by_kind_and_other_log_lines_are_not_kept() {
        let administered = json!({"time": 5, "event": "administered", "command": "client add", "subject": "a \"quoted\"\nname", "actor": "uid 0"});
        let issued = json!({"time": 5, "event": "tokens_issued", "user": Uuid::nil(), "client_id": "web", "grant_type": "refresh_token", "audience": "https://api.example", "jti": Uuid::nil()});
        let day = Duration::from_hours(24);
        assert_eq!(kept(Some(day)), [vec![administered.clone()], vec![issued]]);
        assert_eq!(kept(None), [vec![administered], vec![]]);
    }
}
