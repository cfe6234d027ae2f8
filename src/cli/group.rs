//! Runs `idsvc group …`.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::admin_connection::AdminConnector;
use super::list_flags::show_updated;
use super::output::{CliError, Output, field_facts, moment};
use super::value_parsers::change;
use crate::admin::group::{AddGroup, ListGroups, RemoveGroup, ShowGroup, UpdateGroup};
use crate::oauth::{Group, GroupFields, token_length};

/// The verbs of groups.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Add a group of users
    #[command(
        after_help = "Examples:\n  idsvc group add editors --text 'People who may publish'\n  idsvc user update alice@example.com --add-group editors"
    )]
    Add(Change),
    /// Show all groups
    List,
    /// Show one group
    Show(Name),
    /// Change the named fields of a group. '' removes a value
    Update(Change),
    /// Remove a group. A new group of the same name has no users
    Remove(Remove),
}

/// The name of a group.
#[derive(Debug, Args)]
pub struct Name {
    /// The group's name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// The flags of `remove`.
#[derive(Debug, Args)]
pub struct Remove {
    /// The group's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// The flags of `add` and `update`, with the names of the fields in [`GroupFields`].
#[derive(Debug, Args, Serialize)]
pub struct Change {
    /// The group's name, as it is in tokens
    #[arg(value_name = "NAME")]
    #[serde(skip)]
    pub name: String,
    /// A description for operators
    #[arg(long)]
    pub text: Option<String>,
}

pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    match verb {
        Verb::Add(add) => {
            let add = AddGroup {
                fields: change(&add)?,
                name: add.name,
            };
            connector.run(add, output, |group, output| {
                show(&group, output)?;
                hint_after_add(&group, output);
                Ok(())
            })?;
            warn_of_many(connector, output);
            Ok(())
        }
        Verb::List => connector.run(ListGroups, output, |groups, output| list(&groups, output)),
        Verb::Show(Name { name }) => {
            connector.run(ShowGroup { name }, output, |group, output| show(&group, output))
        }
        Verb::Update(update) => {
            let fields = change(&update)?;
            if fields == GroupFields::default() {
                let message = "nothing to change: name at least one flag, see idsvc group update --help";
                return Err(CliError::Misused(message.to_owned()));
            }
            let name = update.name;
            connector.run(UpdateGroup { name, fields }, output, |updated, output| {
                show_updated(&updated, output, show)
            })
        }
        Verb::Remove(Remove { name, yes }) => {
            output.confirm(&format!("Remove group {name} and take all users out of it?"), yes)?;
            connector.run(RemoveGroup { name: name.clone() }, output, |(), output| {
                output.removed("group", "name", &name)
            })
        }
    }
}

fn list(groups: &[Group], output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&groups);
    }
    output.table(
        &["GROUP", "TEXT", "UUID"],
        groups.iter().map(|group| {
            [
                group.name.clone(),
                group.metadata.text.clone().unwrap_or_default(),
                group.uuid.to_string(),
            ]
        }),
    )?;
    if groups.is_empty() {
        output.hint("no group yet: idsvc group add NAME");
    }
    Ok(())
}

fn show(group: &Group, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(group);
    }
    let mut facts = vec![("name", group.name.clone())];
    facts.extend(field_facts(&group.metadata, GroupFields::FIELDS)?);
    facts.push(("uuid", group.uuid.to_string()));
    facts.push(("created_at", moment(group.created_at)));
    facts.push(("updated_at", moment(group.updated_at)));
    output.facts(&facts)
}

/// Warns if a user who is in all groups would get tokens that are nearly too long.
fn warn_of_many(connector: &AdminConnector<'_>, output: &mut Output<'_>) {
    let Ok(groups) = connector.call(ListGroups, output) else {
        return;
    };
    let names: Vec<_> = groups.iter().map(|group| &group.name).collect();
    if let Some(bytes) = token_length::near_limit(&names, &()) {
        output.say(&format!(
            "warning: the names of all {} groups take {bytes} of the {} bytes of a token: a user who is in all of them may get none for a client with the scope groups",
            names.len(),
            token_length::LONGEST
        ));
    }
}

fn hint_after_add(group: &Group, output: &mut Output<'_>) {
    if !output.json {
        output.hint(&format!(
            "\nPut a user into it: idsvc user update WHO --add-group {}\nLet a client get the groups of users: idsvc client update CLIENT --add-scope groups",
            group.name
        ));
    }
}
