//! Runs `idsvc user invitations`.

use clap::Args;

use super::admin_connection::{AdminConnector, Opening};
use super::output::{CliError, Output, moment};
use crate::admin::user::{ListInvitations, RevokeInvitations};

/// The flags of `invitations`.
#[derive(Debug, Args)]
pub struct Invitations {
    /// Revoke the open invitation for this e-mail address. Its link no longer works
    #[arg(long, value_name = "EMAIL")]
    pub revoke: Option<String>,
}

pub(super) fn run(
    request: Invitations,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    match request.revoke {
        Some(email) => revoke(email, connector, output),
        None => list(connector, output),
    }
}

fn revoke(email: String, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    connector.run(RevokeInvitations { email }, output, |revoked, output| {
        if output.json {
            return output.document(&revoked);
        }
        output.line(&format!("the invitation for {} is revoked", revoked.email))?;
        output.hint(&format!("idsvc user invite {} makes another one", revoked.email));
        Ok(())
    })
}

fn list(connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let connection = connector.connect(&Opening::Existing, output)?;
    connection.take_records(ListInvitations, "list", |invitations| {
        if output.json {
            return output.array(invitations);
        }
        let mut is_empty = true;
        let rows = invitations.map(|invitation| {
            is_empty = false;
            invitation.map(|invitation| {
                let groups: Vec<_> = invitation.groups.into_iter().collect();
                let sent = if invitation.sent {
                    "by mail"
                } else {
                    "as a printed link"
                };
                [
                    invitation.email,
                    groups.join(" "),
                    invitation.client_id.unwrap_or_default(),
                    moment(invitation.created_at),
                    moment(invitation.expires_at),
                    sent.to_owned(),
                    invitation.invited_by.unwrap_or_default(),
                ]
            })
        });
        let headings = [
            "E-MAIL",
            "GROUPS",
            "CLIENT",
            "CREATED",
            "EXPIRES",
            "SENT",
            "INVITED BY",
        ];
        output.long_table(&headings, rows)?;
        if is_empty {
            output.hint("no invitation is open: idsvc user invite EMAIL");
        }
        Ok(())
    })
}
