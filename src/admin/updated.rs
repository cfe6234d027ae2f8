//! What an update answers: the record, and what changed in its lists.

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::operation::Done;
use crate::oauth::fields::Form;

/// A record after an update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Updated<V> {
    #[serde(flatten)]
    pub view: V,
    /// The lists that changed.
    pub changes: Vec<ListChange>,
}

/// What came into a list, and what went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListChange {
    /// The list, by its name in the record.
    pub field: String,
    pub added: Vec<String>,
    pub removed: Vec<String>,
}

impl<V> Deref for Updated<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.view
    }
}

impl<V: Serialize> Updated<V> {
    /// The record `view`, compared with the record before the update in the lists among `fields`.
    pub(super) fn of(before: &V, view: V, fields: &[(&'static str, Form)]) -> Self {
        let (before, after) = (serde_json::to_value(before), serde_json::to_value(&view));
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let mut changes = Vec::new();
        for (field, form) in fields {
            if !matches!(form, Form::Texts | Form::Table) {
                continue;
            }
            let (before, after) = (entries(before.get(field)), entries(after.get(field)));
            let without = |list: &[String], other: &[String]| -> Vec<String> {
                list.iter()
                    .filter(|entry| !other.contains(entry))
                    .cloned()
                    .collect()
            };
            let (added, removed) = (without(&after, &before), without(&before, &after));
            if !added.is_empty() || !removed.is_empty() {
                let field = (*field).to_owned();
                changes.push(ListChange {
                    field,
                    added,
                    removed,
                });
            }
        }
        Self { view, changes }
    }
}

impl<V> Done<Updated<V>> {
    /// The record alone.
    pub(super) fn without_changes(self) -> Done<V> {
        Done {
            output: self.output.view,
            subject: self.subject,
        }
    }
}

/// The members of a list, or of a table as in `name=value`. A scope is a text with its values.
fn entries(value: Option<&Value>) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match value {
        Some(Value::Array(values)) => values.iter().map(text).collect(),
        Some(Value::String(scope)) => scope.split(' ').map(str::to_owned).collect(),
        Some(Value::Object(members)) => {
            let mut entries = Vec::new();
            for (name, value) in members {
                let values = value
                    .as_array()
                    .map_or(std::slice::from_ref(value), Vec::as_slice);
                entries.extend(values.iter().map(|value| format!("{name}={}", text(value))));
            }
            entries
        }
        _ => Vec::new(),
    }
}
