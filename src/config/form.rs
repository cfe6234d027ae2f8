//! The forms of settings: which values a setting takes, and how one is read.
//!
//! A form states its bounds and words once. The reader enforces them, and the schema shows them.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use super::duration::{LONGEST_DURATION, format_duration, parse_duration};
use super::source::RawValue;

/// Which values a setting takes.
pub trait Form: Sync {
    type Value;

    /// What there is to say of the values without their type.
    fn shape(&self) -> Shape;

    fn read(&self, raw: &RawValue) -> Result<Self::Value, Problem>;
}

/// A [`Form`] whose type of values does not matter.
pub trait AnyForm: Sync {
    /// What there is to say of the values without their type.
    fn shape(&self) -> Shape;

    fn check(&self, raw: &RawValue) -> Result<(), Problem>;
}

impl<F: Form> AnyForm for F {
    fn shape(&self) -> Shape {
        Form::shape(self)
    }

    fn check(&self, raw: &RawValue) -> Result<(), Problem> {
        self.read(raw).map(drop)
    }
}

/// What there is to say of the values of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A string.
    Text,
    Words(Vec<&'static str>),
    /// A whole number.
    Number {
        least: u64,
        most: u64,
    },
    /// A span of time: `"24h"`, `"90d"`, `"60s"`, `"30m"`.
    Time {
        /// The bounds, as in `1h to 30d`; none if there are none.
        bounds: Option<String>,
        /// Whether `"off"` is a value too.
        takes_off: bool,
    },
    /// `true` or `false`.
    Flag,
    /// Several strings; comma-separated in the environment.
    List {
        /// The words that the items can be, if they are not free.
        words: Option<&'static [&'static str]>,
    },
}

impl Shape {
    /// The type in the words of a message.
    pub(super) fn wanted(&self) -> &'static str {
        match self {
            Self::Text | Self::Words(_) => "a string",
            Self::Number { .. } => "a whole number",
            Self::Time { .. } => "a time with its unit, such as \"24h\", \"90d\", \"30m\" or \"60s\"",
            Self::Flag => "true or false",
            Self::List { .. } => "a list of strings",
        }
    }
}

/// Why a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It has another type.
    Mistyped,
    /// It is an empty text.
    Empty,
    /// Messages that continue after the key.
    Wrong(Vec<String>),
}

/// A message that continues after the key and the value. It begins with a verb or with a colon.
fn after_value(text: &str, problem: &str) -> String {
    let gap = if problem.starts_with(':') { "" } else { " " };
    format!(" = {text:?}{gap}{problem}")
}

fn wrong(text: &str, problem: &str) -> Problem {
    Problem::Wrong(vec![after_value(text, problem)])
}

fn text_of(raw: &RawValue) -> Result<&str, Problem> {
    match raw {
        RawValue::Text(text) | RawValue::Untyped(text) if text.trim().is_empty() => Err(Problem::Empty),
        RawValue::Text(text) | RawValue::Untyped(text) => Ok(text),
        RawValue::Number(_) | RawValue::Flag(_) | RawValue::List(_) => Err(Problem::Mistyped),
    }
}

/// A text that is not empty.
pub struct Text;

impl Form for Text {
    type Value = String;

    fn shape(&self) -> Shape {
        Shape::Text
    }

    fn read(&self, raw: &RawValue) -> Result<String, Problem> {
        text_of(raw).map(ToOwned::to_owned)
    }
}

/// A text that a function parses. Its error continues the message after the key and the value: `is no address`, or
/// `: name an address`.
pub struct Parsed<T>(pub fn(&str) -> Result<T, String>);

impl<T> Form for Parsed<T> {
    type Value = T;

    fn shape(&self) -> Shape {
        Shape::Text
    }

    fn read(&self, raw: &RawValue) -> Result<T, Problem> {
        let text = text_of(raw)?;
        (self.0)(text).map_err(|problem| wrong(text, &problem))
    }
}

/// The path of a file or folder.
pub struct File;

impl Form for File {
    type Value = PathBuf;

    fn shape(&self) -> Shape {
        Shape::Text
    }

