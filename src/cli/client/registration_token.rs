//! Runs `idsvc client registration-token …`.

use clap::{Args, Subcommand, value_parser};
use uuid::Uuid;

use crate::admin::client::{
    AddRegistrationToken, ListRegistrationTokens, RegistrationTokenView, RemoveRegistrationToken,
};
use crate::cli::admin_connection::AdminConnector;
use crate::cli::change_summary::ChangeSummary;
use crate::cli::output::{CliError, Output, moment};
use crate::cli::value_parsers::seconds;

/// The verbs of initial access tokens.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a token with which clients register themselves
    Add(Add),
    /// Show all tokens
    List,
    /// Remove a token. Clients that registered with it stay
    Remove(Remove),
}

/// The flags of `add`.
#[derive(Debug, Args)]
pub struct Add {
    /// When the token expires, as in 7d [default: never]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub expires: Option<u64>,
    /// How many clients may register with it [default: any number]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u64).range(1..))]
    pub uses: Option<u64>,
}

/// The flags of `remove`.
#[derive(Debug, Args)]
pub struct Remove {
    /// The token's identifier, as idsvc client registration-token list shows it
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// Parses the uuid of a token. The error does not repeat the text, which may be the token itself.
fn parse_token_id(text: &str) -> Result<Uuid, CliError> {
    Uuid::try_parse(text).map_err(|_| {
        CliError::Misused(
            "name the token by its uuid: idsvc client registration-token list shows it".to_owned(),
        )
    })
}

/// Runs a verb.
pub(super) fn run(
    verb: Verb,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match verb {
        Verb::Add(add) => {
            let remedy =
                "find the token with idsvc client registration-token list, remove it, and add another"
                    .to_owned();
            let summary = ChangeSummary::losing("there is a new registration token", "the token", [remedy]);
            let add = AddRegistrationToken {
                expires_in: add.expires,
                uses: add.uses,
            };
            connector.run_with_summary(add, summary, output, |view, output| show(&view, output))
        }
        Verb::List => connector.run(ListRegistrationTokens, output, |views, output| {
            list(&views, output)
        }),
        Verb::Remove(remove) => {
            let id = parse_token_id(&remove.token)?;
            output.confirm(&format!("Remove registration token {id}?"), remove.yes)?;
            connector.run(RemoveRegistrationToken { id }, output, |(), output| {
                output.removed("registration token", "id", &id.to_string())
            })
        }
    }
}

fn expiry(view: &RegistrationTokenView) -> String {
    view.expires_at.map_or_else(|| "never".to_owned(), moment)
}

fn uses(view: &RegistrationTokenView) -> String {
    view.uses_left
        .map_or_else(|| "any number".to_owned(), |left| left.to_string())
}

fn show(view: &RegistrationTokenView, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(view);
    }
    let token = view.initial_access_token.as_ref();
    output.facts(&[
        ("id", view.id.to_string()),
        (
            "initial_access_token",
            token.map(|token| token.reveal().to_owned()).unwrap_or_default(),
        ),
        ("expires_at", expiry(view)),
        ("uses_left", uses(view)),
    ])?;
    output.hint(
        "\nThe initial_access_token is shown this once; only its digest is kept. The client sends it as a Bearer token\nto /oauth2/register. The setting clients.registration must be token.",
    );
    Ok(())
}

fn list(views: &[RegistrationTokenView], output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&views);
    }
    output.table(
        &["TOKEN", "CREATED", "EXPIRES", "USES LEFT"],
        views.iter().map(|view| {
            [
                view.id.to_string(),
                moment(view.created_at),
                expiry(view),
                uses(view),
            ]
        }),
    )?;
    if views.is_empty() {
        output.hint("no registration token yet: idsvc client registration-token add");
    }
    Ok(())
}
