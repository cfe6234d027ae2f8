//! The checked settings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::backups::Backups;
use super::base_url::host_of;
use super::events::EventRetention;
use super::fault::Fault;
use super::log::Log;
use super::mail::Mail;
use super::memory::{MemoryPlan, MemorySettings};
use super::mtls::Mtls;
use super::tls::{Tls, forbids};
use crate::limit::LimitPolicy;
use crate::net::Limits;
use crate::net::outbound::OutboundPolicy;
use crate::oauth::policy::Policy;
use crate::password::PasswordParams;
use crate::store::Address;
use crate::themes::brand::BrandSettings;

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
    pub(super) policy_without_issuer: Policy,
    /// The theme of the pages for clients without a theme of their own.
    pub theme: String,
    /// The folder of the operator's themes. It may be missing.
    pub theme_dir: PathBuf,
    /// The name, the logo and the accent for themes that do not say otherwise.
    pub brand: BrandSettings,
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
    pub(super) memory: MemorySettings,
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
    pub(super) max_connections_per_address: usize,
    /// The address of the metrics, if they are served.
    pub metrics_listen: Option<SocketAddr>,
    /// The settings of scheduled backups.
    pub backups: Backups,
    /// The settings of the log.
    pub log: Log,
    /// Whether this is the development server.
    pub is_dev: bool,
    /// The SHA-256 of the value of each setting that several nodes have in common, by key.
    pub shared_digests: BTreeMap<&'static str, [u8; 32]>,
    /// Warnings about settings without effect.
    pub warnings: Vec<Fault>,
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
        forbids(address, &self.tls, !self.trusted_proxies.is_empty(), self.is_dev)
    }

    /// The host that the certificate must name.
    pub fn host(&self) -> Option<String> {
        host_of(&self.issuer)
    }
}
