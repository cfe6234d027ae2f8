//! Reads a file of declared state one entry at a time, so that a file of any size takes the memory of one entry.

use std::collections::HashSet;
use std::fmt;
use std::io::{BufRead, BufReader, Read};

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::export::{FIRST_LINE, LAST_LINE};
use super::output::CliError;
use super::rewind::{Rewind, rewind, unreadable};
use super::state_file::{Entry, Section, json_fault, kind_of, toml_sections};
use crate::jose::json::Strict;

/// The longest entry, in bytes. A command to the service has room for a batch of them.
const ENTRY_LIMIT: usize = 256 << 10;
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// What the callback of [`read`] gets: some entries of one kind, or what is wrong with them.
pub(super) type ParsedSection = Result<Section, String>;
type OnSection<'a> = dyn FnMut(ParsedSection) -> Result<(), CliError> + 'a;

/// Reads all entries, in TOML or JSON, and passes them to `on_section`. `file` names the file in errors.
pub(super) fn read(
    source: &mut dyn Rewind,
    file: &str,
    on_section: &mut OnSection<'_>,
) -> Result<(), CliError> {
    rewind(source)?;
    let mut source = BufReader::new(source);
    let start = source.fill_buf().map_err(unreadable)?;
    if start.starts_with(BYTE_ORDER_MARK.as_bytes()) {
        source.consume(BYTE_ORDER_MARK.len());
    }
    let start = source.fill_buf().map_err(unreadable)?;
    if start.trim_ascii_start().starts_with(b"{") {
        read_json(&mut source, on_section)
    } else {
        read_toml(&mut source, file, on_section)
    }
}

/// Whether the last export up to this line lacks its last line. `before` is the answer for the lines before it.
fn is_cut_off_after(before: bool, line: &str) -> bool {
    match line.trim_start_matches(BYTE_ORDER_MARK).trim_end() {
        FIRST_LINE => true,
        LAST_LINE => false,
        _ => before,
    }
}

/// The error about an export that was broken off.
pub(super) fn cut_off(file: &str) -> CliError {
    CliError::Refused {
        message: format!("{file} is an export that was broken off: its last line is missing"),
        hint: Some("export it again".to_owned()),
    }
}

/// Cuts the text before each entry, and parses each part for itself.
fn read_toml(source: &mut dyn BufRead, file: &str, on_section: &mut OnSection<'_>) -> Result<(), CliError> {
    let mut is_cut = false;
    let mut part = String::new();
    let (mut lines_before, mut lines) = (0, 0);
    let mut open_string = None;
    let mut flush = |part: &mut String, lines_before| {
        let mut faults = Vec::new();
        for section in toml_sections(part, lines_before, &mut faults) {
            on_section(Ok(section))?;
        }
        part.clear();
        faults.into_iter().try_for_each(|fault| on_section(Err(fault)))
    };
    loop {
        let mut line = Vec::new();
        let room = ENTRY_LIMIT.saturating_sub(part.len());
        let limit = u64::try_from(room).unwrap_or(u64::MAX).saturating_add(1);
        let count = source
            .take(limit)
            .read_until(b'\n', &mut line)
            .map_err(unreadable)?;
        if count > room {
            return Err(CliError::refused(format!(
                "{file}: line {}: the entry is longer than {ENTRY_LIMIT} bytes",
                lines_before + 1
            )));
        }
        let line = str::from_utf8(&line)
            .map_err(|_| CliError::refused(format!("{file}: line {}: it is not UTF-8", lines + 1)))?;
        if count == 0 || (open_string.is_none() && begins_entry(line)) {
            flush(&mut part, lines_before)?;
            lines_before = lines;
        }
        if count == 0 {
            return if is_cut { Err(cut_off(file)) } else { Ok(()) };
        }
        lines += 1;
        is_cut = is_cut_off_after(is_cut, line);
        open_string = open_string_after(line, open_string);
        part.push_str(line);
    }
}

/// Whether an entry begins on this line, such as `[[user]]`. An array within an entry, such as `[[user.claims.list]]`, is a
/// part of that entry.
fn begins_entry(line: &str) -> bool {
    let header = line.trim_start().strip_prefix("[[");
    let Some((name, rest)) = header.and_then(|header| header.split_once("]]")) else {
        return false;
    };
    // `[[1]]` and `[[1]],` within an array are no headers.
    let ends_line = rest.trim().is_empty() || rest.trim_start().starts_with('#');
    let name = name.trim();
    let mut characters = name.bytes();
    ends_line
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && characters.all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// The delimiter of the multi-line string in which a line ends, if it ends in one (TOML 1.0.0, section String).
fn open_string_after(line: &str, mut open: Option<&'static str>) -> Option<&'static str> {
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let mut length = first.len_utf8();
        match open {
            None if first == '#' => return None,
            None => {
                let delimiters = ["\"\"\"", "'''", "\"", "'"];
                open = delimiters
                    .into_iter()
                    .find(|delimiter| rest.starts_with(delimiter));
                length = open.map_or(length, str::len);
            }
            Some(delimiter) if rest.starts_with(delimiter) => {
                open = None;
                length = delimiter.len();
            }
            Some(delimiter) if first == '\\' && delimiter.starts_with('"') => {
                length += rest.chars().nth(1).map_or(0, char::len_utf8);
            }
            Some(_) => {}
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    open.filter(|delimiter| delimiter.len() == 3)
}

fn read_json(source: &mut dyn BufRead, on_section: &mut OnSection<'_>) -> Result<(), CliError> {
    let mut failed = None;
    let mut reader = serde_json::Deserializer::from_reader(source);
    let visitor = StateVisitor {
        on_section,
        failed: &mut failed,
    };
    let read = reader.deserialize_map(visitor).and_then(|()| reader.end());
    match (failed, read) {
        (Some(error), _) => Err(error),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => on_section(Err(json_fault(&error))),
    }
}

/// Reads the sections of a state. An error of the callback is kept in `failed`, because `serde_json` can carry only its own
/// errors.
struct StateVisitor<'a, 'b> {
    on_section: &'a mut OnSection<'b>,
    failed: &'a mut Option<CliError>,
}

impl<'de> Visitor<'de> for StateVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("{name} occurs twice")));
            }
            map.next_value_seed(SectionSeed {
                name: &name,
                on_section: &mut *self.on_section,
                failed: &mut *self.failed,
            })?;
        }
        Ok(())
    }
}

