//! `idsvc apply` and `idsvc export`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::admin_connection::{AdminConnector, unexpected};
use super::key::warn_of_new_keys;
use super::output::{CliError, Output};
use super::state_file::{Declared, Sources, parse};
use super::value_parsers::warn_of_claims;
use crate::admin::apply::{Action, Applied, Apply as Request, Change, Exported, LeftOut, SecretChange};
use crate::admin::client::ClientView;
use crate::control::{Command, ExportLine, Reply};

/// Which state, and how far.
#[derive(Debug, Args)]
pub struct Apply {
    /// The state, as export writes it, - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Remove providers, clients and users that are not in the file, of the kinds that are
    #[arg(long)]
    pub prune: bool,
    /// Do not ask before something is removed
    #[arg(long)]
    pub yes: bool,
}

/// What is in the export.
#[derive(Debug, Args)]
pub struct Export {
    /// Write the hashes of passwords and secrets too, for another installation
    #[arg(long)]
    pub with_hashes: bool,
}

/// The most that a file may hold.
const FILE_LIMIT: u64 = 12 << 20;

fn read(file: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().take(FILE_LIMIT + 1).read_to_string(&mut text)
    } else {
        File::open(file).and_then(|opened| opened.take(FILE_LIMIT + 1).read_to_string(&mut text))
    };
    let bytes =
        read.map_err(|error| CliError::refused(format!("{} cannot be read: {error}", file.display())))?;
    if u64::try_from(bytes).is_ok_and(|bytes| bytes > FILE_LIMIT) {
        return Err(CliError::refused(format!(
            "{} is larger than {FILE_LIMIT} bytes: idsvc user import is for so many users",
            file.display()
        )));
    }
    Ok(text)
}

/// Runs `idsvc apply`.
pub fn apply(
    request: &Apply,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let text = read(&request.file)?;
    let folder = request.file.parent().unwrap_or(Path::new(""));
    let sources = Sources {
        folder,
        variable: &|name| std::env::var(name).ok(),
    };
    let file = if request.file.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        request.file.display().to_string()
    };
    let Declared { state, places } = parse(&text, &sources).map_err(|faults| {
        let placed = faults.iter().map(|fault| format!("{file}: {fault}"));
        CliError::refused(placed.collect::<Vec<_>>().join("\n"))
    })?;
    let users = state.user.iter().flatten();
    let claims = users.flat_map(|user| user.line.claims.keys());
    let providers = state.provider.iter().flatten();
    let mapped = providers.flat_map(|provider| provider.fields.claims.iter().flatten().map(|(ours, _)| ours));
    warn_of_claims(claims.chain(mapped).map(String::as_str), output);
    // What is refused later, because of what there is, has its place in the file too.
    let placed = |stop: CliError| match stop {
        CliError::Refused { message, hint } => {
            let lines = message.lines().map(|line| match places.of(line) {
                Some(place) => format!("{file}: {place}: {line}"),
                None => line.to_owned(),
            });
            CliError::Refused {
                message: lines.collect::<Vec<_>>().join("\n"),
                hint,
            }
        }
        other => other,
    };
    let command = |dry_run, only| {
        Command::Apply(Box::new(Request {
            state: state.clone(),
            dry_run,
            prune: request.prune,
            only,
        }))
    };
    let mut asked = None;
    if request.prune && !request.dry_run && !request.yes {
        let Reply::Applied(planned) = connector.ask(command(true, None), output).map_err(placed)? else {
            return Err(unexpected());
        };
        let removed: Vec<_> = planned.removed().collect();
        if !removed.is_empty() {
            let changes = planned.changes.iter();
            for change in changes.filter(|change| change.action == Action::Remove) {
                output.say(&heading(change));
            }
            output.confirm(
                &format!("Remove these {} with everything granted to them?", removed.len()),
                false,
            )?;
        }
        // What comes meanwhile is not removed unasked.
        asked = Some(removed);
    }
    let run = connector.run(
        command(request.dry_run, asked),
        output,
        |reply, output| match reply {
            Reply::Applied(applied) if output.json => output.document(&applied),
            Reply::Applied(applied) => show(&applied, output),
            _ => Err(unexpected()),
        },
    );
    run.map_err(placed)?;
    if !request.dry_run {
        let clients = || state.client.iter().flatten();
        let access_tokens = clients().filter_map(|client| client.fields.access_token_alg);
        let id_tokens = clients().filter_map(|client| client.fields.id_token_signed_response_alg);
        warn_of_new_keys(
            &access_tokens.chain(id_tokens).collect::<Vec<_>>(),
            connector,
            output,
        );
    }
    Ok(())
}

