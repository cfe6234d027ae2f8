//! What is wrong with a theme, and what becomes of it.

use std::fmt;

use serde::Serialize;

/// What a finding means for the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something to know. The theme is used.
    Note,
    /// A fault that visitors will meet, such as text that is hard to read. The theme is used.
    Fault,
    /// The page, or the whole theme, cannot be used, and the default theme stands in; or a language for all themes
    /// cannot be read, and is missing.
    Refused,
}

impl Severity {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Fault => "fault",
            Self::Refused => "refused",
        }
    }
}

/// One thing that is wrong with a theme.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// What it means.
    pub severity: Severity,
    /// The file, and the line where there is one: `login.html line 12`.
    pub place: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Finding {
    /// A finding about a file as a whole.
    pub fn new(severity: Severity, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity,
            place: place.into(),
            message: message.into(),
        }
    }

    /// A finding that keeps a theme or page from being used.
    pub fn refused(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Refused, place, message)
    }

    /// A finding about a line.
    pub fn at_line(severity: Severity, file: &str, line: usize, message: impl Into<String>) -> Self {
        Self::new(severity, format!("{file} line {line}"), message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// The number of the line, from one, in which a place of a text lies.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
        .saturating_add(1)
}