/// Reads the entries of a section.
struct SectionSeed<'a, 'b> {
    name: &'a str,
    on_section: &'a mut OnSection<'b>,
    failed: &'a mut Option<CliError>,
}

impl SectionSeed<'_, '_> {
    fn pass<E: serde::de::Error>(&mut self, parsed: ParsedSection) -> Result<(), E> {
        (self.on_section)(parsed).map_err(|error| {
            *self.failed = Some(error);
            E::custom("the reader has stopped")
        })
    }
}

impl<'de> DeserializeSeed<'de> for SectionSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for SectionSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        let kind = match kind_of(self.name) {
            Ok(kind) => kind,
            Err(fault) => {
                self.pass::<A::Error>(Err(fault))?;
                while entries.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(());
            }
        };
        // An empty section is not a missing one: pruning removes all records of its kind.
        self.pass(Ok((kind, Vec::new())))?;
        let mut number = 0;
        while let Some(Strict(item)) = entries.next_element()? {
            number += 1;
            if item.to_string().len() > ENTRY_LIMIT {
                let fault = format!(
                    "{} {number}: the entry is longer than {ENTRY_LIMIT} bytes",
                    self.name
                );
                self.pass::<A::Error>(Err(fault))?;
                continue;
            }
            let entry = Entry::of_json(self.name, number, item);
            self.pass(entry.map(|entry| (kind, vec![entry])))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// The kinds and numbers of entries, or the fault.
    fn parts(text: &str) -> Vec<String> {
        let mut parts = Vec::new();
        let read = read(
            &mut Cursor::new(text.as_bytes().to_vec()),
            "file",
            &mut |parsed| {
                parts.push(match parsed {
                    Ok((kind, entries)) => format!("{} {}", kind.name, entries.len()),
                    Err(fault) => fault,
                });
                Ok(())
            },
        );
        parts.extend(read.err().map(|error| error.to_string()));
        parts
    }

    #[test]
    fn a_text_is_cut_before_each_entry_and_not_within_a_string() {
        let text = "# [[user]]\n[[client]]\nclient_id = \"a\\\"\"\nscope = ['x', \"\"]\n\n  [[user]] # ''' \"\"\"\nemail = \"\"\"\n[[user]]\n\\\"\"\"\"\n[user.claims]\nname = '''\n[[client]]'''\n[[user]]\nemail = 'b'\n";
        assert_eq!(parts(text), ["client 1", "user 1", "user 1"]);
        let nested = "[[user]]\nemail = \"a\"\n[user.claims]\nx = [\n[[\"y\"]],\n[[1]],\n]\n[[user.claims.z]]\na = 1\n[[user]]\nemail = \"b\"";
        assert_eq!(parts(nested), ["user 1", "user 1"]);
        assert_eq!(parts(&format!("\u{feff}{text}")).len(), 3);
        let faulty = format!("{text}x = = 1\n[[cleint]]\n[[user]]\nemail = \"c\"");
        let faults = parts(&faulty);
        assert!(faults[2].starts_with("line 15 column 5"), "{faults:?}");
        assert!(
            faults[3].starts_with("line 16: unknown section cleint"),
            "{faults:?}"
        );
        assert_eq!(faults[4], "user 1");
    }

    #[test]
    fn an_object_is_read_entry_by_entry() {
        let text = "\u{feff} {\"client\": [], \"user\": [{\"email\": \"a\"}, {\"email\": null}]}";
        assert_eq!(parts(text), ["client 0", "user 0", "user 1", "user 1"]);
        for (text, fault) in [
            ("{\"user\": [{\"email\": \"a\"}, 7]}", "user 2: it is no object"),
            ("{\"user\": [{\"email\": \"a\"}", "line 1 column "),
            ("{\"user\": [], \"user\": []}", "line 1 column "),
            ("{\"user\": [{\"a\": 1, \"a\": 2}]}", "line 1 column "),
            ("{\"cleint\": []}", "unknown section cleint"),
            ("{\"cleint\": [{}], \"user\": 7}", "line 1 column "),
            ("{\"user\": {}}", "line 1 column "),
            ("{\"user\": []} {}", "line 1 column "),
        ] {
            let found = parts(text);
            assert!(
                found.last().is_some_and(|last| last.starts_with(fault)),
                "{text}: {found:?}"
            );
        }
    }

    #[test]
    fn an_export_without_its_last_line_is_refused() {
        let entry = "[[user]]\nemail = \"a\"\n";
        let whole = format!("{FIRST_LINE}\n{entry}{LAST_LINE}\n");
        assert_eq!(parts(&whole), ["user 1"]);
        assert_eq!(parts(&format!("{whole}{entry}")), ["user 1", "user 1"]);
        assert!(parts(&format!("{FIRST_LINE}\n{entry}"))[1].contains("broken off"));
    }

    #[test]
    fn an_entry_without_end_is_refused() {
        let text = format!("[[user]]\nemail = \"{}", "a".repeat(ENTRY_LIMIT));
        assert_eq!(
            parts(&text),
            ["file: line 1: the entry is longer than 262144 bytes"]
        );
    }
}
