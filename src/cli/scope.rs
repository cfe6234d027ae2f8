//! Runs `idsvc scope …`.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::admin_connection::AdminConnector;
use super::list_flags::{ListFlags, show_updated};
use super::output::{CliError, Output, field_facts, moment};
use super::value_parsers::change;
use crate::admin::scope::{AddScope, ListScopes, RemoveScope, ShowScope, UpdateScope};
use crate::oauth::{RegisteredScope, ScopeFields};

/// The verbs of scope values.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Register a scope value that releases claims of users
    #[command(
        after_help = "Examples:\n  idsvc scope add staff --claim badge --claim department --text 'See your badge and department'\n  idsvc client update web --add-scope staff"
    )]
    Add(Add),
    /// Show all registered scope values
    List,
    /// Show one scope value
    Show(Name),
    /// Change the named fields of a scope value. A list replaces the stored list, and '' removes a value
    Update(Update),
    /// Remove a scope value, so that it releases no claims
    Remove(Remove),
}

/// The name of a scope value.
#[derive(Debug, Args)]
pub struct Name {
    /// The scope value
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// The flags of `remove`.
#[derive(Debug, Args)]
pub struct Remove {
    /// The scope value
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// A new scope value.
#[derive(Debug, Args)]
pub struct Add {
    /// The scope value
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The fields.
    #[command(flatten)]
    pub fields: Fields,
}

/// A changed scope value.
#[derive(Debug, Args)]
pub struct Update {
    /// The scope value
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Single members of lists.
    #[command(flatten)]
    pub lists: ListFlags<Fields>,
    /// The changed fields.
    #[command(flatten)]
    pub fields: Fields,
}

/// The flags of `add` and `update`, with the names of the fields in [`ScopeFields`].
#[derive(Debug, Args, Serialize)]
pub struct Fields {
    /// A claim of the user that the scope value releases; may be repeated
    #[arg(long = "claim", value_name = "CLAIM")]
    pub claims: Option<Vec<String>>,
    /// Its description on the consent page
    #[arg(long)]
    pub text: Option<String>,
}

pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    match verb {
        Verb::Add(add) => {
            let add = AddScope {
                fields: change(&add.fields)?,
                name: add.name,
            };
            connector.run(add, output, |scope, output| {
                show(&scope, output)?;
                hint_after_add(&scope, output);
                Ok(())
            })
        }
        Verb::List => connector.run(ListScopes, output, |scopes, output| list(&scopes, output)),
        Verb::Show(Name { name }) => {
            connector.run(ShowScope { name }, output, |scope, output| show(&scope, output))
        }
        Verb::Update(update) => {
            let fields = ScopeFields {
                edits: update.lists.edits(|fields| change(&fields))?,
                ..change(&update.fields)?
            };
            if fields == ScopeFields::default() {
                let message = "nothing to change: name at least one flag, see idsvc scope update --help";
                return Err(CliError::Misused(message.to_owned()));
            }
            let name = update.name;
            connector.run(UpdateScope { name, fields }, output, |updated, output| {
                show_updated(&updated, output, show)
            })
        }
        Verb::Remove(Remove { name, yes }) => {
            output.confirm(
                &format!("Remove scope {name}, so that it releases no claims?"),
                yes,
            )?;
            connector.run(RemoveScope { name: name.clone() }, output, |(), output| {
                output.removed("scope", "name", &name)
            })
        }
    }
}

fn list(scopes: &[RegisteredScope], output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&scopes);
    }
    output.table(
        &["SCOPE", "CLAIMS", "TEXT"],
        scopes.iter().map(|scope| {
            let claims: Vec<_> = scope.metadata.claims.iter().map(String::as_str).collect();
            [
                scope.name.clone(),
                claims.join(" "),
                scope.metadata.text.clone().unwrap_or_default(),
            ]
        }),
    )?;
    if scopes.is_empty() {
        output.hint("no scope yet: idsvc scope add NAME --claim CLAIM");
    }
    Ok(())
}

fn show(scope: &RegisteredScope, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(scope);
    }
    let mut facts = vec![("name", scope.name.clone())];
    facts.extend(field_facts(&scope.metadata, ScopeFields::FIELDS)?);
    facts.push(("uuid", scope.uuid.to_string()));
    facts.push(("created_at", moment(scope.created_at)));
    facts.push(("updated_at", moment(scope.updated_at)));
    output.facts(&facts)
}

fn hint_after_add(scope: &RegisteredScope, output: &mut Output<'_>) {
    if !output.json {
        output.hint(&format!(
            "\nLet a client ask for it: idsvc client update CLIENT --add-scope {}",
            scope.name
        ));
    }
}
