//! What was given: by flags, by the environment, by the file. Names are checked here, values are not.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Fault;
use super::reference::{self, Kind, SETTINGS, Setting};

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raw {
    /// A string, or anything from the environment or a flag.
    Text(String),
    /// A number.
    Number(i64),
    /// A truth value.
    Flag(bool),
    /// Several strings.
    List(Vec<String>),
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag of the command line.
    Flag(String),
    /// An environment variable.
    Environment(String),
    /// A line of the file.
    File(PathBuf, usize),
    /// Nowhere: it is the default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Environment(name) => f.write_str(name),
            Self::File(path, line) => write!(f, "{} line {line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The key.
    pub key: &'static str,
    /// The value.
    pub raw: Raw,
    /// Its place.
    pub origin: Origin,
}

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The values.
    pub given: Vec<Given>,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// The keys that it may be meant to set and whose values are not known for a fault: nothing follows from
    /// their absence.
    pub unread: Vec<&'static str>,
}

impl Parsed {
    /// A file of which nothing is known but what is wrong with it.
    pub fn unreadable(faults: Vec<Fault>) -> Self {
        Self {
            given: Vec::new(),
            faults,
            unread: SETTINGS.iter().map(|setting| setting.key).collect(),
        }
    }
}

/// Reads the text of a file; every fault of syntax, name and type at once.
pub fn parse(text: &str, path: &Path) -> Parsed {
    let table = match table_of(text) {
        Ok(table) => table,
        Err(BadSyntax {
            line,
            column,
            message,
        }) => {
            return Parsed::unreadable(vec![Fault {
                place: format!("{} column {column}", place(path, line)),
                message,
            }]);
        }
    };
    let (mut parsed, ends) = (Parsed::default(), LineEnds::of(text));
    walk(&table, "", &mut |key, value, start| {
        let line = ends.line_of(start);
        match known(key, value, Origin::File(path.to_owned(), line)) {
            Ok(value) => parsed.given.push(value),
            Err(message) => {
                parsed.unread.extend(meant(key));
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

/// Where a text stops being TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSyntax {
    /// The line, from 1 on.
    pub line: usize,
    /// The column, in characters from 1 on.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}

/// The text as TOML, or its first fault: those after it often follow from it, and a file that is none has one on
/// each line.
pub fn table_of(text: &str) -> Result<DeTable<'_>, BadSyntax> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let start = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
    match errors.iter().min_by_key(|error| start(error)) {
        Some(first) => Err(BadSyntax::at(start(first), text, first.message().to_owned())),
        None => match table.get_ref().values().find_map(|value| unfit(value, text)) {
            Some((offset, message)) => Err(BadSyntax::at(offset, text, message)),
            None => Ok(table.into_inner()),
        },
    }
}

impl BadSyntax {
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

/// Where a number begins that is none here, and why: one beyond 64 bits is an error (TOML 1.0.0, section Integer), and
/// neither a setting nor a record is without end or no number.
fn unfit(value: &Spanned<DeValue<'_>>, text: &str) -> Option<(usize, String)> {
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
        DeValue::Array(values) => return values.iter().find_map(|value| unfit(value, text)),
        DeValue::Table(members) => return members.values().find_map(|value| unfit(value, text)),
        DeValue::String(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => return None,
    };
    Some((value.span().start, message))
}

/// Where the lines of a text end, for a text of which many places are named.
pub struct LineEnds(Vec<usize>);

impl LineEnds {
    /// Looks for them once.
    pub fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line that a byte is in, from 1 on.
    pub fn line_of(&self, offset: usize) -> usize {
        self.0.partition_point(|end| *end < offset).saturating_add(1)
    }
}

/// Calls `leaf` for every key that is no section, with its dotted name and where it begins.
fn walk(table: &DeTable<'_>, prefix: &str, leaf: &mut impl FnMut(&str, &Spanned<DeValue<'_>>, usize)) {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{prefix}.{}", name.get_ref())
        };
        let is_section = SETTINGS.iter().any(|setting| {
            setting
                .key
                .strip_prefix(key.as_str())
                .is_some_and(|rest| rest.starts_with('.'))
        });
        match value.get_ref() {
            DeValue::Table(inner) if is_section => walk(inner, &key, leaf),
            DeValue::Table(inner) if !inner.is_empty() => walk(inner, &key, leaf),
            _ => leaf(&key, value, name.span().start),
        }
    }
}

fn known(key: &str, value: &Spanned<DeValue<'_>>, origin: Origin) -> Result<Given, String> {
    let Some(setting) = reference::find(key) else {
        return Err(unknown(key));
    };
    let raw = raw(value.get_ref()).ok_or_else(|| wrong_type(setting))?;
    Ok(Given {
        key: setting.key,
        raw,
        origin,
    })
}

/// The setting of that key, or the one that was probably meant.
fn meant(key: &str) -> Option<&'static str> {
    match reference::find(key) {
        Some(setting) => Some(setting.key),
        None => reference::nearest(key, SETTINGS.iter().map(|setting| setting.key)),
    }
}

/// The sentence about a key that does not exist.
fn unknown(key: &str) -> String {
    match meant(key) {
        Some(meant) => format!("unknown key {key}: did you mean {meant}?"),
        None => format!("unknown key {key}: idsvc config reference lists the known ones"),
    }
}

/// The sentence about a value of another form than the setting's.
pub(super) fn wrong_type(setting: &Setting) -> String {
    let wanted = match setting.kind {
        Kind::Text => "a string",
        Kind::Number => "a whole number",
        Kind::Duration => "a time with its unit, such as \"24h\", \"90d\", \"30m\" or \"60s\"",
        Kind::Flag => "true or false",
        Kind::List => "a list of strings",
    };
    format!(
        "{} must be {wanted}, as in {} = {}",
        setting.key, setting.key, setting.example
    )
}

fn raw(value: &DeValue<'_>) -> Option<Raw> {
    match value {
        DeValue::String(text) => Some(Raw::Text(text.to_string())),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(Raw::Number),
        DeValue::Boolean(flag) => Some(Raw::Flag(*flag)),
        DeValue::Array(values) => values
            .iter()
            .map(|value| match value.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()
            .map(Raw::List),
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

/// The default of a setting, from the table.
pub(super) fn default_of(setting: &Setting) -> Option<Raw> {
    let value = DeValue::parse(setting.default?).ok()?;
    raw(value.get_ref())
}

/// Reads the environment. A variable that begins with `IDSVC_` and sets nothing is returned as a warning,
/// not as a fault: orchestrators inject such names for services that are called so.
pub fn from_environment(variables: &[(String, String)]) -> (Vec<Given>, Vec<String>) {
    let mut given = Vec::new();
    let mut warnings = Vec::new();
    for (name, value) in variables.iter().filter(|(name, _)| name.starts_with("IDSVC_")) {
        match SETTINGS.iter().find(|setting| setting.env_name() == *name) {
            Some(setting) => given.push(Given {
                key: setting.key,
                raw: Raw::Text(value.clone()),
                origin: Origin::Environment(name.clone()),
            }),
            None if name == super::CONFIG_VARIABLE => {}
            None => {
                let names: Vec<String> = SETTINGS.iter().map(Setting::env_name).collect();
                warnings.push(match reference::nearest(name, names.iter().map(String::as_str)) {
                    Some(meant) => format!("{name} sets nothing: did you mean {meant}?"),
                    None => format!("{name} sets nothing"),
                });
            }
        }
    }
    (given, warnings)
}
