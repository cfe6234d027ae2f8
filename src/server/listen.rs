//! The sockets of `idsvc serve`: those that the service manager hands over, or else those that the settings name.

use std::net::{SocketAddr, TcpListener};

use super::StartError;
use super::open_files;
use crate::config::Config;
use crate::net::Limits;
use crate::net::inherited::{METRICS, addresses};
use crate::net::listener::Listener;

/// What peers may take, as far as the operating system allows it.
pub fn edge(config: &Config) -> Limits {
    let configured = config.edge();
    let possible = open_files::connections(configured.max_connections);
    if possible < configured.max_connections {
        tracing::warn!(
            "the hard limit of open files (ulimit -Hn, LimitNOFILE) allows {possible} connections at once, limits.connections is {}: raise the one or lower the other",
            configured.max_connections
        );
    }
    Limits {
        max_connections: possible,
        ..configured
    }
}

/// Where the service answers.
pub async fn public(
    config: &Config,
    handed_over: Vec<TcpListener>,
    edge: Limits,
) -> Result<Listener, StartError> {
    if handed_over.is_empty() {
        let bound = Listener::bind(&config.listen, edge).await;
        return bound.map_err(StartError::new);
    }
    let open = addresses(&handed_over);
    for address in &open {
        if let Some(reason) = config.forbids(*address) {
            return Err(StartError::new(format!(
                "the service manager handed over {address}: {reason}"
            )));
        }
    }
    mention_lacking(&open, &config.listen, "listen");
    Listener::inherit(handed_over, edge).map_err(StartError::new)
}

/// Where the metrics are, if they are to be anywhere.
pub async fn metrics(
    config: &Config,
    handed_over: Vec<TcpListener>,
    edge: Limits,
) -> Result<Option<Listener>, StartError> {
    let Some(address) = config.metrics_listen else {
        if !handed_over.is_empty() {
            tracing::warn!(
                sockets = ?addresses(&handed_over),
                "the service manager handed over a socket named {METRICS}, but metrics.listen is off: nobody answers there"
            );
        }
        return Ok(None);
    };
    let edge = Limits {
        max_connections: open_files::SCRAPERS,
        ..edge
    };
    if handed_over.is_empty() {
        let bound = Listener::bind(&[address], edge).await;
        return bound.map(Some).map_err(StartError::new);
    }
    mention_lacking(&addresses(&handed_over), &[address], "metrics.listen");
    Listener::inherit(handed_over, edge)
        .map(Some)
        .map_err(StartError::new)
}

fn mention_lacking(open: &[SocketAddr], configured: &[SocketAddr], key: &str) {
    let lacking = lacking(open, configured);
    if !lacking.is_empty() {
        tracing::warn!(
            ?lacking,
            handed_over = ?open,
            "with sockets from the service manager, {key} binds nothing: name these addresses in the socket unit (ListenStream=), or take them out of {key}"
        );
    }
}

/// The configured addresses that none of the open sockets serves.
fn lacking(open: &[SocketAddr], configured: &[SocketAddr]) -> Vec<SocketAddr> {
    let serves = |socket: &SocketAddr, address: &SocketAddr| {
        let is_for_all = socket.ip().is_unspecified() && (socket.is_ipv6() || address.is_ipv4());
        socket.port() == address.port() && (socket.ip() == address.ip() || is_for_all)
    };
    let is_lacking = |address: &&SocketAddr| !open.iter().any(|socket| serves(socket, address));
    configured.iter().filter(is_lacking).copied().collect()
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
            lacking(&addresses(&["[::]:443"]), &configured),
            addresses(&["192.0.2.1:8443"])
        );
        assert_eq!(
            lacking(&addresses(&["0.0.0.0:443"]), &configured),
            addresses(&["[::]:443", "192.0.2.1:8443"])
        );
        assert_eq!(
            lacking(&addresses(&["192.0.2.1:8443"]), &configured),
            addresses(&["0.0.0.0:443", "[::]:443"])
        );
    }
}
