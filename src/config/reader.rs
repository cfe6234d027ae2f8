//! Hands out what was given, one value after another, and keeps every fault.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::file::{Origin, Raw, default_of, wrong_type};
use super::reference::{self, Setting};
use super::{ConfigError, Fault, Sources};

/// A hundred years: far enough for everybody, and no date after it overflows.
pub const LONGEST: Duration = Duration::from_hours(24 * 36_525);

/// Hands out values and keeps the faults. A value that is wrong is replaced by a harmless one, so that the
/// next fault is found too; it never gets out, for then there is a fault.
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

    pub(super) fn given(&self, key: &str) -> Option<(Raw, Origin)> {
        self.sources
            .given
            .iter()
            .find(|given| given.key == key)
            .map(|given| (given.raw.clone(), given.origin.clone()))
    }

    pub(super) fn raw(&self, key: &str) -> Option<(Raw, Origin)> {
        self.given(key)
            .or_else(|| Some((default_of(reference::find(key)?)?, Origin::Default)))
    }

    pub(super) fn fault(&mut self, origin: &Origin, message: impl Into<String>) {
        self.faults.push(Fault {
            place: origin.to_string(),
            message: message.into(),
        });
    }

    pub(super) fn mistyped(&mut self, key: &str, origin: &Origin) {
        if let Some(setting) = reference::find(key) {
            self.fault(origin, wrong_type(setting));
        }
    }

    /// Whether the file may say something about this key that could not be read.
    pub(super) fn is_unread(&self, key: &str) -> bool {
        self.sources.unread.contains(&key) && self.given(key).is_none()
    }

    pub(super) fn missing(&mut self, key: &str, why: &str) {
        if self.is_unread(key) {
            return;
        }
        let env = reference::find(key).map(Setting::env_name).unwrap_or_default();
        let flag = reference::find(key).map(Setting::flag_name).unwrap_or_default();
        self.faults.push(Fault {
            place: key.to_owned(),
            message: format!("{why}: set {key} in the file, {env} or {flag}"),
        });
    }

    pub(super) fn text(&mut self, key: &str) -> Option<(String, Origin)> {
        match self.raw(key)? {
            (Raw::Text(text), origin) if !text.trim().is_empty() => Some((text, origin)),
            (Raw::Text(_), origin) => {
                let example = reference::find(key).map_or("", |setting| setting.example);
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
                format!("{key} = {text:?}: nobody but a shell knows what ~ is, write the path out"),
            );
            return None;
        }
        Some((PathBuf::from(text), origin))
    }

    /// A text that `T` can be read from.
    pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(&mut self, key: &str) -> Option<T> {
        let (text, origin) = self.text(key)?;
        text.parse()
            .map_err(|error| self.fault(&origin, format!("{key} = {text:?}: {error}")))
            .ok()
    }

    /// One of a few words.
    pub(super) fn word(&mut self, key: &str, known: &[&'static str]) -> Option<&'static str> {
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
        match self.raw(key) {
            Some((Raw::List(items), origin)) => (items, origin),
            Some((Raw::Text(text), origin)) if !matches!(origin, Origin::File(..)) => {
                let items: Vec<&str> = text.split(',').map(str::trim).collect();
                let said: Vec<String> = items
                    .iter()
                    .filter(|item| !item.is_empty())
                    .map(|item| (*item).to_owned())
                    .collect();
                if items.len() > 1 && said.len() < items.len() {
                    self.fault(
                        &origin,
                        format!("{key} = {text:?} has nothing beside a comma: take the comma away, or name what is missing"),
                    );
                }
                (said, origin)
            }
            Some((_, origin)) => {
                self.mistyped(key, &origin);
                (Vec::new(), origin)
            }
            None => (Vec::new(), Origin::Default),
        }
    }

    pub(super) fn flag(&mut self, key: &str) -> bool {
        match self.raw(key) {
            Some((Raw::Flag(flag), _)) => flag,
            Some((Raw::Text(text), origin)) if !matches!(origin, Origin::File(..)) => match text.as_str() {
                "true" => true,
                "false" => false,
                _ => {
                    self.mistyped(key, &origin);
                    false
                }
            },
            Some((_, origin)) => {
                self.mistyped(key, &origin);
                false
            }
            None => false,
        }
    }

    fn number(&mut self, key: &str) -> Option<(u64, Origin)> {
        let (raw, origin) = self.raw(key)?;
        let number = match &raw {
            Raw::Number(number) => u64::try_from(*number).ok(),
            Raw::Text(text) if !matches!(origin, Origin::File(..)) => text.trim().parse().ok(),
            Raw::Text(_) | Raw::Flag(_) | Raw::List(_) => None,
        };
        if number.is_none() {
            self.mistyped(key, &origin);
        }
        Some((number?, origin))
    }

    /// A number of the range: where what is given is none, that is said, and it is the least.
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

    /// A span of time, or nothing for `off`.
    pub(super) fn duration_or_off(&mut self, key: &str) -> Option<(Duration, Origin)> {
        let (raw, origin) = self.raw(key)?;
        let duration = match &raw {
            Raw::Text(text) if text == "off" => return None,
            Raw::Text(text) => parse_duration(text),
            Raw::Number(_) | Raw::Flag(_) | Raw::List(_) => None,
        };
        match duration {
            Some(duration) if duration <= LONGEST => Some((duration, origin)),
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

    /// A span of time, from `least` on.
    pub(super) fn duration(&mut self, key: &str, least: Duration) -> Duration {
        let before = self.faults.len();
        match self.duration_or_off(key) {
            Some((duration, _)) if duration >= least => duration,
            Some((_, origin)) => {
                self.fault(&origin, format!("{key} must be at least {}", written(least)));
                least
            }
            None => {
                if self.faults.len() == before
                    && let Some((_, origin)) = self.raw(key)
                {
                    self.fault(&origin, format!("{key} cannot be off"));
                }
                least
            }
        }
    }
}

/// Reads `24h`, `90d`, `30m` or `60s`. A number without a unit is none: whoever writes 24 rarely means seconds.
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

/// A span of time as [`parse_duration`] reads it, in the largest unit that holds it whole.
pub fn written(span: Duration) -> String {
    let seconds = span.as_secs();
    let (unit, name) = [(24 * 60 * 60, "d"), (60 * 60, "h"), (60, "m")]
        .into_iter()
        .find(|(unit, _)| seconds != 0 && seconds.is_multiple_of(*unit))
        .unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}
