//! Converts the entries of a file of declared state, and reads the secrets that they refer to.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use toml::de::DeValue;

use super::output::CliError;
use super::provider::read_logo;
use super::state_kinds::{KINDS, Kind, Places, SOURCES};
use super::value_parsers::{KeyForm, read_keys, read_secret};
use crate::admin::apply::DeclaredState;
use crate::config::file::{LineEnds, SyntaxFault, parse_toml};
use crate::config::nearest::nearest;
use crate::oauth::fields::with_article;

/// A state, and the places of its entries in the file.
#[derive(Default)]
pub struct Declared {
    pub state: DeclaredState,
    /// The place of each entry.
    pub places: Places,
}

/// Reads the files and variables that a state refers to.
pub struct Sources<'a> {
    /// The folder of relative paths.
    pub folder: &'a Path,
    /// Reads a variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// An entry of the file, with the lines of its keys.
pub(super) struct Entry {
    /// Its place, as messages name it.
    place: String,
    members: Map<String, Value>,
    lines: BTreeMap<String, usize>,
}

impl Entry {
    /// The entry of a JSON file with this number, from 1 on.
    pub(super) fn of_json(section: &str, number: usize, item: Value) -> Result<Self, String> {
        let Value::Object(mut members) = item else {
            return Err(format!("{section} {number}: it is no object"));
        };
        members.retain(|_, value| !value.is_null());
        Ok(Self {
            place: format!("{section} {number}"),
            members,
            lines: BTreeMap::new(),
        })
    }

    fn at(&self, key: &str) -> String {
        self.lines
            .get(key)
            .map_or_else(|| self.place.clone(), |line| format!("line {line}"))
    }
}

impl Declared {
    /// Adds the entries of a section.
    pub(super) fn add(
        &mut self,
        (kind, mut entries): Section,
        sources: &Sources<'_>,
        faults: &mut Vec<String>,
    ) {
        for entry in &mut entries {
            check_keys(kind, entry, faults);
            read_sources(entry, sources, faults);
            self.places.add(kind, &entry.members, &entry.place);
        }
        let state = &mut self.state;
        match kind.name {
            "scope" => state
                .scope
                .get_or_insert_default()
                .extend(convert(entries, faults)),
            "group" => state
                .group
                .get_or_insert_default()
                .extend(convert(entries, faults)),
            "provider" => state
                .provider
                .get_or_insert_default()
                .extend(convert(entries, faults)),
            "api" => state.api.get_or_insert_default().extend(convert(entries, faults)),
            "client" => state
                .client
                .get_or_insert_default()
                .extend(convert(entries, faults)),
            "user" => state
                .user
                .get_or_insert_default()
                .extend(convert(entries, faults)),
            _ => {}
        }
    }
}

/// Converts the entries to a type. Keys and forms are checked already, so the remaining faults are unknown values.
fn convert<T: DeserializeOwned>(entries: Vec<Entry>, faults: &mut Vec<String>) -> Vec<T> {
    let mut all = Vec::new();
    for entry in entries {
        let before = faults.len();
        // Each key is converted alone first, so that the fault has its line.
        for (key, value) in &entry.members {
            let single = Map::from_iter([(key.clone(), value.clone())]);
            if let Err(error) = serde_json::from_value::<T>(Value::Object(single)) {
                let error = error.to_string().replace("unknown variant", "unknown value");
                faults.push(format!("{}: {key}: {error}", entry.at(key)));
            }
        }
        if faults.len() > before {
            continue;
        }
        match serde_json::from_value(Value::Object(entry.members)) {
            Ok(typed) => all.push(typed),
            Err(error) => faults.push(format!("{}: {error}", entry.place)),
        }
    }
    all
}

fn check_keys(kind: &Kind, entry: &mut Entry, faults: &mut Vec<String>) {
    let keys = kind.keys.concat();
    let known: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
    let name = kind.name;
    let mut unfit = Vec::new();
    for (key, value) in &entry.members {
        match keys.iter().find(|(known, _)| known == key) {
            Some((_, form)) if form.fits(value) => continue,
            Some((_, form)) => faults.push(format!("{}: {key} must be {}", entry.at(key), form.name())),
            None => faults.push(format!(
                "{}: unknown key {key} of {}: {}",
                entry.at(key),
                with_article(name),
                advice(key, name, &known)
            )),
        }
        unfit.push(key.clone());
    }
    for needed in kind.needed {
        // A misspelt key is not missing: its own fault names the right spelling.
        let is_meant = |key: &String| {
            let meant = nearest(key, known.iter().copied());
            needed.contains(&key.as_str()) || meant.is_some_and(|meant| needed.contains(&meant))
        };
        if !entry.members.keys().any(is_meant) {
            faults.push(format!("{}: a {name} needs {}", entry.place, needed.join(" or ")));
        }
    }
    entry.members.retain(|key, _| !unfit.contains(key));
}

