//! Turns the sources into checked values. The first source counts, and all faults are collected.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use url::Url;

use super::accounts;
use super::backups::backups;
use super::clients::registration;
use super::lifetimes::lifetimes;
use super::listen::{listen, metrics_listen, redirect_listen};
use super::log::log;
use super::mail::{self, mail};
use super::memory::{self, MemorySettings};
use super::mtls::{self, mtls};
use super::reader::{Reader, format_duration};
use super::tls::{issuer, tls};
use super::{Config, ConfigError, EventRetention, Fault, Settings, Sources, Tls, dpop, passkeys, store};
use crate::age::Recipients;
use crate::jose::alg::Algorithm;
use crate::limit::{ALL_BODIES_KIB, ALL_REQUESTS, LimitPolicy};
use crate::net::outbound::{Client, OutboundPolicy};
use crate::oauth::access_token::AccessTokenTyp;
use crate::oauth::client::is_theme_name;
use crate::oauth::policy::{KeyRotation, Policy};
use crate::oauth::redirect_uri::is_on_this_machine;
use crate::password::{MAX_ITERATIONS, MAX_MEMORY_KIB, MAX_PARALLELISM, PasswordParams, PasswordPolicy};

/// The known regions.
pub const REGIONS: [&str; 2] = ["us", "ap"];

const DEV_DATA_DIR: &str = "./idsvc-data/dev";
const EVENTS_MIB: std::ops::RangeInclusive<u64> = 1..=65_536;
const SHORTEST_EVENT_RETENTION: Duration = Duration::from_hours(1);
/// Keys stay published while their signatures are in use. Shorter rotations would pile them up in the key set.
const SHORTEST_ROTATION: Duration = Duration::from_hours(1);
const MOST_WORKERS: u64 = 1024;
/// A thousand requests a second.
const MOST_PER_HOUR: u64 = 3_600_000;
const MOST_CONNECTIONS: u64 = 1_000_000;
const PASSWORD_BYTES: std::ops::RangeInclusive<u64> = 64..=4096;

/// Resolves the settings of `idsvc serve`, or returns all faults.
pub fn resolve(sources: &Sources) -> Result<Config, ConfigError> {
    let (config, faults) = resolve_all(sources);
    if faults.is_empty() {
        Ok(config)
    } else {
        Err(ConfigError { faults })
    }
}

/// Resolves the settings of `idsvc serve`, with all faults. A setting with a fault has a harmless value, so that the files
/// that the other settings name can be checked as well.
pub fn resolve_all(sources: &Sources) -> (Config, Vec<Fault>) {
    let mut reader = Reader::of(sources);
    let settings = settings(&mut reader);
    let listen = listen(&mut reader);
    let before = reader.faults.len();
    let trusted_proxies = trusted_proxies(&mut reader);
    let has_proxies = !trusted_proxies.is_empty() || reader.faults.len() > before;
    let tls = tls(&mut reader, settings.base_url.as_deref(), &listen, has_proxies);
    let backups = backups(&mut reader, settings.store.is_some());
    let redirect_listen = redirect_listen(&mut reader, &listen, tls.as_ref());
    let metrics_listen = metrics_listen(&mut reader, &listen, &redirect_listen);
    check_authorities(&mut reader, &settings.outbound);
    let log = log(&mut reader);
    let limits = limits(&mut reader);
    let max_connections = connections(&mut reader, "limits.connections");
    let is_configured = reader.explicit("limits.connections").is_some();
    let memory = MemorySettings {
        connections: is_configured.then_some(max_connections),
        ..settings.memory
    }
    .plan();
    let uses_passphrase = matches!(backups.recipients, Some(Recipients::Passphrase(_)));
    let passphrase_warning = uses_passphrase.then(|| memory::passphrase_warning(memory.limit));
    for message in memory
        .warning
        .clone()
        .into_iter()
        .chain(passphrase_warning.flatten())
    {
        let place = "memory".to_owned();
        reader.warnings.push(Fault { place, message });
    }
    let issuer = issuer(&mut reader, settings.base_url.as_deref(), tls.as_ref(), &listen);
    let mut config = Config {
        issuer_is_derived: settings.base_url.is_none(),
        settings,
        issuer,
        listen,
        redirect_listen,
        // An unknown mode is a fault.
        tls: tls.unwrap_or(Tls::Off),
        trusted_proxies,
        support_contact: support_contact(&mut reader),
        limits: LimitPolicy {
            all_requests: memory.requests,
            all_bodies_kib: memory.bodies_kib,
            ..limits
        },
        memory,
        max_connections_per_address: connections(&mut reader, "limits.connections_per_address"),
        metrics_listen,
        backups,
        log,
        is_dev: sources.is_dev,
        warnings: Vec::new(),
    };
    mtls::check(&mut reader, &config);
    mail::check(&mut reader, &config);
    store::check(&mut reader, &config);
    config.warnings = reader.warnings;
    (config, reader.faults)
}

