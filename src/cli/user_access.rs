//! Runs `idsvc user access`.

use super::admin_connection::AdminConnector;
use super::output::{CliError, Output, yes_no};
use crate::admin::user::{AccessibleClient, ShowAccess, UserAccess};
use crate::flow::grant_policy::Denial;

/// Prints the clients that a user may use or may not use.
pub(super) fn show(
    who: String,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    connector.run(ShowAccess { who }, output, |access, output| {
        if output.json {
            return output.document(&access);
        }
        let UserAccess { user, clients } = access;
        output.facts(&[("account_id", user.account_id), ("uuid", user.uuid.to_string())])?;
        if clients.is_empty() {
            output.hint("no client is for people yet: idsvc client add ID --redirect-uri URI");
            return Ok(());
        }
        let head = ["CLIENT", "NAME", "ALLOWED", "REASONS", "LAST USED"];
        output.table(&head, clients.into_iter().map(table_row))
    })
}

fn table_row(client: AccessibleClient) -> [String; 5] {
    let reasons: Vec<_> = client.reasons.into_iter().map(Denial::as_str).collect();
    [
        client.client_id,
        client.name,
        yes_no(client.allowed),
        reasons.join(", "),
        client.last_used.unwrap_or_default(),
    ]
}
