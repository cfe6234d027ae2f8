//! The context of a template: finished parts, and the raw fields they are made of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use maud::Markup;
use minijinja::Value;

/// Names and values for one template. Values that no template of the theme reads are not computed.
#[derive(Debug, Default)]
pub struct TemplateContext {
    values: BTreeMap<&'static str, Value>,
    wanted: Option<Arc<BTreeSet<String>>>,
}

impl TemplateContext {
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

    /// Adds a finished part: markup that is printed without escaping.
    pub fn part(&mut self, name: &'static str, markup: impl FnOnce() -> Markup) {
        self.put(name, || Value::from_safe_string(markup().into_string()));
    }

    /// Adds a text, which is escaped when it is printed.
    pub fn text(&mut self, name: &'static str, text: &str) {
        self.put(name, || Value::from(text));
    }

    /// Adds a truth value.
    pub fn flag(&mut self, name: &'static str, flag: bool) {
        self.put(name, || Value::from(flag));
    }

    /// Adds a list of entries, each with the same names.
    pub fn list<V: Into<Value>, const N: usize>(
        &mut self,
        name: &'static str,
        list: impl IntoIterator<Item = [(&'static str, V); N]>,
    ) {
        self.put(name, || entries(list));
    }

    /// Adds any other value.
    pub fn value(&mut self, name: &'static str, value: Value) {
        self.put(name, || value);
    }

    /// The names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.values.keys().copied()
    }

    /// The value for the template engine.
    pub fn into_value(self) -> Value {
        Value::from(self.values)
    }
}

/// A list of entries, each with the same names.
pub fn entries<V: Into<Value>, const N: usize>(
    list: impl IntoIterator<Item = [(&'static str, V); N]>,
) -> Value {
    let entry =
        |values: [(&'static str, V); N]| object(values.map(|(name, value)| (name, value.into())).into());
    list.into_iter().map(entry).collect::<Vec<Value>>().into()
}

/// An object. The function is not generic, so that the sort of a map is compiled once and not for every kind of list.
fn object(values: Vec<(&'static str, Value)>) -> Value {
    Value::from(BTreeMap::from_iter(values))
}
