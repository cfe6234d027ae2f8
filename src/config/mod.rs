//! The operator's settings: flag before environment before file before default.
//!
//! [`reference::SETTINGS`] is the one table of settings: the keys of the file, the names in the environment and the
//! printed reference follow from it. [`Sources`] collects the values, [`resolve`] checks and converts them. All faults
//! are reported at once.

mod accounts;
mod backups;
mod clients;
mod dpop;
pub mod file;
mod lifetimes;
mod listen;
mod log;
pub mod mail;
pub mod memory;
pub mod memory_limit;
mod mfa;
pub mod mtls;
mod passkeys;
pub mod reader;
pub mod reference;
pub mod reference_text;
pub mod resolve;
mod setting;
pub mod setting_names;
mod store;
#[cfg(test)]
mod tests;
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

use crate::age::Recipients;
use crate::limit::LimitPolicy;
use crate::net::Limits;
use crate::net::acme::Plan;
use crate::net::outbound::OutboundPolicy;
use crate::oauth::policy::Policy;
use crate::password::PasswordParams;
use crate::store::Address;

use self::file::{Origin, ParsedFile, RawValue, SettingValue};
use self::mail::Mail;
use self::memory::{MemoryPlan, MemorySettings};
use self::memory_limit::MemoryLimit;
use self::mtls::Mtls;
use self::reader::Reader;

/// The environment variable that names the file.
pub const CONFIG_VARIABLE: &str = "IDSVC_CONFIG";

/// The port of the development server.
const DEV_PORT: u16 = 8443;

/// The variable in which the service manager passes the data directory.
const STATE_VARIABLE: &str = "STATE_DIRECTORY";

/// Whether an environment variable of this name is read.
pub fn is_read(name: &str) -> bool {
    name.starts_with("IDSVC_") || name == STATE_VARIABLE
}

/// The paths of the file if none is named.
pub const USUAL_FILES: [&str; 2] = ["./idsvc.toml", "/etc/idsvc/idsvc.toml"];

/// A problem with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The flag, variable or line.
    pub place: String,
    /// The problem, with the key.
    pub message: String,
}

/// All problems with the settings, one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The faults in the order in which they were found; never empty.
    pub faults: Vec<Fault>,
}

impl ConfigError {
    /// Whether this setting is missing.
    pub fn is_missing(&self, key: &str) -> bool {
        self.faults.iter().any(|fault| fault.place == key)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.faults.iter().enumerate() {
            let end = if number == 0 { "" } else { "\n" };
            write!(f, "{end}{fault}")?;
        }
        Ok(())
    }
}

/// The values from all sources.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The values of flags, environment and file, in this order.
    pub values: Vec<SettingValue>,
    /// The faults so far.
    pub faults: Vec<Fault>,
    /// Keys that the file may set, but whose values could not be read.
    pub unread: Vec<&'static str>,
    /// Warnings about variables that set nothing.
    pub warnings: Vec<String>,
    /// The value of `$STATE_DIRECTORY`, which the service manager sets.
    pub state_directory: Option<PathBuf>,
    /// Whether this is `idsvc serve --dev`.
    pub is_dev: bool,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// The memory that this process may use, if it is known.
    pub memory: Option<MemoryLimit>,
}

