//! `idsvc doctor`: looks at everything that goes wrong with time, and says what to do.

mod access;
mod backups;
mod certificate;
mod finding;
mod grade;
mod open_files;
mod settings;
mod themes;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use self::finding::{Finding, Level};
use super::Global;
use super::admin_connection::{AdminConnection, AdminConnector, unexpected};
use super::output::{CliError, Output, moment, printable};
use super::setting_flags::SettingFlags;
use crate::admin::installation::SetUp;
use crate::admin::key::{KeyView, StandingView};
use crate::admin::provider::examine::{Finding as Examined, Standing};
use crate::clock::{Clock, EARLIEST, Timestamp};
use crate::config::resolve::resolve;
use crate::config::{Config, Fault, Settings};
use crate::control::{Command, Reply};
use crate::data_dir::DATABASE;
use crate::data_dir::disk::{LEAST_TO_WRITE, Space, space};
use crate::data_dir::master_key::MASTER_KEY;
use crate::oauth::policy::KeyRotation;
use crate::server::clock_guard::is_far_ahead;
use crate::server::open::{USE_THE_SAME_ADDRESS, gives_way};

/// What to look at.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Show what is in order too
    #[arg(long)]
    pub all: bool,
    /// The settings that `idsvc serve` is started with.
    #[command(flatten)]
    pub settings: Box<SettingFlags>,
}

/// The bits of a mode that let anybody but the owner do anything.
const BEYOND_OWNER: u32 = 0o077;
/// Below so much room, in bytes, the database is in danger.
const LEAST_ROOM: u64 = 256 << 20;
/// From so many bytes on it is asked how much of the database holds nothing: everything in it is looked at for that.
const WORTH_COMPACTING: u64 = 64 << 20;
/// How long a key may sign where the operator replaces them by hand.
const KEY_AGE: Duration = Duration::from_hours(24 * 90);
/// How late a key may be replaced by a service that was off for a while.
const KEY_SLACK: Duration = Duration::from_hours(24);
/// How far a moment in the future may lie, for clocks that were corrected.
const SLACK: Duration = Duration::from_mins(5);

/// Runs every check; refuses when something must be done.
pub fn run(
    request: &Doctor,
    global: &Global,
    connector: &AdminConnector<'_>,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let now = Clock::System.now();
    let mut findings = Vec::new();
    let mut sources = global.sources(request.settings.as_ref().clone().into_given());
    for warning in &sources.warnings {
        findings.push(
            Finding::good("settings", "environment", warning.clone())
                .but(Level::Advice, "unset it, or correct its name"),
        );
    }
    // Why the store does not answer may lie here.
    if let Ok(settings) = connector.settings(output) {
        of_data_dir(&settings.data_dir, &mut findings);
    }
    let reached = connector
        .session(&Command::KeyList, output)
        .and_then(|session| Ok((set_up(&session)?, session)));
    let is_running = reached.as_ref().is_ok_and(|(_, session)| session.is_running());
    let set_up = reached.as_ref().ok().map(|(set_up, _)| set_up);
    if set_up.is_some_and(|set_up| set_up.for_development) {
        sources = sources.for_development();
        findings.push(
            Finding::good(
                "data",
                "development",
                "the data is that of idsvc serve --dev, and everything is looked at as for that",
            )
            .but(Level::Advice, "name another data_dir for a service of your own"),
        );
    }
    let of_settings = |fault: &Fault, level| {
        Finding::good("settings", &fault.place, &fault.message)
            .but(level, "idsvc config check shows it again")
    };
    let config = match resolve(&sources) {
        Ok(config) => {
            findings.push(Finding::good("settings", "configuration", "all right"));
            findings.extend(
                config
                    .warnings
                    .iter()
                    .map(|warning| of_settings(warning, Level::Advice)),
            );
            settings::examine(&config, &mut findings);
            certificate::examine(&config, is_running, now, &mut findings);
            Some(config)
        }
        Err(error) => {
            findings.extend(error.faults.iter().map(|fault| of_settings(fault, Level::Mend)));
            None
        }
    };
    let examined = reached.and_then(|(set_up, session)| {
        let data_dir = &session.settings().data_dir;
        access::examine(data_dir, &mut findings);
        open_files::examine(data_dir, &set_up, &mut findings);
        findings.extend(of_outlasting(set_up.outlasting));
        if let Some(config) = &config {
            findings.push(of_issuer(&set_up.issuer, config));
        }
        findings.extend(of_database(&session)?);
        let settings = config
            .as_ref()
            .map_or(session.settings(), |config| &config.settings);
        of_store(&session, settings, (now, set_up.clock_watermark), &mut findings)
    });
    let oldest = match examined {
        Ok(oldest) => oldest,
        Err(stop) => {
            let said = stop.to_string();
            // What is wrong with the settings has been said.
            if !findings
                .iter()
                .any(|finding| finding.level == Level::Mend && said.contains(&finding.message))
            {
                // What keeps every command away is the first thing to mend.
                findings.push(
                    Finding::good("data", "database", said)
                        .but(Level::Mend, "nothing else can be looked at before"),
                );
            }
            None
        }
    };
    if let Some(config) = &config {
        backups::examine(config, oldest, is_running, now, &mut findings);
    }
    show(&findings, request.all, output)
}

