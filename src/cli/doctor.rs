//! `idsvc doctor`: checks everything that can go wrong over time, and says what to do.

mod access;
mod apis;
mod backups;
mod certificate;
mod client_certificates;
mod clock;
mod disk;
mod factors;
mod finding;
mod grade;
mod groups;
mod mail;
mod names;
mod nodes;
mod open_files;
mod registrants;
mod settings;
mod themes;

use std::time::Duration;

use clap::Args;

use self::finding::{Finding, Level, show};
pub use self::grade::Profile;
use super::Global;
use super::admin_connection::{AdminConnection, AdminConnector, Opening};
use super::output::{CliError, Output};
use super::provider;
use super::setting_flags::SettingFlags;
use crate::admin::api::ListApis;
use crate::admin::client::{ClientView, ListClients};
use crate::admin::installation::ReadInstallation;
use crate::admin::key::{KeyStateView, KeyView, ListKeys};
use crate::admin::provider::test::{Finding as ProviderFinding, FindingStatus};
use crate::admin::provider::{ListProviders, TestProvider};
use crate::admin::scope::ListScopes;
use crate::clock::{Clock, Timestamp};
use crate::config::resolve::resolve;
use crate::config::{Config, Fault, Settings, logo_fault};
use crate::oauth::policy::KeyRotation;
use crate::server::open::{USE_THE_SAME_ADDRESS, keeps_stored_issuer};

/// The flags of `idsvc doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Show also what is in order
    #[arg(long)]
    pub all: bool,
    /// Grade clients by this standard as well
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<Profile>,
    /// The settings that `idsvc serve` is started with.
    #[command(flatten)]
    pub settings: Box<SettingFlags>,
}

/// How long a key may sign if the operator replaces keys by hand.
const MAX_KEY_AGE: Duration = Duration::from_hours(24 * 90);
/// How late a key may be replaced, as after a stop of the service.
const KEY_TOLERANCE: Duration = Duration::from_hours(24);

/// Runs every check. Returns an error if something must be corrected.
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
        let remedy = "unset it, or correct its name";
        findings.push(Finding::advice("settings", "environment", warning, remedy));
    }
    // The modes and the free space come first: they may be why the store does not answer.
    if let Ok(settings) = connector.settings(output) {
        disk::examine(&settings.data_dir, settings.store.is_some(), &mut findings);
    }
    let reached = connector
        .connect(&Opening::Existing, output)
        .and_then(|session| Ok((session.call(ReadInstallation)?, session)));
    let is_running = reached.as_ref().is_ok_and(|(_, session)| session.is_running());
    if reached
        .as_ref()
        .is_ok_and(|(installation_state, _)| installation_state.for_development)
    {
        sources = sources.for_development();
        findings.push(Finding::advice(
            "data",
            "development",
            "this is the data of idsvc serve --dev, and it is checked as such",
            "name another data_dir for a service of your own",
        ));
    }
    let setting = |fault: &Fault, level| {
        Finding::good("settings", &fault.place, &fault.message)
            .at_level(level, "idsvc config check shows it again")
    };
    findings.extend(logo_fault(&sources).map(|fault| setting(&fault, Level::Mend)));
    let config = match resolve(&sources) {
        Ok(config) => {
            findings.push(Finding::good("settings", "configuration", "all right"));
            let warnings = config.warnings.iter();
            findings.extend(warnings.map(|warning| setting(warning, Level::Advice)));
            settings::examine(&config, &mut findings);
            certificate::examine(&config, is_running, now, &mut findings);
            mail::examine(&config, &mut findings);
            Some(config)
        }
        Err(error) => {
            findings.extend(error.faults.iter().map(|fault| setting(fault, Level::Mend)));
            None
        }
    };
    let examined = reached.and_then(|(installation_state, session)| {
        let data_dir = &session.settings().data_dir;
        access::examine(data_dir, &mut findings);
        open_files::examine(data_dir, &installation_state, &mut findings);
        findings.push(factors::examine(&installation_state.factors));
        findings.extend(names::examine(&installation_state.name_conflicts));
        findings.extend(
            installation_state
                .near_token_limit
                .as_ref()
                .map(factors::examine_tokens),
        );
        findings.extend(groups::examine(&installation_state.clients_without_users));
        findings.extend(installation_state.registrant_room_used.map(registrants::examine));
        findings.extend(settings::examine_shortages(installation_state.memory_shortages));
        let warnings = installation_state.server_warnings.into_iter();
        findings.extend(warnings.map(nodes::server_finding));
        let outage = installation_state.outage.as_deref();
        findings.extend(outage.map(|outage| nodes::outage_finding(outage, is_running)));
        findings.extend(nodes::examine(&installation_state.nodes));
        findings.extend(installation_state.clocks.and_then(clock::examine_shared));
        findings.extend(clock::examine_outlasting(installation_state.outlasting));
        findings.extend(grade::examine_unknown_scopes(&installation_state.unknown_scopes));
        if let Some(config) = &config {
            findings.push(check_issuer(&installation_state.issuer, config));
        }
        findings.extend(disk::examine_database(&session)?);
        let settings = config
            .as_ref()
            .map_or(session.settings(), |config| &config.settings);
        examine_store(
            &session,
            settings,
            request.profile,
            now,
            installation_state.clock_watermark,
            &mut findings,
        )
    });
    let oldest = examined.unwrap_or_else(|error| {
        let message = error.to_string();
        // A fault of the settings is in the findings already, and is the reason here too.
        let is_known = findings
            .iter()
            .any(|finding| finding.level == Level::Mend && message.contains(&finding.message));
        if !is_known {
            let remedy = "correct this first: the other checks need the database";
            findings.push(Finding::mend("data", "database", message, remedy));
        }
        None
    });
    if let Some(config) = &config {
        backups::examine(config, oldest, is_running, now, &mut findings);
    }
    show(&findings, request.all, output)
}

