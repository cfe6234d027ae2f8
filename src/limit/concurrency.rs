//! How much of something that all share one address may hold at a time: connections, memory for bodies,
//! places in a queue.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;

use super::network::{Network, hold, networks};

/// What each address holds now. One that holds nothing takes no memory, so this is as large as what is held.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    held: Mutex<HashMap<Network, usize>>,
    limit: usize,
    most: usize,
    uncounted: Vec<IpNet>,
}

/// Something that an address holds; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    of: Arc<ConcurrencyLimit>,
    /// Nobody, where it is not counted.
    from: Option<IpAddr>,
    amount: usize,
}

impl ConcurrencyLimit {
    /// `limit` for one IPv4 address or IPv6 /64, and [`WIDE`](super::network::WIDE) times that for one IPv6 /48, but to none
    /// of them more than half of what there is for `all`. The greatest number there is means no limit. Addresses in
    /// `uncounted` may hold whatever they like: proxies that many people share.
    pub fn new(limit: usize, all: usize, uncounted: Vec<IpNet>) -> Arc<Self> {
        Arc::new(Self {
            held: Mutex::default(),
            limit,
            most: if limit == usize::MAX {
                limit
            } else {
                (all / 2).max(1)
            },
            uncounted,
        })
    }

    /// So much for this address, unless that makes it more than its share.
    pub fn take(this: &Arc<Self>, address: IpAddr, amount: usize) -> Option<Permit> {
        let share = |from| {
            let of = Arc::clone(this);
            Some(Permit { of, from, amount })
        };
        if hold(&this.uncounted, address) {
            return share(None);
        }
        let mut held = this.held.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = networks(address).all(|network| {
            let limit = this.limit.saturating_mul(network.1 as usize).min(this.most);
            let before = held.get(&network).copied().unwrap_or(0);
            before.saturating_add(amount) <= limit
        });
        if !fits {
            return None;
        }
        for network in networks(address) {
            let now_held = held.entry(network).or_default();
            *now_held = now_held.saturating_add(amount);
        }
        share(Some(address))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(from) = self.from else {
            return;
        };
        let mut held = self.of.held.lock().unwrap_or_else(PoisonError::into_inner);
        for network in networks(from) {
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
    use crate::limit::network::WIDE;

    /// How many addresses and networks hold something.
    pub(crate) fn holders(shares: &ConcurrencyLimit) -> usize {
        shares.held.lock().unwrap().len()
    }

    fn shares(limit: usize, uncounted: &[&str]) -> Arc<ConcurrencyLimit> {
        ConcurrencyLimit::new(
            limit,
            usize::MAX,
            uncounted.iter().map(|network| network.parse().unwrap()).collect(),
        )
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_ipv6_subscriber_has_one_share_and_a_site_a_few() {
        let shares = shares(1, &[]);
        let first = ConcurrencyLimit::take(&shares, ip("2001:db8:1:0::1"), 1);
        assert!(first.is_some());
        assert!(ConcurrencyLimit::take(&shares, ip("2001:db8:1:0:ffff::9"), 1).is_none());
        let site: Vec<_> = (1..WIDE)
            .map(|subnet| {
                ConcurrencyLimit::take(&shares, ip(&format!("2001:db8:1:{subnet:x}::1")), 1).unwrap()
            })
            .collect();
        assert!(ConcurrencyLimit::take(&shares, ip("2001:db8:1:ffff::1"), 1).is_none());
        assert!(ConcurrencyLimit::take(&shares, ip("2001:db8:2::1"), 1).is_some());
        drop(site);
        assert!(ConcurrencyLimit::take(&shares, ip("2001:db8:1:ffff::1"), 1).is_some());
    }

    #[test]
    fn no_network_holds_more_than_half_of_what_there_is() {
        let held = |limit, all, subnets: u32| {
            let shares = ConcurrencyLimit::new(limit, all, Vec::new());
            let from = (0..subnets).cycle().take(100);
            let taken: Vec<_> = from
                .filter_map(|subnet| {
                    ConcurrencyLimit::take(&shares, ip(&format!("2001:db8:1:{subnet:x}::1")), 1)
                })
                .collect();
            taken.len()
        };
        assert_eq!(held(2, 40, WIDE), 16, "what there is does not matter");
        assert_eq!(held(2, 16, WIDE), 8);
        assert_eq!(held(9, 16, 1), 8);
        assert_eq!(held(2, 1, 1), 1, "the only place is for anybody");
    }

    #[test]
    fn what_is_dropped_is_given_back_and_leaves_nothing_behind() {
        let shares = shares(3, &[]);
        let one = ConcurrencyLimit::take(&shares, ip("192.0.2.1"), 1).unwrap();
        let two = ConcurrencyLimit::take(&shares, ip("::ffff:192.0.2.1"), 2).unwrap();
        assert!(ConcurrencyLimit::take(&shares, ip("192.0.2.1"), 1).is_none());
        drop(one);
        assert!(ConcurrencyLimit::take(&shares, ip("192.0.2.1"), 2).is_none());
        assert!(ConcurrencyLimit::take(&shares, ip("192.0.2.1"), 1).is_some());
        drop(two);
        assert!(shares.held.lock().unwrap().is_empty());
    }

    #[test]
    fn a_proxy_that_many_share_is_not_counted() {
        let shares = shares(0, &["10.0.0.0/8"]);
        let taken = ConcurrencyLimit::take(&shares, ip("10.1.2.3"), 1_000);
        assert!(taken.is_some());
        assert!(shares.held.lock().unwrap().is_empty());
        assert!(ConcurrencyLimit::take(&shares, ip("11.1.2.3"), 1).is_none());
    }
}