/// Whether a file or folder is closed to others.
fn closed(path: &Path, bits: u32, what: &str, findings: &mut Vec<Finding>) {
    let Ok(found) = fs::metadata(path) else {
        return;
    };
    let subject = path.display().to_string();
    let mode = found.permissions().mode() & 0o777;
    let right = mode & !bits;
    findings.push(if mode & bits == 0 {
        Finding::good("permissions", subject, format!("{what} is closed to others"))
    } else {
        Finding::good(
            "permissions",
            subject,
            format!("{what} is open to others ({mode:03o})"),
        )
        .but(Level::Mend, format!("chmod {right:03o} {}", path.display()))
    });
}

fn set_up(session: &AdminConnection) -> Result<SetUp, CliError> {
    match session.ask(Command::SetUp)? {
        Reply::SetUp(set_up) => Ok(set_up),
        _ => Err(unexpected()),
    }
}

/// Whether the next start would find the issuer that the service is set up for.
fn of_issuer(stored: &str, config: &Config) -> Finding {
    let configured = &config.issuer;
    if stored == configured || gives_way(config, stored) {
        return Finding::good("settings", "base_url", format!("{stored}, as it was set up"));
    }
    let message = format!("it is {configured}, but the service was set up as {stored}: it will not start");
    let finding = Finding::good("settings", "base_url", message);
    if config.is_dev {
        finding.but(
            Level::Advice,
            format!("{USE_THE_SAME_ADDRESS}, or remove its data to begin anew"),
        )
    } else {
        finding.but(
            Level::Mend,
            format!("set it back, or idsvc config set-issuer {configured} --i-know, after which access tokens issued before are refused and clients are configured anew"),
        )
    }
}

fn of_data_dir(data_dir: &Path, findings: &mut Vec<Finding>) {
    closed(data_dir, BEYOND_OWNER, "the data directory", findings);
    closed(&data_dir.join(DATABASE), BEYOND_OWNER, "the database", findings);
    closed(
        &data_dir.join(MASTER_KEY),
        BEYOND_OWNER,
        "the master key",
        findings,
    );
    let size = fs::metadata(data_dir.join(DATABASE)).map_or(0, |found| found.len());
    if let Ok(space) = space(data_dir) {
        findings.push(of_room(data_dir, size, space));
    }
}

/// Whether there is room for a database of this size.
fn of_room(data_dir: &Path, size: u64, space: Space) -> Finding {
    let free = space.free;
    let needed = size.saturating_mul(3).max(LEAST_ROOM);
    let finding = Finding::good(
        "disk",
        data_dir.display().to_string(),
        format!("{} MiB are free", free >> 20),
    );
    let lacking = needed.saturating_sub(free).div_ceil(1 << 20);
    let wanted = format!(
        "the database and its backups need {} MiB",
        needed.div_ceil(1 << 20)
    );
    if lacking == 0 {
        finding
    } else if free < LEAST_TO_WRITE {
        let least = LEAST_TO_WRITE >> 20;
        finding.but(
            Level::Mend,
            format!(
                "make room for {lacking} MiB now: with fewer than {least} the service can no longer write, and says that it is not ready; {wanted}"
            ),
        )
    } else if space.lacking() > 0 {
        let kept = space.reserve() >> 20;
        finding.but(
            Level::Mend,
            format!(
                "make room for {lacking} MiB soon: with fewer than {kept} free, sign-ins that begin are answered with 503 unless the database file has unused room, and no backup is made; {wanted}"
            ),
        )
    } else {
        finding.but(Level::Mend, format!("make room for {lacking} MiB: {wanted}"))
    }
}

/// Asks how much of a large database holds nothing.
fn of_database(session: &AdminConnection) -> Result<Option<Finding>, CliError> {
    let database = session.settings().data_dir.join(DATABASE);
    if fs::metadata(database).map_or(0, |found| found.len()) < WORTH_COMPACTING {
        return Ok(None);
    }
    match session.ask(Command::Room)? {
        Reply::Room(room) => Ok(of_spare(room.taken, room.spare)),
        _ => Err(unexpected()),
    }
}

