//! Runs `idsvc client api-key …`.

use clap::{Args, Subcommand};
use uuid::Uuid;

use super::Id;
use crate::admin::client::api_key::{ApiKeyView, WhichApiKey};
use crate::cli::admin_connection::{AdminConnector, unexpected};
use crate::cli::output::{CliError, Output, moment};
use crate::control::protocol::{Command, Reply};

/// The verbs of API keys.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Generate another API key for a client
    Add(Id),
    /// Show the API keys of a client
    List(Id),
    /// Revoke an API key. It stops working at once
    Revoke(Revoke),
}

/// The flags of `revoke`.
#[derive(Debug, Args)]
pub struct Revoke {
    /// The client's identifier
    #[arg(value_name = "ID")]
    pub id: String,
    /// The key's identifier, as idsvc client api-key list shows it
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// Parses the uuid of a key. The error does not repeat the text, which may be the key itself.
fn parse_key_id(text: &str) -> Result<Uuid, CliError> {
    Uuid::try_parse(text).map_err(|_| {
        CliError::Misused("name the API key by its uuid: idsvc client api-key list ID shows it".to_owned())
    })
}

/// Runs a verb.
pub(super) fn run(
    verb: Verb,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let command = match verb {
        Verb::Add(which) => Command::ApiKeyAdd(which.id),
        Verb::List(which) => Command::ApiKeyList(which.id),
        Verb::Revoke(revoke) => {
            let id = parse_key_id(&revoke.key)?;
            output.confirm(
                &format!("Revoke API key {} of client {}?", id, revoke.id),
                revoke.yes,
            )?;
            Command::ApiKeyRevoke(WhichApiKey {
                client_id: revoke.id,
                id,
            })
        }
    };
    connector.run(command, output, print)
}

fn print(reply: Reply, output: &mut Output<'_>) -> Result<(), CliError> {
    match reply {
        Reply::ApiKey(view) if output.json => output.document(&view),
        Reply::ApiKey(view) => show(&view, output),
        Reply::ApiKeys(views) if output.json => output.document(&views),
        Reply::ApiKeys(views) => list(&views, output),
        Reply::ApiKeyRevoked(which) if output.json => output
            .document(&serde_json::json!({ "client_id": which.client_id, "id": which.id, "revoked": true })),
        Reply::ApiKeyRevoked(which) => output.line(&format!(
            "API key {} of client {} is revoked",
            which.id, which.client_id
        )),
        _ => Err(unexpected()),
    }
}

fn show(view: &ApiKeyView, output: &mut Output<'_>) -> Result<(), CliError> {
    let key = view
        .api_key
        .as_ref()
        .map(|key| key.reveal().to_owned())
        .unwrap_or_default();
    output.facts(&[
        ("client_id", view.client_id.clone()),
        ("id", view.id.to_string()),
        ("api_key", key),
    ])?;
    output.hint(
        "\nThe api_key is shown this once; only its digest is kept. It goes into the Authorization header of\nPOST /v4/tokens: Basic, base64 of the key.",
    );
    Ok(())
}

fn list(views: &[ApiKeyView], output: &mut Output<'_>) -> Result<(), CliError> {
    output.table(
        &["KEY", "CREATED", "LAST USED"],
        views.iter().map(|view| {
            let used = view.last_used_at.map_or_else(|| "never".to_owned(), moment);
            [view.id.to_string(), moment(view.created_at), used]
        }),
    )?;
    if views.is_empty() {
        output.hint("no API key yet: idsvc client api-key add ID");
    }
    Ok(())
}
