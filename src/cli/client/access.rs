//! Runs `idsvc client access`.

use clap::Args;
use serde_json::json;

use crate::admin::client::{ClientAccess, ListAccess, ShowClient};
use crate::cli::admin_connection::{AdminConnector, Opening};
use crate::cli::list_page::ListPage;
use crate::cli::output::{CliError, Output, yes_no};

/// The flags of `access`.
#[derive(Debug, Args)]
pub struct Access {
    /// The client's identifier
    #[arg(value_name = "ID")]
    pub id: String,
    #[command(flatten)]
    pub page: ListPage,
}

/// Prints which groups may use the client, then the users.
pub(super) fn run(
    request: Access,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let Access { id, page } = request;
    let connection = connector.connect(&Opening::Existing, output)?;
    let client = connection.call(ShowClient {
        client_id: id.clone(),
    })?;
    let groups = &client.allowed_groups;
    let list = ListAccess {
        client_id: id.clone(),
        after: page.after,
        limit: page.requested(output),
    };
    let any = page.show(
        list,
        &connection,
        |user| user.uuid,
        output,
        |users, output| {
            if output.json {
                let members = [
                    ("client_id", json!(id)),
                    ("everybody", json!(groups.is_empty())),
                    ("groups", json!(groups)),
                ];
                return output.object_with_array(&members, "users", users);
            }
            let names: Vec<_> = groups.iter().map(String::as_str).collect();
            output.facts(&[
                ("client_id", id),
                ("everybody", yes_no(groups.is_empty())),
                ("groups", names.join(", ")),
            ])?;
            let rows = users.map(|user| user.map(table_row));
            output.long_table(&["ACCOUNT", "ALLOWED", "THROUGH", "LAST USED", "UUID"], rows)
        },
    )?;
    if !any {
        output.hint("nobody may use it, and nobody has used it");
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