fn heading(change: &Change) -> String {
    let sign = match change.action {
        Action::Add => '+',
        Action::Change => '~',
        Action::Remove => '-',
    };
    format!("{sign} {} {}", change.kind, change.id)
}

fn show(applied: &Applied, output: &mut Output<'_>) -> Result<(), CliError> {
    let mut counts = [0_u64; 3];
    for change in &applied.changes {
        let place = match change.action {
            Action::Add => 0,
            Action::Change => 1,
            Action::Remove => 2,
        };
        if let Some(count) = counts.get_mut(place) {
            *count += 1;
        }
        output.line(&heading(change))?;
        for field in &change.fields {
            let text = |value: &Value| value.to_string();
            let line = match (&field.before, &field.after) {
                (None, None) if field.secret == Some(SecretChange::Removed) => {
                    format!("    {} (removed)", field.name)
                }
                (None, None) => format!("    {} (new, not shown)", field.name),
                (None, Some(after)) => format!("    {} = {}", field.name, text(after)),
                (Some(before), None) => format!("    {} = {} -> none", field.name, text(before)),
                (Some(before), Some(after)) => {
                    format!("    {} = {} -> {}", field.name, text(before), text(after))
                }
            };
            output.line(&line)?;
        }
        if let Some(secret) = &change.client_secret {
            output.line(&format!("    client_secret = {}", secret.reveal()))?;
        }
    }
    let [added, changed, removed] = counts;
    let unchanged = applied.unchanged;
    output.line(&format!(
        "{added} added, {changed} changed, {removed} removed, {unchanged} as they were"
    ))?;
    if applied.dry_run {
        output.hint("Nothing was changed: this was a dry run.");
    } else if applied
        .changes
        .iter()
        .any(|change| change.client_secret.is_some())
    {
        output.hint("A secret that was made is shown this once; only its digest is kept.");
    }
    Ok(())
}

/// Everything there is, as a file has it: kinds, and the records of each.
#[derive(Default, Serialize)]
struct Whole {
    provider: Vec<Map<String, Value>>,
    client: Vec<Map<String, Value>>,
    user: Vec<Map<String, Value>>,
    #[serde(skip)]
    left_out: LeftOut,
}

/// Runs `idsvc export`. Nothing is printed before everything is here: half a state looks like a whole one.
pub fn export(
    request: &Export,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let command = Command::Export(request.with_hashes);
    let session = connector.session(&command, output)?;
    if request.with_hashes {
        let Reply::Clients(clients) = session.ask(Command::ClientList)? else {
            return Err(unexpected());
        };
        let ends = |client: &&ClientView| client.secrets.iter().any(|secret| secret.expires_at.is_some());
        for client in clients.iter().filter(ends) {
            output.say(&format!(
                "warning: the old secret of client {}, which is about to end, is left out: a file has no room for when",
                client.client_id
            ));
        }
    }
    let whole = session.take_bytes(command, gather)?;
    warn(&whole.left_out, output);
    let text = if output.json {
        serde_json::to_string_pretty(&whole).map_err(CliError::refused)?
    } else {
        to_toml(&whole)?
    };
    print(text.trim_end(), output)
}

/// Prints an export, and says when there is more of it than [`apply`] reads.
fn print(text: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    // With the end of its last line.
    if u64::try_from(text.len()).is_ok_and(|bytes| bytes >= FILE_LIMIT) {
        output.say(&format!(
            "warning: this is more than the {FILE_LIMIT} bytes that idsvc apply reads: to make another installation the same, take idsvc backup and idsvc restore"
        ));
    }
    output.exact(text)
}

