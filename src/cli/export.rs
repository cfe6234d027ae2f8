//! Runs `idsvc export`: it prints records as they come, in constant memory.

use std::fmt::Write as _;
use std::io::{BufWriter, Write};

use clap::Args;
use serde_json::{Map, Value};

use super::admin_connection::{AdminConnector, Opening, Records};
use super::output::{CliError, JsonArray, Output, counted};
use crate::admin;
use crate::admin::apply::{Exported, NotExported};
use crate::admin::client::{ClientView, ListClients};

/// The flags of `idsvc export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Write the hashes of passwords and secrets too, for another installation
    #[arg(long)]
    pub with_hashes: bool,
}

/// The first line of an export in TOML. A file with this line is complete if it has [`LAST_LINE`] too: in TOML, unlike in
/// JSON, half a state looks like a whole one.
pub const FIRST_LINE: &str =
    "# Made by idsvc export. It is complete if its last line is here. Apply it with idsvc apply -f FILE.";
/// The last line of an export in TOML.
pub const LAST_LINE: &str = "# The export ends here.";

/// The sections of a file, in the order in which their records come.
const SECTIONS: [&str; 6] = ["scope", "group", "provider", "api", "client", "user"];

/// Runs `idsvc export`. An export that is broken off has no end, so that `apply` refuses it.
pub fn run(
    request: &Export,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let session = connector.connect(&Opening::Existing, output)?;
    if request.with_hashes {
        session.take_records(ListClients, "list", |clients| {
            warn_of_ending_secrets(clients, output)
        })?;
    }
    let (is_json, out) = (output.json, &mut *output.out);
    let export = admin::apply::Export {
        with_hashes: request.with_hashes,
    };
    let not_exported = session.take_records(export, "export", |records| {
        let mut out = BufWriter::new(out);
        let mut not_exported = NotExported::default();
        let entries = entries(records, &mut not_exported);
        if is_json {
            write_json(entries, &mut out)?;
        } else {
            write_toml(entries, &mut out)?;
        }
        out.flush()?;
        Ok(not_exported)
    })?;
    warn_of_left_out(&not_exported, output);
    Ok(())
}

fn warn_of_ending_secrets(
    clients: &mut Records<'_, ClientView>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    for client in clients {
        let client = client?;
        if client.secrets.iter().any(|secret| secret.expires_at.is_some()) {
            output.say(&format!(
                "warning: the old secret of client {} is left out: a file cannot say when it expires",
                client.client_id
            ));
        }
    }
    Ok(())
}

/// Warns of records that an export cannot hold.
fn warn_of_left_out(not_exported: &NotExported, output: &mut Output<'_>) {
    for (count, what) in [
        (not_exported.registered, "clients that registered themselves"),
        (not_exported.brought, "users that a provider created"),
        (not_exported.links, "links of users to providers"),
        (
            not_exported.from_devices,
            "anonymous users that got a name or a password",
        ),
    ] {
        if count > 0 {
            output.say(&format!(
                "warning: left out, because a file cannot hold them: {count} {what}"
            ));
        }
    }
    if not_exported.with_factors > 0 {
        let users = counted(not_exported.with_factors, "user");
        let what = "authenticator apps, passkeys and recovery codes";
        output.say(&format!(
            "warning: left out, because a file cannot hold them: {what} of {users}"
        ));
    }
}

/// The entries with the indexes of their sections. `not_exported` becomes the count that follows them.
fn entries<'a>(
    records: impl Iterator<Item = Result<Exported, CliError>> + 'a,
    not_exported: &'a mut NotExported,
) -> impl Iterator<Item = Result<(usize, Map<String, Value>), CliError>> + 'a {
    records.filter_map(|record| match record {
        Ok(Exported::Scope(entry)) => Some(Ok((0, entry))),
        Ok(Exported::Group(entry)) => Some(Ok((1, entry))),
        Ok(Exported::Provider(entry)) => Some(Ok((2, entry))),
        Ok(Exported::Api(entry)) => Some(Ok((3, entry))),
        Ok(Exported::Client(entry)) => Some(Ok((4, entry))),
        Ok(Exported::User(entry)) => Some(Ok((5, entry))),
        Ok(Exported::NotExported(counted)) => {
            *not_exported = counted;
            None
        }
        Err(error) => Some(Err(error)),
    })
}

/// Writes one object with an array for each section.
fn write_json(
    entries: impl Iterator<Item = Result<(usize, Map<String, Value>), CliError>>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut entries = entries.peekable();
    for (index, section) in SECTIONS.iter().enumerate() {
        let before = if index == 0 { "{" } else { "," };
        write!(out, "{before}\n  \"{section}\": ")?;
        let mut array = JsonArray::begin(out, "  ")?;
        let is_later = |(section, _): &(usize, _)| *section > index;
        while let Some(entry) = entries.next_if(|entry| !entry.as_ref().is_ok_and(is_later)) {
            array.push(out, &entry?.1, str::to_owned)?;
        }
        array.end(out)?;
    }
    Ok(out.write_all(b"\n}\n")?)
}

/// Writes a table for each record.
fn write_toml(
    entries: impl Iterator<Item = Result<(usize, Map<String, Value>), CliError>>,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    writeln!(out, "{FIRST_LINE}")?;
    for entry in entries {
        let (index, entry) = entry?;
        let section = SECTIONS.get(index).copied().unwrap_or_default();
        out.write_all(to_toml(section, &entry)?.as_bytes())?;
    }
    Ok(writeln!(out, "\n{LAST_LINE}")?)
}

/// The table of a record.
fn to_toml(kind: &str, entry: &Map<String, Value>) -> Result<String, CliError> {
    let mut text = format!("\n[[{kind}]]\n");
    for (name, value) in ordered_members(entry) {
        let value = to_toml_value(value).ok_or_else(|| CliError::Refused {
            message: format!("{name} of a {kind} cannot be written in TOML: {value}"),
            hint: Some("idsvc export --json can, and idsvc apply reads that too".to_owned()),
        })?;
        let _ = writeln!(text, "{name} = {value}");
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