/// The advice for an unknown key.
fn advice(key: &str, kind: &str, known: &[&str]) -> String {
    match (key, nearest(key, known.iter().copied())) {
        ("secret" | "client_secret" | "password", _) => {
            format!("a {key} must not be in the file: use {key}_file or {key}_env")
        }
        (_, Some(meant)) => format!("did you mean {meant}?"),
        (_, None) => format!("a {kind} has {}", known.join(", ")),
    }
}

/// Replaces each key that names a file or a variable by its content.
fn read_sources(entry: &mut Entry, sources: &Sources<'_>, faults: &mut Vec<String>) {
    for (named, target) in SOURCES {
        let at = entry.at(named);
        let Some(Value::String(source)) = entry.members.remove(named) else {
            continue;
        };
        let path = sources.folder.join(&source);
        let read = match named {
            _ if named.ends_with("_env") => (sources.variable)(&source)
                .filter(|text| !text.is_empty())
                .map(Value::from)
                .ok_or_else(|| CliError::refused(format!("the environment has no variable {source}"))),
            "logo_file" => read_logo(&path).map(Value::from),
            "jwks_file" => read_keys(&path, KeyForm::JwkSet).map(Value::from),
            "public_key_file" => read_keys(&path, KeyForm::Pem).map(Value::from),
            _ => read_secret(&path).map(|text| Value::from(text.reveal())),
        };
        match read {
            Ok(value) => {
                if entry.members.insert(target.to_owned(), value).is_some() {
                    faults.push(format!(
                        "{at}: {target} and {named} are both set: keep one of them"
                    ));
                }
            }
            Err(fault) => faults.push(format!("{at}: {named}: {fault}")),
        }
    }
}

/// Entries of one kind.
pub(super) type Section = (&'static Kind, Vec<Entry>);

pub(super) fn kind_of(name: &str) -> Result<&'static Kind, String> {
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name) {
        return Ok(kind);
    }
    let known = KINDS.map(|kind| kind.name);
    Err(match nearest(name, known.into_iter()) {
        Some(meant) => format!("unknown section {name}: did you mean [[{meant}]]?"),
        None => format!(
            "unknown section {name}: there are {}",
            known.map(|kind| format!("[[{kind}]]")).join(", ")
        ),
    })
}

/// The sections of a text that begins after `lines_before` lines of the file.
pub(super) fn toml_sections(text: &str, lines_before: usize, faults: &mut Vec<String>) -> Vec<Section> {
    let ends = LineEnds::of(text);
    let line_of = |offset| ends.line_of(offset) + lines_before;
    let mut sections = Vec::new();
    let table = match parse_toml(text) {
        Ok(table) => table,
        Err(SyntaxFault {
            line,
            column,
            message,
        }) => {
            let line = line + lines_before;
            faults.push(format!("line {line} column {column}: {message}"));
            return sections;
        }
    };
    for (name, value) in &table {
        let line = line_of(name.span().start);
        let kind = match kind_of(name.get_ref()) {
            Ok(kind) => kind,
            Err(fault) => {
                faults.push(format!("line {line}: {fault}"));
                continue;
            }
        };
        let DeValue::Array(items) = value.get_ref() else {
            faults.push(format!("line {line}: a {0} is written below [[{0}]]", kind.name));
            continue;
        };
        let mut entries = Vec::new();
        for item in items {
            let line = line_of(item.span().start);
            let DeValue::Table(members) = item.get_ref() else {
                faults.push(format!("line {line}: a {} is a table", kind.name));
                continue;
            };
            entries.push(Entry {
                place: format!("line {line}"),
                members: members
                    .iter()
                    .map(|(key, value)| (key.get_ref().to_string(), to_json(value.get_ref())))
                    .collect(),
                lines: members
                    .iter()
                    .map(|(key, _)| (key.get_ref().to_string(), line_of(key.span().start)))
                    .collect(),
            });
        }
        sections.push((kind, entries));
    }
    sections
}

fn to_json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::Datetime(moment) => Value::from(moment.to_string()),
        DeValue::Array(values) => values.iter().map(|value| to_json(value.get_ref())).collect(),
        DeValue::Table(members) => Value::Object(
            members
                .iter()
                .map(|(key, value)| (key.get_ref().to_string(), to_json(value.get_ref())))
                .collect(),
        ),
    }
}

/// A syntax error with its place in front.
pub(super) fn json_fault(error: &serde_json::Error) -> String {
    let message = error.to_string();
    // serde_json ends its message with the place. It is cut off, because the fault begins with the place.
    let message = message.split(" at line ").next().unwrap_or_default();
    format!("line {} column {}: {message}", error.line(), error.column())
}

#[cfg(test)]
pub(super) mod tests;