/// Resolves the settings of the other commands, or returns all faults.
pub fn resolve_settings(sources: &Sources) -> Result<Settings, ConfigError> {
    let mut reader = Reader::of(sources);
    let settings = settings(&mut reader);
    reader.finish(settings)
}

fn key_rotation(reader: &mut Reader<'_>) -> KeyRotation {
    let announce = reader.duration("keys.announce", KeyRotation::KEPT_BY_VERIFIERS);
    let every = reader.duration_or_off("keys.rotate_every");
    if let Some((every, origin)) = &every {
        if *every < SHORTEST_ROTATION {
            let least = format_duration(SHORTEST_ROTATION);
            reader.fault(
                origin,
                format!("keys.rotate_every must be at least {least}, or off"),
            );
        } else if *every <= announce {
            reader.fault(
                origin,
                format!(
                    "keys.rotate_every must be longer than keys.announce, which is {}: a key is announced while the one before it signs",
                    format_duration(announce)
                ),
            );
        }
    }
    KeyRotation {
        every: every.map(|(every, _)| every),
        announce,
    }
}

pub(super) fn settings(reader: &mut Reader<'_>) -> Settings {
    let lifetimes = lifetimes(reader);
    let max_bytes = usize::try_from(reader.number_within("password.max_bytes", PASSWORD_BYTES)).unwrap_or(0);
    let min_length = usize::try_from(reader.number_within("password.min_length", 1..=64)).unwrap_or(0);
    let workers = reader.number_within("password.workers", 0..=MOST_WORKERS);
    let access_token_typ = reader
        .one_of(
            "signing.access_token_typ",
            &AccessTokenTyp::ALL.map(AccessTokenTyp::as_str),
        )
        .and_then(|text| AccessTokenTyp::ALL.into_iter().find(|typ| typ.as_str() == text))
        .unwrap_or_default();
    let password_params = password_params(reader);
    let mtls = mtls(reader);
    let mail = mail(reader);
    let memory = MemorySettings {
        limit: memory::limit(reader),
        cost: password_params,
        workers: usize::try_from(workers).unwrap_or(0),
        connections: None,
        has_mtls: mtls.listen.is_some(),
    };
    let data_dir = data_dir(reader);
    let policy_without_issuer = Policy {
        issuer: String::new(),
        service_name: service_name(reader),
        organization: reader
            .text("organization")
            .map(|(text, _)| text)
            .unwrap_or_default(),
        service_documentation: service_documentation(reader),
        lifetimes,
        refresh_retry_window: reader.duration("refresh.retry_window", Duration::ZERO),
        access_token_alg: reader
            .parsed("signing.access_token_alg")
            .unwrap_or(Algorithm::Es256),
        access_token_typ,
        dpop_nonce: dpop::nonce(reader),
        mtls: mtls.policy(),
        id_token_alias: reader.flag("id_token_alias"),
        anonymous_retention: reader.duration("anonymous.retention", Duration::from_secs(1)),
        key_rotation: key_rotation(reader),
        metadata_documents: reader.flag("clients.metadata_documents"),
        password: PasswordPolicy {
            min_length,
            max_bytes,
        },
        registration: registration(reader),
        accounts: accounts::policy(reader, mail.is_some()),
        passkey_origins: passkeys::origins(reader),
        passkey_offer: reader.flag(passkeys::OFFER.key),
        sends_mail: mail.is_some(),
    };
    Settings {
        theme: theme(reader),
        theme_dir: theme_dir(reader, &data_dir),
        data_dir,
        store: store::address(reader),
        base_url: base_url(reader),
        policy_without_issuer,
        mtls,
        mail,
        outbound: OutboundPolicy {
            ca_file: reader.path("outbound.ca_file").map(|(file, _)| file),
            allow: networks(reader, "outbound.allow"),
        },
        events: events(reader),
        password_params,
        memory,
    }
}

fn events(reader: &mut Reader<'_>) -> EventRetention {
    let mut duration = |key: &str| {
        let (duration, origin) = reader.duration_or_off(key)?;
        if duration < SHORTEST_EVENT_RETENTION {
            reader.fault(&origin, format!("{key} must be at least 1h, or off"));
        }
        Some(duration)
    };
    EventRetention {
        keep: duration("events.keep"),
        routine: duration("events.tokens"),
        max_bytes: reader.number_within("events.max_mib", EVENTS_MIB) << 20,
    }
}

