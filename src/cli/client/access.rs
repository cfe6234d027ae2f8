//! Runs `idsvc client access`.

use clap::Args;
use serde_json::json;
use uuid::Uuid;

use crate::admin::client::{ClientAccess, ListAccess, ShowClient};
use crate::cli::admin_connection::{AdminConnector, Opening};
use crate::cli::output::{CliError, Output, yes_no};

/// The flags of `access`.
#[derive(Debug, Args)]
pub struct Access {
    /// The client's identifier
    #[arg(value_name = "ID")]
    pub id: String,
    /// The most users to show [default: 500; all with --json]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// Begin after the user with this uuid
    #[arg(long, value_name = "UUID")]
    pub after: Option<Uuid>,
}

/// The most users that are shown as text without `--limit`.
const DEFAULT_LIMIT: u32 = 500;

/// Prints which groups may use the client, then the users. One user at a time is in memory.
pub(super) fn run(
    request: Access,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let Access { id, limit, after } = request;
    let limit = match limit {
        None if output.json => None,
        limit => Some(limit.unwrap_or(DEFAULT_LIMIT)),
    };
    let most = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX);
    let connection = connector.connect(&Opening::Existing, output)?;
    let client = connection.call(ShowClient {
        client_id: id.clone(),
    })?;
    let groups = &client.allowed_groups;
    let list = ListAccess {
        client_id: id.clone(),
        after,
        // One more than is shown tells whether the list goes on.
        limit: limit.map(|limit| u64::from(limit) + 1),
    };
    let mut last = None;
    let goes_on = connection.take_records(list, "list", |records| {
        let shown = records.by_ref().take(most);
        let users = shown.inspect(|user| last = user.as_ref().ok().map(|user| user.uuid).or(last));
        if output.json {
            let members = [
                ("client_id", json!(id)),
                ("everybody", json!(groups.is_empty())),
                ("groups", json!(groups)),
            ];
            output.object_with_array(&members, "users", users)?;
        } else {
            let names: Vec<_> = groups.iter().map(String::as_str).collect();
            output.facts(&[
                ("client_id", id),
                ("everybody", yes_no(groups.is_empty())),
                ("groups", names.join(", ")),
            ])?;
            let rows = users.map(|user| user.map(table_row));
            output.long_table(&["ACCOUNT", "ALLOWED", "THROUGH", "LAST USED", "UUID"], rows)?;
        }
        Ok(records.next().transpose()?.is_some())
    })?;
    match last {
        None => output.hint("nobody may use it, and nobody has used it"),
        Some(last) if goes_on => output.say(&format!(
            "there are more: add --after {last} to continue, or --limit COUNT to show more at once"
        )),
        Some(_) => {}
    }
    Ok(())
}

fn table_row(user: ClientAccess) -> [String; 5] {
    [
        user.account_id,
        yes_no(user.allowed),
        user.through.join(", "),
        user.last_used.unwrap_or_default(),
        user.uuid.to_string(),
    ]
}
