//! Reads settings from the file. This checks names and types, but not values.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::Fault;
use super::nearest::nearest;
use super::reference::{find, settings};
use super::source::{Origin, RawValue, SettingValue};

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedFile {
    pub values: Vec<SettingValue>,
    pub faults: Vec<Fault>,
    /// Keys that the file may set, but whose values could not be read. Such a key does not count as absent.
    pub unread: Vec<&'static str>,
}

impl ParsedFile {
    /// A file that could not be read at all.
    pub fn unreadable(faults: Vec<Fault>) -> Self {
        Self {
            values: Vec::new(),
            faults,
            unread: settings().map(|setting| setting.key).collect(),
        }
    }
}

/// Parses the text of a file, and collects all faults of syntax, name and type.
pub fn parse(text: &str, path: &Path) -> ParsedFile {
    let table = match parse_toml(text) {
        Ok(table) => table,
        Err(SyntaxFault {
            line,
            column,
            message,
        }) => {
            return ParsedFile::unreadable(vec![Fault {
                place: format!("{} column {column}", place(path, line)),
                message,
            }]);
        }
    };
    let (mut parsed, ends) = (ParsedFile::default(), LineEnds::of(text));
    visit_keys(&table, "", &mut |key, value, start| {
        let line = ends.line_of(start);
        match parse_value(key, value, Origin::File(path.to_owned(), line)) {
            Ok(value) => parsed.values.push(value),
            Err(message) => {
                parsed.unread.extend(probable_key(key));
                parsed.faults.push(Fault {
                    place: place(path, line),
                    message,
                });
            }
        }
    });
    parsed
}

fn place(path: &Path, line: usize) -> String {
    format!("{} line {line}", path.display())
}

/// The first place where a text is not TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxFault {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The problem.
    pub message: String,
}

/// Parses TOML. Only the first fault is returned: the others often follow from it.
pub fn parse_toml(text: &str) -> Result<DeTable<'_>, SyntaxFault> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let start = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
    match errors.iter().min_by_key(|error| start(error)) {
        Some(first) => Err(SyntaxFault::at(start(first), text, first.message().to_owned())),
        None => match table
            .get_ref()
            .values()
            .find_map(|value| unusable_number(value, text))
        {
            Some((offset, message)) => Err(SyntaxFault::at(offset, text, message)),
            None => Ok(table.into_inner()),
        },
    }
}

impl SyntaxFault {
    fn at(offset: usize, text: &str, message: String) -> Self {
        let before = text.get(..offset).unwrap_or_default();
        let in_line = before.rsplit('\n').next().unwrap_or_default();
        Self {
            line: LineEnds::of(text).line_of(offset),
            column: in_line.chars().count().saturating_add(1),
            message,
        }
    }
}

/// Finds a number that cannot be used: an integer beyond 64 bits (TOML 1.0.0, section Integer), or a float that is not
/// finite. Returns its offset and the problem.
fn unusable_number(value: &Spanned<DeValue<'_>>, text: &str) -> Option<(usize, String)> {
    let written = text.get(value.span()).unwrap_or_default();
    let message = match value.get_ref() {
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).err()?;
            format!("{written} is not within {} to {}", i64::MIN, i64::MAX)
        }
        DeValue::Float(number) => {
            let is_finite = number.as_str().parse().is_ok_and(f64::is_finite);
            (!is_finite).then(|| format!("{written} is no number that can be kept"))?
        }
        DeValue::Array(values) => return values.iter().find_map(|value| unusable_number(value, text)),
        DeValue::Table(members) => return members.values().find_map(|value| unusable_number(value, text)),
        DeValue::String(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => return None,
    };
    Some((value.span().start, message))
}

/// The offsets of the line ends of a text.
pub struct LineEnds(Vec<usize>);

impl LineEnds {
    /// Finds the line ends of `text`.
    pub fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line of a byte, counted from 1.
    pub fn line_of(&self, offset: usize) -> usize {
        self.0.partition_point(|end| *end < offset).saturating_add(1)
    }
}

/// Calls `leaf` for every key that is not a section, with its dotted name, value and offset.
fn visit_keys(table: &DeTable<'_>, prefix: &str, leaf: &mut impl FnMut(&str, &Spanned<DeValue<'_>>, usize)) {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{prefix}.{}", name.get_ref())
        };
        let start_of_section = format!("{key}.");
        let is_section = || settings().any(|setting| setting.key.starts_with(&start_of_section));
        match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() || is_section() => visit_keys(inner, &key, leaf),
            _ => leaf(&key, value, name.span().start),
        }
    }
}

fn parse_value(key: &str, value: &Spanned<DeValue<'_>>, origin: Origin) -> Result<SettingValue, String> {
    let Some(setting) = find(key) else {
        return Err(unknown_key(key));
    };
    let raw = raw(value.get_ref()).ok_or_else(|| setting.wrong_type())?;
    Ok(SettingValue {
        key: setting.key,
        raw,
        origin,
    })
}

/// The setting that `key` probably means: the one with exactly this key, or else the one with the most similar key.
fn probable_key(key: &str) -> Option<&'static str> {
    match find(key) {
        Some(setting) => Some(setting.key),
        None => nearest(key, settings().map(|setting| setting.key)),
    }
}

/// The message about an unknown key.
fn unknown_key(key: &str) -> String {
    match probable_key(key) {
        Some(meant) => format!("unknown key {key}: did you mean {meant}?"),
        None => format!("unknown key {key}: idsvc config reference lists the known ones"),
    }
}

fn raw(value: &DeValue<'_>) -> Option<RawValue> {
    match value {
        DeValue::String(text) => Some(RawValue::Text(text.to_string())),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(RawValue::Number),
        DeValue::Boolean(flag) => Some(RawValue::Flag(*flag)),
        DeValue::Array(values) => values
            .iter()
            .map(|value| match value.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(RawValue::List),
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}
