//! What was found of one thing, and what to do about it.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    /// In order.
    Good,
    /// It could be better.
    Advice,
    /// Something must be done.
    Mend,
}

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What kind of thing.
    pub check: &'static str,
    /// Which one.
    pub subject: String,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub message: String,
    /// Which rule it breaks.
    pub rule: Option<&'static str>,
    /// What to do.
    pub remedy: Option<String>,
}

impl Finding {
    /// Something that is in order.
    pub(super) fn good(check: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            check,
            subject: subject.into(),
            level: Level::Good,
            message: message.into(),
            rule: None,
            remedy: None,
        }
    }

    /// The same as something that is not.
    #[must_use]
    pub(super) fn but(self, level: Level, remedy: impl Into<String>) -> Self {
        Self {
            level,
            remedy: Some(remedy.into()),
            ..self
        }
    }

    /// The same with the rule that it breaks.
    #[must_use]
    pub(super) fn by(self, rule: &'static str) -> Self {
        Self {
            rule: Some(rule),
            ..self
        }
    }
}
