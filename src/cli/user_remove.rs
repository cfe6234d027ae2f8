//! Runs `idsvc user remove`.

use clap::Args;
use uuid::Uuid;

use super::admin_connection::{AdminConnector, Opening};
use super::output::{CliError, Output, counted};
use super::progress::Progress;
use super::user_list::{FilterFlags, HEAD, table_row};
use crate::admin::user::{ListUsers, RemoveUser, RemoveUsers, RemovedUser, UserFilter};

/// The flags of `remove`.
#[derive(Debug, Args)]
pub struct Remove {
    /// The user's e-mail address, account identifier or uuid; or conditions for all users to remove
    #[arg(value_name = "WHO")]
    pub who: Option<String>,
    #[command(flatten)]
    pub filter: FilterFlags,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

pub(super) fn remove(
    remove: Remove,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let Remove { who, filter, yes } = remove;
    let filter = filter.filter();
    let has_filter = filter != UserFilter::default();
    match who {
        Some(_) if has_filter => Err(CliError::Misused(
            "name one user, or say which users with conditions, not both".to_owned(),
        )),
        Some(who) => remove_one(who, yes, connector, output),
        None if has_filter => remove_matching(&filter, yes, connector, output),
        None => Err(CliError::Misused(
            "name a user, or say which users: see idsvc user remove --help".to_owned(),
        )),
    }
}

fn remove_one(
    who: String,
    yes: bool,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let question = format!("Remove user {who} with their sessions, consents and refresh tokens?");
    output.confirm(&question, yes)?;
    connector.run(RemoveUser { who }, output, |removed, output| {
        let RemovedUser { uuid, account_id } = removed;
        if output.json {
            let document = serde_json::json!({ "uuid": uuid, "account_id": account_id, "removed": true });
            return output.document(&document);
        }
        output.line(&format!("user {account_id} is removed"))?;
        let traces = traces(connector, output)?;
        output.hint(&format!("{traces}\nEvents name the user as {uuid}."));
        Ok(())
    })
}

/// Where copies of a removed user are.
fn traces(connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<&'static str, CliError> {
    Ok(match connector.settings(output)?.store {
        None => {
            "Traces stay in backups, and in the database until idsvc compact: see idsvc help erase-a-person."
        }
        Some(_) => {
            "Traces stay in backups, in the tables of PostgreSQL until VACUUM, and in its archive and on its standbys: see idsvc help erase-a-person."
        }
    })
}

/// Lists the users, asks, and removes those that were listed. The store is not held while the answer is waited for.
fn remove_matching(
    filter: &UserFilter,
    yes: bool,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let users = list_matching(filter, connector, output)?;
    let listed = u64::try_from(users.len()).unwrap_or(u64::MAX);
    let mut removed = 0;
    if users.is_empty() {
        output.hint("no user matches");
    } else {
        let count = counted(listed, "user");
        let question = format!("Remove {count} with their sessions, consents and refresh tokens?");
        output.confirm(&question, yes)?;
        let batches = remove_listed(&users, filter, &mut removed, connector, output);
        batches.map_err(|error| interrupted(removed, &error))?;
    }
    let kept = listed - removed;
    if output.json {
        return output.document(&serde_json::json!({ "removed_users": removed, "kept_users": kept }));
    }
    output.line(&format!("users removed: {removed}"))?;
    if kept > 0 {
        let kept = counted(kept, "user");
        output.say(&format!("{kept} no longer matched, and stayed"));
    }
    if removed > 0 {
        let traces = traces(connector, output)?;
        output.hint(traces);
    }
    Ok(())
}

/// Prints the users, unless the output is JSON. Returns who they are.
fn list_matching(
    filter: &UserFilter,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<Vec<Uuid>, CliError> {
    let wanted = ListUsers {
        filter: filter.clone(),
        ..ListUsers::default()
    };
    let connection = connector.connect(&Opening::Existing, output)?;
    connection.take_records(wanted, "list", |records| {
        let mut users = Vec::new();
        let mut views = records.inspect(|view| users.extend(view.as_ref().ok().map(|view| view.uuid)));
        if output.json {
            views.try_for_each(|view| view.map(drop))?;
        } else {
            output.long_table(&HEAD, views.map(|view| view.map(table_row)))?;
        }
        Ok(users)
    })
}

fn remove_listed(
    users: &[Uuid],
    filter: &UserFilter,
    removed: &mut u64,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let connection = connector.connect(&Opening::Existing, output)?;
    let mut progress = Progress::of("removal");
    let mut batches = users.chunks(RemoveUsers::BATCH).enumerate().peekable();
    while let Some((number, batch)) = batches.next() {
        let batch = RemoveUsers {
            users: batch.to_vec(),
            filter: filter.clone(),
            removed_before: *removed,
            is_last: batches.peek().is_none(),
        };
        *removed += connection.call(batch)?.removed;
        let done = u64::try_from(number * RemoveUsers::BATCH).unwrap_or(u64::MAX);
        progress.show(done, u64::try_from(users.len()).ok());
    }
    Ok(())
}

fn interrupted(removed: u64, error: &CliError) -> CliError {
    CliError::Refused {
        message: format!("{error}; users removed so far: {removed}"),
        hint: Some("run the command again to remove the others".to_owned()),
    }
}