/// Checks that the configured issuer is the one that the service was set up with.
fn check_issuer(stored: &str, config: &Config) -> Finding {
    let configured = &config.issuer;
    if stored == configured || keeps_stored_issuer(config, stored) {
        return Finding::good("settings", "base_url", format!("{stored}, as it was set up"));
    }
    let message = format!("it is {configured}, but the service was set up as {stored}: it will not start");
    if config.is_dev {
        let remedy = format!("{USE_THE_SAME_ADDRESS}, or remove its data");
        return Finding::advice("settings", "base_url", message, remedy);
    }
    let stop = match config.settings.store {
        Some(_) => "stop all nodes and ",
        None => "",
    };
    let remedy = format!(
        "set it back, or {stop}run idsvc config set-issuer {configured} --i-know. Then issued access tokens are refused, and clients must be configured with the new issuer"
    );
    Finding::mend("settings", "base_url", message, remedy)
}

/// Checks the keys, clients and providers in the store. Returns the time of the oldest record.
fn examine_store(
    session: &AdminConnection,
    settings: &Settings,
    profile: Option<Profile>,
    now: Timestamp,
    watermark: Option<Timestamp>,
    findings: &mut Vec<Finding>,
) -> Result<Option<Timestamp>, CliError> {
    let keys = session.call(ListKeys)?;
    let clients: Vec<ClientView> = session.take_records(ListClients, "list", |clients| clients.collect())?;
    let created = keys
        .iter()
        .map(|key| key.created_at)
        .chain(clients.iter().map(|client| client.created_at));
    let oldest = created.clone().min();
    let updated = clients.iter().map(|client| client.updated_at);
    findings.push(clock::examine(now, created.chain(updated).max(), watermark));
    let rotation = settings.policy("").key_rotation;
    for key in &keys {
        let is_replaced = keys
            .iter()
            .any(|other| other.alg == key.alg && matches!(other.standing, KeyStateView::Announced { .. }));
        findings.extend(check_key(key, is_replaced, rotation, session.is_running(), now));
    }
    for client in &clients {
        findings.extend(grade::check_client(client, profile));
        findings.extend(client_certificates::check_client(client, &settings.mtls));
    }
    themes::examine(settings, &clients, findings);
    let scopes = session.call(ListScopes)?;
    for api in session.call(ListApis)? {
        findings.push(apis::check_api(&api, &scopes, settings));
    }
    let providers = session.call(ListProviders)?;
    for provider in providers.into_iter().filter(|provider| provider.enabled) {
        let report = session.call(TestProvider { id: provider.id })?;
        let found = report.findings.iter();
        findings.extend(found.map(|finding| provider_finding(&report.provider, finding)));
    }
    Ok(oldest)
}

fn provider_finding(id: &str, found: &ProviderFinding) -> Finding {
    let finding = Finding::good("provider", id, format!("{}: {}", found.check, found.seen));
    let level = match found.standing {
        FindingStatus::Ok => return finding,
        FindingStatus::Warning => Level::Advice,
        FindingStatus::Failed => Level::Mend,
    };
    let remedy =
        provider::remedy(id, found).unwrap_or_else(|| format!("idsvc provider test {id} shows more"));
    finding.at_level(level, remedy)
}

/// Checks how long an active key has signed, unless a new key is announced.
fn check_key(
    key: &KeyView,
    is_replaced: bool,
    rotation: KeyRotation,
    is_running: bool,
    now: Timestamp,
) -> Option<Finding> {
    let KeyStateView::Active { since } = key.standing else {
        return None;
    };
    let age = now.since(since);
    let message = format!("{} has signed for {} days", key.alg, age.as_secs() / 86_400);
    let max_age = rotation
        .every
        .map_or(MAX_KEY_AGE, |every| every + rotation.announce + KEY_TOLERANCE);
    if is_replaced || age <= max_age {
        return Some(Finding::good("key", &key.kid, message));
    }
    let remedy = if rotation.every.is_none() {
        format!("idsvc key rotate --alg {}", key.alg)
    } else if is_running {
        "look into the log of the service for why the key was not replaced".to_owned()
    } else {
        "start the service, which replaces it".to_owned()
    };
    Some(Finding::mend("key", &key.kid, message, remedy))
}
