//! Composes the settings from what their sections read.
//!
//! Each part is read by itself, so that a fault in one does not hide those of the others.

use std::path::PathBuf;

use super::accounts;
use super::backups::{Backups, backups};
use super::base_url::{base_url, host_of};
use super::brand::brand;
use super::clients::{self, registration};
use super::data_dir::data_dir;
use super::dpop;
use super::events::{EventRetention, events};
use super::fault::{ConfigError, Fault};
use super::issuer::issuer;
use super::lifetimes::lifetimes;
use super::limits::{self, limits, memory_limit};
use super::log::{Log, log};
use super::mail::{self, Mail, mail};
use super::memory::{MemoryPlan, MemorySettings, passphrase_warning};
use super::memory_limit::MemoryLimit;
use super::mtls::{self, Mtls, mtls};
use super::network::Network;
use super::outbound::{self, outbound};
use super::passkeys;
use super::password::{PasswordSettings, password};
use super::reader::{Read, Reader, part};
use super::refresh;
use super::service::{self, service};
use super::settings::{Config, Settings};
use super::shared_settings;
use super::signing::{self, key_rotation};
use super::source::Sources;
use super::store;
use super::theme::{ThemeSettings, theme};
use super::tls::{NamedFiles, named_files};
use crate::age::Recipients;
use crate::limit::LimitPolicy;
use crate::net::outbound::OutboundPolicy;
use crate::oauth::policy::Policy;
use crate::password::Blocklist;
use crate::store::Address;
use crate::themes::brand::BrandSettings;

/// What the sources resolve to.
pub struct Resolved {
    /// The settings of `idsvc serve`, or all faults.
    pub config: Result<Config, ConfigError>,
    /// Warnings about settings without effect.
    pub warnings: Vec<Fault>,
    /// What settings without a fault name, to be checked also if others have faults.
    pub named: Named,
}

/// What the settings name outside of themselves, each if it is known.
pub struct Named {
    /// The host that the certificate must name.
    pub host: Option<String>,
    /// The files of certificate and key.
    pub tls: NamedFiles,
    /// The certificate authorities beside those of the web.
    pub outbound: OutboundPolicy,
    /// The data directory.
    pub data_dir: Option<PathBuf>,
    /// The theme of the pages.
    pub theme: Option<ThemeSettings>,
}

/// Resolves the settings of `idsvc serve`, or returns all faults.
pub fn resolve(sources: &Sources) -> Result<Config, ConfigError> {
    resolve_all(sources).config
}

/// Resolves the settings of `idsvc serve`, and what can be checked of them if they have faults.
pub fn resolve_all(sources: &Sources) -> Resolved {
    let mut reader = Reader::of(sources);
    let parts = Parts::read(&mut reader);
    let named = Named {
        host: parts.issuer.as_deref().ok().and_then(host_of),
        tls: named_files(&mut reader),
        outbound: parts.common.outbound.clone().unwrap_or_default(),
        data_dir: parts.common.data_dir.clone().ok(),
        theme: parts.common.theme.clone().ok(),
    };
    let warnings = reader.warnings.clone();
    let config = parts.config(sources, warnings.clone());
    Resolved {
        config: reader.finish(config),
        warnings,
        named,
    }
}

/// Resolves the settings of the other commands, or returns all faults.
pub fn resolve_settings(sources: &Sources) -> Result<Settings, ConfigError> {
    let mut reader = Reader::of(sources);
    let settings = Common::read(&mut reader).settings();
    reader.finish(settings)
}

/// The parts of [`Settings`].
struct Common {
    data_dir: Read<PathBuf>,
    store: Read<Option<Address>>,
    base_url: Read<Option<String>>,
    policy: Read<Policy>,
    theme: Read<ThemeSettings>,
    brand: Read<BrandSettings>,
    mtls: Read<Mtls>,
    mail: Read<Option<Mail>>,
    outbound: Read<OutboundPolicy>,
    events: Read<EventRetention>,
    password: Read<PasswordSettings>,
    memory_limit: Read<Option<MemoryLimit>>,
}

impl Common {
    fn read(reader: &mut Reader<'_>) -> Self {
        let password = password(reader);
        let brand = brand(reader);
        let name = part(&brand).ok().and_then(|brand| brand.name.as_deref());
        let (mtls, mail, memory_limit) = (mtls(reader), mail(reader, name), memory_limit(reader));
        let data_dir = data_dir(reader);
        Self {
            store: store::address(reader),
            base_url: base_url(reader),
            policy: policy(
                reader,
                part(&mtls),
                part(&mail).map(Option::is_some),
                part(&password),
                memory_limit,
            ),
            theme: theme(reader, part(&data_dir).map(PathBuf::as_path)),
            brand,
            outbound: outbound(reader),
            events: events(reader),
            memory_limit,
            data_dir,
            mtls,
            mail,
            password,
        }
    }

    /// What memory is shared out from. `connections` is their number, if one is configured.
    fn memory(&self, connections: Option<usize>) -> Read<MemorySettings> {
        let password = part(&self.password)?;
        let blocklist = password.policy.blocklist.as_ref();
        Ok(MemorySettings {
            limit: self.memory_limit?,
            cost: password.params,
            workers: password.workers,
            blocked_passwords: blocklist.map_or(0, Blocklist::count),
            connections,
            has_mtls: part(&self.mtls)?.listen.is_some(),
            takes_registrants: part(&self.policy)?.takes_registrants(),
        })
    }

