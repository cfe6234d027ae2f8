//! The addresses to listen on.

use std::net::{IpAddr, SocketAddr};

use super::reader::Reader;
use super::{DEV_PORT, Tls};
use crate::net::listener::{conflict_across_listeners, conflict_in_one_listener};

/// The addresses of the service.
pub(super) fn listen(reader: &mut Reader<'_>) -> Vec<SocketAddr> {
    let is_dev = reader.sources.is_dev;
    if is_dev && reader.explicit("listen").is_none() {
        return vec![SocketAddr::from(([127, 0, 0, 1], DEV_PORT))];
    }
    let before = reader.faults.len();
    let (texts, origin) = reader.list("listen");
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for text in &texts {
        match address(text) {
            Some(address) if is_dev && !address.ip().is_loopback() => reader.fault(
                &origin,
                format!("listen = {text:?}: the development server listens on loopback only, as on 127.0.0.1:{DEV_PORT}"),
            ),
            Some(address) => {
                if let Some(taken) = addresses.iter().find(|taken| conflict_in_one_listener(**taken, address)) {
                    reader.fault(
                        &origin,
                        format!("listen = {text:?} is taken by {taken} in the same list: leave one of them out"),
                    );
                }
                addresses.push(address);
            }
            None => reader.fault(
                &origin,
                format!("listen = {text:?} is no address with a port, as in 0.0.0.0:443 or [::]:443"),
            ),
        }
    }
    if texts.is_empty() && reader.faults.len() == before {
        reader.fault(&origin, "listen is empty: name at least one address");
    }
    addresses
}

/// The addresses of the redirect to the issuer; none without `redirect_port`.
pub(super) fn redirect_listen(
    reader: &mut Reader<'_>,
    listen: &[SocketAddr],
    tls: Option<&Tls>,
) -> Vec<SocketAddr> {
    if reader.explicit("redirect_port").is_none() {
        return Vec::new();
    }
    let port = reader.number_within("redirect_port", 1..=u64::from(u16::MAX));
    let port = u16::try_from(port).unwrap_or_default();
    if tls == Some(&Tls::Off) {
        reader.fault_at(
            "redirect_port",
            "redirect_port leads to https, and tls.mode is \"off\": leave it out, and let the proxy redirect",
        );
    }
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in listen.iter().map(|listen| SocketAddr::new(listen.ip(), port)) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let both = |taken: &&SocketAddr| {
        addresses
            .iter()
            .any(|one| conflict_in_one_listener(**taken, *one))
    };
    if let Some(taken) = listen.iter().find(both) {
        reader.fault_at(
            "redirect_port",
            format!("redirect_port = {port} is taken by listen = \"{taken}\": give it another port"),
        );
    }
    addresses
}

/// The address of the metrics, if there is one.
pub(super) fn metrics_listen(
    reader: &mut Reader<'_>,
    listen: &[SocketAddr],
    redirect_listen: &[SocketAddr],
) -> Option<SocketAddr> {
    let (text, origin) = reader.text("metrics.listen").filter(|(text, _)| text != "off")?;
    let Some(address) = address(&text) else {
        reader.fault(
            &origin,
            format!(
                "metrics.listen = {text:?} is no address with a port, as in 127.0.0.1:9464; off for none"
            ),
        );
        return None;
    };
    let taken = listen.iter().map(|taken| ("listen", taken));
    let mut taken = taken.chain(redirect_listen.iter().map(|taken| ("redirect_port", taken)));
    if let Some((key, taken)) = taken.find(|(_, taken)| conflict_across_listeners(**taken, address)) {
        reader.fault(
            &origin,
            format!("metrics.listen = {text:?} is taken by {key} = \"{taken}\": give it another port"),
        );
    }
    Some(address)
}

/// Parses an address with a port. An IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2) becomes an IPv4 address.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    let parsed: SocketAddr = text.parse().ok()?;
    Some(match parsed.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, parsed.port())),
        IpAddr::V6(_) => parsed,
    })
}
