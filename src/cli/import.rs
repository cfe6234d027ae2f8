//! `idsvc user import`

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::{Value, json};

use super::admin_connection::{AdminConnection, AdminConnector, unexpected};
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output};
use super::progress::Progress;
use super::value_parsers::warn_of_claims;
use crate::admin::import;
use crate::admin::import::{BadLine, ImportUsers, Imported};
use crate::control::{Command, Reply};
use crate::identity::LoginName;

/// Which users come.
#[derive(Debug, Args)]
pub struct Import {
    /// JSON lines, one user each, - for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// What happens to users who are there already and differ
    #[arg(long, value_enum, default_value_t = Existing::Refuse)]
    pub existing: Existing,
    /// Import the good lines though others are bad
    #[arg(long)]
    pub skip_bad: bool,
    /// Look at every line and import nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// What happens to users who are there already.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Existing {
    /// Their lines are bad.
    Refuse,
    /// They stay as they are.
    Skip,
    /// They become what the line says.
    Update,
}

/// The longest line.
const LINE_LIMIT: u64 = 64 * 1024;
/// How many lines, and about how many bytes, go into one transaction.
const CHUNK_LINES: usize = 500;
const CHUNK_BYTES: usize = 256 * 1024;
/// The most that standard input or a pipe may hold: it is read twice.
const INPUT_LIMIT: u64 = 2 << 30;
/// How many bad lines are shown to people.
const SHOWN: usize = 20;

/// Something that can be read twice.
trait Twice: Read + Seek {}
impl<T: Read + Seek> Twice for T {}

/// Some lines, or what is wrong with one that cannot be a user.
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

/// The lines of the input.
struct Lines<'a> {
    source: BufReader<&'a mut dyn Twice>,
    number: u64,
}

