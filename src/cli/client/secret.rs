//! Runs `idsvc client secret …`.

use clap::{Args, Subcommand};
use serde_json::json;

use super::Id;
use crate::admin::client::{ClientView, ListSecrets, RevokeSecret, UsedSecretView};
use crate::cli::admin_connection::AdminConnector;
use crate::cli::output::{CliError, Output, moment};

/// The verbs of client secrets.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show the valid secrets of a client, and when each was last used
    List(Id),
    /// Revoke one secret. It stops working at once, and the other one goes on. The last one can be revoked if the client
    /// has a key or a certificate
    Revoke(Revoke),
}

/// The flags of `revoke`.
#[derive(Debug, Args)]
pub struct Revoke {
    /// The client's identifier
    #[arg(value_name = "ID")]
    pub id: String,
    /// The secret's identifier, as idsvc client secret list shows it
    #[arg(value_name = "SECRET")]
    pub secret: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// Parses the identifier of a secret. The error does not repeat the text, which may be the secret itself.
fn parse_secret_id(text: &str) -> Result<String, CliError> {
    if text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        let message = "name the secret by its identifier: idsvc client secret list ID shows it";
        Err(CliError::Misused(message.to_owned()))
    }
}

/// Runs a verb.
pub(super) fn run(
    verb: Verb,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match verb {
        Verb::List(which) => {
            let list_secrets = ListSecrets { client_id: which.id };
            connector.run(list_secrets, output, |views, output| list(&views, output))
        }
        Verb::Revoke(revoke) => {
            let (client_id, id) = (revoke.id, parse_secret_id(&revoke.secret)?);
            let question = format!("Revoke secret {id} of client {client_id}?");
            output.confirm(&question, revoke.yes)?;
            let revoke = RevokeSecret {
                client_id,
                id: id.clone(),
            };
            connector.run(revoke, output, |view, output| show(&view, &id, output))
        }
    }
}

fn show(view: &ClientView, id: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    let client_id = &view.client_id;
    if output.json {
        output.document(&json!({ "client_id": client_id, "id": id, "revoked": true }))?;
    } else {
        output.line(&format!("secret {id} of client {client_id} is revoked"))?;
    }
    let ends = view.secrets.iter().map(|secret| secret.expires_at);
    if let Some(end) = ends
        .collect::<Option<Vec<_>>>()
        .and_then(|ends| ends.into_iter().max())
    {
        output.hint(&format!(
            "The secret that is left expires at {}: idsvc client rotate-secret {client_id} makes a new one.",
            moment(end)
        ));
    }
    Ok(())
}

fn list(views: &[UsedSecretView], output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&views);
    }
    output.table(
        &["SECRET", "CREATED", "EXPIRES", "LAST USED"],
        views.iter().map(|view| {
            let or_never = |at: Option<_>| at.map_or_else(|| "never".to_owned(), moment);
            [
                view.id.clone(),
                moment(view.created_at),
                or_never(view.expires_at),
                or_never(view.last_used),
            ]
        }),
    )?;
    if views.is_empty() {
        output.hint("no secret: idsvc client rotate-secret ID makes one");
    }
    Ok(())
}
