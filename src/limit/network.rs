//! Who counts as one: the networks that an address belongs to.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// A wide network may take as much as this many narrow ones.
pub const WIDE: u32 = 8;

/// A network, and how many times what one subscriber may take it may take. Both belong to its name: the first
/// /64 of a /48 is written like the /48.
pub type Network = (IpAddr, u32);

const SUBSCRIBER: u32 = 64;
const SITE: u32 = 48;

/// Whether one of the networks holds the address. None holds that which stands for an unknown one, also where it holds
/// everybody.
pub fn hold(networks: &[IpNet], address: IpAddr) -> bool {
    !address.is_unspecified() && networks.iter().any(|network| network.contains(&address))
}

/// What one subscriber has to itself: an IPv4 address, or an IPv6 /64.
pub fn narrow(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => prefix(address, SUBSCRIBER),
    }
}

/// The IPv6 /48 around an address, which one customer of a provider is often given whole: 65,536 of the
/// narrow ones, to be changed at will. IPv4 has nothing of the kind.
fn wide(address: IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(prefix(address, SITE)),
    }
}

/// Every network that answers for an address.
pub fn networks(address: IpAddr) -> impl Iterator<Item = Network> {
    let wide = wide(address).map(|network| (network, WIDE));
    std::iter::once((narrow(address), 1)).chain(wide)
}

fn prefix(address: Ipv6Addr, length: u32) -> IpAddr {
    let kept = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_ipv6_subscriber_is_one_and_its_site_is_one_more() {
        let (one, other) = (ip("2001:db8:1:2::1"), ip("2001:db8:1:3:ffff::9"));
        assert_eq!(narrow(one), ip("2001:db8:1:2::"));
        assert_eq!(narrow(other), ip("2001:db8:1:3::"));
        assert_eq!((wide(one), wide(other)), (Some(ip("2001:db8:1::")), wide(one)));
    }

    #[test]
    fn an_ipv4_address_stands_for_itself_however_it_is_written() {
        for text in ["192.0.2.1", "::ffff:192.0.2.1"] {
            assert_eq!((narrow(ip(text)), wide(ip(text))), (ip("192.0.2.1"), None));
        }
    }
}
