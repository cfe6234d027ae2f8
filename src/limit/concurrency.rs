//! A limit on how much one address holds at a time of a resource that all share: connections, memory for bodies, places
//! in a queue.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;

use super::network::{Network, any_contains};

/// A limit for each address. An address that holds nothing takes no memory.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    held: Mutex<HashMap<Network, usize>>,
    limit: usize,
    network_limit: usize,
    exempt: Vec<IpNet>,
}

/// An amount that an address holds until this is dropped.
#[derive(Debug)]
pub struct Permit {
    limit: Arc<ConcurrencyLimit>,
    /// None if the address is exempt.
    counted_for: Option<IpAddr>,
    amount: usize,
}

impl ConcurrencyLimit {
    /// Allows `limit` for one IPv4 address or IPv6 /64, and [`SITE_MULTIPLIER`](super::network::SITE_MULTIPLIER) times
    /// that for one IPv6 /48, but no network more than half of `total`. `usize::MAX` means no limit. Addresses in
    /// `exempt` have no limit: proxies that many people share.
    pub fn new(limit: usize, total: usize, exempt: Vec<IpNet>) -> Arc<Self> {
        Arc::new(Self {
            held: Mutex::default(),
            limit,
            network_limit: if limit == usize::MAX {
                limit
            } else {
                (total / 2).max(1)
            },
            exempt,
        })
    }

    /// Takes `amount` for this address, unless that exceeds its limit.
    pub fn take(this: &Arc<Self>, address: IpAddr, amount: usize) -> Option<Permit> {
        let permit = |counted_for| Permit {
            limit: Arc::clone(this),
            counted_for,
            amount,
        };
        if any_contains(&this.exempt, address) {
            return Some(permit(None));
        }
        let mut held = this.held.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = Network::all_around(address).all(|network| {
            let scaled = this.limit.saturating_mul(network.multiplier as usize);
            let limit = scaled.min(this.network_limit);
            let before = held.get(&network).copied().unwrap_or(0);
            before.saturating_add(amount) <= limit
        });
        if !fits {
            return None;
        }
        for network in Network::all_around(address) {
            let now_held = held.entry(network).or_default();
            *now_held = now_held.saturating_add(amount);
        }
        Some(permit(Some(address)))
    }

    /// The most that a network around this address holds, measured by the limit of the network. An exempt address counts
    /// as one that holds one.
    pub fn share_of(&self, address: IpAddr) -> usize {
        if any_contains(&self.exempt, address) {
            return 1;
        }
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let shares = Network::all_around(address).map(|network| {
            let amount = held.get(&network).copied().unwrap_or(0);
            amount.div_ceil((network.multiplier as usize).max(1))
        });
        shares.max().unwrap_or(0)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(address) = self.counted_for else {
            return;
        };
        let mut held = self.limit.held.lock().unwrap_or_else(PoisonError::into_inner);
        for network in Network::all_around(address) {
            if let Entry::Occupied(mut now_held) = held.entry(network) {
                let left = now_held.get().saturating_sub(self.amount);
                if left == 0 {
                    now_held.remove();
                } else {
                    now_held.insert(left);
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::limit::network::SITE_MULTIPLIER;

    /// How many networks hold something.
    pub(crate) fn holders(limit: &ConcurrencyLimit) -> usize {
        limit.held.lock().unwrap().len()
    }

    fn limited_to(limit: usize, exempt: &[&str]) -> Arc<ConcurrencyLimit> {
        ConcurrencyLimit::new(
            limit,
            usize::MAX,
            exempt.iter().map(|network| network.parse().unwrap()).collect(),
        )
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_ipv6_subscriber_has_one_share_and_a_site_a_few() {
        let limit = limited_to(1, &[]);
        let first = ConcurrencyLimit::take(&limit, ip("2001:db8:1:0::1"), 1);
        assert!(first.is_some());
        assert!(ConcurrencyLimit::take(&limit, ip("2001:db8:1:0:ffff::9"), 1).is_none());
        let site: Vec<_> = (1..SITE_MULTIPLIER)
            .map(|subnet| {
                ConcurrencyLimit::take(&limit, ip(&format!("2001:db8:1:{subnet:x}::1")), 1).unwrap()
            })
            .collect();
        assert!(ConcurrencyLimit::take(&limit, ip("2001:db8:1:ffff::1"), 1).is_none());
        assert!(ConcurrencyLimit::take(&limit, ip("2001:db8:2::1"), 1).is_some());
        drop(site);
        assert!(ConcurrencyLimit::take(&limit, ip("2001:db8:1:ffff::1"), 1).is_some());
    }

    #[test]
    fn no_network_holds_more_than_half_of_what_there_is() {
        let held = |limit, total, subnets: u32| {
            let limit = ConcurrencyLimit::new(limit, total, Vec::new());
            let from = (0..subnets).cycle().take(100);
            let taken: Vec<_> = from
                .filter_map(|subnet| {
                    ConcurrencyLimit::take(&limit, ip(&format!("2001:db8:1:{subnet:x}::1")), 1)
                })
                .collect();
            taken.len()
        };
        assert_eq!(
            held(2, 40, SITE_MULTIPLIER),
            16,
            "half of the total is not reached"
        );
        assert_eq!(held(2, 16, SITE_MULTIPLIER), 8);
        assert_eq!(held(9, 16, 1), 8);
        assert_eq!(held(2, 1, 1), 1, "any address may take the only place");
    }

    #[test]
    fn what_is_dropped_is_given_back_and_leaves_nothing_behind() {
        let limit = limited_to(3, &[]);
        let one = ConcurrencyLimit::take(&limit, ip("192.0.2.1"), 1).unwrap();
        let two = ConcurrencyLimit::take(&limit, ip("::ffff:192.0.2.1"), 2).unwrap();
        assert!(ConcurrencyLimit::take(&limit, ip("192.0.2.1"), 1).is_none());
        drop(one);
        assert!(ConcurrencyLimit::take(&limit, ip("192.0.2.1"), 2).is_none());
        assert!(ConcurrencyLimit::take(&limit, ip("192.0.2.1"), 1).is_some());
        drop(two);
        assert!(limit.held.lock().unwrap().is_empty());
    }

    #[test]
    fn a_proxy_that_many_share_is_not_counted() {
        let limit = limited_to(0, &["10.0.0.0/8"]);
        let taken = ConcurrencyLimit::take(&limit, ip("10.1.2.3"), 1_000);
        assert!(taken.is_some());
        assert!(limit.held.lock().unwrap().is_empty());
        assert!(ConcurrencyLimit::take(&limit, ip("11.1.2.3"), 1).is_none());
    }
}
