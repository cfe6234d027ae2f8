//! Runs `idsvc client api-key …`.

use clap::{Args, Subcommand};
use uuid::Uuid;

use super::Id;
use crate::admin::client::{AddApiKey, ApiKeyView, ListApiKeys, RevokeApiKey};
use crate::cli::admin_connection::AdminConnector;
use crate::cli::change_summary::ChangeSummary;
use crate::cli::output::{CliError, Output, moment};

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
    match verb {
        Verb::Add(which) => {
            let done = format!("client {} has one more API key", which.id);
            let summary = ChangeSummary::with_credentials(done, &which.id, false, true);
            let add = AddApiKey { client_id: which.id };
            connector.run_with_summary(add, summary, output, |view, output| show(&view, output))
        }
        Verb::List(which) => {
            let list_keys = ListApiKeys { client_id: which.id };
            connector.run(list_keys, output, |views, output| list(&views, output))
        }
        Verb::Revoke(revoke) => {
            let (client_id, id) = (revoke.id, parse_key_id(&revoke.key)?);
            let question = format!("Revoke API key {id} of client {client_id}?");
            output.confirm(&question, revoke.yes)?;
            let revoke = RevokeApiKey {
                client_id: client_id.clone(),
                id,
            };
            connector.run(revoke, output, |(), output| {
                if output.json {
                    let document = serde_json::json!({ "client_id": client_id, "id": id, "revoked": true });
                    return output.document(&document);
                }
                output.line(&format!("API key {id} of client {client_id} is revoked"))
            })
        }
    }
}

fn show(view: &ApiKeyView, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(view);
    }
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
    if output.json {
        return output.document(&views);
    }
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
