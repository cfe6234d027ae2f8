//! What a template is given: finished parts, and the raw fields they are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use maud::Markup;
use minijinja::Value;

/// Names and values for one template. Those that no template of the theme reads are not made.
#[derive(Debug, Default)]
pub struct TemplateContext {
    values: BTreeMap<&'static str, Value>,
    wanted: Option<Arc<BTreeSet<String>>>,
}

impl TemplateContext {
    /// A context for templates that read these names.
    pub fn of(names: Arc<BTreeSet<String>>) -> Self {
        Self {
            values: BTreeMap::new(),
            wanted: Some(names),
        }
    }

    fn put(&mut self, name: &'static str, value: impl FnOnce() -> Value) {
        if self.wanted.as_ref().is_none_or(|names| names.contains(name)) {
            self.values.insert(name, value());
        }
    }

    /// A finished part: markup that is printed as it is.
    pub fn part(&mut self, name: &'static str, markup: impl FnOnce() -> Markup) {
        self.put(name, || Value::from_safe_string(markup().into_string()));
    }

    /// A text, which is escaped where it is printed; empty when there is nothing to say.
    pub fn text(&mut self, name: &'static str, text: &str) {
        self.put(name, || Value::from(text));
    }

    /// A truth value.
    pub fn flag(&mut self, name: &'static str, is_so: bool) {
        self.put(name, || Value::from(is_so));
    }

    /// A list of entries, each with the same few values.
    pub fn list<V: Into<Value>, const N: usize>(
        &mut self,
        name: &'static str,
        list: impl IntoIterator<Item = [(&'static str, V); N]>,
    ) {
        self.put(name, || entries(list));
    }

    /// A value that was made before.
    pub fn value(&mut self, name: &'static str, value: Value) {
        self.put(name, || value);
    }

    /// The names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.values.keys().copied()
    }

    /// What the template engine is handed.
    pub fn into_value(self) -> Value {
        Value::from(self.values)
    }
}

/// Entries of a list, each with the same few values.
pub fn entries<V: Into<Value>, const N: usize>(
    list: impl IntoIterator<Item = [(&'static str, V); N]>,
) -> Value {
    let entry =
        |values: [(&'static str, V); N]| object(values.map(|(name, value)| (name, value.into())).into());
    list.into_iter().map(entry).collect::<Vec<Value>>().into()
}

/// Names and values. Not generic: making a map takes a sort, which would be there once for every kind of list.
fn object(values: Vec<(&'static str, Value)>) -> Value {
    Value::from(BTreeMap::from_iter(values))
}
