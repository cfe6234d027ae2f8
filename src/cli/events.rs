//! Runs `idsvc events`: it prints audit events, and follows new ones.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;
use uuid::Uuid;

use self::files::EventReader;
use self::filter::Filter;
use super::admin_connection::AdminConnector;
use super::output::{CliError, Output, counted, moment};
use super::progress::Progress;
use super::terminal_text::printable;
use crate::admin::user::ShowUser;
use crate::clock::{Clock, Timestamp};
use crate::data_dir::master_key::MASTER_KEY;
use crate::data_dir::{DataDirError, io_error};
use crate::observe::audit::NAMES;
use crate::observe::event_files::{EVENTS, EventKind};

mod files;
mod filter;
mod time;

/// The flags of `idsvc events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Print new events as they happen, until interrupted
    #[arg(long, short)]
    pub follow: bool,
    /// How many of the newest events to show [default: 50; all with --since]
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// Show only events of this name; may be repeated
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES))]
    pub event: Vec<String>,
    /// Show only events about this user, client, session, command or actor. Name a removed user by its uuid
    #[arg(long, value_name = "TEXT")]
    pub about: Option<String>,
    /// Show only events about this user: an email address, a username, a telephone number or a uuid
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Show only events about this client
    #[arg(long, value_name = "CLIENT_ID")]
    pub client: Option<String>,
    /// Show only events since this time: 24h for a day ago, or in UTC today, yesterday, 2026-11-24 or 2026-11-24T09:30:00Z
    #[arg(long, value_name = "TIME", value_parser = time::parse_since)]
    pub since: Option<Timestamp>,
    /// Show only events until this time, in the forms of --since. A day is included
    #[arg(long, value_name = "TIME", value_parser = time::parse_until)]
    pub until: Option<Timestamp>,
}

/// How often the files are checked for new lines.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The number of events that are shown unless the flags say otherwise.
const DEFAULT_LIMIT: usize = 50;

impl Events {
    fn check(&self) -> Result<(), CliError> {
        if self.limit == Some(0) && !self.follow {
            let message = "--limit 0 shows nothing: name 1 or more, or add --follow to wait for new events";
            return Err(CliError::Misused(message.to_owned()));
        }
        match (self.since, self.until) {
            (Some(since), Some(until)) if until < since => Err(CliError::Misused(format!(
                "--until {} is before --since {}: nothing is between them",
                moment(until),
                moment(since)
            ))),
            _ => Ok(()),
        }
    }

