//! Runs `idsvc session …`.

use clap::{ArgGroup, Args, Subcommand};
use uuid::Uuid;

use super::admin_connection::{AdminConnector, Opening};
use super::list_page::ListPage;
use super::output::{CliError, Output, moment};
use crate::admin::session::{ListAllSessions, ListSessions, RevokeSessions, Revoked, SessionView};
use crate::store::records::LogoutStatus;

/// The verbs of sessions.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show where a user is signed in, or who is signed in
    #[command(
        after_help = "Without WHO, it reads the sessions of all users, and shows the live ones in the order in which they began. --limit and --after are for that."
    )]
    List(List),
    /// End a session, or all sessions of a user
    Revoke(Revoke),
}

/// The arguments of `list`.
#[derive(Debug, Args)]
pub struct List {
    /// The user's e-mail address, account identifier or uuid [default: all users]
    #[arg(value_name = "WHO", conflicts_with_all = ["limit", "after"])]
    pub who: Option<String>,
    #[command(flatten)]
    pub page: ListPage,
}

/// The arguments of `revoke`.
#[derive(Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("ended").required(true).args(["session", "user"]))]
pub struct Revoke {
    /// The session, as session list shows it; the refresh tokens bound to it end too
    #[arg(value_name = "SESSION", value_parser = parse_session)]
    pub session: Option<Uuid>,
    /// All sessions of this user, with all refresh tokens
    #[arg(long, value_name = "WHO")]
    pub user: Option<String>,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

fn parse_session(text: &str) -> Result<Uuid, String> {
    Uuid::try_parse(text).map_err(|_| {
        "name the session by its uuid: idsvc session list WHO shows it. --user WHO ends all sessions of a user"
            .to_owned()
    })
}

pub fn run(verb: Verb, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    match verb {
        Verb::List(List { who: None, page }) => list_all(page, connector, output),
        Verb::List(List { who: Some(who), .. }) => {
            let list = ListSessions { who, ended: false };
            connector.run(list, output, |views, output| {
                if output.json {
                    return output.document(&views);
                }
                show_sessions(&views, output)
            })
        }
        Verb::Revoke(Revoke {
            session: Some(session),
            yes,
            ..
        }) => {
            let question = format!("End session {session} and the refresh tokens bound to it?");
            output.confirm(&question, yes)?;
            connector.run(RevokeSessions::One(session), output, |revoked, output| {
                if revoked.revoked_sessions == 0 && !output.json {
                    let line = "the session had expired already; the refresh tokens bound to it were ended";
                    return output.line(line);
                }
                show_revoked(revoked, output)
            })
        }
        Verb::Revoke(Revoke {
            user: Some(who), yes, ..
        }) => {
            let question = format!("End all sessions and refresh tokens of {who}?");
            output.confirm(&question, yes)?;
            connector.run(RevokeSessions::AllOf(who), output, show_revoked)
        }
        Verb::Revoke(_) => Err(CliError::Misused(
            "name a session, or a user with --user".to_owned(),
        )),
    }
}

fn show_revoked(revoked: Revoked, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(&revoked);
    }
    output.line(&format!("sessions ended: {}", revoked.revoked_sessions))
}

/// Shows the sessions of all users.
fn list_all(page: ListPage, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    let list = ListAllSessions {
        after: page.after,
        limit: page.requested(output),
    };
    let connection = connector.connect(&Opening::Existing, output)?;
    let any = page.show(
        list,
        &connection,
        |view| view.session,
        output,
        |views, output| {
            if output.json {
                return output.array(views);
            }
            let head = [
                "SESSION",
                "USER",
                "SIGNED IN",
                "BY",
                "LAST USED",
                "BROWSER",
                "ADDRESS",
            ];
            let row = |view: SessionView| {
                let [session, facts @ ..] = table_row(&view);
                let user = view.account_id;
                [vec![session, user], facts.to_vec()].concat()
            };
            output.long_table(&head, views.map(|view| view.map(row)))
        },
    )?;
    if !any {
        output.hint("nobody is signed in");
    }
    Ok(())
}

/// Shows the sessions of a user, those of the last week too, and whether their applications were told of the end.
pub(super) fn list_with_ended(
    who: String,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    connector.run(ListSessions { who, ended: true }, output, |views, output| {
        if output.json {
            return output.document(&views);
        }
        show_sessions(&views, output)?;
        output.line("")?;
        show_applications(&views, output)
    })
}

/// Prints the live sessions.
fn show_sessions(views: &[SessionView], output: &mut Output<'_>) -> Result<(), CliError> {
    let live = views.iter().filter(|view| view.last_used_at.is_some());
    output.table(
        &["SESSION", "SIGNED IN", "BY", "LAST USED", "BROWSER", "ADDRESS"],
        live.map(table_row),
    )
}

/// A live session in a table: its id, then what is known of it.
fn table_row(view: &SessionView) -> [String; 6] {
    let address = view.address.map(|address| address.to_string());
    [
        view.session.to_string(),
        moment(view.created_at),
        view.authority.clone().unwrap_or_default(),
        view.last_used_at.map(moment).unwrap_or_default(),
        view.device.clone().unwrap_or_default(),
        address.unwrap_or_default(),
    ]
}

/// Prints the applications of the sessions, and whether they were told of the end.
fn show_applications(views: &[SessionView], output: &mut Output<'_>) -> Result<(), CliError> {
    let applications = views.iter().flat_map(|view| {
        let applications = view.applications.iter().flatten();
        applications.map(|application| (view.session, application))
    });
    output.table(
        &["SESSION", "APPLICATION", "SIGNED IN", "SESSION ENDED", "TOLD"],
        applications.map(|(session, application)| {
            let logout = application.logout.as_ref();
            [
                session.to_string(),
                application.client_id.clone(),
                moment(application.signed_in_at),
                logout.map(|logout| moment(logout.ended_at)).unwrap_or_default(),
                logout.map(told).unwrap_or_default(),
            ]
        }),
    )
}

/// Whether the application was told, in words.
fn told(logout: &LogoutStatus) -> String {
    let state = match (logout.told_at, logout.given_up_at) {
        (Some(at), _) => moment(at),
        (None, Some(at)) => format!("given up {}", moment(at)),
        (None, None) => "waits".to_owned(),
    };
    match &logout.last_error {
        Some(error) => format!("{state}: {error}"),
        None => state,
    }
}
