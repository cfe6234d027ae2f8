//! Runs `idsvc user import`: it checks every line, then writes the users.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use super::admin_connection::{AdminConnection, AdminConnector, Opening};
use super::change_summary::ChangeSummary;
use super::name_index::{NameIndex, names_of};
use super::output::{CliError, Output};
use super::progress::Progress;
use super::rewind::{Rewind, open, rewind, unreadable};
use super::{refusal, value_parsers};
use crate::admin::import;
use crate::admin::import::{BadLine, ImportUsers, Imported, LeftOutApp};
use crate::admin::scope::ListScopes;
use crate::identity::LoginName;
use crate::oauth::{Fault, FaultCode};

/// The flags of `idsvc user import`.
#[derive(Debug, Args)]
pub struct Import {
    /// JSON lines, one user each, - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What to do with lines about existing users that differ
    #[arg(long, value_enum, default_value_t = ExistingUsers::Refuse)]
    pub existing: ExistingUsers,
    /// Import the good lines even if others are bad
    #[arg(long)]
    pub skip_bad: bool,
    /// Check every line and import nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// What happens to lines about existing users.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ExistingUsers {
    /// The lines are bad.
    Refuse,
    /// The users stay as they are.
    Skip,
    /// The users are changed to what the lines say.
    Update,
}

/// The longest line, in bytes.
const LINE_LIMIT: u64 = 64 * 1024;
/// The most lines, and about the most bytes, of one transaction.
const CHUNK_LINES: usize = 100;
const CHUNK_BYTES: usize = 256 * 1024;
/// The most bad lines that are printed as text.
const MAX_SHOWN: usize = 20;
/// The most bad lines that are kept for the document of `--json`. The others are counted.
const MAX_KEPT: usize = 10_000;

/// Some lines of the input, and those of them that are bad.
#[derive(Default)]
struct Chunk {
    lines: Vec<(u64, String)>,
    bytes: usize,
    bad: Vec<BadLine>,
}

impl Chunk {
    fn is_full(&self) -> bool {
        self.lines.len() >= CHUNK_LINES || self.bytes >= CHUNK_BYTES
    }
}

/// Reads the lines of the input.
struct LineReader<'a> {
    source: BufReader<&'a mut dyn Rewind>,
    number: u64,
}

impl LineReader<'_> {
    fn of(source: &mut dyn Rewind) -> Result<LineReader<'_>, CliError> {
        rewind(source)?;
        Ok(LineReader {
            source: BufReader::new(source),
            number: 0,
        })
    }

    /// Reads the next line, up to the limit, and skips the rest of a longer one. Returns its number, or `None` at the end.
    fn next_line(&mut self, line: &mut Vec<u8>) -> Result<Option<u64>, CliError> {
        line.clear();
        let mut limited = (&mut self.source).take(LINE_LIMIT + 1);
        if limited.read_until(b'\n', line).map_err(unreadable)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if u64::try_from(line.len()).is_ok_and(|length| length > LINE_LIMIT) {
            self.skip_line()?;
        }
        Ok(Some(self.number))
    }

    fn skip_line(&mut self) -> Result<(), CliError> {
        loop {
            let buffer = self.source.fill_buf().map_err(unreadable)?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let (count, is_over) = match end {
                Some(end) => (end + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            self.source.consume(count);
            if is_over {
                return Ok(());
            }
        }
    }

    /// The next lines that fit into one transaction, without blank lines. `None` at the end.
    fn next_chunk(&mut self) -> Result<Option<Chunk>, CliError> {
        let mut chunk = Chunk::default();
        let mut line = Vec::new();
        while !chunk.is_full() {
            let Some(number) = self.next_line(&mut line)? else {
                let is_over = chunk.lines.is_empty() && chunk.bad.is_empty();
                return Ok((!is_over).then_some(chunk));
            };
            let detail = if u64::try_from(line.len()).is_ok_and(|length| length > LINE_LIMIT) {
                format!("it is longer than {LINE_LIMIT} bytes")
            } else {
                match std::str::from_utf8(&line) {
                    Ok(text) => {
                        let marked = text.strip_prefix('\u{feff}').filter(|_| number == 1);
                        let text = marked.unwrap_or(text).trim();
                        if !text.is_empty() {
                            chunk.bytes += text.len();
                            chunk.lines.push((number, text.to_owned()));
                        }
                        continue;
                    }
                    Err(_) => "it is not UTF-8".to_owned(),
                }
            };
            let faults = vec![FaultCode::Invalid.at([], detail)];
            chunk.bad.push(BadLine { line: number, faults });
        }
        Ok(Some(chunk))
    }
}

/// Reads all lines. Returns their number, and the names of their users.
fn survey(source: &mut dyn Rewind) -> Result<(u64, NameIndex), CliError> {
    let mut lines = LineReader::of(source)?;
    let mut index = NameIndex::default();
    let mut line = Vec::new();
    while lines.next_line(&mut line)?.is_some() {
        if u64::try_from(line.len()).is_ok_and(|length| length <= LINE_LIMIT) {
            let text = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line);
            index.add(
                &serde_json::from_slice::<Names>(text)
                    .unwrap_or_default()
                    .login_names(),
            );
        }
    }
    index.sort();
    Ok((lines.number, index))
}

