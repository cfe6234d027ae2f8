//! Reads single settings from the sources and collects all faults.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::file::{Origin, RawValue, default_of, wrong_type};
use super::reference::Setting;
use super::setting_names::find;
use super::{ConfigError, Fault, Sources};

/// The longest span of time: a hundred years, so that no date overflows.
pub const LONGEST_DURATION: Duration = Duration::from_hours(24 * 36_525);

/// Reads values and collects faults. A wrong value is replaced by a harmless one, so that further faults are found. The
/// harmless value is never used, because a fault fails the whole configuration.
pub(super) struct Reader<'a> {
    pub(super) sources: &'a Sources,
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Fault>,
}

impl<'a> Reader<'a> {
    pub(super) fn of(sources: &'a Sources) -> Self {
        Self {
            sources,
            faults: sources.faults.clone(),
            warnings: Vec::new(),
        }
    }

    pub(super) fn finish<T>(self, value: T) -> Result<T, ConfigError> {
        if self.faults.is_empty() {
            Ok(value)
        } else {
            Err(ConfigError { faults: self.faults })
        }
    }

    /// The value that a flag, the environment or the file sets.
    pub(super) fn explicit(&self, key: &str) -> Option<(RawValue, Origin)> {
        self.sources
            .values
            .iter()
            .find(|setting| setting.key == key)
            .map(|setting| (setting.raw.clone(), setting.origin.clone()))
    }

    /// The value that is set, or the default.
    pub(super) fn value(&self, key: &str) -> Option<(RawValue, Origin)> {
        self.explicit(key)
            .or_else(|| Some((default_of(find(key)?)?, Origin::Default)))
    }

    pub(super) fn fault(&mut self, origin: &Origin, message: impl Into<String>) {
        self.faults.push(Fault {
            place: origin.to_string(),
            message: message.into(),
        });
    }

    /// Reports a fault where this key is set.
    pub(super) fn fault_at(&mut self, key: &str, message: impl Into<String>) {
        if let Some((_, origin)) = self.value(key) {
            self.fault(&origin, message);
        }
    }

    pub(super) fn mistyped(&mut self, key: &str, origin: &Origin) {
        if let Some(setting) = find(key) {
            self.fault(origin, wrong_type(setting));
        }
    }

    /// Whether the file may set this key to a value that could not be read.
    pub(super) fn is_unread(&self, key: &str) -> bool {
        self.sources.unread.contains(&key) && self.explicit(key).is_none()
    }

    pub(super) fn missing(&mut self, key: &str, why: &str) {
        if self.is_unread(key) {
            return;
        }
        let env = find(key).map(Setting::env_name).unwrap_or_default();
        let flag = find(key).map(Setting::flag_name).unwrap_or_default();
        self.faults.push(Fault {
            place: key.to_owned(),
            message: format!("{why}: set {key} in the file, {env} or {flag}"),
        });
    }

    pub(super) fn text(&mut self, key: &str) -> Option<(String, Origin)> {
        match self.value(key)? {
            (RawValue::Text(text), origin) if !text.trim().is_empty() => Some((text, origin)),
            (RawValue::Text(_), origin) => {
                let example = find(key).map_or("", |setting| setting.example);
                self.fault(&origin, format!("{key} is empty: give a value, as in {example}"));
                None
            }
            (_, origin) => {
                self.mistyped(key, &origin);
                None
            }
        }
    }

    /// The path of a file or folder.
    pub(super) fn path(&mut self, key: &str) -> Option<(PathBuf, Origin)> {
        let (text, origin) = self.text(key)?;
        if text == "~" || text.starts_with("~/") {
            self.fault(
                &origin,
                format!("{key} = {text:?}: only a shell expands ~, write the path out"),
            );
            return None;
        }
        Some((PathBuf::from(text), origin))
    }

    /// A text that is parsed as `T`.
    pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(&mut self, key: &str) -> Option<T> {
        let (text, origin) = self.text(key)?;
        text.parse()
            .map_err(|error| self.fault(&origin, format!("{key} = {text:?}: {error}")))
            .ok()
    }

