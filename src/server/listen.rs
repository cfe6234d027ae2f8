//! Opens the sockets of `idsvc serve`: those from the service manager, or else those that the settings name.

use std::net::{SocketAddr, TcpListener};

use super::StartError;
use super::open_files;
use crate::config::Config;
use crate::net::Limits;
use crate::net::inherited::{METRICS, MTLS, REDIRECT, addresses};
use crate::net::listener::Listener;

/// The configured connection limits, lowered to what the operating system allows.
pub fn connection_limits(config: &Config) -> Limits {
    let configured = config.connection_limits();
    let for_certificates = config.memory.mtls_connections;
    let all = configured.max_connections.saturating_add(for_certificates);
    let possible = open_files::connections(all)
        .saturating_sub(for_certificates)
        .max(1);
    if possible < configured.max_connections {
        tracing::warn!(
            "the hard limit of open files (ulimit -Hn, LimitNOFILE) allows {possible} connections at once, limits.connections is {}: raise the limit of open files or lower limits.connections",
            configured.max_connections
        );
    }
    Limits {
        max_connections: possible,
        ..configured
    }
}

/// The listener for requests to the service.
pub async fn public(
    config: &Config,
    handed_over: Vec<TcpListener>,
    limits: Limits,
) -> Result<Listener, StartError> {
    for address in addresses(&handed_over) {
        if let Some(reason) = config.forbids(address) {
            return Err(StartError::new(format!(
                "the service manager handed over {address}: {reason}"
            )));
        }
    }
    bind_or_inherit(handed_over, &config.listen, "listen", limits).await
}

/// The listener for the metrics, if the settings name an address for it.
pub async fn metrics(
    config: &Config,
    handed_over: Vec<TcpListener>,
    limits: Limits,
) -> Result<Option<Listener>, StartError> {
    let limits = Limits {
        max_connections: open_files::METRICS_CONNECTIONS,
        ..limits
    };
    optional(
        config.metrics_listen.as_slice(),
        handed_over,
        METRICS,
        "metrics.listen",
        limits,
    )
    .await
}

/// The listener whose plain HTTP is redirected, if the settings name a port for it.
pub async fn redirect(
    config: &Config,
    handed_over: Vec<TcpListener>,
    limits: Limits,
) -> Result<Option<Listener>, StartError> {
    let limits = Limits {
        max_connections: open_files::REDIRECT_CONNECTIONS,
        ..limits
    };
    optional(
        &config.redirect_listen,
        handed_over,
        REDIRECT,
        "redirect_port",
        limits,
    )
    .await
}

/// The listener where clients show certificates, if the settings name an address for it.
pub async fn mtls(
    config: &Config,
    handed_over: Vec<TcpListener>,
    limits: Limits,
) -> Result<Option<Listener>, StartError> {
    let limits = Limits {
        max_connections: config.memory.mtls_connections.min(limits.max_connections),
        ..limits
    };
    let address = config.settings.mtls.listen;
    optional(address.as_slice(), handed_over, MTLS, "tls.mtls_listen", limits).await
}

async fn optional(
    configured: &[SocketAddr],
    handed_over: Vec<TcpListener>,
    name: &str,
    key: &str,
    limits: Limits,
) -> Result<Option<Listener>, StartError> {
    if !configured.is_empty() {
        return bind_or_inherit(handed_over, configured, key, limits)
            .await
            .map(Some);
    }
    if !handed_over.is_empty() {
        tracing::warn!(
            sockets = ?addresses(&handed_over),
            "the service manager handed over a socket named {name}, but {key} is off: nobody answers there"
        );
    }
    Ok(None)
}

/// Takes over the sockets from the service manager. Without any it binds the configured addresses.
async fn bind_or_inherit(
    handed_over: Vec<TcpListener>,
    configured: &[SocketAddr],
    key: &str,
    limits: Limits,
) -> Result<Listener, StartError> {
    if handed_over.is_empty() {
        return Listener::bind(configured, limits).await.map_err(StartError::new);
    }
    warn_of_unserved(&addresses(&handed_over), configured, key);
    Listener::inherit(handed_over, limits).map_err(StartError::new)
}

fn warn_of_unserved(open: &[SocketAddr], configured: &[SocketAddr], key: &str) {
    let lacking = unserved(open, configured);
    if !lacking.is_empty() {
        tracing::warn!(
            ?lacking,
            handed_over = ?open,
            "with sockets from the service manager, {key} binds nothing: name these addresses in the socket unit (ListenStream=), or take them out of {key}"
        );
    }
}

/// The configured addresses that no open socket serves.
fn unserved(open: &[SocketAddr], configured: &[SocketAddr]) -> Vec<SocketAddr> {
    let serves = |socket: &SocketAddr, address: &SocketAddr| {
        let is_for_all = socket.ip().is_unspecified() && (socket.is_ipv6() || address.is_ipv4());
        socket.port() == address.port() && (socket.ip() == address.ip() || is_for_all)
    };
    let is_unserved = |address: &&SocketAddr| !open.iter().any(|socket| serves(socket, address));
    configured.iter().filter(is_unserved).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_for_all_addresses_serves_each_of_them_at_its_port() {
        let addresses =
            |texts: &[&str]| -> Vec<SocketAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let configured = addresses(&["0.0.0.0:443", "[::]:443", "192.0.2.1:8443"]);
        assert_eq!(
            unserved(&addresses(&["[::]:443"]), &configured),
            addresses(&["192.0.2.1:8443"])
        );
        assert_eq!(
            unserved(&addresses(&["0.0.0.0:443"]), &configured),
            addresses(&["[::]:443", "192.0.2.1:8443"])
        );
        assert_eq!(
            unserved(&addresses(&["192.0.2.1:8443"]), &configured),
            addresses(&["0.0.0.0:443", "[::]:443"])
        );
    }
}
