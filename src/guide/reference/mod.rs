//! The reference pages. Each is made from the code that it describes.

mod commands;
mod endpoints;
mod errors;
mod events;
mod metrics;
mod scopes_and_claims;
mod settings;

use std::fmt::Write;

/// The folder of these pages in the guide.
pub const FOLDER: &str = "reference/";

/// What the reference says of the command line. It comes from the caller, since the command line prints the guide.
pub struct CommandLine {
    /// The commands and their flags.
    pub command: clap::Command,
    /// The exit codes and their meanings.
    pub exit_codes: Vec<(u8, &'static str)>,
}

/// The name and the title of a page, and what makes the text below the title.
type Page = (&'static str, &'static str, fn(&CommandLine) -> String);

const PAGES: [Page; 7] = [
    ("settings", "Settings", |_| settings::text()),
    ("commands", "Commands", |line| commands::text(&line.command)),
    ("endpoints", "Endpoints", |_| endpoints::text()),
    ("errors", "Errors", |line| errors::text(&line.exit_codes)),
    ("events", "Events", |_| events::text()),
    ("metrics", "Metrics", |_| metrics::text()),
    ("scopes-and-claims", "Scopes and claims", |_| {
        scopes_and_claims::text()
    }),
];

/// The names and titles of all pages.
pub fn titles() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGES.into_iter().map(|(name, title, _)| (name, title))
}

/// The page of this name, in Markdown.
pub fn page(name: &str, command_line: &CommandLine) -> Option<String> {
    let (_, title, text) = PAGES.into_iter().find(|(known, ..)| *known == name)?;
    Some(format!("# {title}\n\n{}\n", text(command_line).trim_end()))
}

/// A table, with an empty line behind it.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: [String; N]| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(N));
    let rows = rows
        .into_iter()
        .map(|row| line(row.map(|cell| cell.replace('|', "\\|"))));
    let head = line(head.map(ToOwned::to_owned));
    head + &rule + &rows.collect::<String>() + "\n"
}

/// A table of names and what they mean.
fn meanings(head: [&str; 2], rows: impl IntoIterator<Item = (&'static str, &'static str)>) -> String {
    let rows = rows.into_iter();
    table(head, rows.map(|(name, meaning)| [code(name), meaning.to_owned()]))
}

fn code(word: &str) -> String {
    format!("`{word}`")
}

/// Words of code, with commas between them; a dash if there are none.
fn codes<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().map(code).collect();
    if words.is_empty() {
        return "–".to_owned();
    }
    words.join(", ")
}

/// A heading with code in it, and a paragraph.
fn section(text: &mut String, depth: usize, name: &str, paragraph: &str) {
    // Writing to a string does not fail.
    let _ = write!(text, "{} {}\n\n{paragraph}\n\n", "#".repeat(depth), code(name));
}
