//! Prints results on standard output, as JSON or as text, and messages on standard error.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::Duration;

use comfy_table::{ColumnConstraint, Table, Width, presets};
use serde::Serialize;
use serde_json::Value;

use super::refusal;
use super::terminal_text::{escape_json, printable, without_controls};
use crate::admin::{AdminError, AdminRefusal};
use crate::clock::Timestamp;
use crate::config::duration::format_duration;
use crate::oauth::Fault;
use crate::oauth::fields::Form;
use crate::server::StartError;

/// The end of the standard library's message for `EMFILE`.
const EMFILE_SUFFIX: &str = "(os error 24)";
/// The most rows of a table that are in memory.
const TABLE_PART_ROWS: usize = 500;

/// Why a command failed.
#[derive(Debug)]
pub enum CliError {
    /// The command was refused or failed: exit code 1.
    Refused {
        /// The reason.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The service or the store refused the command: exit code 1.
    Faults(Vec<Fault>),
    /// The command line is wrong: exit code 2.
    Misused(String),
    /// The reader of standard output has closed it.
    BrokenPipe,
    /// Standard output cannot be written: exit code 1.
    Unwritable(io::Error),
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { message, .. } | Self::Misused(message) => f.write_str(message),
            Self::Faults(faults) => f.write_str(&refusal::message(faults, None)),
            Self::BrokenPipe => f.write_str("the reader of the output is gone"),
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

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        Self::Refused {
            message: error.message,
            hint: error.hint,
        }
    }
}

impl From<AdminError> for CliError {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Refused(AdminRefusal(faults)) => Self::Faults(faults),
            error => Self::refused(error),
        }
    }
}

/// An error of writing to standard output.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Unwritable(error),
        }
    }
}

/// Standard output and standard error, and the form of the result.
pub struct Output<'a> {
    /// Whether standard output gets JSON.
    pub json: bool,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

impl<'a> Output<'a> {
    /// Text output to these writers.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Self {
            json: false,
            out,
            err,
        }
    }
}