    fn filter(&self, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<Filter, CliError> {
        let about = match &self.about {
            Some(about) => {
                let uuid = match uuid_of(about, connector, output) {
                    Ok(uuid) => Some(uuid),
                    // The text may name a client, a session or a command.
                    Err(CliError::Faults(_)) => None,
                    Err(error) => return Err(error),
                };
                Some(std::iter::once(about.clone()).chain(uuid).collect())
            }
            None => None,
        };
        let user = match &self.user {
            Some(user) => Some(uuid_of(user, connector, output)?),
            None => None,
        };
        Ok(Filter {
            names: self.event.clone(),
            about,
            user,
            client: self.client.clone(),
            since: self.since,
            until: self.until,
        })
    }

    /// The most events that are shown; `None` for all.
    fn limit(&self) -> Option<usize> {
        let default = self.since.is_none().then_some(DEFAULT_LIMIT);
        self.limit.or(default)
    }
}

fn is_there(path: &Path) -> Result<bool, CliError> {
    path.try_exists()
        .map_err(|error| CliError::refused(io_error(path)(error)))
}

/// The uuid of the user with this name or address. Events name a user only by it.
fn uuid_of(who: &str, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<String, CliError> {
    // It may be that of a user who was removed.
    if let Ok(uuid) = Uuid::try_parse(who) {
        return Ok(uuid.to_string());
    }
    let user = connector.call(ShowUser { who: who.to_owned() }, output)?;
    Ok(user.uuid.to_string())
}

/// Runs `idsvc events`.
#[expect(clippy::needless_pass_by_value, reason = "the shape of all commands")]
pub fn run(request: Events, connector: &AdminConnector<'_>, output: &mut Output<'_>) -> Result<(), CliError> {
    request.check()?;
    let data_dir = connector.settings(output)?.data_dir;
    let folder = data_dir.join(EVENTS);
    // A directory with neither is not the data directory.
    if !is_there(&folder)? && !is_there(&data_dir.join(MASTER_KEY))? {
        return Err(CliError::refused(DataDirError::Absent(data_dir)));
    }
    let filter = request.filter(connector, output)?;
    let unreadable =
        |error: io::Error| CliError::refused(format!("{} cannot be read: {error}", folder.display()));
    let mut reader = EventReader::open(&folder, &filter).map_err(unreadable)?;
    let removals = reader.removals().map_err(unreadable)?;
    let skipped = match request.limit() {
        // The events are read twice, so that one at a time is in memory.
        Some(limit) => {
            let count = count(&mut reader, &filter).map_err(unreadable)?;
            reader.rewind().map_err(unreadable)?;
            count.saturating_sub(limit)
        }
        None => 0,
    };
    let mut shown: usize = 0;
    let mut events = std::iter::from_fn(|| reader.next_event(&filter).transpose())
        .skip(skipped)
        .inspect(|_| shown += 1)
        .map(|event| event.map_err(unreadable));
    if output.json && !request.follow {
        output.array(events)?;
    } else {
        events.try_for_each(|event| show(&event?, output))?;
    }
    say_what_is_missing(&request, &filter, skipped, &removals, output);
    if reader.broken > 0 {
        let broken = counted(reader.broken, "line");
        let folder = folder.display();
        output.say(&format!(
            "left out: {broken} in {folder} that cannot be read, cut by a crash or changed"
        ));
    }
    if request.follow {
        reader.go_on();
        return follow(&filter, &mut reader, &unreadable, output);
    }
    if shown == 0 {
        let hint = "no kept event matches. To wait for new ones: idsvc events --follow";
        match &filter.about {
            Some(about) if about.len() == 1 => output.hint(&format!(
                "{hint}\nNo user has that name. Name a removed user by its uuid."
            )),
            _ => output.hint(hint),
        }
    }
    Ok(())
}

fn count(reader: &mut EventReader, filter: &Filter) -> io::Result<usize> {
    let mut count = 0;
    let mut progress = Progress::of("events");
    while reader.next_event(filter)?.is_some() {
        count += 1;
        progress.show(count.try_into().unwrap_or(u64::MAX), None);
    }
    Ok(count)
}

/// Says on standard error which events are not shown, although the flags ask for them.
fn say_what_is_missing(
    request: &Events,
    filter: &Filter,
    skipped: usize,
    removals: &[(EventKind, Timestamp)],
    output: &mut Output<'_>,
) {
    if skipped > 0 {
        // Those that follow are asked for.
        if request.limit != Some(0) {
            let remedy = match request.since {
                None => "--since shows all from a time on, --limit more",
                Some(_) => "leave out --limit to see them",
            };
            let skipped = counted(skipped.try_into().unwrap_or(u64::MAX), "earlier event");
            output.say(&format!("left out: {skipped}; {remedy}"));
        }
        return;
    }
    for (kind, oldest) in removals {
        if filter.includes(*kind) && filter.since.is_none_or(|since| since < *oldest) {
            let (what, setting) = match kind {
                EventKind::Security => ("security events", "events.keep"),
                EventKind::Routine => ("routine events", "events.tokens"),
            };
            let oldest = moment(*oldest);
            output.say(&format!(
                "{what} before {oldest} are no longer kept ({setting}, events.max_mib)"
            ));
        }
    }
}

/// Prints new events until the output is closed, or until the last second that is asked for.
fn follow(
    filter: &Filter,
    reader: &mut EventReader,
    unreadable: &dyn Fn(io::Error) -> CliError,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    loop {
        // An event is written a moment after its time.
        let last = Clock::System.now() - Duration::from_secs(1);
        let is_over = filter.until.is_some_and(|until| last > until);
        reader.read_new(filter, unreadable, |event| show(event, output))?;
        if is_over {
            return Ok(());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Prints one event on one line: as JSON with `--json`, else the time, the name, and the other members by name.
fn show(event: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.json_line(event);
    }
    let time = event.get("time").and_then(Value::as_u64).unwrap_or_default();
    let name = event.get("event").and_then(Value::as_str).unwrap_or_default();
    let mut line = format!("{}  {name}", moment(Timestamp::from_seconds(time)));
    for (member, value) in event.as_object().into_iter().flatten() {
        if !matches!(member.as_str(), "time" | "event") {
            let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
            let text = match value {
                Value::String(text) if plain(text) => text.clone(),
                other => other.to_string(),
            };
            let _ = write!(line, "  {member}={text}");
        }
    }
    output.line(&printable(&line))
}