impl Lines<'_> {
    fn of(source: &mut dyn Twice) -> Result<Lines<'_>, CliError> {
        source.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        Ok(Lines {
            source: BufReader::new(source),
            number: 0,
        })
    }

    /// The next line, as far as the limit; none at the end. The rest of a longer one is passed over.
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
            self.pass_over()?;
        }
        Ok(Some(self.number))
    }

    fn pass_over(&mut self) -> Result<(), CliError> {
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

    /// The next lines that fit into one transaction; none at the end. Blank lines are no users.
    fn next_chunk(&mut self) -> Result<Option<Chunk>, CliError> {
        let mut chunk = Chunk::default();
        let mut line = Vec::new();
        while !chunk.is_full() {
            let Some(number) = self.next_line(&mut line)? else {
                let is_over = chunk.lines.is_empty() && chunk.bad.is_empty();
                return Ok((!is_over).then_some(chunk));
            };
            let reason = if u64::try_from(line.len()).is_ok_and(|length| length > LINE_LIMIT) {
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
            chunk.bad.push(BadLine { line: number, reason });
        }
        Ok(Some(chunk))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn unreadable(error: std::io::Error) -> CliError {
    CliError::refused(format!("the input cannot be read: {error}"))
}

fn open(file: &Path) -> Result<Box<dyn Twice>, CliError> {
    let mut stream: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let mut opened = File::open(file)
            .map_err(|error| CliError::refused(format!("{} cannot be read: {error}", file.display())))?;
        match opened.stream_position() {
            Ok(_) => return Ok(Box::new(opened)),
            // A pipe is read once.
            Err(_) => Box::new(opened),
        }
    };
    whole(stream.as_mut(), INPUT_LIMIT).map(|text| -> Box<dyn Twice> { Box::new(Cursor::new(text)) })
}

/// All that comes, unless it is more than `limit` bytes: a part of it would pass for all.
fn whole(stream: &mut dyn Read, limit: u64) -> Result<Vec<u8>, CliError> {
    let mut text = Vec::new();
    let length = stream
        .take(limit + 1)
        .read_to_end(&mut text)
        .map_err(unreadable)?;
    if length as u64 > limit {
        return Err(CliError::refused(format!(
            "more than {} MiB come in: put them into a file and name that",
            limit >> 20
        )));
    }
    Ok(text)
}

fn count(source: &mut dyn Twice) -> Result<u64, CliError> {
    let mut lines = Lines::of(source)?;
    let mut line = Vec::new();
    while lines.next_line(&mut line)?.is_some() {}
    Ok(lines.number)
}

/// What tells users apart, as far as a line says it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    uuid: Option<String>,
    account_id: Option<String>,
    email: Option<String>,
    claims: Value,
}

/// Remembers who was in which line, so that two lines in different transactions do not mean the same user, and what
/// claims there were.
#[derive(Default)]
struct Seen {
    users: HashMap<LoginName, u64>,
    claims: BTreeSet<String>,
}

impl Seen {
    /// Takes the lines out of a chunk that mean a user of an earlier chunk.
    fn sift(&mut self, chunk: &mut Chunk) {
        let (seen, bad) = (&mut self.users, &mut chunk.bad);
        let mut new = Vec::new();
        chunk.lines.retain(|(number, text)| {
            let names: Names = serde_json::from_str(text).unwrap_or_default();
            if let Value::Object(claims) = names.claims {
                self.claims.extend(claims.into_iter().map(|(name, _)| name));
            }
            let names = [names.uuid, names.account_id, names.email];
            let names: Vec<_> = names
                .into_iter()
                .flatten()
                .map(|name| LoginName::new(&name))
                .collect();
            if let Some(first) = names.iter().find_map(|name| seen.get(name)) {
                bad.push(BadLine {
                    line: *number,
                    reason: format!("the same user as in line {first}"),
                });
                return false;
            }
            new.extend(names.into_iter().map(|name| (name, *number)));
            true
        });
        for (name, number) in new {
            seen.entry(name).or_insert(number);
        }
    }
}

fn add(total: &mut Imported, mut part: Imported, chunk: Chunk) {
    total.added += part.added;
    total.updated += part.updated;
    total.unchanged += part.unchanged;
    total.passwords += part.passwords;
    part.bad.extend(chunk.bad);
    part.bad.sort_by_key(|bad| bad.line);
    total.bad.append(&mut part.bad);
}

/// One pass over all lines; `seen` hears of every one.
fn pass(
    request: &Import,
    write: bool,
    session: &AdminConnection,
    source: &mut dyn Twice,
    lines: u64,
    seen: &mut Seen,
) -> Result<Imported, (Imported, CliError)> {
    let mut total = Imported::default();
    let mut progress = Progress::of(if write { "import" } else { "check" });
    let existing = match request.existing {
        Existing::Refuse => import::Existing::Refuse,
        Existing::Skip => import::Existing::Skip,
        Existing::Update => import::Existing::Update,
    };
    let mut work = || -> Result<(), CliError> {
        let mut input = Lines::of(source)?;
        while let Some(mut chunk) = input.next_chunk()? {
            seen.sift(&mut chunk);
            let command = Command::UserImport(ImportUsers {
                lines: std::mem::take(&mut chunk.lines),
                existing,
                skip_bad: request.skip_bad,
                write,
            });
            let Reply::Imported(part) = session.ask(command)? else {
                return Err(unexpected());
            };
            let is_refused = write && !request.skip_bad && !(part.bad.is_empty() && chunk.bad.is_empty());
            if is_refused {
                return Err(CliError::refused(
                    "the input or the users changed during the import",
                ));
            }
            add(&mut total, part, chunk);
            progress.show(input.number, lines);
        }
        Ok(())
    };
    let worked = work();
    match worked {
        Ok(()) => Ok(total),
        Err(stop) => Err((total, stop)),
    }
}

/// Runs the import: every line is looked at before the first user is written.
pub fn run(
    request: &Import,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let mut source = open(&request.file)?;
    let source = source.as_mut();
    let first = Command::UserImport(ImportUsers {
        lines: Vec::new(),
        existing: import::Existing::Refuse,
        skip_bad: false,
        write: !request.dry_run,
    });
    let session = connector.session(&first, output)?;
    let lines = count(source)?;
    let mut seen = Seen::default();
    let checked = pass(request, false, &session, source, lines, &mut seen).map_err(|(_, stop)| stop)?;
    warn_of_claims(seen.claims.iter().map(String::as_str), output);
    drop(seen);
    if !checked.bad.is_empty() && !request.skip_bad {
        if output.json {
            // Read or not, it is refused.
            let _ = output.document(&document(&checked, false));
        }
        let mut message: Vec<String> = checked.bad.iter().take(SHOWN).map(sentence).collect();
        if checked.bad.len() > SHOWN {
            message.push(format!("and {} more bad lines", checked.bad.len() - SHOWN));
        }
        return Err(CliError::Refused {
            message: message.join("\n"),
            hint: Some(
                "nothing was imported: mend these lines, or add --skip-bad to import the others".to_owned(),
            ),
        });
    }
    let done = if request.dry_run {
        checked
    } else {
        let seen = &mut Seen::default();
        pass(request, true, &session, source, lines, seen)
            .map_err(|(so_far, stop)| broken_off(&so_far, &stop))?
    };
    let changed = if request.dry_run {
        0
    } else {
        done.added + done.updated
    };
    show(&done, request.dry_run, output).map_err(|stop| match changed {
        0 => stop,
        _ => ChangeSummary::plain(imported(&done)).unshown(stop),
    })
}

fn show(done: &Imported, is_dry_run: bool, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&document(done, !is_dry_run));
    }
    for bad in done.bad.iter().take(SHOWN) {
        output.say(&sentence(bad));
    }
    if done.bad.len() > SHOWN {
        output.say(&format!("and {} more bad lines", done.bad.len() - SHOWN));
    }
    output.facts(&[
        ("added", done.added.to_string()),
        ("updated", done.updated.to_string()),
        ("unchanged", done.unchanged.to_string()),
        ("bad", done.bad.len().to_string()),
    ])?;
    if is_dry_run {
        output.hint("Nothing was imported: this was a dry run.");
    } else if done.passwords > 0 {
        output.hint("They sign in with the passwords they have; each is hashed anew at the first sign-in.");
    }
    Ok(())
}

fn imported(done: &Imported) -> String {
    let Imported {
        added, updated, bad, ..
    } = done;
    format!(
        "users were imported: {added} added, {updated} updated, {} bad",
        bad.len()
    )
}

fn sentence(bad: &BadLine) -> String {
    format!("line {}: {}", bad.line, bad.reason)
}

fn broken_off(so_far: &Imported, stop: &CliError) -> CliError {
    let written = so_far.added + so_far.updated;
    let message = format!("{stop}\nbroken off after {written} users had been imported");
    CliError::Refused {
        message,
        hint: Some("run the same command again: it goes on where this ended".to_owned()),
    }
}

fn document(done: &Imported, is_imported: bool) -> serde_json::Value {
    json!({
        "imported": is_imported,
        "added": done.added,
        "updated": done.updated,
        "unchanged": done.unchanged,
        "bad": done.bad,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_is_taken_in_is_refused_and_not_cut_off() {
        assert_eq!(whole(&mut &b"12345678"[..], 8).unwrap(), b"12345678");
        let refused = whole(&mut &b"123456789"[..], 8).unwrap_err().to_string();
        assert!(refused.contains("put them into a file"), "{refused}");
    }
}
