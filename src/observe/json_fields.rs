//! The fields of a log line as a JSON object, for the log and the audit file.

use std::fmt;

use serde::Serialize;
use tracing::field::{Field, Visit};

/// An unfinished JSON object. The names of members come from the code and need no escapes.
pub(crate) struct JsonObject(Vec<u8>);

impl JsonObject {
    /// An empty object, with the given capacity.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let mut text = Vec::with_capacity(bytes);
        text.push(b'{');
        Self(text)
    }

    /// Adds a member.
    pub(crate) fn add(&mut self, name: &str, value: impl Serialize) {
        self.begin(name);
        let _ = serde_json::to_writer(&mut self.0, &value);
    }

    /// Adds an object as a member. `fill` adds the members of that object.
    pub(crate) fn add_object(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        self.begin(name);
        self.0.push(b'{');
        fill(self);
        self.0.push(b'}');
    }

    /// The finished object.
    pub(crate) fn into_object(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }

    fn begin(&mut self, name: &str) {
        if self.0.last() != Some(&b'{') {
            self.0.push(b',');
        }
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }
}

impl Visit for JsonObject {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), value);
    }
}
