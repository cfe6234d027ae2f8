//! Runs `idsvc api …`.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::admin_connection::AdminConnector;
use super::api_words::hint_at_missing_words;
use super::key::warn_of_new_keys;
use super::list_flags::{ListFlags, show_updated};
use super::output::{CliError, Output, field_facts, moment, yes_no};
use super::value_parsers::{change, optional_algorithm, optional_seconds, scope_text, token_typ, words};
use crate::admin::api::{AddApi, ListApis, RemoveApi, ShowApi, UpdateApi};
use crate::jose::alg::Algorithm;
use crate::oauth::fields::Removable;
use crate::oauth::{Api, ApiFields};

/// The verbs of APIs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Register an API
    #[command(
        after_help = "Examples:\n  idsvc api add notes --identifier https://api.example/notes --scope notes.read=\"Read your notes\" --open\n  idsvc api update notes --add-role editor --add-role-group editor=staff\n  idsvc client update web --add-api notes"
    )]
    Add(Box<Add>),
    /// Show all APIs
    List,
    /// Show one API
    Show(Id),
    /// Change the named fields of an API. A list replaces the stored list, and '' removes a value
    Update(Box<Update>),
    /// Remove an API that no client names
    Remove(Remove),
}

/// The id of an API.
#[derive(Debug, Args)]
pub struct Id {
    /// The API's id
    #[arg(value_name = "ID")]
    pub id: String,
}

/// The flags of `remove`.
#[derive(Debug, Args)]
pub struct Remove {
    /// The API's id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// The common flags of `add` and `update`. A flag for a field has the name of the field in [`ApiFields`].
#[derive(Debug, Args, Serialize)]
pub struct Fields {
    /// The name shown to people
    #[arg(long)]
    pub name: Option<String>,
    /// A scope value of the API, and its description on the consent page; may be repeated
    #[arg(long, value_name = "NAME[=TEXT]")]
    #[serde(skip)]
    pub scope: Option<Vec<String>>,
    /// Let every client that acts for a user name the API, also those that registered themselves
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub open: Option<bool>,
    /// How long access tokens for the API last, as in 15m [default: as the client or the configuration says]
    #[arg(long, value_name = "TIME", value_parser = optional_seconds)]
    pub access_token_lifetime: Option<u64>,
    /// The algorithm of access tokens for the API [default: as the client or the configuration says]
    #[arg(long, value_name = "ALG", value_parser = optional_algorithm)]
    pub access_token_alg: Option<Removable<Algorithm>>,
    /// The typ of access tokens for the API [default: as the client or the configuration says]
    #[arg(long, value_name = "TYP", value_parser = token_typ())]
    pub access_token_typ: Option<String>,
    /// A client that may introspect tokens for the API; may be repeated
    #[arg(long = "introspection-client", value_name = "CLIENT")]
    pub introspection_clients: Option<Vec<String>>,
    /// The token exchanges that may be requested for its tokens [default: any]
    #[arg(long, value_name = "POLICY", value_parser = words(&[
        ("any", "With an actor token or without one"),
        ("delegation", "Only with an actor token, so that the new token names the actor"),
        ("off", "None"),
    ]))]
    pub token_exchange: Option<String>,
    /// A role that users can have in the API; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    pub roles: Option<Vec<String>>,
    /// A group whose users have a role in the API; may be repeated. ROLE= removes all groups from the role
    #[arg(long = "role-group", value_name = "ROLE=GROUP", value_parser = role_group)]
    #[serde(skip)]
    pub role_groups: Option<Vec<(String, String)>>,
}

fn role_group(text: &str) -> Result<(String, String), String> {
    let (role, group) = text
        .split_once('=')
        .ok_or("write the role and its group as ROLE=GROUP")?;
    Ok((role.to_owned(), group.to_owned()))
}

impl Fields {
    fn into_fields(self) -> Result<ApiFields, CliError> {
        let mut fields: ApiFields = change(&self)?;
        if let Some(scope) = self.scope {
            let (values, texts): (Vec<_>, Vec<_>) = scope
                .into_iter()
                .map(|value| match scope_text(&value) {
                    Ok((name, text)) => (name.clone(), Some((name, text))),
                    Err(_) => (value, None),
                })
                .unzip();
            let texts: std::collections::BTreeMap<_, _> = texts.into_iter().flatten().collect();
            fields.scope = Some(values);
            fields.scope_texts = (!texts.is_empty()).then_some(texts);
        }
        for (role, group) in self.role_groups.into_iter().flatten() {
            let groups = fields.role_groups.get_or_insert_default();
            groups.entry(role).or_default().push(group);
        }
        Ok(fields)
    }
}