    fn read(&self, raw: &RawValue) -> Result<PathBuf, Problem> {
        let text = text_of(raw)?;
        if text == "~" || text.starts_with("~/") {
            return Err(wrong(text, ": only a shell expands ~, write the path out"));
        }
        Ok(PathBuf::from(text))
    }
}

/// One of these words, with what each means.
pub struct Words<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: PartialEq> Words<T> {
    pub(super) fn word(&self, value: &T) -> Option<&'static str> {
        let found = self.0.iter().find(|(_, known)| known == value);
        found.map(|(word, _)| *word)
    }
}

impl<T: Copy + Sync> Form for Words<T> {
    type Value = T;

    fn shape(&self) -> Shape {
        Shape::Words(self.0.iter().map(|(word, _)| *word).collect())
    }

    fn read(&self, raw: &RawValue) -> Result<T, Problem> {
        let text = text_of(raw)?;
        if let Some((_, value)) = self.0.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let known: Vec<_> = self.0.iter().map(|(word, _)| *word).collect();
        let problem = format!("is unknown: the known ones are {}", known.join(", "));
        Err(wrong(text, &problem))
    }
}

/// A whole number.
pub struct Number<T> {
    least: u64,
    most: u64,
    value: PhantomData<fn() -> T>,
}

impl<T> Number<T> {
    /// A number between these two, which are allowed themselves.
    pub(super) const fn within(least: u64, most: u64) -> Self {
        let value = PhantomData;
        Self { least, most, value }
    }
}

impl<T: TryFrom<u64>> Form for Number<T> {
    type Value = T;

    fn shape(&self) -> Shape {
        let (least, most) = (self.least, self.most);
        Shape::Number { least, most }
    }

    fn read(&self, raw: &RawValue) -> Result<T, Problem> {
        let number = match raw {
            RawValue::Number(number) => u64::try_from(*number).ok(),
            RawValue::Untyped(text) => text.trim().parse().ok(),
            RawValue::Text(_) | RawValue::Flag(_) | RawValue::List(_) => None,
        };
        let number = number.ok_or(Problem::Mistyped)?;
        if (self.least..=self.most).contains(&number)
            && let Ok(value) = T::try_from(number)
        {
            return Ok(value);
        }
        let message = format!(" must be {} to {}", self.least, self.most);
        Err(Problem::Wrong(vec![message]))
    }
}

/// A span of time.
pub struct Time {
    least: Duration,
    most: Duration,
    is_in_whole_days: bool,
}

const DAY: Duration = Duration::from_hours(24);

impl Time {
    pub(super) const fn any() -> Self {
        Self::at_least(Duration::ZERO)
    }

    pub(super) const fn at_least(least: Duration) -> Self {
        Self::within(least, LONGEST_DURATION)
    }

    /// A time between these two, which are allowed themselves.
    pub(super) const fn within(least: Duration, most: Duration) -> Self {
        Self {
            least,
            most,
            is_in_whole_days: false,
        }
    }

    pub(super) const fn in_whole_days(self) -> Self {
        Self {
            is_in_whole_days: true,
            ..self
        }
    }

    fn bounds(&self) -> Option<String> {
        let least = format_duration(self.least);
        let days = if self.is_in_whole_days {
            " in whole days"
        } else {
            ""
        };
        if self.most < LONGEST_DURATION {
            return Some(format!("{least} to {}{days}", format_duration(self.most)));
        }
        (!self.least.is_zero()).then(|| format!("at least {least}{days}"))
    }

    fn read_duration(&self, raw: &RawValue, takes_off: bool) -> Result<Duration, Problem> {
        let (RawValue::Text(text) | RawValue::Untyped(text)) = raw else {
            return Err(Problem::Mistyped);
        };
        let says = |message: String| Problem::Wrong(vec![message]);
        let duration = match parse_duration(text) {
            Some(duration) => duration,
            None if text == "off" => return Err(says(" cannot be off".to_owned())),
            None => return Err(Problem::Mistyped),
        };
        let is_whole = !self.is_in_whole_days || duration.as_secs().is_multiple_of(DAY.as_secs());
        if is_whole && (self.least..=self.most).contains(&duration) {
            return Ok(duration);
        }
        if duration > LONGEST_DURATION {
            return Err(says(" is more than a hundred years".to_owned()));
        }
        let bounds = self.bounds().unwrap_or_default();
        let off = if takes_off { ", or off" } else { "" };
        Err(says(format!(" must be {bounds}{off}")))
    }
}

