//! What a command prints: one JSON document or a table on standard output, talk on standard error.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::Value;

use crate::admin::AdminRefusal;
use crate::clock::Timestamp;
use crate::oauth::fields::Form;
use crate::server::StartError;

/// How the standard library ends the text of `EMFILE`.
const TOO_MANY_FILES: &str = "(os error 24)";

/// Why a command ended without doing what it was asked.
#[derive(Debug)]
pub enum CliError {
    /// It was refused or failed: exit code 1.
    Refused {
        /// Why.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// It was typed wrongly: exit code 2.
    Misused(String),
    /// Nobody reads the output any more.
    BrokenPipe,
    /// The output cannot be written: exit code 1.
    Unwritable(io::Error),
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { message, .. } | Self::Misused(message) => f.write_str(message),
            Self::BrokenPipe => f.write_str("nobody reads the output"),
            Self::Unwritable(error) => write!(f, "standard output cannot be written to: {error}"),
        }
    }
}

impl CliError {
    /// A refusal without a hint.
    #[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
    pub fn refused(message: impl ToString) -> Self {
        Self::Refused {
            message: message.to_string(),
            hint: None,
        }
    }
}

impl From<AdminRefusal> for CliError {
    fn from(refusal: AdminRefusal) -> Self {
        Self::Refused {
            message: refusal.message,
            hint: refusal.hint,
        }
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        Self::Refused {
            message: error.message,
            hint: error.hint,
        }
    }
}

/// What comes of writing to standard output.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Unwritable(error),
        }
    }
}

/// Where output goes and in which form.
pub struct Output<'a> {
    /// Whether standard output gets JSON.
    pub json: bool,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

impl Output<'_> {
    /// Prints the one JSON document of a command.
    pub fn document(&mut self, document: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(document).map_err(CliError::refused)?;
        writeln!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }

    /// Refuses `--json` for what is text by its nature and has no document.
    pub fn only_text(&self, what: &str) -> Result<(), CliError> {
        if self.json {
            return Err(CliError::Misused(format!(
                "{what} is text and no JSON document: leave out --json"
            )));
        }
        Ok(())
    }

    /// Prints a line for people, or several.
    pub fn line(&mut self, line: &str) -> Result<(), CliError> {
        self.exact(&harmless(line))
    }

    /// Prints what a program reads: as it is.
    pub fn exact(&mut self, text: &str) -> Result<(), CliError> {
        writeln!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }

    /// Prints a table for people; only its head when there are no rows.
    pub fn table<R: IntoIterator<Item = String>>(
        &mut self,
        head: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Result<(), CliError> {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(head);
        for row in rows {
            table.add_row(row.into_iter().map(|cell| printable(&cell)).collect::<Vec<_>>());
        }
        self.line(&table.trim_fmt())
    }

    /// Prints names and values, one pair on each line; pairs without a value are left out.
    pub fn facts(&mut self, facts: &[(&str, String)]) -> Result<(), CliError> {
        let shown = || facts.iter().filter(|(_, value)| !value.is_empty());
        let width = shown().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in shown() {
            let value = printable(value);
            writeln!(self.out, "{name:width$}  {value}")?;
        }
        Ok(self.out.flush()?)
    }

    /// Says something to people that is no result. Nobody is stopped by a closed standard error.
    pub fn say(&mut self, text: &str) {
        // At once, so that nothing comes between a line and its end.
        let _ = self.err.write_all(format!("{}\n", harmless(text)).as_bytes());
    }

    /// Says why a command ended.
    pub fn complain(&mut self, stop: &CliError) {
        let message = stop.to_string();
        for line in message.lines() {
            self.say(&format!("error: {line}"));
        }
        // Any file may be the one too many, and each error has only its text by now.
        if message.contains(TOO_MANY_FILES) {
            self.say("hint: raise the limit on open files (ulimit -n, LimitNOFILE=)");
        }
        if let CliError::Refused { hint: Some(hint), .. } = stop {
            self.say(&format!("hint: {hint}"));
        }
    }

    /// Says what to do next, unless a program is listening.
    pub fn hint(&mut self, text: &str) {
        if !self.json {
            self.say(text);
        }
    }

    /// Asks before something that cannot be undone. Without a terminal there is nobody to ask.
    pub fn confirm(&mut self, question: &str, yes: bool) -> Result<(), CliError> {
        if yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return Err(CliError::Misused(format!(
                "{question} Nobody is there to answer: add --yes to go on"
            )));
        }
        let _ = write!(self.err, "{} [y/N] ", printable(question));
        let _ = self.err.flush();
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map_err(CliError::refused)?;
        match answer.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(CliError::refused("nothing was changed")),
        }
    }
}