impl Sources {
    /// Collects the values of flags (dotted key and value), environment and file. `named` is the file of `--config`.
    pub fn collect(
        flags: &[(&'static str, String)],
        variables: &[(String, String)],
        named: Option<&Path>,
    ) -> Self {
        let usual = || USUAL_FILES.into_iter().map(Path::new).find(|path| path.exists());
        let file = named
            .or_else(|| variable(variables, CONFIG_VARIABLE).map(Path::new))
            .or_else(usual);
        Self::with_file(flags, variables, file)
    }

    /// The same for the development server, which reads no file but the one of `--config`. Others are those of an
    /// installed service, and lead into its data directory.
    pub fn collect_for_development(
        flags: &[(&'static str, String)],
        variables: &[(String, String)],
        named: Option<&Path>,
    ) -> Self {
        Self::with_file(flags, variables, named).for_development()
    }

    fn with_file(
        flags: &[(&'static str, String)],
        variables: &[(String, String)],
        file: Option<&Path>,
    ) -> Self {
        let mut sources = Self::default();
        for (key, value) in flags {
            if let Some(setting) = setting_names::find(key) {
                let origin = Origin::Flag(setting.flag_name());
                sources.values.push(SettingValue {
                    key: setting.key,
                    raw: RawValue::Text(value.clone()),
                    origin,
                });
            }
        }
        let (values, warnings) = file::from_environment(variables);
        sources.values.extend(values);
        sources.warnings = warnings;
        sources.state_directory = variable(variables, STATE_VARIABLE)
            .and_then(|list| list.split(':').next())
            .map(PathBuf::from);
        if let Some(path) = file {
            sources.read_file(path);
        }
        sources
    }

    fn read_file(&mut self, path: &Path) {
        self.take(match std::fs::read_to_string(path) {
            Ok(text) => file::parse(&text, path),
            Err(error) => ParsedFile::unreadable(vec![Fault {
                place: path.display().to_string(),
                message: format!("the configuration file cannot be read: {error}"),
            }]),
        });
        self.file = Some(path.to_owned());
    }

    fn take(&mut self, parsed: ParsedFile) {
        self.values.extend(parsed.values);
        self.faults.extend(parsed.faults);
        self.unread.extend(parsed.unread);
    }

    /// Selects the defaults of the development server.
    #[must_use]
    pub fn for_development(self) -> Self {
        Self { is_dev: true, ..self }
    }
}

/// The value of an environment variable, unless it is empty.
fn variable<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = variables.iter().find(|(known, _)| known == name);
    found
        .map(|(_, value)| value.as_str())
        .filter(|value| !value.is_empty())
}

/// The settings that every command needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The data directory.
    pub data_dir: PathBuf,
    /// The PostgreSQL database, if the data is not in the data directory.
    pub store: Option<Address>,
    /// The configured issuer. Without one, commands use the issuer that the first start fixed.
    pub base_url: Option<String>,
    /// The policy without its issuer, which [`Settings::policy`] adds.
    policy_without_issuer: Policy,
    /// The theme of the pages for clients without a theme of their own.
    pub theme: String,
    /// The folder of the operator's themes. It may be missing.
    pub theme_dir: PathBuf,
    /// How clients show certificates.
    pub mtls: Mtls,
    /// How mails are sent; `None` if they are not.
    pub mail: Option<Mail>,
    /// How providers and published keys are reached.
    pub outbound: OutboundPolicy,
    /// How much of the audit is kept.
    pub events: EventRetention,
    /// The cost of new password hashes.
    pub password_params: PasswordParams,
    /// What memory is shared out from.
    memory: MemorySettings,
}

/// The defaults.
impl Default for Settings {
    fn default() -> Self {
        resolve::settings(&mut Reader::of(&Sources::default()))
    }
}

impl Settings {
    /// The policy for protocol rules.
    pub fn policy(&self, issuer: &str) -> Policy {
        Policy {
            issuer: issuer.to_owned(),
            ..self.policy_without_issuer.clone()
        }
    }

    /// What memory is shared out to.
    pub fn memory_plan(&self) -> MemoryPlan {
        self.memory.plan()
    }
}

/// How connections are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Certificate and key from PEM files.
    Files {
        /// The certificate chain.
        cert: PathBuf,
        /// The private key.
        key: PathBuf,
    },
    /// A certificate from an authority, ordered and renewed by ACME.
    Acme(Plan),
    /// A self-signed certificate, for development.
    SelfSigned,
    /// Plain HTTP.
    Off,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Text, for people.
    Text,
    /// JSON, one object a line, for programs.
    Json,
}

/// The settings of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// The format.
    pub format: LogFormat,
    /// The lowest severity that is logged.
    pub level: tracing::Level,
}

/// How many events are kept in the data directory.
#[derive(Clone, Debug)]
pub struct EventRetention {
    /// The most bytes of events. Security events and routine events have half of them each; without routine events,
    /// security events have all.
    pub max_bytes: u64,
    /// How long security events are kept; without a bound if none.
    pub keep: Option<Duration>,
    /// How long routine events are kept; none to keep no routine events.
    pub routine: Option<Duration>,
}

/// The settings of scheduled backups.
#[derive(Clone, Debug)]
pub struct Backups {
    /// The time between two backups; none to make no backups.
    pub interval: Option<Duration>,
    /// The number of backups that are kept, at least one.
    pub keep: usize,
    /// Whom they are encrypted to, if they are encrypted.
    pub recipients: Option<Recipients>,
}

/// The settings of `idsvc serve`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings that every command needs.
    pub settings: Settings,
    /// The issuer: the base URL with the region filled in.
    pub issuer: String,
    /// Whether the issuer is derived from the first domain of the certificate, because no base URL is set. An issuer that
    /// the first start fixed replaces it.
    pub issuer_is_derived: bool,
    /// The addresses to listen on; never empty.
    pub listen: Vec<SocketAddr>,
    /// The addresses where plain HTTP is redirected to the issuer; empty if it is not.
    pub redirect_listen: Vec<SocketAddr>,
    /// How connections are secured.
    pub tls: Tls,
    /// Networks of proxies whose `Forwarded` headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Where the operator gives help, as an address with its scheme.
    pub support_contact: Option<String>,
    /// The rate limits.
    pub limits: LimitPolicy,
    /// What memory is shared out to.
    pub memory: MemoryPlan,
    /// The limit of open connections from one address.
    max_connections_per_address: usize,
    /// The address of the metrics, if they are served.
    pub metrics_listen: Option<SocketAddr>,
    /// The settings of scheduled backups.
    pub backups: Backups,
    /// The settings of the log.
    pub log: Log,
    /// Whether this is the development server.
    pub is_dev: bool,
    /// Warnings about settings without effect.
    pub warnings: Vec<Fault>,
}

/// The default rate limits.
pub fn default_limits() -> LimitPolicy {
    resolve::limits(&mut Reader::of(&Sources::default()))
}

impl Config {
    /// The policy for protocol rules.
    pub fn policy(&self) -> Policy {
        self.settings.policy(&self.issuer)
    }