    /// One of the known words.
    pub(super) fn one_of(&mut self, key: &str, known: &[&'static str]) -> Option<&'static str> {
        let (text, origin) = self.text(key)?;
        let word = known.iter().find(|word| **word == text).copied();
        if word.is_none() {
            let known = known.join(", ");
            self.fault(
                &origin,
                format!("{key} = {text:?} is unknown: the known ones are {known}"),
            );
        }
        word
    }

    pub(super) fn list(&mut self, key: &str) -> (Vec<String>, Origin) {
        match self.value(key) {
            Some((RawValue::List(items), origin)) => (items, origin),
            Some((RawValue::Text(text), origin)) if !matches!(origin, Origin::File(..)) => {
                let items: Vec<&str> = text.split(',').map(str::trim).collect();
                let named: Vec<String> = items
                    .iter()
                    .filter(|item| !item.is_empty())
                    .map(|item| (*item).to_owned())
                    .collect();
                if items.len() > 1 && named.len() < items.len() {
                    self.fault(
                        &origin,
                        format!("{key} = {text:?} has nothing beside a comma: take the comma away, or name what is missing"),
                    );
                }
                (named, origin)
            }
            Some((_, origin)) => {
                self.mistyped(key, &origin);
                (Vec::new(), origin)
            }
            None => (Vec::new(), Origin::Default),
        }
    }

    pub(super) fn flag(&mut self, key: &str) -> bool {
        match self.value(key) {
            Some((RawValue::Flag(flag), _)) => flag,
            Some((RawValue::Text(text), origin)) if !matches!(origin, Origin::File(..)) => {
                match text.as_str() {
                    "true" => true,
                    "false" => false,
                    _ => {
                        self.mistyped(key, &origin);
                        false
                    }
                }
            }
            Some((_, origin)) => {
                self.mistyped(key, &origin);
                false
            }
            None => false,
        }
    }

    fn number(&mut self, key: &str) -> Option<(u64, Origin)> {
        let (raw, origin) = self.value(key)?;
        let number = match &raw {
            RawValue::Number(number) => u64::try_from(*number).ok(),
            RawValue::Text(text) if !matches!(origin, Origin::File(..)) => text.trim().parse().ok(),
            RawValue::Text(_) | RawValue::Flag(_) | RawValue::List(_) => None,
        };
        if number.is_none() {
            self.mistyped(key, &origin);
        }
        Some((number?, origin))
    }

    /// A number within `range`. Reports any other value, and returns the start of the range then.
    pub(super) fn number_within(&mut self, key: &str, range: std::ops::RangeInclusive<u64>) -> u64 {
        match self.number(key) {
            Some((number, _)) if range.contains(&number) => return number,
            Some((_, origin)) => self.fault(
                &origin,
                format!("{key} must be {} to {}", range.start(), range.end()),
            ),
            None => {}
        }
        *range.start()
    }

    /// A span of time; `None` for `off`.
    pub(super) fn duration_or_off(&mut self, key: &str) -> Option<(Duration, Origin)> {
        let (raw, origin) = self.value(key)?;
        let duration = match &raw {
            RawValue::Text(text) if text == "off" => return None,
            RawValue::Text(text) => parse_duration(text),
            RawValue::Number(_) | RawValue::Flag(_) | RawValue::List(_) => None,
        };
        match duration {
            Some(duration) if duration <= LONGEST_DURATION => Some((duration, origin)),
            Some(_) => {
                self.fault(&origin, format!("{key} is more than a hundred years"));
                None
            }
            None => {
                self.mistyped(key, &origin);
                None
            }
        }
    }

    /// A span of time of at least `least`.
    pub(super) fn duration(&mut self, key: &str, least: Duration) -> Duration {
        let before = self.faults.len();
        match self.duration_or_off(key) {
            Some((duration, _)) if duration >= least => duration,
            Some((_, origin)) => {
                self.fault(
                    &origin,
                    format!("{key} must be at least {}", format_duration(least)),
                );
                least
            }
            None => {
                if self.faults.len() == before {
                    self.fault_at(key, format!("{key} cannot be off"));
                }
                least
            }
        }
    }
}

/// Parses `24h`, `90d`, `30m` or `60s`. A number without a unit is refused: it would rarely mean seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (digits, unit) =
        text.split_at_checked(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))?;
    let number: u64 = digits.parse().ok()?;
    let seconds = match unit.trim() {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return None,
    };
    number.checked_mul(seconds).map(Duration::from_secs)
}

/// Formats a span of time for [`parse_duration`], in the largest unit without a remainder.
pub fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let (unit, name) = [(24 * 60 * 60, "d"), (60 * 60, "h"), (60, "m")]
        .into_iter()
        .find(|(unit, _)| seconds != 0 && seconds.is_multiple_of(*unit))
        .unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}
