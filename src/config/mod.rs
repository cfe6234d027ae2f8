//! The operator's settings: flag before environment before file before default.
//!
//! [`reference::SETTINGS`] is the one table behind the file's keys, the environment's names and the printed
//! reference. [`Sources`] collects what was given, [`resolve`] turns it into values that need no second check,
//! and every fault is reported at once.

pub mod file;
pub mod reader;
pub mod reference;
pub mod resolve;
#[cfg(test)]
mod tests;
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

use crate::limit::LimitPolicy;
use crate::net::Limits;
use crate::net::acme::Plan;
use crate::net::outbound::Terms;
use crate::oauth::policy::Policy;
use crate::password::{PasswordParams, PoolSize};

use self::file::{Given, Origin, Parsed, Raw};
use self::reader::Reader;

/// The environment variable that names the file.
pub const CONFIG_VARIABLE: &str = "IDSVC_CONFIG";

/// Where the development server listens.
const DEV_PORT: u16 = 8443;

/// Under which name the service manager says where the service may keep its data.
const STATE_VARIABLE: &str = "STATE_DIRECTORY";

/// Whether an environment variable of this name is looked at.
pub fn is_read(name: &str) -> bool {
    name.starts_with("IDSVC_") || name == STATE_VARIABLE
}

/// Where the file is looked for when nobody names one.
pub const USUAL_FILES: [&str; 2] = ["./idsvc.toml", "/etc/idsvc/idsvc.toml"];

/// One thing that is wrong with the settings, or looks so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The flag, variable or line.
    pub place: String,
    /// What is wrong, naming the key.
    pub message: String,
}

/// Everything that is wrong with the settings, one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The faults, in the order in which they were found; never empty.
    pub faults: Vec<Fault>,
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

/// What was given, and by whom.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// By flags, the environment and the file, in this order.
    pub given: Vec<Given>,
    /// What is wrong so far.
    pub faults: Vec<Fault>,
    /// Keys that the file may set to what could not be read.
    pub unread: Vec<&'static str>,
    /// What sets nothing but looks as if it should.
    pub warnings: Vec<String>,
    /// `$STATE_DIRECTORY` of the service manager.
    pub state_directory: Option<PathBuf>,
    /// Whether this is `idsvc serve --dev`.
    pub is_dev: bool,
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
}

impl Sources {
    /// Collects flags (dotted key and value), environment and file. `named` is the file of `--config`.
    pub fn collect(
        flags: &[(&'static str, String)],
        variables: &[(String, String)],
        named: Option<&Path>,
    ) -> Self {
        let mut sources = Self::default();
        for (key, value) in flags {
            if let Some(setting) = reference::find(key) {
                let origin = Origin::Flag(setting.flag_name());
                sources.given.push(Given {
                    key: setting.key,
                    raw: Raw::Text(value.clone()),
                    origin,
                });
            }
        }
        let (given, warnings) = file::from_environment(variables);
        sources.given.extend(given);
        sources.warnings = warnings;
        let variable = |name: &str| {
            let found = variables
                .iter()
                .find(|(known, value)| known == name && !value.is_empty());
            found.map(|(_, value)| value.as_str())
        };
        sources.state_directory = variable(STATE_VARIABLE)
            .and_then(|list| list.split(':').next())
            .map(PathBuf::from);
        let named = named
            .map(Path::to_owned)
            .or_else(|| variable(CONFIG_VARIABLE).map(PathBuf::from));
        sources.read_file(named);
        sources
    }

    fn read_file(&mut self, named: Option<PathBuf>) {
        let Some(path) = named.or_else(|| {
            USUAL_FILES
                .map(PathBuf::from)
                .into_iter()
                .find(|path| path.exists())
        }) else {
            return;
        };
        self.take(match std::fs::read_to_string(&path) {
            Ok(text) => file::parse(&text, &path),
            Err(error) => Parsed::unreadable(vec![Fault {
                place: path.display().to_string(),
                message: format!("the configuration file cannot be read: {error}"),
            }]),
        });
        self.file = Some(path);
    }

    fn take(&mut self, parsed: Parsed) {
        self.given.extend(parsed.given);
        self.faults.extend(parsed.faults);
        self.unread.extend(parsed.unread);
    }

    /// Asks for the values of the development server where nothing else is said.
    #[must_use]
    pub fn for_development(self) -> Self {
        Self { is_dev: true, ..self }
    }
}

/// What every command needs to know, the ones that work on a stopped service too.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where everything that lasts is kept.
    pub data_dir: PathBuf,
    /// The issuer that is asked for; without one, commands work with the one that the first start fixed.
    pub base_url: Option<String>,
    /// What the protocol rules see, but for the issuer: [`Settings::policy`] fills it in.
    policy_without_issuer: Policy,
    /// The theme of the pages, for clients that name none.
    pub theme: String,
    /// Where the operator's themes are; nothing may be there.
    pub theme_dir: PathBuf,
    /// How providers and published keys are reached.
    pub outbound: Terms,
    /// The most bytes of events that are kept.
    pub events_max_bytes: u64,
    /// The cost of new password hashes.
    pub password_params: PasswordParams,
    /// Password hashes at once; zero for one on each core.
    password_workers: usize,
}

/// The settings of an operator who gave none.
impl Default for Settings {
    fn default() -> Self {
        resolve::settings(&mut Reader::of(&Sources::default()))
    }
}

impl Settings {
    /// The settings as far as protocol rules see them.
    pub fn policy(&self, issuer: &str) -> Policy {
        Policy {
            issuer: issuer.to_owned(),
            ..self.policy_without_issuer.clone()
        }
    }

