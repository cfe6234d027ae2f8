//! The addresses that the service may connect to when a document of another party names them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Whether an address is on the public internet (RFC 6890 and its registries). Addresses of this machine and of private
/// networks are not, and neither are mapped, translated and tunnelled addresses, which could hide a private one.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Whether the service may connect there: a public address, or one that the operator allows.
pub fn is_allowed(address: IpAddr, allowed: &[IpNet]) -> bool {
    let address = address.to_canonical();
    is_public(address) || allowed.iter().any(|network| network.contains(&address))
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let reserved = match address.octets() {
        [100, second, ..] => (64..128).contains(&second),
        [172, second, ..] => (16..32).contains(&second),
        [0 | 10 | 127 | 240..=255, ..]
        | [169, 254, ..]
        | [192, 168, ..]
        | [198, 18 | 19, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => true,
        _ => false,
    };
    !reserved && !address.is_multicast()
}

/// Whether an address is in the global unicast block, outside the ranges for Teredo, ORCHID, 6to4 and documentation.
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0x2001, second, ..] if second < 0x0200 || second == 0x0db8 => false,
        [0x2002, ..] => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(text: &str) -> bool {
        is_public(text.parse().unwrap())
    }

    #[test]
    fn the_public_internet_is_reachable() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "2001:4860:4860::8888",
        ] {
            assert!(public(text), "{text}");
        }
    }

    #[test]
    fn nothing_near_this_machine_is_reachable() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!public(text), "{text}");
        }
    }

    #[test]
    fn what_the_operator_allows_is_reachable_however_it_is_written() {
        let allowed = ["10.1.0.0/16".parse().unwrap(), "::1/128".parse().unwrap()];
        let may = |text: &str| is_allowed(text.parse().unwrap(), &allowed);
        assert!(may("10.1.2.3") && may("::ffff:10.1.2.3") && may("::1") && may("8.8.8.8"));
        assert!(!may("10.2.0.1") && !may("::ffff:10.2.0.1") && !may("127.0.0.1") && !may("fe80::1"));
    }
}
