//! Runs `idsvc apply` and `idsvc export`.

use std::fmt::Write as _;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

use super::admin_connection::{AdminConnector, unexpected};
use super::key::warn_of_new_keys;
use super::output::{CliError, Output};
use super::refusal::{StateFile, hint, message};
use super::state_file::{Declared, Sources, parse};
use super::value_parsers::{read_limited, unreadable, warn_of_claims};
use crate::admin::apply::{Action, Applied, Apply as Request, Change, Exported, NotExported, SecretChange};
use crate::admin::client::ClientView;
use crate::control::protocol::{Command, ExportLine, Reply};

/// The flags of `idsvc apply`.
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

/// The flags of `idsvc export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Write the hashes of passwords and secrets too, for another installation
    #[arg(long)]
    pub with_hashes: bool,
}

/// The largest file that `apply` reads, in bytes.
const FILE_LIMIT: u64 = 12 << 20;

fn read(file: &Path) -> Result<String, CliError> {
    let bytes = read_limited(file, FILE_LIMIT, ": idsvc user import is for so many users")?;
    let text = str::from_utf8(&bytes).map_err(|_| unreadable(file, &"it is not UTF-8"))?;
    Ok(text.to_owned())
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
        let located = faults.iter().map(|fault| format!("{file}: {fault}"));
        CliError::refused(located.collect::<Vec<_>>().join("\n"))
    })?;
    let users = state.user.iter().flatten();
    let claims = users.flat_map(|user| user.line.claims.keys());
    let providers = state.provider.iter().flatten();
    let mapped = providers.flat_map(|provider| provider.fields.claims.iter().flatten().map(|(ours, _)| ours));
    warn_of_claims(claims.chain(mapped).map(String::as_str), output);
    // A later refusal names the place in the file, too.
    let state_file = StateFile {
        name: &file,
        places: &places,
    };
    let locate = |error: CliError| match error {
        CliError::Faults(faults) => CliError::Refused {
            message: message(&faults, Some(&state_file)),
            hint: hint(&faults, Some(&state_file)),
        },
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
    let mut confirmed = None;
    if request.prune && !request.dry_run && !request.yes {
        let Reply::Applied(planned) = connector.ask(command(true, None), output).map_err(locate)? else {
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
        // The service removes only these. Records that are added after the question stay.
        confirmed = Some(removed);
    }
    let run = connector.run(
        command(request.dry_run, confirmed),
        output,
        |reply, output| match reply {
            Reply::Applied(applied) if output.json => output.document(&applied),
            Reply::Applied(applied) => show(&applied, output),
            _ => Err(unexpected()),
        },
    );
    run.map_err(locate)?;
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
    for change in &applied.changes {
        output.line(&heading(change))?;
        for field in &change.fields {
            let line = match (&field.before, &field.after) {
                (None, None) if field.secret == Some(SecretChange::Removed) => {
                    format!("    {} (removed)", field.name)
                }
                (None, None) => format!("    {} (new, not shown)", field.name),
                (None, Some(after)) => format!("    {} = {}", field.name, after),
                (Some(before), None) => format!("    {} = {} -> none", field.name, before),
                (Some(before), Some(after)) => {
                    format!("    {} = {} -> {}", field.name, before, after)
                }
            };
            output.line(&line)?;
        }
        if let Some(secret) = &change.client_secret {
            output.line(&format!("    client_secret = {}", secret.reveal()))?;
        }
    }
    let count = |action| {
        applied
            .changes
            .iter()
            .filter(|change| change.action == action)
            .count()
    };
    let (added, changed, removed) = (count(Action::Add), count(Action::Change), count(Action::Remove));
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

/// All records of an export, by kind.
#[derive(Default, Serialize)]
struct ExportedState {
    provider: Vec<Map<String, Value>>,
    client: Vec<Map<String, Value>>,
    user: Vec<Map<String, Value>>,
    #[serde(skip)]
    not_exported: NotExported,
}

/// Runs `idsvc export`. It prints only a complete export, because half a state looks like a whole one.
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
    let exported = session.take_bytes(command, read_export)?;
    warn_of_left_out(&exported.not_exported, output);
    let text = if output.json {
        serde_json::to_string_pretty(&exported).map_err(CliError::refused)?
    } else {
        to_toml(&exported)?
    };
    print(text.trim_end(), output)
}

/// Prints an export, with a warning if it is larger than [`apply`] reads.
fn print(text: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    // The printed text has one more byte: the last line end.
    if u64::try_from(text.len()).is_ok_and(|bytes| bytes >= FILE_LIMIT) {
        output.say(&format!(
            "warning: this is more than the {FILE_LIMIT} bytes that idsvc apply reads: to make another installation the same, take idsvc backup and idsvc restore"
        ));
    }
    output.exact(text)
}

/// Warns of records that an export cannot hold.
fn warn_of_left_out(not_exported: &NotExported, output: &mut Output<'_>) {
    for (count, what) in [
        (not_exported.brought, "users whom a provider brought"),
        (not_exported.links, "links of users to providers"),
        (
            not_exported.from_devices,
            "users of devices who have got a name or a password",
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
fn read_export(source: &mut dyn BufRead) -> Result<ExportedState, CliError> {
    let mut exported = ExportedState::default();
    for line in source.split(b'\n') {
        let line = line.map_err(|error| CliError::refused(format!("the export was broken off: {error}")))?;
        match serde_json::from_slice(&line).map_err(|_| broken_off())? {
            ExportLine::Record(Exported::Provider(entry)) => exported.provider.push(entry),
            ExportLine::Record(Exported::Client(entry)) => exported.client.push(entry),
            ExportLine::Record(Exported::User(entry)) => exported.user.push(entry),
            ExportLine::NotExported(not_exported) => exported.not_exported = not_exported,
            ExportLine::End => return Ok(exported),
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

fn to_toml(exported: &ExportedState) -> Result<String, CliError> {
    let mut text = String::from("# Made by idsvc export. idsvc apply -f FILE brings it about.\n");
    let kinds = [
        ("provider", &exported.provider),
        ("client", &exported.client),
        ("user", &exported.user),
    ];
    for (kind, entries) in kinds {
        for entry in entries {
            let _ = write!(text, "\n[[{kind}]]\n");
            for (name, value) in ordered_members(entry) {
                let value = to_toml_value(value).ok_or_else(|| CliError::Refused {
                    message: format!("{name} of a {kind} cannot be written in TOML: {value}"),
                    hint: Some("idsvc export --json can, and idsvc apply reads that too".to_owned()),
                })?;
                let _ = writeln!(text, "{name} = {value}");
            }
        }
    }
    Ok(text)
}

/// The members of a record in the order of the file: those that name it come first.
fn ordered_members(entry: &Map<String, Value>) -> Vec<(&String, &Value)> {
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

/// The value in TOML, or `None` if TOML has no such value.
fn to_toml_value(value: &Value) -> Option<toml::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => integer.into(),
            None if number.is_f64() => number.as_f64()?.into(),
            None => return None,
        },
        Value::String(text) => text.clone().into(),
        Value::Array(values) => toml::Value::Array(values.iter().map(to_toml_value).collect::<Option<_>>()?),
        Value::Object(members) => toml::Value::Table(
            members
                .iter()
                .map(|(name, value)| Some((name.clone(), to_toml_value(value)?)))
                .collect::<Option<_>>()?,
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn an_export_without_its_last_line_is_refused() {
        let user = "{\"record\":{\"user\":{\"email\":\"a@example.com\"}}}\n";
        let exported = format!("{user}\"end\"\n");
        assert_eq!(
            read_export(&mut exported.as_bytes())
                .unwrap_or_default()
                .user
                .len(),
            1
        );
        for cut in [0, 1, user.len() - 1, user.len(), exported.len() - 2] {
            let said = read_export(&mut &exported.as_bytes()[..cut]).err().unwrap();
            assert!(said.to_string().contains("broken off"), "{cut}: {said}");
        }
    }

    #[test]
    fn an_export_that_is_too_long_for_apply_has_a_warning() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("state.toml");
        let most = usize::try_from(FILE_LIMIT).unwrap() - 1;
        for (length, is_read) in [(most, true), (most + 1, false)] {
            let (mut out, mut err) = (File::create(&file).unwrap(), Vec::new());
            let mut output = Output::new(&mut out, &mut err);
            print(&"#".repeat(length), &mut output).unwrap();
            assert_eq!(err.is_empty(), is_read, "{}", String::from_utf8_lossy(&err));
            assert_eq!(read(&file).is_ok(), is_read);
        }
    }
}