/// The names of a user and the claims, as a line has them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    uuid: Option<String>,
    account_id: Option<String>,
    email: Option<String>,
    claims: Value,
}

impl Names {
    fn login_names(&self) -> Vec<LoginName> {
        let names = [&self.uuid, &self.account_id, &self.email];
        names_of(names.map(Option::as_deref))
    }
}

/// The users of earlier lines that occur again, and the claims. They show a second line about the same user in another
/// transaction.
#[derive(Default)]
struct KnownUsers {
    users: HashMap<LoginName, u64>,
    claims: BTreeSet<String>,
}

impl KnownUsers {
    /// Moves lines about a user of an earlier chunk to the bad ones.
    fn remove_duplicates(&mut self, chunk: &mut Chunk, index: &NameIndex) {
        let (known, bad) = (&mut self.users, &mut chunk.bad);
        let mut new = Vec::new();
        chunk.lines.retain(|(number, text)| {
            let line: Names = serde_json::from_str(text).unwrap_or_default();
            let mut names = line.login_names();
            names.retain(|name| index.occurrences(name) > 1);
            if let Value::Object(claims) = line.claims {
                self.claims.extend(claims.into_iter().map(|(name, _)| name));
            }
            if let Some(first) = names.iter().find_map(|name| known.get(name)) {
                bad.push(BadLine {
                    line: *number,
                    faults: vec![import::same_user_as(*first)],
                });
                return false;
            }
            new.extend(names.into_iter().map(|name| (name, *number)));
            true
        });
        for (name, number) in new {
            known.entry(name).or_insert(number);
        }
    }
}

/// What was imported so far, with the first bad lines and the number of all.
#[derive(Default)]
struct Total {
    imported: Imported,
    bad_count: usize,
    left_out_count: usize,
}

impl Total {
    fn add(&mut self, mut part: Imported, chunk: Chunk) {
        let total = &mut self.imported;
        total.added += part.added;
        total.updated += part.updated;
        total.unchanged += part.unchanged;
        total.passwords += part.passwords;
        total.authenticator_apps += part.authenticator_apps;
        self.left_out_count += part.left_out.len();
        part.left_out.truncate(MAX_KEPT - total.left_out.len());
        total.left_out.append(&mut part.left_out);
        part.bad.extend(chunk.bad);
        part.bad.sort_by_key(|bad| bad.line);
        self.bad_count += part.bad.len();
        part.bad.truncate(MAX_KEPT - total.bad.len());
        total.bad.append(&mut part.bad);
    }

    /// The first bad lines as sentences.
    fn bad_lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.imported.bad.iter().take(MAX_SHOWN).map(sentence).collect();
        if self.bad_count > MAX_SHOWN {
            lines.push(format!("and {} more bad lines", self.bad_count - MAX_SHOWN));
        }
        lines
    }

    /// The first authenticator apps that are left out, as sentences.
    fn left_out(&self) -> Vec<String> {
        let sentence = |app: &LeftOutApp| {
            let LeftOutApp { line, user, reason } = app;
            format!("line {line}: user {user:?} goes without this authenticator app: {reason}")
        };
        let shown = self.imported.left_out.iter().take(MAX_SHOWN);
        let mut lines: Vec<_> = shown.map(sentence).collect();
        if self.left_out_count > MAX_SHOWN {
            let more = self.left_out_count - MAX_SHOWN;
            lines.push(format!("and {more} more authenticator apps are left out"));
        }
        lines
    }
}

/// Checks or writes all lines. On an error it also returns what was imported.
fn pass(
    request: &Import,
    write: bool,
    session: &AdminConnection,
    source: &mut dyn Rewind,
    lines: u64,
    index: &NameIndex,
    known: &mut KnownUsers,
) -> Result<Total, Box<(Total, CliError)>> {
    let mut total = Total::default();
    let mut progress = Progress::of(if write { "import" } else { "check" });
    let existing = match request.existing {
        ExistingUsers::Refuse => import::ExistingUsers::Refuse,
        ExistingUsers::Skip => import::ExistingUsers::Skip,
        ExistingUsers::Update => import::ExistingUsers::Update,
    };
    let mut work = || -> Result<(), CliError> {
        let mut input = LineReader::of(source)?;
        while let Some(mut chunk) = input.next_chunk()? {
            known.remove_duplicates(&mut chunk, index);
            let part = session.call(ImportUsers {
                lines: std::mem::take(&mut chunk.lines),
                existing,
                skip_bad: request.skip_bad,
                write,
            })?;
            let is_refused = write && !request.skip_bad && !(part.bad.is_empty() && chunk.bad.is_empty());
            if is_refused {
                return Err(CliError::refused(
                    "the input or the users changed during the import",
                ));
            }
            total.add(part, chunk);
            progress.show(input.number, Some(lines));
        }
        Ok(())
    };
    match work() {
        Ok(()) => Ok(total),
        Err(error) => Err(Box::new((total, error))),
    }
}