/// Whether most of the database holds nothing.
fn of_spare(taken: u64, spare: u64) -> Option<Finding> {
    (taken >= WORTH_COMPACTING && spare > taken / 2).then(|| {
        let message = format!("{} of its {} MiB hold nothing", spare >> 20, taken >> 20);
        Finding::good("data", "database", message).but(
            Level::Advice,
            "idsvc compact gives them back to the disk; requests wait meanwhile",
        )
    })
}

/// Looks at what the database holds, and says of when the oldest of it is.
fn of_store(
    session: &AdminConnection,
    settings: &Settings,
    (now, watermark): (Timestamp, Option<Timestamp>),
    findings: &mut Vec<Finding>,
) -> Result<Option<Timestamp>, CliError> {
    let Reply::Keys(keys) = session.ask(Command::KeyList)? else {
        return Err(unexpected());
    };
    let Reply::Clients(clients) = session.ask(Command::ClientList)? else {
        return Err(unexpected());
    };
    let made = keys
        .iter()
        .map(|key| key.created_at)
        .chain(clients.iter().map(|client| client.created_at));
    let oldest = made.clone().min();
    let changed = clients.iter().map(|client| client.updated_at);
    findings.push(of_clock(now, made.chain(changed).max(), watermark));
    for key in &keys {
        let is_replaced = keys
            .iter()
            .any(|other| other.alg == key.alg && matches!(other.standing, StandingView::Announced { .. }));
        let rotation = settings.policy("").key_rotation;
        of_key(key, is_replaced, rotation, session.is_running(), now, findings);
    }
    for client in &clients {
        findings.extend(grade::of(client, now));
    }
    themes::examine(settings, &clients, findings);
    let Reply::Providers(providers) = session.ask(Command::ProviderList)? else {
        return Err(unexpected());
    };
    for provider in providers.into_iter().filter(|provider| provider.enabled) {
        let Reply::ProviderReport(report) = session.ask(Command::ProviderTest(provider.id))? else {
            return Err(unexpected());
        };
        findings.extend(
            report
                .findings
                .into_iter()
                .map(|seen| of_provider(&report.provider, seen)),
        );
    }
    Ok(oldest)
}

fn of_provider(id: &str, seen: Examined) -> Finding {
    let finding = Finding::good("provider", id, format!("{}: {}", seen.check, seen.seen));
    let level = match seen.standing {
        Standing::Ok => return finding,
        Standing::Warning => Level::Advice,
        Standing::Failed => Level::Mend,
    };
    let remedy = seen
        .remedy
        .unwrap_or_else(|| format!("idsvc provider test {id} shows more"));
    finding.but(level, remedy)
}

/// Whether the clock fits the newest of the records, and the newest moment but for the last hour that the store knows
/// of.
fn of_clock(now: Timestamp, newest: Option<Timestamp>, watermark: Option<Timestamp>) -> Finding {
    let finding = |message| Finding::good("clock", "system clock", message);
    let latest = newest.map_or(EARLIEST, |newest| newest.max(EARLIEST));
    if now + SLACK < latest {
        return finding(format!(
            "it shows {}, and records are of {}",
            moment(now),
            moment(latest)
        ))
        .but(
            Level::Mend,
            "set the clock, and let something like chrony keep it: tokens are dated by it",
        );
    }
    match watermark.filter(|watermark| is_far_ahead(now, *watermark)) {
        Some(watermark) => finding(format!(
            "it shows {}, and but for the last hour nothing in the database is younger than {}",
            moment(now),
            moment(watermark)
        ))
        .but(
            Level::Advice,
            "set the clock, unless the service was off for so long: it removes nothing that looks expired in the first hour after a start",
        ),
        None => finding(format!("it shows {}", moment(now))),
    }
}

/// What is in force for longer than was promised.
fn of_outlasting(tokens: usize) -> Option<Finding> {
    let message = format!(
        "{tokens} of them last longer than new ones: they were issued while the clock was ahead, or before lifetimes.refresh_token was changed"
    );
    let remedy = "each lasts as long as new ones from its next use on; idsvc session revoke --user WHO ends those of a user at once";
    (tokens > 0).then(|| Finding::good("clock", "refresh tokens", message).but(Level::Advice, remedy))
}

fn of_key(
    key: &KeyView,
    is_replaced: bool,
    rotation: KeyRotation,
    is_running: bool,
    now: Timestamp,
    findings: &mut Vec<Finding>,
) {
    let StandingView::Active { since } = key.standing else {
        return;
    };
    let days = now.since(since).as_secs() / 86_400;
    let finding = Finding::good(
        "key",
        key.kid.clone(),
        format!("{} has signed for {days} days", key.alg),
    );
    let (longest, remedy) = match rotation.every {
        Some(every) => (
            every + rotation.announce + KEY_SLACK,
            if is_running {
                "look into the log of the service for why the key was not replaced".to_owned()
            } else {
                "start the service, which replaces it".to_owned()
            },
        ),
        None => (KEY_AGE, format!("idsvc key rotate --alg {}", key.alg)),
    };
    findings.push(if is_replaced || now.since(since) <= longest {
        finding
    } else {
        finding.but(Level::Mend, remedy)
    });
}

