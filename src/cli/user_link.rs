//! Runs `idsvc user invite`, `idsvc user reset` and `idsvc user lock`.

use clap::Args;

use super::admin_connection::{AdminConnector, unexpected};
use super::output::{CliError, Output, moment};
use super::user_factors;
use crate::admin::user::{InviteUser, LinkView, ResetUser};
use crate::control::protocol::{Command, Reply};

/// The flags of `invite`.
#[derive(Debug, Args)]
pub struct Invite {
    /// The person's e-mail address
    #[arg(value_name = "EMAIL")]
    pub email: String,
    /// A group that the user will be in, see idsvc group; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// The client that the person is invited to: the mail and the pages have its theme, and the last page leads to it
    #[arg(long, value_name = "CLIENT")]
    pub client: Option<String>,
}

/// The flags of `reset`.
#[derive(Debug, Args)]
pub struct Reset {
    /// The user's e-mail address, account identifier or uuid
    #[arg(value_name = "WHO")]
    pub who: String,
    /// Send the link to the user's e-mail address
    #[arg(long)]
    pub mail: bool,
    /// Remove all factors of the user instead: authenticator apps, passkeys, recovery codes. The password stays
    #[arg(long, conflicts_with = "mail")]
    pub factors: bool,
}

/// Runs `invite`.
pub(super) fn invite(
    invite: Invite,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let command = Command::UserInvite(InviteUser {
        email: invite.email,
        groups: invite.groups,
        client_id: invite.client,
    });
    connector.run(command, output, print_link)
}

/// Runs `reset`.
pub(super) fn reset(
    reset: Reset,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if reset.factors {
        return user_factors::reset(reset.who, connector, output);
    }
    let command = Command::UserReset(ResetUser {
        who: reset.who,
        mail: reset.mail,
    });
    connector.run(command, output, print_link)
}

/// Runs `lock`.
pub(super) fn lock(
    who: String,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    connector.run(Command::UserLock(who), output, |reply, output| match reply {
        Reply::UserLocked(locked) if output.json => output.document(&locked),
        Reply::UserLocked(locked) => {
            output.line(&format!(
                "user {} is disabled; sessions ended: {}",
                locked.account_id, locked.sessions_ended
            ))?;
            output.hint(&format!(
                "APIs that verify access tokens without asking the service accept them until {} at the latest.\nTo let the user in again: idsvc user enable {}",
                moment(locked.access_tokens_expire_at),
                locked.account_id
            ));
            Ok(())
        }
        _ => Err(unexpected()),
    })
}

fn print_link(reply: Reply, output: &mut Output<'_>) -> Result<(), CliError> {
    let Reply::UserLink(view) = reply else {
        return Err(unexpected());
    };
    if output.json {
        return output.document(&view);
    }
    let LinkView {
        account_id,
        sent_to,
        link,
        expires_at,
    } = view;
    let link = link.map(|link| link.reveal().to_owned());
    let mut facts = vec![("account_id", account_id)];
    facts.extend(sent_to.clone().map(|to| ("sent_to", to)));
    facts.extend(link.map(|link| ("link", link)));
    facts.push(("expires_at", moment(expires_at)));
    output.facts(&facts)?;
    output.hint(if sent_to.is_some() {
        "\nidsvc mail list shows mails that wait."
    } else {
        "\nThe link is shown this once and works once. Pass it on to this person only."
    });
    Ok(())
}