/// Runs the import. Every line is checked before the first user is written.
pub fn run(
    request: &Import,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let mut source = open(&request.file)?;
    let source = source.as_mut();
    let opening = if request.dry_run {
        Opening::Existing
    } else {
        Opening::MayCreate
    };
    let session = connector.connect(&opening, output)?;
    let (lines, index) = survey(source)?;
    let mut known = KnownUsers::default();
    let checked =
        pass(request, false, &session, source, lines, &index, &mut known).map_err(|failed| failed.1)?;
    let list_scopes = |_: &mut Output<'_>| session.call(ListScopes);
    value_parsers::warn_of_claims(known.claims.iter().map(String::as_str), list_scopes, output);
    drop(known);
    if checked.bad_count > 0 && !request.skip_bad {
        if output.json {
            // The import is refused even if the output cannot be written.
            let _ = output.document(&document(&checked, false));
        }
        return Err(CliError::Refused {
            message: checked.bad_lines().join("\n"),
            hint: Some(hint(&checked.imported.bad)),
        });
    }
    let done = if request.dry_run {
        checked
    } else {
        let known = &mut KnownUsers::default();
        pass(request, true, &session, source, lines, &index, known)
            .map_err(|failed| interrupted(&failed.0.imported, &failed.1))?
    };
    show(&done, request.dry_run, output).map_err(|error| {
        let Imported { added, updated, .. } = done.imported;
        if request.dry_run || added + updated == 0 {
            return error;
        }
        let bad = done.bad_count;
        let summary = format!("users were imported: {added} added, {updated} updated, {bad} bad");
        ChangeSummary::plain(summary).unshown(error)
    })
}

fn show(done: &Total, is_dry_run: bool, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&document(done, !is_dry_run));
    }
    for line in done.bad_lines().into_iter().chain(done.left_out()) {
        output.say(&line);
    }
    let Imported {
        added,
        updated,
        unchanged,
        authenticator_apps,
        ..
    } = done.imported;
    let mut facts = vec![
        ("added", added.to_string()),
        ("updated", updated.to_string()),
        ("unchanged", unchanged.to_string()),
        ("bad", done.bad_count.to_string()),
    ];
    if authenticator_apps > 0 || done.left_out_count > 0 {
        facts.push(("authenticator_apps", authenticator_apps.to_string()));
        facts.push(("left_out", done.left_out_count.to_string()));
    }
    output.facts(&facts)?;
    if is_dry_run {
        output.hint("Nothing was imported: this was a dry run.");
        return Ok(());
    }
    if done.imported.passwords > 0 {
        output.hint("The users keep their passwords. Each is hashed again at the first sign-in.");
    }
    if authenticator_apps > 0 {
        output.hint(
            "The users keep their authenticator apps. Tell them to make recovery codes on the account page.",
        );
    }
    Ok(())
}

fn hint(bad: &[BadLine]) -> String {
    let mut hint =
        "nothing was imported: mend these lines, or add --skip-bad to import the others".to_owned();
    let is_here_already = |fault: &Fault| fault.code == FaultCode::AlreadyExists && fault.fields.is_empty();
    if bad.iter().flat_map(|bad| &bad.faults).any(is_here_already) {
        hint += "; --existing skip keeps existing users as they are, --existing update changes them";
    }
    hint
}

fn sentence(bad: &BadLine) -> String {
    let faults = bad.faults.iter().map(|fault| fault.clone().about("user", ""));
    let sentences: Vec<_> = faults.map(|fault| refusal::sentence(&fault, true)).collect();
    format!("line {}: {}", bad.line, sentences.join("; "))
}

fn interrupted(so_far: &Imported, error: &CliError) -> CliError {
    let written = so_far.added + so_far.updated;
    let message =
        format!("{error}\nonly a part of the file was imported: {written} users were added or updated");
    CliError::Refused {
        message,
        hint: Some("run the same command again: it continues where this one ended".to_owned()),
    }
}

fn document(done: &Total, is_imported: bool) -> serde_json::Value {
    json!({
        "imported": is_imported,
        "added": done.imported.added,
        "updated": done.imported.updated,
        "unchanged": done.imported.unchanged,
        "bad_count": done.bad_count,
        "bad": done.imported.bad,
        "authenticator_apps": done.imported.authenticator_apps,
        "left_out_count": done.left_out_count,
        "left_out": done.imported.left_out,
    })
}