    /// The limits of connections. Proxies and exempt networks have no limit by address.
    pub fn connection_limits(&self) -> Limits {
        let mut uncounted = self.trusted_proxies.clone();
        uncounted.extend_from_slice(&self.limits.exempt);
        Limits {
            max_connections: self.memory.connections,
            max_connections_per_address: if self.limits.enabled {
                self.max_connections_per_address
            } else {
                usize::MAX
            },
            uncounted,
            ..Limits::default()
        }
    }

    /// Why the service may not listen on this address, if so. Sockets that the service manager passes are checked like
    /// the addresses in `listen`.
    pub fn forbids(&self, address: SocketAddr) -> Option<&'static str> {
        if address.ip().is_loopback() {
            return None;
        }
        if self.is_dev {
            return Some("the development server listens on loopback only");
        }
        (self.tls == Tls::Off && self.trusted_proxies.is_empty()).then_some(tls::PLAIN_AND_PUBLIC)
    }

    /// The host that the certificate must name.
    pub fn host(&self) -> Option<String> {
        host_of(&self.issuer)
    }
}

/// The host of a URL, without the brackets of an IPv6 address.
pub fn host_of(url: &str) -> Option<String> {
    url::Url::parse(url)
        .ok()?
        .host_str()
        .map(|host| host.trim_matches(['[', ']']).to_owned())
}