fn password_params(reader: &mut Reader<'_>) -> PasswordParams {
    let before = reader.faults.len();
    let mut number = |key: &str, range| u32::try_from(reader.number_within(key, range)).unwrap_or(0);
    let memory = number("password.memory_kib", 8..=u64::from(MAX_MEMORY_KIB));
    let iterations = number("password.iterations", 1..=u64::from(MAX_ITERATIONS));
    let parallelism = number("password.parallelism", 1..=u64::from(MAX_PARALLELISM));
    PasswordParams::new(memory, iterations, parallelism).unwrap_or_else(|_| {
        // Each number by itself is within its range.
        if reader.faults.len() == before {
            reader.fault_at(
                "password.parallelism",
                "password.memory_kib must be at least 8 for each of password.parallelism",
            );
        }
        PasswordParams::default()
    })
}

/// The name of the service: a valid namespace of a URN (RFC 8141 section 2).
fn service_name(reader: &mut Reader<'_>) -> String {
    let Some((text, origin)) = reader.text("service_name") else {
        return String::new();
    };
    let ends_well = |end: Option<u8>| end.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_fit = (2..=32).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && ends_well(text.bytes().next())
        && ends_well(text.bytes().last())
        && !text.eq_ignore_ascii_case("urn");
    if !is_fit {
        reader.fault(
            &origin,
            format!("service_name = {text:?}: use 2 to 32 letters, digits and hyphens, no hyphen at an end (RFC 8141)"),
        );
    }
    text
}

fn theme(reader: &mut Reader<'_>) -> String {
    let Some((text, origin)) = reader.text("theme") else {
        return String::new();
    };
    if !is_theme_name(&text) {
        reader.fault(
            &origin,
            format!("theme = {text:?}: names of themes are lower-case letters, digits and hyphens"),
        );
    }
    text
}

fn theme_dir(reader: &mut Reader<'_>, data_dir: &Path) -> PathBuf {
    match reader.explicit("theme_dir") {
        Some(_) => reader.path("theme_dir").map(|(path, _)| path).unwrap_or_default(),
        None => data_dir.join("themes"),
    }
}

/// The URL of the documentation (RFC 8414 section 2).
fn service_documentation(reader: &mut Reader<'_>) -> Option<String> {
    let problem = "it is no address of a page, as in https://docs.example.com/sign-in";
    address(reader, "service_documentation", &["https://", "http://"], problem)
}

/// The address at which people get help.
fn support_contact(reader: &mut Reader<'_>) -> Option<String> {
    let problem = "it is no address where people get help, as in mailto:help@example.com, https://example.com/help or \
                   tel:+15550100";
    address(
        reader,
        "support_contact",
        &["mailto:", "https://", "tel:"],
        problem,
    )
}

/// A URL that begins in one of these ways.
fn address(reader: &mut Reader<'_>, key: &str, beginnings: &[&str], problem: &str) -> Option<String> {
    let (text, origin) = reader.text(key)?;
    let begins_well = beginnings.iter().any(|beginning| text.starts_with(beginning));
    let is_fit = text.bytes().all(|byte| byte.is_ascii_graphic()) && Url::parse(&text).is_ok();
    if !begins_well || !is_fit {
        reader.fault(&origin, format!("{key} = {text:?}: {problem}"));
    }
    Some(text)
}

fn data_dir(reader: &mut Reader<'_>) -> PathBuf {
    if reader.explicit("data_dir").is_some() {
        let Some((path, origin)) = reader.path("data_dir") else {
            return PathBuf::new();
        };
        if path.metadata().is_ok_and(|found| !found.is_dir()) {
            let message = format!("data_dir = {:?} is no directory: name another", path.display());
            reader.fault(&origin, message);
        }
        return path;
    }
    if reader.sources.is_dev {
        return PathBuf::from(DEV_DATA_DIR);
    }
    let state_directory = reader.sources.state_directory.clone();
    state_directory.unwrap_or_else(|| PathBuf::from("./idsvc-data"))
}

/// `base_url` with the region filled in. `None` if it is missing or wrong.
fn base_url(reader: &mut Reader<'_>) -> Option<String> {
    let region = reader.explicit("region").and_then(|_| {
        let (text, origin) = reader.text("region")?;
        if !REGIONS.contains(&text.as_str()) {
            let known = REGIONS.join(", ");
            reader.fault(
                &origin,
                format!("region = {text:?} is unknown: the known ones are {known}"),
            );
        }
        Some(text)
    });
    reader.explicit("base_url")?;
    let (text, origin) = reader.text("base_url")?;
    let is_region_missing = text.contains("{region}") && region.is_none();
    if is_region_missing {
        reader.missing("region", "base_url has {region} in it and region is not set");
    }
    let text = text.replace("{region}", region.as_deref().unwrap_or(REGIONS[0]));
    match check_base_url(&text) {
        Ok(()) => Some(text).filter(|_| !is_region_missing),
        Err(message) => {
            reader.fault(&origin, format!("base_url = {text:?}: {message}"));
            None
        }
    }
}