    fn settings(self) -> Read<Settings> {
        let memory = self.memory(None)?;
        let theme = self.theme?;
        Ok(Settings {
            data_dir: self.data_dir?,
            store: self.store?,
            base_url: self.base_url?,
            policy_without_issuer: self.policy?,
            theme: theme.name,
            theme_dir: theme.folder,
            brand: self.brand?,
            mtls: self.mtls?,
            mail: self.mail?,
            outbound: self.outbound?,
            events: self.events?,
            password_params: part(&self.password)?.params,
            memory,
        })
    }
}

fn policy(
    reader: &mut Reader<'_>,
    mtls: Read<&Mtls>,
    sends_mail: Read<bool>,
    password: Read<&PasswordSettings>,
    memory_limit: Read<Option<MemoryLimit>>,
) -> Read<Policy> {
    for settings in [
        refresh::SETTINGS,
        signing::SETTINGS,
        dpop::SETTINGS,
        passkeys::SETTINGS,
    ] {
        reader.check(settings);
    }
    let (service, lifetimes, key_rotation) = (service(reader), lifetimes(reader), key_rotation(reader));
    let (registration, passkey_origins) = (registration(reader, memory_limit), passkeys::origins(reader));
    let accounts = accounts::policy(reader);
    let service = service?;
    Ok(Policy {
        issuer: String::new(),
        service_name: service.name,
        organization: service.organization,
        service_documentation: service.documentation,
        lifetimes: lifetimes?,
        refresh_retry_window: reader.read(&refresh::RETRY_WINDOW)?,
        access_token_alg: reader.read(&signing::ACCESS_TOKEN_ALG)?,
        access_token_typ: reader.read(&signing::ACCESS_TOKEN_TYP)?,
        dpop_nonce: reader.read(&dpop::NONCE)?,
        mtls: mtls?.policy(),
        id_token_alias: service.id_token_alias,
        anonymous_retention: reader.read(&refresh::ANONYMOUS_RETENTION)?,
        key_rotation: key_rotation?,
        metadata_documents: reader.read(&clients::METADATA_DOCUMENTS)?,
        password: password?.policy.clone(),
        registration: registration?,
        accounts: accounts?,
        passkey_origins: passkey_origins?,
        passkey_offer: reader.read(&passkeys::OFFER)?,
        sends_mail: sends_mail?,
    })
}

/// The parts of [`Config`].
struct Parts {
    common: Common,
    network: Network,
    issuer: Read<String>,
    support_contact: Read<Option<String>>,
    memory: Read<MemoryPlan>,
    limits: Read<LimitPolicy>,
    max_connections_per_address: Read<usize>,
    backups: Read<Backups>,
    log: Read<Log>,
}

impl Parts {
    fn read(reader: &mut Reader<'_>) -> Self {
        let common = Common::read(reader);
        let base_url = part(&common.base_url).map(Option::as_deref);
        let network = Network::read(reader, base_url);
        let backups = backups(reader, part(&common.store).map(Option::is_some));
        reader.check(limits::SETTINGS);
        let connections = reader.read_if_set(&limits::CONNECTIONS);
        let memory = connections.and_then(|connections| Ok(common.memory(connections)?.plan()));
        let listen = part(&network.listen).map(Vec::as_slice);
        let parts = Self {
            issuer: issuer(reader, base_url, part(&network.tls), listen),
            support_contact: reader.read_if_set(&service::SUPPORT_CONTACT),
            limits: limits(reader, part(&memory)),
            max_connections_per_address: reader.read(&limits::CONNECTIONS_PER_ADDRESS),
            log: log(reader),
            common,
            network,
            memory,
            backups,
        };
        parts.check(reader);
        parts
    }

    /// Checks parts against others, and reads the files that they name.
    fn check(&self, reader: &mut Reader<'_>) {
        outbound::check(reader);
        accounts::check(reader, part(&self.common.mail).map(Option::is_some));
        mtls::check_authorities(reader);
        if let Ok(mtls) = &self.common.mtls {
            mtls::check(reader, mtls, &self.network);
        }
        if !matches!(self.common.mail, Ok(None)) {
            mail::check(reader);
        }
        if let Ok(Some(address)) = &self.common.store {
            store::check(reader, address, part(&self.network.tls));
        }
        let Ok(memory) = &self.memory else {
            return;
        };
        let has_passphrase =
            |backups: &Backups| matches!(backups.recipients, Some(Recipients::Passphrase(_)));
        let passphrase = self.backups.as_ref().is_ok_and(has_passphrase);
        let passphrase = passphrase.then(|| passphrase_warning(memory.limit)).flatten();
        for message in memory.warning.clone().into_iter().chain(passphrase) {
            let place = "memory".to_owned();
            reader.warnings.push(Fault { place, message });
        }
    }

    fn config(self, sources: &Sources, warnings: Vec<Fault>) -> Read<Config> {
        let settings = self.common.settings()?;
        Ok(Config {
            issuer_is_derived: settings.base_url.is_none(),
            settings,
            issuer: self.issuer?,
            listen: self.network.listen?,
            redirect_listen: self.network.redirect_listen?,
            tls: self.network.tls?,
            trusted_proxies: self.network.trusted_proxies?,
            support_contact: self.support_contact?,
            limits: self.limits?,
            memory: self.memory?,
            max_connections_per_address: self.max_connections_per_address?,
            metrics_listen: self.network.metrics_listen?,
            backups: self.backups?,
            log: self.log?,
            is_dev: sources.is_dev,
            shared_digests: shared_settings::digests(sources),
            warnings,
        })
    }
}
