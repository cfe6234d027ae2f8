//! How the service is reached: its listeners, TLS, and the proxies in front of it.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::listen::{listen, redirect_listen};
use super::metrics::metrics_listen;
use super::proxies::trusted_proxies;
use super::reader::{Read, Reader, part};
use super::tls::{Tls, tls};
use crate::net::listener::conflict_across_listeners;

/// Each part without a fault.
pub(super) struct Network {
    pub(super) listen: Read<Vec<SocketAddr>>,
    pub(super) trusted_proxies: Read<Vec<IpNet>>,
    pub(super) tls: Read<Tls>,
    pub(super) redirect_listen: Read<Vec<SocketAddr>>,
    pub(super) metrics_listen: Read<Option<SocketAddr>>,
}

impl Network {
    pub(super) fn read(reader: &mut Reader<'_>, base_url: Read<Option<&str>>) -> Self {
        let listen = listen(reader);
        let addresses = part(&listen).map(Vec::as_slice);
        let trusted_proxies = trusted_proxies(reader);
        let tls = tls(reader, base_url, addresses, has_proxies(&trusted_proxies));
        let redirect_listen = redirect_listen(reader, addresses, part(&tls));
        let metrics_listen = metrics_listen(reader, addresses, part(&redirect_listen).map(Vec::as_slice));
        Self {
            listen,
            trusted_proxies,
            tls,
            redirect_listen,
            metrics_listen,
        }
    }

    /// Whether there may be proxies.
    pub(super) fn has_proxies(&self) -> bool {
        has_proxies(&self.trusted_proxies)
    }

    /// The key and the address of a listener that has taken this address.
    pub(super) fn conflict(&self, address: SocketAddr) -> Option<Conflict> {
        let named = |key, taken: &[SocketAddr]| {
            let mut taken = taken.iter();
            let taken = taken.find(|taken| conflict_across_listeners(**taken, address))?;
            Some(Conflict { key, taken: *taken })
        };
        let listen = self.listen.as_deref().unwrap_or_default();
        let redirect_listen = self.redirect_listen.as_deref().unwrap_or_default();
        let metrics_listen = self.metrics_listen.unwrap_or_default();
        named("listen", listen)
            .or_else(|| named("redirect_port", redirect_listen))
            .or_else(|| named("metrics.listen", metrics_listen.as_slice()))
    }
}

/// A listener that has taken an address.
pub(super) struct Conflict {
    pub(super) key: &'static str,
    pub(super) taken: SocketAddr,
}

/// Networks with a fault may be those of proxies.
fn has_proxies(trusted_proxies: &Read<Vec<IpNet>>) -> bool {
    trusted_proxies
        .as_ref()
        .map_or(true, |networks| !networks.is_empty())
}
