//! Runs `idsvc user invite`, `idsvc user reset` and `idsvc user lock`.

use clap::Args;

use super::admin_connection::AdminConnector;
use super::change_summary::ChangeSummary;
use super::output::{CliError, Output, moment};
use super::user_factors;
use crate::admin::user::{InviteUser, LinkView, LockUser, ResetUser};

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
    let done = format!("an invitation for {} was made", invite.email);
    let remedy = format!("idsvc user invite {} makes another one", invite.email);
    let summary = ChangeSummary::losing(done, "its link", [remedy]);
    let invite = InviteUser {
        email: invite.email,
        groups: invite.groups,
        client_id: invite.client,
    };
    connector.run_with_summary(invite, summary, output, print_link)
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
    let done = format!("a link for user {} was made", reset.who);
    let remedy = format!("idsvc user reset {} makes another one", reset.who);
    let summary = ChangeSummary::losing(done, "the link", [remedy]);
    let reset = ResetUser {
        who: reset.who,
        mail: reset.mail,
    };
    connector.run_with_summary(reset, summary, output, print_link)
}

/// Runs `lock`.
pub(super) fn lock(
    who: String,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    connector.run(LockUser { who }, output, |locked, output| {
        if output.json {
            return output.document(&locked);
        }
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
    })
}

fn print_link(view: LinkView, output: &mut Output<'_>) -> Result<(), CliError> {
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
