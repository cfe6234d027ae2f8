//! Reads a TOML file of a theme, and reports faults with their lines.

use serde::Deserialize;
use toml::Spanned;

use super::finding::{Finding, Severity, line_of};

/// Reads one file and collects its faults.
pub(super) struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    faults: Vec<Finding>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            faults: Vec::new(),
        }
    }

    pub(super) fn fault(&mut self, offset: usize, message: impl Into<String>) {
        let line = line_of(self.text, offset);
        self.faults
            .push(Finding::at_line(Severity::Refused, self.file, line, message));
    }

    pub(super) fn parse<T: for<'de> Deserialize<'de>>(&mut self) -> Option<T> {
        toml::from_str(self.text)
            .map_err(|error| {
                let offset = error.span().map_or(0, |span| span.start);
                self.fault(offset, error.message());
            })
            .ok()
    }

    /// The value, or the faults if there are any.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Vec<Finding>> {
        if self.faults.is_empty() {
            Ok(value)
        } else {
            Err(self.faults)
        }
    }

    /// The text if it is present and valid. An invalid text is a fault.
    pub(super) fn checked(
        &mut self,
        value: Option<Spanned<String>>,
        is_valid: impl Fn(&str) -> bool,
        wanted: &str,
    ) -> Option<String> {
        let value = value?;
        let offset = value.span().start;
        let value = value.into_inner();
        if is_valid(&value) {
            return Some(value);
        }
        self.fault(offset, format!("{value:?} is not {wanted}"));
        None
    }
}
