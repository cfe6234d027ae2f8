//! Claims that may have more than one form.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::clock::Timestamp;

/// `aud`: one value or several (RFC 7519 section 4.1.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    /// A text.
    One(String),
    /// A list.
    Several(Vec<String>),
}

impl Audience {
    /// The audience of these values. A single value is serialized as a string.
    pub fn of(mut values: Vec<String>) -> Self {
        match values.pop() {
            Some(only) if values.is_empty() => Self::One(only),
            last => {
                values.extend(last);
                Self::Several(values)
            }
        }
    }

    pub fn contains(&self, value: &str) -> bool {
        self.values().iter().any(|mine| mine == value)
    }

    pub fn values(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Several(values) => values,
        }
    }
}

/// Seconds since the epoch, perhaps with a fraction (RFC 7519 section 2).
#[derive(Deserialize)]
#[serde(untagged)]
enum NumericDate {
    Whole(u64),
    Fraction(f64),
}

/// Reads a `NumericDate`. Fractions of a second are dropped. Times before the epoch are refused.
pub fn numeric_date<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    match NumericDate::deserialize(deserializer)? {
        NumericDate::Whole(seconds) => Ok(Timestamp::from_seconds(seconds)),
        NumericDate::Fraction(seconds) => Duration::try_from_secs_f64(seconds)
            .map(|since_epoch| Timestamp::from_seconds(since_epoch.as_secs()))
            .map_err(serde::de::Error::custom),
    }
}

/// The same for an optional claim. `null` is refused.
pub fn optional_numeric_date<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    numeric_date(deserializer).map(Some)
}
