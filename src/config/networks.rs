//! Networks, as settings name them.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// Parses a network. A single address is a network too.
pub(super) fn parse_network(text: &str) -> Result<IpNet, String> {
    let single = || text.parse::<IpAddr>().map(IpNet::from).ok();
    let network = text.parse::<IpNet>().ok().or_else(single);
    network
        .map(unmapped)
        .ok_or_else(|| "is no network, as in 10.0.0.0/8 or 192.0.2.1".to_owned())
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