/// Checks that the text can be an issuer (RFC 8414 section 2): https, or http on loopback; no query and no fragment.
pub fn check_base_url(text: &str) -> Result<(), String> {
    let example = "as in https://id.example.com";
    let url = Url::parse(text).map_err(|error| format!("it is no URL ({error}), {example}"))?;
    let is_local = is_on_this_machine(&url);
    match url.scheme() {
        "https" => {}
        "http" if is_local => {}
        "http" => return Err("it must begin with https; http is for loopback hosts only".to_owned()),
        _ => return Err(format!("it must begin with https, {example}")),
    }
    if !url.username().is_empty() || url.password().is_some() || text.contains('@') {
        return Err("it must not hold a user name".to_owned());
    }
    if text.contains(['?', '#']) {
        return Err("it must have neither a query nor a fragment".to_owned());
    }
    if text.ends_with('/') {
        return Err(format!(
            "it must not end with a slash: {}",
            text.trim_end_matches('/')
        ));
    }
    let canonical = url.as_str().trim_end_matches('/');
    if canonical != text {
        return Err(format!("it must be written as browsers write it: {canonical}"));
    }
    if url.path().contains("//") || url.path().contains('%') {
        return Err("its path must be plain segments".to_owned());
    }
    Ok(())
}

/// A list of networks. A single address is a network too.
fn networks(reader: &mut Reader<'_>, key: &str) -> Vec<IpNet> {
    let (texts, origin) = reader.list(key);
    let mut networks = Vec::new();
    for text in &texts {
        let single = || text.parse::<IpAddr>().map(IpNet::from).ok();
        match text.parse::<IpNet>().ok().or_else(single) {
            Some(network) => networks.push(unmapped(network)),
            None => reader.fault(
                &origin,
                format!("{key} = {text:?} is no network, as in 10.0.0.0/8 or 192.0.2.1"),
            ),
        }
    }
    networks
}

/// Networks of proxies. A client in such a network chooses the address that its requests count for, so a network of all
/// addresses is refused.
fn trusted_proxies(reader: &mut Reader<'_>) -> Vec<IpNet> {
    let networks = networks(reader, "trusted_proxies");
    if let Some(all) = networks.iter().find(|network| network.prefix_len() == 0) {
        reader.fault_at(
            "trusted_proxies",
            format!("trusted_proxies = \"{all}\" is everybody, so that any client could forge its address: name the addresses of your proxies, as in 10.0.0.0/8 or 192.0.2.1"),
        );
    }
    networks
}

/// Turns an IPv4-mapped IPv6 network (RFC 4291 section 2.5.5.2) into an IPv4 network, as addresses are compared in that
/// form.
fn unmapped(network: IpNet) -> IpNet {
    const MAPPED: u8 = 96;
    let length = network.prefix_len().checked_sub(MAPPED);
    match (network, length) {
        (IpNet::V6(mapped), Some(length)) => mapped
            .addr()
            .to_ipv4_mapped()
            .and_then(|address| Ipv4Net::new(address, length).ok())
            .map_or(network, IpNet::V4),
        _ => network,
    }
}

pub(super) fn limits(reader: &mut Reader<'_>) -> LimitPolicy {
    let per_hour = |reader: &mut Reader<'_>, key| {
        let count = reader.number_within(key, 1..=MOST_PER_HOUR);
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    LimitPolicy {
        enabled: reader.flag("limits.enabled"),
        exempt: networks(reader, "limits.exempt"),
        anonymous_per_address: per_hour(reader, "limits.anonymous_per_address"),
        anonymous_per_client: per_hour(reader, "limits.anonymous_per_client"),
        all_requests: ALL_REQUESTS,
        all_bodies_kib: ALL_BODIES_KIB,
    }
}

fn connections(reader: &mut Reader<'_>, key: &str) -> usize {
    usize::try_from(reader.number_within(key, 1..=MOST_CONNECTIONS)).unwrap_or(1)
}

/// Loads the certificate authorities for outbound requests, as a start would.
fn check_authorities(reader: &mut Reader<'_>, terms: &OutboundPolicy) {
    if let Err(error) = Client::new(terms) {
        reader.fault_at("outbound.ca_file", error.to_string());
    }
}
