//! Findings: what is wrong with a theme, and whether it is still used.

use std::fmt;

use serde::Serialize;

/// The effect of a finding on the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A hint for the operator. The theme is used.
    Note,
    /// A fault that visitors notice, such as text that is hard to read. The theme is used.
    Fault,
    /// The page or the whole theme is not used, and the default theme replaces it. Or a language for all themes cannot be
    /// read, and is missing.
    Refused,
}

impl Severity {
    /// The name in output.
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
    /// Its effect.
    pub severity: Severity,
    /// The file, and the line if it is known: `login.html line 12`.
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

/// The number of the line at an offset of a text. The first line is 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
        .saturating_add(1)
}
