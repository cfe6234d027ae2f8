//! Records the audit events, refusals and warnings that the thread of a test logs.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// If there is only one subscriber in the process, `tracing` asks the thread that reaches a log line first whether any
/// thread listens to it. If there are two, it asks both.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// A listener for audit events. It stops listening when it is dropped.
pub(crate) struct Audit {
    recorder: RecordingLayer,
    _listening: DefaultGuard,
}

impl Audit {
    pub(crate) fn listen() -> Self {
        LazyLock::force(&SECOND);
        let recorder = RecordingLayer::default();
        let listening = set_default(tracing_subscriber::registry().with(recorder.clone()));
        Self {
            recorder,
            _listening: listening,
        }
    }

    /// The events with one of these names since the last call, in order, as objects.
    pub(crate) fn take(&self, names: &[&str]) -> Vec<Value> {
        let is_named = |event: &Value| names.iter().any(|name| event["event"] == *name);
        self.drain().filter(is_named).collect()
    }

    /// The log lines of refused requests since the last call, in order, without their names.
    pub(crate) fn refusals(&self) -> Vec<Value> {
        let refused = self.drain().filter(|line| line["message"] == "refused");
        let nameless = refused.map(|mut line| {
            let members = line.as_object_mut().unwrap();
            members.retain(|name, _| !matches!(name.as_str(), "message" | "request_id"));
            line
        });
        nameless.collect()
    }

    /// How many warnings contain this text since the last call.
    pub(crate) fn warnings_of(&self, what: &str) -> usize {
        let names = |line: &Value| line["level"] == "WARN" && line.to_string().contains(what);
        self.drain().filter(names).count()
    }

    fn drain(&self) -> impl Iterator<Item = Value> {
        std::mem::take(&mut *self.recorder.0.lock().unwrap_or_else(PoisonError::into_inner)).into_iter()
    }
}

#[derive(Clone, Default)]
struct RecordingLayer(Arc<Mutex<Vec<Value>>>);

impl<S: Subscriber> Layer<S> for RecordingLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        let is_warning = *event.metadata().level() == Level::WARN && target.starts_with("idsvc::");
        if is_warning || matches!(target, "audit" | "idsvc::refusal") {
            let mut members = Members::default();
            event.record(&mut members);
            if is_warning {
                members.0.insert("level".to_owned(), "WARN".into());
            }
            let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            events.push(Value::Object(members.0));
        }
    }
}

#[derive(Default)]
struct Members(Map<String, Value>);

impl Visit for Members {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0
            .insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}