/// A text that is a part of a line, as a cell or what was found: without what a terminal would obey, and without an end
/// of a line, after which it could pass for something else.
pub fn printable(text: &str) -> String {
    harmless(text).replace('\n', " ")
}

/// Lines without what a terminal would obey: control characters, and those that turn the order of letters around
/// (Unicode Standard Annex #9 section 2).
fn harmless(text: &str) -> String {
    let is_obeyed = |c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.replace(is_obeyed, "\u{fffd}")
}

/// A moment as people read it, RFC 3339 in UTC.
pub fn moment(moment: Timestamp) -> String {
    moment.rfc3339()
}

/// The fields of a record as people read them, in the order of the list; lists in words.
pub fn field_facts(
    record: &impl Serialize,
    fields: &[(&'static str, Form)],
) -> Result<Vec<(&'static str, String)>, CliError> {
    let record = serde_json::to_value(record).map_err(CliError::refused)?;
    let fact = |(name, _): &(&'static str, Form)| (*name, record.get(name).map(in_words).unwrap_or_default());
    Ok(fields.iter().map(fact).collect())
}

/// A value as people read it: a list in words, a key by its name.
fn in_words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(flag) => yes_no(*flag),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(in_words).collect::<Vec<_>>().join(" "),
        Value::Object(jwk) if jwk.contains_key("kty") => {
            let name = jwk.get("kid").or_else(|| jwk.get("kty"));
            name.map(in_words).unwrap_or_default()
        }
        Value::Object(members) => {
            let pairs = members.iter().map(|(name, value)| format!("{name}={value}"));
            pairs.collect::<Vec<_>>().join(" ")
        }
    }
}

/// `yes` or `no`.
pub fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_ends_the_output_quietly() {
        let (mut out, mut err) = (Closed, Vec::new());
        let mut output = Output {
            json: false,
            out: &mut out,
            err: &mut err,
        };
        assert!(matches!(
            output.table(&["A"], [["x".to_owned()]]),
            Err(CliError::BrokenPipe)
        ));
        assert!(matches!(output.document(&1), Err(CliError::BrokenPipe)));
    }

    #[test]
    fn one_file_too_many_is_said_with_the_remedy() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output {
            json: false,
            out: &mut out,
            err: &mut err,
        };
        let error = io::Error::from(rustix::io::Errno::MFILE);
        output.complain(&CliError::refused(format!(
            "settings.toml cannot be read: {error}"
        )));
        let said = String::from_utf8(err).unwrap();
        assert!(
            said.ends_with("\nhint: raise the limit on open files (ulimit -n, LimitNOFILE=)\n"),
            "{said}"
        );
    }

    #[test]
    fn talk_stays_off_standard_output_and_terminals_obey_nothing() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output {
            json: false,
            out: &mut out,
            err: &mut err,
        };
        output.hint("next");
        output
            .facts(&[("name", "a\u{1b}[2J\nb".to_owned()), ("none", String::new())])
            .unwrap();
        output.table(&["A"], [["\u{9b}31m\nMEND".to_owned()]]).unwrap();
        output.line("one\ntwo \u{202e}eno\u{2069}\u{200f}").unwrap();
        output.exact("{\"as\": \"\u{9b}\"}").unwrap();
        output.say("warning: \r\u{85}all is well");
        output.complain(&CliError::Refused {
            message: "no\nnot \u{7}".to_owned(),
            hint: Some("\u{1b}c".to_owned()),
        });
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "name  a\u{fffd}[2J b\n A\n \u{fffd}31m MEND\none\ntwo \u{fffd}eno\u{fffd}\u{fffd}\n{\"as\": \"\u{9b}\"}\n"
        );
        assert_eq!(
            String::from_utf8(err).unwrap(),
            "next\nwarning: \u{fffd}\u{fffd}all is well\nerror: no\nerror: not \u{fffd}\nhint: \u{fffd}c\n"
        );
    }
}