/// Says what the file lacks of another installation that would be the same.
fn warn(left_out: &LeftOut, output: &mut Output<'_>) {
    for (count, what) in [
        (left_out.brought, "users whom a provider brought"),
        (left_out.links, "links of users to providers"),
        (
            left_out.from_devices,
            "users of devices who have a name or a password by now",
        ),
    ] {
        if count > 0 {
            output.say(&format!(
                "warning: {what} are left out, {count} in number: a file has no room for them"
            ));
        }
    }
}

/// Reads an export to its end.
fn gather(source: &mut dyn BufRead) -> Result<Whole, CliError> {
    let mut whole = Whole::default();
    for line in source.split(b'\n') {
        let line = line.map_err(|error| CliError::refused(format!("the export was broken off: {error}")))?;
        match serde_json::from_slice(&line).map_err(|_| broken_off())? {
            ExportLine::Record(Exported::Provider(entry)) => whole.provider.push(entry),
            ExportLine::Record(Exported::Client(entry)) => whole.client.push(entry),
            ExportLine::Record(Exported::User(entry)) => whole.user.push(entry),
            ExportLine::LeftOut(left_out) => whole.left_out = left_out,
            ExportLine::End => return Ok(whole),
        }
    }
    Err(broken_off())
}

fn broken_off() -> CliError {
    CliError::Refused {
        message: "the export was broken off".to_owned(),
        hint: Some("the log of the service says why".to_owned()),
    }
}

fn to_toml(whole: &Whole) -> Result<String, CliError> {
    let mut text = String::from("# Made by idsvc export. idsvc apply -f FILE brings it about.\n");
    let kinds = [
        ("provider", &whole.provider),
        ("client", &whole.client),
        ("user", &whole.user),
    ];
    for (kind, entries) in kinds {
        for entry in entries {
            let _ = write!(text, "\n[[{kind}]]\n");
            for (name, value) in in_order(entry) {
                let value = toml_of(value).ok_or_else(|| CliError::Refused {
                    message: format!("{name} of a {kind} cannot be written in TOML: {value}"),
                    hint: Some("idsvc export --json can, and idsvc apply reads that too".to_owned()),
                })?;
                let _ = writeln!(text, "{name} = {value}");
            }
        }
    }
    Ok(text)
}

/// What names the record comes first.
fn in_order(entry: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let rank = |name: &str| match name {
        "id" => 0,
        "client_id" | "account_id" => 1,
        "client_uuid" | "uuid" => 2,
        "name" | "email" => 3,
        _ => 4,
    };
    let mut members: Vec<_> = entry.iter().collect();
    members.sort_by_key(|(name, _)| (rank(name), (*name).clone()));
    members
}

/// The value on one line; none where TOML has no such value.
fn toml_of(value: &Value) -> Option<toml::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None if number.is_f64() => number.as_f64()?.into(),
            None => return None,
        },
        Value::String(text) => text.clone().into(),
        Value::Array(values) => toml::Value::Array(values.iter().map(toml_of).collect::<Option<_>>()?),
        Value::Object(members) => toml::Value::Table(
            members
                .iter()
                .map(|(name, value)| Some((name.clone(), toml_of(value)?)))
                .collect::<Option<_>>()?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_that_ends_before_its_end_is_no_export() {
        let user = "{\"record\":{\"user\":{\"email\":\"a@example.com\"}}}\n";
        let whole = format!("{user}\"end\"\n");
        assert_eq!(gather(&mut whole.as_bytes()).unwrap_or_default().user.len(), 1);
        for cut in [0, 1, user.len() - 1, user.len(), whole.len() - 2] {
            let said = gather(&mut &whole.as_bytes()[..cut]).err().unwrap();
            assert!(said.to_string().contains("broken off"), "{cut}: {said}");
        }
    }

    #[test]
    fn an_export_that_apply_would_refuse_for_its_length_is_warned_of() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("state.toml");
        let most = usize::try_from(FILE_LIMIT).unwrap() - 1;
        for (length, is_read) in [(most, true), (most + 1, false)] {
            let (mut out, mut err) = (File::create(&file).unwrap(), Vec::new());
            let mut output = Output {
                json: false,
                out: &mut out,
                err: &mut err,
            };
            print(&"#".repeat(length), &mut output).unwrap();
            assert_eq!(err.is_empty(), is_read, "{}", String::from_utf8_lossy(&err));
            assert_eq!(read(&file).is_ok(), is_read);
        }
    }
}
