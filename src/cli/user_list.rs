//! Runs `idsvc user list`.

use clap::Args;

use super::admin_connection::{AdminConnector, Opening};
use super::list_page::ListPage;
use super::output::{CliError, Output, yes_no};
use super::value_parsers::seconds;
use crate::admin::user::{ListUsers, UserFilter, UserView};

/// The columns of the table of users.
pub(super) const HEAD: [&str; 8] = [
    "ACCOUNT",
    "E-MAIL",
    "NAME",
    "TYPE",
    "ENABLED",
    "LAST SIGN-IN",
    "LAST USED",
    "UUID",
];

/// The flags of `list`.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    pub filter: FilterFlags,
    #[command(flatten)]
    pub page: ListPage,
}

/// The conditions for users, as `list` and `remove` take them.
#[derive(Debug, Args)]
pub struct FilterFlags {
    /// Only users whose name, address, telephone number, account identifier or uuid contains this, in any case
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// Only users who have neither an authenticator app nor a passkey
    #[arg(long)]
    pub without_factor: bool,
    /// Only users whose last sign-in and last use are at least this long ago, in whole days. Without either, the creation of the user counts
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    pub not_seen: Option<u64>,
    /// Only users who have never signed in here, and for whom no client got tokens without a sign-in. Users of an earlier release of whom that is not known are left out
    #[arg(long)]
    pub never_signed_in: bool,
    /// Only users that are disabled, by user lock or user disable
    #[arg(long, visible_alias = "disabled")]
    pub locked: bool,
    /// Only anonymous users
    #[arg(long)]
    pub anonymous: bool,
    /// Only users who were created by this provider or are linked to it
    #[arg(long, value_name = "PROVIDER")]
    pub provider: Option<String>,
    /// Only users in this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
}

impl FilterFlags {
    /// The conditions. An empty text to search for is none.
    pub(super) fn filter(self) -> UserFilter {
        UserFilter {
            search: self.search.filter(|text| !text.trim().is_empty()),
            disabled: self.locked,
            anonymous: self.anonymous,
            provider: self.provider,
            group: self.group,
            without_factor: self.without_factor,
            never_signed_in: self.never_signed_in,
            not_seen: self.not_seen,
        }
    }
}

/// Runs `user list`.
pub(super) fn list(
    request: List,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let List { filter, page } = request;
    let wanted = ListUsers {
        filter: filter.filter(),
        after: page.after,
        limit: page.requested(output),
    };
    let is_of_all = wanted.filter == UserFilter::default() && page.after.is_none();
    let is_of_group = wanted.filter.group.is_some();
    let connection = connector.connect(&Opening::Existing, output)?;
    let any = page.show(
        wanted,
        &connection,
        |view| view.uuid,
        output,
        |views, output| {
            if output.json {
                output.array(views)
            } else {
                output.long_table(&HEAD, views.map(|view| view.map(table_row)))
            }
        },
    )?;
    if !any {
        output.hint(match (is_of_all, is_of_group) {
            (true, _) => "no user yet: idsvc user add EMAIL",
            (false, true) => "no user matches: idsvc group list shows the groups",
            (false, false) => "no user matches",
        });
    }
    Ok(())
}

/// A user in the table of [`HEAD`].
pub(super) fn table_row(view: UserView) -> [String; 8] {
    let name = view.claims.get("name").and_then(|name| name.as_str());
    let name = name.unwrap_or_default().to_owned();
    [
        view.account_id,
        view.email.unwrap_or_default(),
        name,
        view.user_type,
        yes_no(view.enabled),
        view.last_sign_in.unwrap_or_default(),
        view.last_used.unwrap_or_default(),
        view.uuid.to_string(),
    ]
}