    /// How many passwords are hashed at once.
    pub fn password_pool_size(&self) -> PoolSize {
        /// A gibibyte is the most that hashing may take when the number of threads is left to us.
        const MEMORY_BUDGET_KIB: u64 = 1024 * 1024;
        match self.password_workers {
            0 => PoolSize::fitting(self.password_params, MEMORY_BUDGET_KIB),
            threads => PoolSize {
                threads,
                waiting: PoolSize::WAITING,
            },
        }
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
    /// A certificate had from an authority, and renewed, by ACME.
    Acme(Plan),
    /// A certificate made here, for development.
    SelfSigned,
    /// Plain HTTP.
    Off,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// For people.
    Text,
    /// For machines, one object each line.
    Json,
}

/// What is worth a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// How.
    pub format: LogFormat,
    /// From which severity on.
    pub level: tracing::Level,
}

/// When the running service makes backups, and how many of them it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backups {
    /// The time between two; none when there are to be none.
    pub interval: Option<Duration>,
    /// How many are kept, at least one.
    pub keep: usize,
}

/// Everything that `idsvc serve` needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// What every command needs to know.
    pub settings: Settings,
    /// The issuer: the base URL, region filled in.
    pub issuer: String,
    /// Whether nobody gave a base URL, and the issuer was made of the first domain of the certificate: one that was
    /// fixed at the first start comes before it.
    pub issuer_is_derived: bool,
    /// Where to listen; never empty.
    pub listen: Vec<SocketAddr>,
    /// How connections are secured.
    pub tls: Tls,
    /// Proxies whose word about the client's address is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// What strangers may do how often.
    pub limits: LimitPolicy,
    /// Open connections in all.
    max_connections: usize,
    /// Open connections from one address.
    max_connections_per_address: usize,
    /// Where the metrics are, if anywhere.
    pub metrics_listen: Option<SocketAddr>,
    /// When to make backups.
    pub backups: Backups,
    /// How to log.
    pub log: Log,
    /// Whether this is the development server.
    pub is_dev: bool,
    /// What is given and has no effect.
    pub warnings: Vec<Fault>,
}

/// The limits of an operator who gave none.
pub fn default_limits() -> LimitPolicy {
    resolve::limits(&mut Reader::of(&Sources::default()))
}

impl Config {
    /// The settings as far as protocol rules see them.
    pub fn policy(&self) -> Policy {
        self.settings.policy(&self.issuer)
    }

    /// What peers may take; proxies are not limited as one peer is.
    pub fn edge(&self) -> Limits {
        let mut uncounted = self.trusted_proxies.clone();
        uncounted.extend_from_slice(&self.limits.exempt);
        Limits {
            max_connections: self.max_connections,
            max_connections_per_address: if self.limits.enabled {
                self.max_connections_per_address
            } else {
                usize::MAX
            },
            uncounted,
            ..Limits::default()
        }
    }

    /// What forbids the service to listen there, if anything does: what is true of the addresses in `listen`, for
    /// sockets that were handed over.
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
