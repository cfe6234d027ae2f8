//! The networks that an address is counted for.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// A site may take as much as this many subscribers.
pub const SITE_MULTIPLIER: u32 = 8;

/// A provider may take as much as this many subscribers, where providers are counted.
pub const PROVIDER_MULTIPLIER: u32 = 500;

const SUBSCRIBER_PREFIX: u32 = 64;
const SITE_PREFIX: u32 = 48;
const PROVIDER_PREFIX: u32 = 32;

/// A network that is counted. Both fields identify it: the first /64 of a /48 has the same address as the /48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// The first address of the network.
    pub address: IpAddr,
    /// How many times the limit of one subscriber it may take.
    pub multiplier: u32,
}

impl Network {
    /// The subscriber of an address and, with IPv6, the site around it.
    pub fn all_around(address: IpAddr) -> impl Iterator<Item = Self> {
        let subscriber = Self {
            address: subscriber_of(address),
            multiplier: 1,
        };
        let site = site_of(address).map(|address| Self {
            address,
            multiplier: SITE_MULTIPLIER,
        });
        std::iter::once(subscriber).chain(site)
    }

    /// The same, and the IPv6 /32 around the site, which holds 65,536 sites and can be had by one attacker.
    pub fn all_up_to_provider(address: IpAddr) -> impl Iterator<Item = Self> {
        let provider = ipv6_prefix(address, PROVIDER_PREFIX).map(|address| Self {
            address,
            multiplier: PROVIDER_MULTIPLIER,
        });
        Self::all_around(address).chain(provider)
    }
}

/// Whether one of the networks contains the address. The unspecified address stands for an unknown one, and no network
/// contains it, not even `0.0.0.0/0`.
pub fn any_contains(networks: &[IpNet], address: IpAddr) -> bool {
    !address.is_unspecified() && networks.iter().any(|network| network.contains(&address))
}

/// The network of one subscriber: an IPv4 address, or an IPv6 /64.
pub fn subscriber_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => prefix(address, SUBSCRIBER_PREFIX),
    }
}

/// The network of one customer: an IPv4 address, or an IPv6 /48.
pub fn customer_of(address: IpAddr) -> IpAddr {
    site_of(address).unwrap_or_else(|| address.to_canonical())
}

/// The IPv6 /48 around an address. A provider often gives a whole /48 to one customer, who can then switch between
/// 65,536 subscriber networks. IPv4 has no such network.
fn site_of(address: IpAddr) -> Option<IpAddr> {
    ipv6_prefix(address, SITE_PREFIX)
}

fn ipv6_prefix(address: IpAddr, length: u32) -> Option<IpAddr> {
    match address.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(prefix(address, length)),
    }
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
        assert_eq!(subscriber_of(one), ip("2001:db8:1:2::"));
        assert_eq!(subscriber_of(other), ip("2001:db8:1:3::"));
        assert_eq!(
            (site_of(one), site_of(other)),
            (Some(ip("2001:db8:1::")), site_of(one))
        );
    }

    #[test]
    fn an_ipv4_address_stands_for_itself_however_it_is_written() {
        for text in ["192.0.2.1", "::ffff:192.0.2.1"] {
            assert_eq!(
                (subscriber_of(ip(text)), site_of(ip(text))),
                (ip("192.0.2.1"), None)
            );
        }
    }
}
