//! Runs `idsvc user …`.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::admin_connection::AdminConnector;
use super::change_summary::ChangeSummary;
use super::list_flags::{ListFlags, show_updated};
use super::output::{CliError, Output, moment, yes_no};
use super::password_flags::PasswordFlags;
use super::value_parsers::{change, warn_of_claims};
use super::{invitations, session, user_access, user_factors, user_link, user_list, user_remove};
use crate::admin::scope::ListScopes;
use crate::admin::user::{
    AddUser, DisableUser, EnableUser, NewPassword, SetPassword, ShowUser, UnlinkUser, UpdateUser, UserFields,
    UserView,
};
use crate::oauth::token_length;

/// The verbs of users.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Add a user. Without a terminal, one of the password flags is needed
    #[command(
        after_help = "Examples:\n  idsvc user add alice@example.com --generate-password --email-verified --name 'Alice Example'\n  idsvc user add bob@example.com --password-stdin --claim given_name=Bob <password.txt"
    )]
    Add(Box<Add>),
    /// Show users in the order in which they were added. All conditions have to hold. Reads all users, and the sessions and refresh tokens of those that match
    #[command(
        after_help = "Examples:\n  idsvc user list --without-factor --group staff\n  idsvc user list --not-seen 365d --json"
    )]
    List(user_list::List),
    /// Show one user
    Show(Who),
    /// Change the named fields of a user. '' removes a value
    Update(Box<Update>),
    /// Remove a user with their sessions, consents and refresh tokens, or all users for whom the conditions hold
    #[command(
        after_help = "With conditions, it lists the users, says how many they are, and asks. Users who are seen in the meantime stay.\nIt removes a hundred at a time. If it is interrupted, run it again.\n\nExamples:\n  idsvc user remove alice@example.com\n  idsvc user remove --never-signed-in --not-seen 365d"
    )]
    Remove(user_remove::Remove),
    /// Set or remove a user's password. Without a terminal, one of the password flags is needed
    SetPassword(Set),
    /// Import users from another system, with their password hashes. All lines are checked first
    #[command(
        after_help = "A line is a JSON object: email, account_id, uuid, email_verified, phone_number, phone_number_verified, user_type,\nvenue_id, organization, enabled, claims, groups, created_at (seconds), password_hash. Either email or account_id is needed.\n\nExample:\n  idsvc user import users.jsonl --dry-run"
    )]
    Import(super::import::Import),
    /// Enable a disabled user
    Enable(Who),
    /// Disable a user without removing them
    Disable(Who),
    /// Invite a person to create an account. The link is sent by mail, or printed if mail.url is not set
    Invite(user_link::Invite),
    /// Show the open invitations; with --revoke, revoke one
    #[command(
        after_help = "Examples:\n  idsvc user invitations\n  idsvc user invitations --revoke bob@example.com"
    )]
    Invitations(invitations::Invitations),
    /// Show the factors of a user: authenticator apps, passkeys, recovery codes
    Factors(Who),
    /// Show the sessions of a user, those that ended within the last week too, and whether applications were told of the end
    Sessions(Who),
    /// Print a link with which a user chooses a new password; with --mail, send it. With --factors, remove the factors
    Reset(user_link::Reset),
    /// Show the clients that a user may use and has used, and why not the others
    Access(Who),
    /// Disable a user and end all their sessions and refresh tokens at once
    Lock(Who),
    /// Remove a user's link to a provider. Sessions and refresh tokens that began there end
    Unlink(Unlink),
}

/// The name of a user.
#[derive(Debug, Args)]
pub struct Who {
    /// The user's e-mail address, account identifier or uuid
    #[arg(value_name = "WHO")]
    pub who: String,
}