fn show(findings: &[Finding], all: bool, output: &mut Output<'_>) -> Result<(), CliError> {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (good, advice, faults) = (count(Level::Good), count(Level::Advice), count(Level::Mend));
    let shown = if output.json {
        output.document(&json!({ "ok": faults == 0, "findings": findings }))
    } else {
        let count = format!("{good} in order, {advice} that could be better, {faults} to be mended");
        list(findings, all, output).and_then(|()| output.line(&count))
    };
    // What was found counts, whether somebody reads it or not.
    if faults == 0 {
        shown
    } else {
        let things = if faults == 1 { "thing" } else { "things" };
        Err(CliError::refused(format!("{faults} {things} must be mended")))
    }
}

fn list(findings: &[Finding], all: bool, output: &mut Output<'_>) -> Result<(), CliError> {
    for level in [Level::Mend, Level::Advice, Level::Good] {
        for finding in findings
            .iter()
            .filter(|finding| finding.level == level && (all || level != Level::Good))
        {
            let sign = match level {
                Level::Mend => "MEND",
                Level::Advice => "advice",
                Level::Good => "good",
            };
            let rule = finding.rule.map(|rule| format!(" ({rule})")).unwrap_or_default();
            let Finding {
                check,
                subject,
                message,
                ..
            } = finding;
            output.line(&printable(&format!("{sign}  {check} {subject}: {message}{rule}")))?;
            if let Some(remedy) = &finding.remedy {
                output.line(&printable(&format!("      {remedy}")))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_text_on_a_line_of_its_own_whatever_a_provider_says() {
        let says = "asks for \u{1b}[2J\u{9b}1A\n0 in order, \u{202e}dednem eb ot 0";
        let finding = Finding::good("provider", "corp", says).but(Level::Advice, "line\r\nline");
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut output = Output {
            json: false,
            out: &mut out,
            err: &mut err,
        };
        show(&[finding], false, &mut output).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "advice  provider corp: asks for \u{fffd}[2J\u{fffd}1A 0 in order, \u{fffd}dednem eb ot 0\n      \
             line\u{fffd} line\n0 in order, 1 that could be better, 0 to be mended\n"
        );
    }

    #[test]
    fn a_full_disk_is_told_with_the_figures_that_count() {
        let found = |size, free| of_room(Path::new("/data"), size, Space { free, total: 1 << 40 });
        let (mib, gib) = (1_u64 << 20, 1_u64 << 30);
        assert_eq!(found(mib, LEAST_ROOM).level, Level::Good);
        let scarce = found(gib, 3 * gib - 1);
        assert_eq!(scarce.level, Level::Mend);
        assert_eq!(
            scarce.remedy.as_deref(),
            Some("make room for 1 MiB: the database and its backups need 3072 MiB")
        );
        let short = found(mib, LEAST_TO_WRITE).remedy.unwrap();
        assert!(
            short.starts_with("make room for 254 MiB soon: with fewer than 64 free, sign-ins that begin are answered with 503"),
            "{short}"
        );
        let full = found(mib, LEAST_TO_WRITE - 1).remedy.unwrap();
        assert!(
            full.starts_with("make room for 255 MiB now: with fewer than 2 the service can no longer write")
                && full.ends_with("need 256 MiB"),
            "{full}"
        );
    }

    #[test]
    fn a_clock_that_is_far_from_what_the_store_knows_is_told() {
        let day = Duration::from_hours(24);
        let level = |now, known| of_clock(now, Some(EARLIEST), known).level;
        assert_eq!(
            level(EARLIEST + day * 900, Some(EARLIEST + day * 899)),
            Level::Good
        );
        assert_eq!(level(EARLIEST + day * 900, None), Level::Good);
        let ahead = of_clock(EARLIEST + day * 900, Some(EARLIEST), Some(EARLIEST));
        assert_eq!(ahead.level, Level::Advice);
        assert!(
            ahead.message.contains("nothing in the database is younger than"),
            "{ahead:?}"
        );
        assert_eq!(level(EARLIEST - day, None), Level::Mend);
    }

    #[test]
    fn a_large_database_that_is_mostly_empty_is_named_with_the_command_that_helps() {
        let mib = 1_u64 << 20;
        for (taken, spare) in [(63, 63), (64, 32), (0, 0)] {
            assert_eq!(of_spare(taken * mib, spare * mib), None);
        }
        let found = of_spare(64 * mib, 33 * mib).unwrap();
        assert_eq!(found.message, "33 of its 64 MiB hold nothing");
        assert!(found.remedy.unwrap().starts_with("idsvc compact "));
    }
}
