//! The proxies in front of the service.

use ipnet::IpNet;

use super::form::List;
use super::networks::parse_network;
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};

pub(super) const SETTINGS: &[&Setting] = &[&TRUSTED_PROXIES];

pub(super) static TRUSTED_PROXIES: Setting<List<IpNet>> = Setting {
    key: "trusted_proxies",
    doc: "Networks of proxies whose Forwarded and X-Forwarded-For are believed, for the client's address only. Never everybody.",
    default: Some(Literal::List(&[])),
    example: Literal::List(&["10.0.0.0/8"]),
    value_name: "NETWORK",
    help: Some("A network of proxies that tell the client's address"),
    form: List::of(parse_network),
};

/// Networks of proxies. A client in such a network chooses the address that its requests count for, so a network of all
/// addresses is refused.
pub(super) fn trusted_proxies(reader: &mut Reader<'_>) -> Read<Vec<IpNet>> {
    let networks = reader.read(&TRUSTED_PROXIES)?;
    if let Some(all) = networks.iter().find(|network| network.prefix_len() == 0) {
        let message = format!(
            "trusted_proxies = \"{all}\" is everybody, so that any client could forge its address: name the addresses of your proxies, as in 10.0.0.0/8 or 192.0.2.1"
        );
        return Err(reader.fault(&TRUSTED_PROXIES, message));
    }
    Ok(networks)
}