/// The flags of `unlink`.
#[derive(Debug, Args)]
pub struct Unlink {
    /// The user's e-mail address, account identifier or uuid
    #[arg(value_name = "WHO")]
    pub who: String,
    /// The provider's id
    #[arg(value_name = "PROVIDER")]
    pub provider: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

/// The common flags of `add` and `update`, with the names of the fields in [`UserFields`].
#[derive(Debug, Args, Serialize)]
pub struct Fields {
    /// The full name, as shown to people
    #[arg(long)]
    pub name: Option<String>,
    /// The telephone number, preferably in E.164 form, as in +3225550123
    #[arg(long)]
    pub phone_number: Option<String>,
    /// The user's type in tokens [default: user]
    #[arg(long)]
    pub user_type: Option<String>,
    /// The venue the user belongs to
    #[arg(long)]
    pub venue_id: Option<String>,
    /// The organization the user belongs to [default: as configured]
    #[arg(long)]
    pub organization: Option<String>,
    /// The e-mail address is verified
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub email_verified: Option<bool>,
    /// The telephone number is verified
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub phone_number_verified: Option<bool>,
    /// At the next sign-in with the present password, the user must choose another one
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub must_change_password: Option<bool>,
    /// A claim; may be repeated.
    #[arg(long = "claim", help = "A claim, as in given_name=Alice or address.locality=Ghent; may be repeated. If no standard defines the claim, a value in JSON keeps its type", value_name = "NAME=VALUE", value_parser = claim)]
    pub claims: Vec<(String, String)>,
    /// A group that the user is in, see idsvc group; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Option<Vec<String>>,
}

fn claim(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a claim is written NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// A new user.
#[derive(Debug, Args)]
pub struct Add {
    /// The e-mail address, which is the account identifier too
    #[arg(value_name = "EMAIL")]
    pub email: String,
    /// The password.
    #[command(flatten)]
    pub password: PasswordFlags,
    /// The fields.
    #[command(flatten)]
    pub fields: Fields,
}

/// A changed user.
#[derive(Debug, Args)]
pub struct Update {
    /// The user's e-mail address, account identifier or uuid
    #[arg(value_name = "WHO")]
    pub who: String,
    /// A new e-mail address; the account identifier stays
    #[arg(long)]
    pub email: Option<String>,
    /// A new account identifier
    #[arg(long)]
    pub account_id: Option<String>,
    /// Reset the count of wrong passwords, so that the right one is accepted in any browser
    #[arg(long)]
    pub reset_failed_passwords: bool,
    /// End the wait of a user who has said that no factor is left: the factors stay
    #[arg(long)]
    pub keep_factors: bool,
    /// Single members of lists.
    #[command(flatten)]
    pub lists: ListFlags<Fields>,
    /// The other changed fields.
    #[command(flatten)]
    pub fields: Fields,
}

/// A new password.
#[derive(Debug, Args)]
pub struct Set {
    /// The user's e-mail address, account identifier or uuid
    #[arg(value_name = "WHO")]
    pub who: String,
    /// The password.
    #[command(flatten)]
    pub password: PasswordFlags,
    /// Keep the user's sessions and refresh tokens [default: they end]
    #[arg(long)]
    pub keep_sessions: bool,
}

pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    match verb {
        Verb::Add(add) => self::add(*add, connector, output),
        Verb::List(request) => user_list::list(request, connector, output),
        Verb::Show(Who { who }) => {
            connector.run(ShowUser { who }, output, |view, output| show(&view, output))
        }
        Verb::Update(update) => self::update(*update, connector, output),
        Verb::Remove(remove) => user_remove::remove(remove, connector, output),
        Verb::SetPassword(set) => set_password(set, connector, output),
        Verb::Import(request) => super::import::run(&request, connector, output),
        Verb::Enable(Who { who }) => {
            connector.run(EnableUser { who }, output, |view, output| show(&view, output))
        }
        Verb::Disable(Who { who }) => {
            connector.run(DisableUser { who }, output, |view, output| show(&view, output))
        }
        Verb::Invitations(request) => invitations::run(request, connector, output),
        Verb::Invite(invite) => user_link::invite(invite, connector, output),
        Verb::Reset(reset) => user_link::reset(reset, connector, output),
        Verb::Factors(which) => user_factors::list(which.who, connector, output),
        Verb::Sessions(which) => session::list_with_ended(which.who, connector, output),
        Verb::Access(which) => user_access::show(which.who, connector, output),
        Verb::Lock(which) => user_link::lock(which.who, connector, output),
        Verb::Unlink(Unlink { who, provider, yes }) => {
            let question = format!(
                "Remove the link of user {who} to provider {provider}, and end the sessions and refresh tokens that began there?"
            );
            output.confirm(&question, yes)?;
            let unlink = UnlinkUser { who, provider };
            connector.run(unlink, output, |view, output| show(&view, output))
        }
    }
}

fn add(add: Add, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let password = add.password.choose()?;
    let fields = change(&add.fields)?;
    if add.password.no_password && add.fields.must_change_password == Some(true) {
        let message =
            "--must-change-password is about a password, and --no-password sets none: leave one of them out";
        return Err(CliError::Misused(message.to_owned()));
    }
    warn_of_unreleased(&fields, connector, output);
    let done = format!("user {} was added", add.email);
    let summary = password_summary(&password, done, &add.email);
    let add = AddUser {
        email: add.email,
        password,
        fields,
    };
    connector.run_with_summary(add, summary, output, |view, output| show(&view, output))
}

fn update(update: Update, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let Update {
        who,
        email,
        account_id,
        reset_failed_passwords,
        keep_factors,
        lists,
        fields,
    } = update;
    let fields = UserFields {
        edits: lists.edits(|fields| change(&fields))?,
        ..change(&fields)?
    };
    let is_same = email.is_none() && account_id.is_none() && fields == UserFields::default();
    if is_same && !reset_failed_passwords && !keep_factors {
        let message = "nothing to change: name at least one flag, see idsvc user update --help";
        return Err(CliError::Misused(message.to_owned()));
    }
    warn_of_unreleased(&fields, connector, output);
    let update = UpdateUser {
        who,
        email,
        account_id,
        reset_failed_passwords,
        keep_factors,
        fields,
    };
    connector.run(update, output, |updated, output| {
        let view = &updated.view;
        if let Some(bytes) = token_length::near_limit(&view.groups, &view.claims) {
            output.say(&format!(
                "warning: the groups and claims of {} take up to {bytes} of the {} bytes of a token. A client that gets a longer one gets an error instead: take the user out of groups, or give clients less scope",
                view.account_id,
                token_length::LONGEST
            ));
        }
        show_updated(&updated, output, show)
    })
}

fn set_password(set: Set, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let password = set.password.choose()?;
    let done = format!("user {} has a new password", set.who);
    let summary = password_summary(&password, done, &set.who);
    let set = SetPassword {
        who: set.who,
        password,
        keep_sessions: set.keep_sessions,
    };
    connector.run_with_summary(set, summary, output, |view, output| show(&view, output))
}

/// What was done. Only a generated password is lost with the output.
fn password_summary(password: &NewPassword, done: String, who: &str) -> ChangeSummary {
    match password {
        NewPassword::Generated => ChangeSummary::with_password(done, who),
        NewPassword::Given(_) | NewPassword::None => ChangeSummary::plain("the change was made"),
    }
}

/// Warns of claims that no scope releases, and of a telephone number that applications may not take. An empty value removes
/// a claim.
fn warn_of_unreleased(fields: &UserFields, connector: &AdminConnector<'_>, output: &mut Output<'_>) {
    let number = fields.phone_number.as_deref().filter(|number| !number.is_empty());
    if let Some(number) = number.filter(|number| !is_e164(number)) {
        output.say(&format!(
            "warning: the telephone number {number:?} is not in E.164 form, as in +3225550123: applications may not take it"
        ));
    }
    let added = fields.edits.iter().flat_map(|edits| &edits.add.claims);
    let set = fields
        .claims
        .iter()
        .chain(added)
        .filter(|(_, value)| !value.is_empty());
    let names = set.map(|(name, _)| name.as_str());
    warn_of_claims(names, |output| connector.call(ListScopes, output), output);
}

/// Whether this is a telephone number as OpenID Connect Core section 5.1 recommends: E.164, with an extension of RFC 3966.
fn is_e164(number: &str) -> bool {
    let number = number.split_once(";ext=").map_or(number, |(number, _)| number);
    let digits = number.strip_prefix('+').unwrap_or_default();
    (7..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn show(view: &UserView, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(view);
    }
    let verified = |value: &Option<String>, verified: bool| match value {
        Some(value) if verified => format!("{value} (verified)"),
        Some(value) => value.clone(),
        None => String::new(),
    };
    let password = match (&view.password, view.has_password) {
        (Some(password), _) => password.reveal().to_owned(),
        (None, true) if view.must_change_password => "set, to be changed at the next sign-in".to_owned(),
        (None, true) => "set".to_owned(),
        (None, false) => "none".to_owned(),
    };
    let mut facts = vec![
        ("account_id", view.account_id.clone()),
        ("uuid", view.uuid.to_string()),
        ("password", password),
        ("email", verified(&view.email, view.email_verified)),
        (
            "phone_number",
            verified(&view.phone_number, view.phone_number_verified),
        ),
        ("user_type", view.user_type.clone()),
        ("venue_id", view.venue_id.clone().unwrap_or_default()),
        ("organization", view.organization.clone()),
        (
            "groups",
            view.groups
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", "),
        ),
        ("source", view.source.clone()),
        ("enabled", yes_no(view.enabled)),
        ("last_sign_in", view.last_sign_in.clone().unwrap_or_default()),
        ("last_used", view.last_used.clone().unwrap_or_default()),
        ("created_at", moment(view.created_at)),
        ("updated_at", moment(view.updated_at)),
    ];
    facts.extend(user_factors::facts(view));
    for (name, value) in &view.claims {
        // A text that looks like another JSON value is printed with quotes.
        let text = value
            .as_str()
            .filter(|text| serde_json::from_str::<serde_json::Value>(text).is_err())
            .map_or_else(|| value.to_string(), |text| text.replace('\n', ", "));
        facts.push((name.as_str(), text));
    }
    for application in view.applications.iter().flatten() {
        let scope: Vec<&str> = application.scope.iter().collect();
        let since = moment(application.since);
        let text = format!("{} since {since}: {}", application.client_id, scope.join(" "));
        facts.push(("application", text));
    }
    output.facts(&facts)?;
    if view.failed_passwords.is_some_and(|failed| failed.is_at_limit()) {
        let account = &view.account_id;
        output.hint(&format!(
            "\nThe password is refused in browsers in which the user has not signed in before.\nSet another one with idsvc user set-password {account}, or keep it with idsvc user update {account} --reset-failed-passwords."
        ));
    }
    if view.factors_end_at.is_some() {
        output.hint(&format!("\n{}", user_factors::keep_hint(&view.account_id)));
    }
    if view.password.is_some() {
        output.hint("\nThe password is shown this once; only its hash is kept.");
    }
    Ok(())
}