impl Form for Time {
    type Value = Duration;

    fn shape(&self) -> Shape {
        Shape::Time {
            bounds: self.bounds(),
            takes_off: false,
        }
    }

    fn read(&self, raw: &RawValue) -> Result<Duration, Problem> {
        self.read_duration(raw, false)
    }
}

/// A span of time, or `off`, which is read as `None`.
pub struct TimeOrOff(pub Time);

impl Form for TimeOrOff {
    type Value = Option<Duration>;

    fn shape(&self) -> Shape {
        Shape::Time {
            bounds: self.0.bounds(),
            takes_off: true,
        }
    }

    fn read(&self, raw: &RawValue) -> Result<Option<Duration>, Problem> {
        match raw {
            RawValue::Text(text) | RawValue::Untyped(text) if text == "off" => Ok(None),
            _ => self.0.read_duration(raw, true).map(Some),
        }
    }
}

/// `true` or `false`.
pub struct Flag;

impl Form for Flag {
    type Value = bool;

    fn shape(&self) -> Shape {
        Shape::Flag
    }

    fn read(&self, raw: &RawValue) -> Result<bool, Problem> {
        match raw {
            RawValue::Flag(flag) => Ok(*flag),
            RawValue::Untyped(text) => text.parse().map_err(|_| Problem::Mistyped),
            RawValue::Text(_) | RawValue::Number(_) | RawValue::List(_) => Err(Problem::Mistyped),
        }
    }
}

/// A list whose items a function parses. Its errors are those of [`Parsed`].
pub struct List<T> {
    parse: fn(&str) -> Result<T, String>,
    words: Option<&'static [&'static str]>,
}

impl List<String> {
    /// A list of texts that may be anything.
    pub(super) const fn of_texts() -> Self {
        Self::of(|text| Ok(text.to_owned()))
    }

    pub(super) const fn of_words(words: &'static [&'static str]) -> Self {
        Self {
            words: Some(words),
            ..Self::of_texts()
        }
    }
}

impl<T> List<T> {
    pub(super) const fn of(parse: fn(&str) -> Result<T, String>) -> Self {
        Self { parse, words: None }
    }

    fn item(&self, text: &str) -> Result<T, String> {
        match self.words {
            Some(words) if !words.contains(&text) => Err(format!(": the values are {}", words.join(", "))),
            _ => (self.parse)(text),
        }
    }
}

impl<T> Form for List<T> {
    type Value = Vec<T>;

    fn shape(&self) -> Shape {
        Shape::List { words: self.words }
    }

    fn read(&self, raw: &RawValue) -> Result<Vec<T>, Problem> {
        let mut messages = Vec::new();
        let texts: Vec<&str> = match raw {
            RawValue::List(items) => items.iter().map(String::as_str).collect(),
            RawValue::Untyped(text) => {
                let items: Vec<&str> = text.split(',').map(str::trim).collect();
                let is_nothing = |item: &&str| item.is_empty();
                if items.len() > 1 && items.iter().any(is_nothing) {
                    let problem = "has nothing beside a comma: take the comma away, or name what is missing";
                    messages.push(after_value(text, problem));
                }
                items.into_iter().filter(|item| !item.is_empty()).collect()
            }
            RawValue::Text(_) | RawValue::Number(_) | RawValue::Flag(_) => return Err(Problem::Mistyped),
        };
        let mut values = Vec::new();
        for text in texts {
            match self.item(text) {
                Ok(value) => values.push(value),
                Err(problem) => messages.push(after_value(text, &problem)),
            }
        }
        if messages.is_empty() {
            Ok(values)
        } else {
            Err(Problem::Wrong(messages))
        }
    }
}