/// A new API.
#[derive(Debug, Args)]
pub struct Add {
    /// The name by which commands and clients refer to the API
    #[arg(value_name = "ID")]
    pub id: String,
    /// The value of resource in requests, and of aud in tokens: usually the address of the API
    #[arg(long, value_name = "URI")]
    pub identifier: String,
    /// The fields.
    #[command(flatten)]
    pub fields: Fields,
}

/// A changed API. A list replaces the stored list, and '' removes a value.
#[derive(Debug, Args)]
pub struct Update {
    /// The API's id
    #[arg(value_name = "ID")]
    pub id: String,
    /// Single members of lists.
    #[command(flatten)]
    pub lists: ListFlags<Fields>,
    /// The changed fields.
    #[command(flatten)]
    pub fields: Fields,
}

pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let mut stored = None;
    let alg = match verb {
        Verb::Add(add) => {
            let fields = add.fields.into_fields()?;
            let alg = fields.access_token_alg;
            let add = AddApi {
                id: add.id,
                identifier: add.identifier,
                fields,
            };
            connector.run(add, output, |api, output| {
                show(&api, true, output)?;
                stored = Some(api);
                Ok(())
            })?;
            alg
        }
        Verb::List => return connector.run(ListApis, output, |apis, output| list(&apis, output)),
        Verb::Show(Id { id }) => {
            return connector.run(ShowApi { id }, output, |api, output| show(&api, false, output));
        }
        Verb::Update(update) => {
            let fields = ApiFields {
                edits: update.lists.edits(Fields::into_fields)?,
                ..update.fields.into_fields()?
            };
            if fields == ApiFields::default() {
                return Err(CliError::Misused(
                    "nothing to change: name at least one flag, see idsvc api update --help".to_owned(),
                ));
            }
            let alg = fields.access_token_alg;
            let id = update.id;
            connector.run(UpdateApi { id, fields }, output, |updated, output| {
                show_updated(&updated, output, |api, output| show(api, false, output))?;
                stored = Some(updated.view);
                Ok(())
            })?;
            alg
        }
        Verb::Remove(Remove { id, yes }) => {
            let question =
                format!("Remove API {id}? Refreshes of grants that are for it alone will be refused.");
            output.confirm(&question, yes)?;
            return connector.run(RemoveApi { id: id.clone() }, output, |(), output| {
                output.removed("api", "id", &id)
            });
        }
    };
    if let Some(api) = &stored {
        hint_at_missing_words(api, connector, output);
    }
    let alg = alg.and_then(|alg| alg.0);
    warn_of_new_keys(&alg.into_iter().collect::<Vec<_>>(), connector, output);
    Ok(())
}

fn list(views: &[Api], output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&views);
    }
    output.table(
        &["API", "NAME", "OPEN", "IDENTIFIER", "SCOPE"],
        views.iter().map(|view| {
            [
                view.id.clone(),
                view.name.clone().unwrap_or_default(),
                yes_no(view.open),
                view.identifier.clone(),
                view.scope.to_string(),
            ]
        }),
    )?;
    if views.is_empty() {
        output.hint("no API yet: idsvc api add ID --identifier URI");
    }
    Ok(())
}

fn show(view: &Api, is_new: bool, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(view);
    }
    let mut facts = vec![("id", view.id.clone()), ("identifier", view.identifier.clone())];
    facts.extend(field_facts(&view.metadata, ApiFields::FIELDS)?);
    facts.push(("uuid", view.uuid.to_string()));
    facts.push(("created_at", moment(view.created_at)));
    facts.push(("updated_at", moment(view.updated_at)));
    output.facts(&facts)?;
    if is_new && !view.open {
        output.hint(&format!(
            "\nLet a client use it: idsvc client update CLIENT --add-api {}",
            view.id
        ));
    }
    Ok(())
}