impl Output<'_> {
    /// Prints the one JSON document of a command.
    pub fn document(&mut self, document: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(document).map_err(CliError::refused)?;
        self.exact(&escape_json(&text))
    }

    /// Prints one of several JSON documents, on a line of its own.
    pub fn json_line(&mut self, document: &Value) -> Result<(), CliError> {
        self.exact(&escape_json(&document.to_string()))
    }

    /// Says that a record was removed.
    pub fn removed(&mut self, kind: &str, field: &str, id: &str) -> Result<(), CliError> {
        if self.json {
            return self.document(&serde_json::json!({ field: id, "removed": true }));
        }
        self.line(&format!("{kind} {id} is removed"))
    }

    /// Refuses `--json` for a command whose result is text and has no JSON form.
    pub fn only_text(&self, what: &str) -> Result<(), CliError> {
        if self.json {
            return Err(CliError::Misused(format!(
                "{what} is text and no JSON document: leave out --json"
            )));
        }
        Ok(())
    }

    /// Prints one or more lines of text, without control characters.
    pub fn line(&mut self, line: &str) -> Result<(), CliError> {
        self.exact(&without_controls(line))
    }

    /// Prints text for a program, unchanged.
    pub fn exact(&mut self, text: &str) -> Result<(), CliError> {
        writeln!(self.out, "{text}")?;
        Ok(self.out.flush()?)
    }

    /// Prints the one JSON document of a command, an array, one element at a time. After an error it has no end.
    pub fn array<T: Serialize>(
        &mut self,
        elements: impl IntoIterator<Item = Result<T, CliError>>,
    ) -> Result<(), CliError> {
        let mut out = BufWriter::new(&mut *self.out);
        let mut array = JsonArray::begin(&mut out, "")?;
        for element in elements {
            array.push(&mut out, &element?, escape_json)?;
        }
        array.end(&mut out)?;
        writeln!(out)?;
        Ok(out.flush()?)
    }

    /// Prints the one JSON document of a command, an object whose last member is an array, one element at a time. After an
    /// error it has no end.
    pub fn object_with_array<T: Serialize>(
        &mut self,
        members: &[(&str, Value)],
        name: &str,
        elements: impl IntoIterator<Item = Result<T, CliError>>,
    ) -> Result<(), CliError> {
        let mut out = BufWriter::new(&mut *self.out);
        writeln!(out, "{{")?;
        for (member, value) in members {
            let value = serde_json::to_string(value).map_err(CliError::refused)?;
            writeln!(out, "  \"{member}\": {},", escape_json(&value))?;
        }
        write!(out, "  \"{name}\": ")?;
        let mut array = JsonArray::begin(&mut out, "  ")?;
        for element in elements {
            array.push(&mut out, &element?, escape_json)?;
        }
        array.end(&mut out)?;
        writeln!(out, "\n}}")?;
        Ok(out.flush()?)
    }

    /// Prints a table. Without rows it has only its head.
    pub fn table<R: IntoIterator<Item = String>>(
        &mut self,
        head: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Result<(), CliError> {
        self.long_table(head, rows.into_iter().map(Ok))
    }

    /// Prints a table of any length, some rows at a time. The first of them set the widths of the columns.
    pub fn long_table<R: IntoIterator<Item = String>>(
        &mut self,
        head: &[&str],
        rows: impl IntoIterator<Item = Result<R, CliError>>,
    ) -> Result<(), CliError> {
        let mut rows = rows.into_iter().peekable();
        let mut part = Table::new();
        part.set_header(head);
        let mut widths: Option<Vec<u16>> = None;
        loop {
            part.load_preset(presets::NOTHING);
            for row in rows.by_ref().take(TABLE_PART_ROWS) {
                part.add_row(row?.into_iter().map(|cell| printable(&cell)).collect::<Vec<_>>());
            }
            let widths = widths.get_or_insert_with(|| part.column_max_content_widths());
            for (column, width) in part.column_iter_mut().zip(widths) {
                let width = width.saturating_add(column.padding_width());
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
            }
            self.line(&part.trim_fmt())?;
            if rows.peek().is_none() {
                return Ok(());
            }
            part = Table::new();
        }
    }

    /// Prints names and values, one pair a line. Pairs with an empty value are left out.
    pub fn facts(&mut self, facts: &[(&str, String)]) -> Result<(), CliError> {
        let shown = || facts.iter().filter(|(_, value)| !value.is_empty());
        let width = shown().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in shown() {
            let value = printable(value);
            writeln!(self.out, "{name:width$}  {value}")?;
        }
        Ok(self.out.flush()?)
    }

    /// Prints a message on standard error. A closed standard error is no error.
    pub fn say(&mut self, text: &str) {
        // One write, so that other output cannot come between a line and its end.
        let _ = self
            .err
            .write_all(format!("{}\n", without_controls(text)).as_bytes());
    }

    /// Prints why a command failed.
    pub fn complain(&mut self, error: &CliError) {
        let message = error.to_string();
        for line in message.lines() {
            self.say(&format!("error: {line}"));
        }
        // Opening any file can fail with EMFILE, and here only the text of the error is left.
        if message.contains(EMFILE_SUFFIX) {
            self.say("hint: raise the limit on open files (ulimit -n, LimitNOFILE=)");
        }
        let hint = match error {
            CliError::Refused { hint, .. } => hint.clone(),
            CliError::Faults(faults) => refusal::hint(faults, None),
            CliError::Misused(_) | CliError::BrokenPipe | CliError::Unwritable(_) => None,
        };
        if let Some(hint) = hint {
            self.say(&format!("hint: {hint}"));
        }
    }

    /// Prints what to do next, except with `--json`.
    pub fn hint(&mut self, text: &str) {
        if !self.json {
            self.say(text);
        }
    }

    /// Asks before a change that cannot be undone. Without a terminal it returns an error.
    pub fn confirm(&mut self, question: &str, yes: bool) -> Result<(), CliError> {
        if yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            return Err(CliError::Misused(format!(
                "{question} There is no terminal to ask on: add --yes"
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

/// A JSON array that is written one element at a time, in the form of [`serde_json::to_string_pretty`].
pub struct JsonArray {
    indent: &'static str,
    is_empty: bool,
}

impl JsonArray {
    /// Begins an array on a line that is indented by `indent`.
    pub fn begin(out: &mut dyn Write, indent: &'static str) -> io::Result<Self> {
        out.write_all(b"[")?;
        Ok(Self {
            indent,
            is_empty: true,
        })
    }

    /// Writes an element, after `change` was applied to its text.
    pub fn push(
        &mut self,
        out: &mut dyn Write,
        element: &impl Serialize,
        change: impl FnOnce(&str) -> String,
    ) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(element).map_err(CliError::refused)?;
        let separator = if self.is_empty { "" } else { "," };
        self.is_empty = false;
        let line_start = format!("\n{}  ", self.indent);
        // Line ends within strings are escaped.
        let text = change(&text).replace('\n', &line_start);
        Ok(write!(out, "{separator}{line_start}{text}")?)
    }

    pub fn end(self, out: &mut dyn Write) -> io::Result<()> {
        if !self.is_empty {
            write!(out, "\n{}", self.indent)?;
        }
        out.write_all(b"]")
    }
}

/// A number of things, as in `2 lines`.
pub fn counted(number: u64, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {what}{ending}")
}

/// A time as in RFC 3339, in UTC.
pub fn moment(moment: Timestamp) -> String {
    moment.rfc3339()
}

/// The fields of a record as text, in the order of the list.
pub fn field_facts(
    record: &impl Serialize,
    fields: &[(&'static str, Form)],
) -> Result<Vec<(&'static str, String)>, CliError> {
    let record = serde_json::to_value(record).map_err(CliError::refused)?;
    let text = |name: &str| match record.get(name) {
        Some(Value::Number(seconds)) if name.ends_with("_lifetime") || name == "default_max_age" => {
            let seconds = seconds.as_u64().map(Duration::from_secs);
            seconds.map(format_duration).unwrap_or_default()
        }
        value => value.map(value_text).unwrap_or_default(),
    };
    Ok(fields.iter().map(|(name, _)| (*name, text(name))).collect())
}

/// A value as text: the members of a list separated by spaces, a key by its name.
fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(flag) => yes_no(*flag),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(value_text).collect::<Vec<_>>().join(" "),
        Value::Object(jwk) if jwk.contains_key("kty") => {
            let name = jwk.get("kid").or_else(|| jwk.get("kty"));
            name.map(value_text).unwrap_or_default()
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
        let mut output = Output::new(&mut out, &mut err);
        assert!(matches!(
            output.table(&["A"], [["x".to_owned()]]),
            Err(CliError::BrokenPipe)
        ));
        assert!(matches!(output.document(&1), Err(CliError::BrokenPipe)));
    }

    #[test]
    fn an_array_of_any_length_looks_like_a_document() {
        for length in 0..3 {
            let values: Vec<_> = (0..length)
                .map(|n| serde_json::json!({"n": [n], "text": "a\nb\u{9b}", "none": {}}))
                .collect();
            let print = |print: &dyn Fn(&mut Output<'_>) -> Result<(), CliError>| {
                let (mut out, mut err) = (Vec::new(), Vec::new());
                print(&mut Output::new(&mut out, &mut err)).unwrap();
                String::from_utf8(out).unwrap()
            };
            let whole = print(&|output| output.document(&values));
            assert_eq!(print(&|output| output.array(values.iter().map(Ok))), whole);
        }
    }

    #[test]
    fn the_rows_of_a_long_table_stand_below_each_other() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let count = 2 * TABLE_PART_ROWS + 1;
        let rows = (0..count).map(|n| [if n == 0 { "wide" } else { "é" }.to_owned(), n.to_string()]);
        Output::new(&mut out, &mut err).table(&["A", "B"], rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), count + 1);
        for (n, line) in text.lines().skip(2).enumerate() {
            assert_eq!(line, format!(" é     {}", n + 1));
        }
    }

    #[test]
    fn too_many_open_files_have_a_hint() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
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
    fn messages_go_to_standard_error_and_control_characters_are_replaced() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output::new(&mut out, &mut err);
        output.hint("next");
        output
            .facts(&[("name", "a\u{1b}[2J\nb".to_owned()), ("none", String::new())])
            .unwrap();
        output.table(&["A"], [["\u{9b}31m\nMEND".to_owned()]]).unwrap();
        output.line("one\ntwo \u{202e}eno\u{2069}\u{200f}").unwrap();
        output.exact("{\"as\": \"\u{9b}\"}").unwrap();
        output.json_line(&serde_json::json!({"as": "\u{9b}"})).unwrap();
        output.say("warning: \r\u{85}all is well");
        output.complain(&CliError::Refused {
            message: "no\nnot \u{7}".to_owned(),
            hint: Some("\u{1b}c".to_owned()),
        });
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "name  a\u{fffd}[2J b\n A\n \u{fffd}31m MEND\none\ntwo \u{fffd}eno\u{fffd}\u{fffd}\n{\"as\": \"\u{9b}\"}\n{\"as\":\"\\u009b\"}\n"
        );
        assert_eq!(
            String::from_utf8(err).unwrap(),
            "next\nwarning: \u{fffd}\u{fffd}all is well\nerror: no\nerror: not \u{fffd}\nhint: \u{fffd}c\n"
        );
    }
}
