//! Holds what a check found, and prints all findings.

use serde::Serialize;
use serde_json::json;

use crate::cli::output::{CliError, Output};
use crate::cli::terminal_text::printable;

/// How serious a finding is.
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

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The kind of check.
    pub check: &'static str,
    /// The file, setting or record that was checked.
    pub subject: String,
    pub level: Level,
    pub message: String,
    /// The rule that it breaks.
    pub rule: Option<&'static str>,
    /// The remedy, for the operator.
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

    /// Something that could be better.
    pub(super) fn advice(
        check: &'static str,
        subject: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::good(check, subject, message).at_level(Level::Advice, remedy)
    }

    /// Something that must be corrected.
    pub(super) fn mend(
        check: &'static str,
        subject: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::good(check, subject, message).at_level(Level::Mend, remedy)
    }

    /// The finding with another level and a remedy.
    #[must_use]
    pub(super) fn at_level(self, level: Level, remedy: impl Into<String>) -> Self {
        Self {
            level,
            remedy: Some(remedy.into()),
            ..self
        }
    }

    /// The finding with the rule that it breaks.
    #[must_use]
    pub(super) fn by(self, rule: &'static str) -> Self {
        Self {
            rule: Some(rule),
            ..self
        }
    }
}

/// Prints the findings, those in order only with `all`. Returns an error if something must be corrected.
pub(super) fn show(findings: &[Finding], all: bool, output: &mut Output<'_>) -> Result<(), CliError> {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (good, advice, faults) = (count(Level::Good), count(Level::Advice), count(Level::Mend));
    let shown = if output.json {
        output.document(&json!({ "ok": faults == 0, "findings": findings }))
    } else {
        let count = format!("{good} in order, {advice} that could be better, {faults} to be mended");
        list(findings, all, output).and_then(|()| output.line(&count))
    };
    // Faults decide the exit code, even if the output cannot be written.
    if faults == 0 {
        return shown;
    }
    let things = if faults == 1 { "thing" } else { "things" };
    Err(CliError::refused(format!("{faults} {things} must be mended")))
}

fn list(findings: &[Finding], all: bool, output: &mut Output<'_>) -> Result<(), CliError> {
    let shown = [
        (Level::Mend, "MEND"),
        (Level::Advice, "advice"),
        (Level::Good, "good"),
    ];
    for (level, sign) in shown {
        if level == Level::Good && !all {
            continue;
        }
        for finding in findings.iter().filter(|finding| finding.level == level) {
            let rule = finding.rule.map(|rule| format!(" ({rule})")).unwrap_or_default();
            let Finding {
                check,
                subject,
                message,
                ..
            } = finding;
            output.line(&printable(&format!("{sign}  {check} {subject}: {message}{rule}")))?;
            if let Some(remedy) = &finding.remedy {
                output.line(&printable(&format!("      {remedy}")))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_text_on_a_line_of_its_own() {
        let says = "asks for \u{1b}[2J\u{9b}1A\n0 in order, \u{202e}dednem eb ot 0";
        let finding = Finding::advice("provider", "corp", says, "line\r\nline");
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        show(&[finding], false, &mut output).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "advice  provider corp: asks for \u{fffd}[2J\u{fffd}1A 0 in order, \u{fffd}dednem eb ot 0\n      \
             line\u{fffd} line\n0 in order, 1 that could be better, 0 to be mended\n"
        );
    }
}
