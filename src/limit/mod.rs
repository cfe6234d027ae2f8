//! What strangers may do how often, and how much of what all share one of them may hold.
//!
//! Two shapes serve everything: [`Buckets`] count what was done within a time, [`ConcurrencyLimit`] what is held at one
//! moment. Both are bounded in memory, know nothing but addresses and names, and are told the time. The
//! counts live in memory: a restart forgets them.
//!
//! | what | one at once, then one every | counted for |
//! |---|---|---|
//! | failed sign-ins | 10, 5 minutes | the name that was typed, somebody's or not |
//! | | 30, 20 seconds | the address |
//! | | 10, 5 minutes | a browser that this user signed in with before, by the present password, in the place of both |
//! | sign-ins begun | 300, half a second | the address |
//! | failed client authentication | 20, 10 seconds | the client's name at the address |
//! | | 200, 1 second | the address; a public client that presents nothing is not asked about |
//! | anonymous users | as configured | the address; the client |
//! | refusals that are logged | 100, 1 second | the address |
//!
//! An address is an IPv4 address or an IPv6 /64; the /48 around it may do eight times as much, and hold eight times as
//! much, but never more than half of what there is.
//!
//! # Guessing, and locking people out
//!
//! While a bucket is full nothing is looked at: the right password and a wrong one are answered alike. So
//! whoever fails on purpose could keep somebody out, if it were not for the third line: a browser in which
//! this user has signed in before carries a sealed cookie that says so, and is counted by itself. Nobody
//! else can make that cookie, and whoever steals it gets ten guesses more, not a free hand. Whoever knew the password
//! could gather many; none of them is good beyond that password.
//!
//! An attempt is charged before the password is looked at and given back when it was right, so that many at
//! once find no more room than one after the other. Signing in to one's own account in between gives back
//! what that took and nothing else.

pub mod buckets;
pub mod concurrency;
pub mod network;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use ring::digest;
use zeroize::Zeroizing;

use self::buckets::{Buckets, Key, Rule, Wait};
use self::concurrency::{ConcurrencyLimit, Permit};
use self::network::{Network, hold, narrow, networks};
use crate::clock::Timestamp;
use crate::random::Random;

const ACCOUNT: Rule = Rule::new(10, Duration::from_mins(5));
const SIGN_IN: Rule = Rule::new(30, Duration::from_secs(20));
const BEGUN: Rule = Rule::new(300, Duration::from_millis(500));
const CLIENT: Rule = Rule::new(20, Duration::from_secs(10));
const CLIENT_AUTH_BY_IP: Rule = Rule::new(200, Duration::from_secs(1));
const REFUSAL_LOG: Rule = Rule::new(100, Duration::from_secs(1));

/// All the bodies that are being read or answered at one moment, in KiB: 64 MiB.
pub const ALL_BODIES_KIB: usize = 64 * 1024;
/// Memory for bodies that one address may hold, in KiB.
const BODIES_KIB: usize = 8 * 1024;
/// The places for passwords in the queue.
const ALL_PASSWORDS: usize = 64;
/// Passwords of one address that may be checked or wait.
const PASSWORDS: usize = 16;

/// All the requests that may be under way at one moment. What is kept of each, with the greatest header that is taken,
/// is below 20 KiB without its body.
pub const ALL_REQUESTS: usize = 8192;
/// Requests of one address that may be under way. Each has one write waiting for the disk at most; the queue has 4,096
/// places for all, more than even an IPv6 /48 can take this way.
const REQUESTS: usize = 400;

/// What the operator decides about limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitPolicy {
    /// Whether there are any for single addresses, names and clients.
    pub enabled: bool,
    /// Networks whose requests are never limited: monitoring, gateways, load tests.
    pub exempt: Vec<IpNet>,
    /// Anonymous users that one address may have made within an hour.
    pub anonymous_per_address: u32,
    /// Anonymous users that one client may have made within an hour.
    pub anonymous_per_client: u32,
}

/// The limits, and what has been done so far.
#[derive(Debug)]
pub struct Limiter {
    policy: LimitPolicy,
    /// Keeps strangers from choosing names that share a place.
    key: Zeroizing<[u8; 32]>,
    accounts: Buckets,
    sign_ins: Buckets,
    begun: Buckets,
    clients: Buckets,
    client_auth_by_ip: Buckets,
    refusal_logs: Buckets,
    /// How many refusals were not logged since one was.
    unlogged_refusals: AtomicU64,
    anonymous_addresses: Buckets,
    anonymous_clients: Buckets,
    bodies: Arc<ConcurrencyLimit>,
    passwords: Arc<ConcurrencyLimit>,
    requests: Arc<ConcurrencyLimit>,
}

/// An attempt that has been charged. Unless it is given back it counts, also when it is cut off.
#[derive(Debug)]
#[must_use = "an attempt that was right is given back"]
pub struct Attempt<'a> {
    charged: Vec<(&'a Buckets, Key)>,
}

impl Attempt<'_> {
    /// It was no failure: take the charge back.
    pub fn refund(self, now: Timestamp) {
        for (buckets, key) in self.charged {
            buckets.refund(key, now);
        }
    }
}

impl Limiter {
    /// Nothing has been done yet.
    pub fn new(policy: LimitPolicy, random: &Random) -> Self {
        let shares = |limit, all| {
            let limit = if policy.enabled { limit } else { usize::MAX };
            ConcurrencyLimit::new(limit, all, policy.exempt.clone())
        };
        Self {
            key: Zeroizing::new(random.bytes()),
            accounts: Buckets::new(ACCOUNT),
            sign_ins: Buckets::new(SIGN_IN),
            begun: Buckets::new(BEGUN),
            clients: Buckets::new(CLIENT),
            client_auth_by_ip: Buckets::new(CLIENT_AUTH_BY_IP),
            refusal_logs: Buckets::new(REFUSAL_LOG),
            unlogged_refusals: AtomicU64::new(0),
            anonymous_addresses: Buckets::new(Rule::hourly(policy.anonymous_per_address)),
            anonymous_clients: Buckets::new(Rule::hourly(policy.anonymous_per_client)),
            bodies: shares(BODIES_KIB, ALL_BODIES_KIB),
            passwords: shares(PASSWORDS, ALL_PASSWORDS),
            requests: shares(REQUESTS, ALL_REQUESTS),
            policy,
        }
    }

    /// Somebody tries a password. `known_browser` names a browser in which this user has signed in before.
    pub fn try_password(
        &self,
        name: &str,
        known_browser: Option<&[u8]>,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<Attempt<'_>, Wait> {
        let mut charges = Vec::new();
        match known_browser {
            _ if self.is_exempt(from) => {}
            Some(browser) => charges.push((&self.accounts, self.name(&[b"browser", browser]))),
            None => {
                charges.extend(self.networks(from).map(|key| (&self.sign_ins, key)));
                charges.push((&self.accounts, self.name(&[b"account", name.as_bytes()])));
            }
        }
        charge(charges, now)
    }

    /// Somebody begins a sign-in, which is kept until it is done or too old.
    pub fn begin_sign_in(&self, from: IpAddr, now: Timestamp) -> Result<(), Wait> {
        if self.is_exempt(from) {
            return Ok(());
        }
        charge(self.networks(from).map(|key| (&self.begun, key)).collect(), now).map(|_| ())
    }

    /// A client asks for an anonymous user. The attempt is given back if none is made.
    pub fn create_anonymous_user(
        &self,
        client_id: &str,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<Attempt<'_>, Wait> {
        let mut charges = Vec::new();
        if !self.is_exempt(from) {
            charges.extend(self.networks(from).map(|key| (&self.anonymous_addresses, key)));
            charges.push((&self.anonymous_clients, self.name(&[client_id.as_bytes()])));
        }
        charge(charges, now)
    }

    /// Whether credentials of this client, from this address, are looked at now. `name` is what the sender
    /// says: the client's identifier or what names its API key.
    pub fn may_authenticate(&self, name: &[u8], from: IpAddr, now: Timestamp) -> Result<(), Wait> {
        if self.is_exempt(from) {
            return Ok(());
        }
        self.clients.check(|| self.client_at(name, from), now)?;
        for network in networks(from) {
            self.client_auth_by_ip.check(|| self.network(network), now)?;
        }
        Ok(())
    }

    /// Credentials of this client, from this address, were wrong.
    pub fn authentication_failed(&self, name: &[u8], from: IpAddr, now: Timestamp) {
        if self.is_exempt(from) {
            return;
        }
        self.clients.add(self.client_at(name, from), now);
        for key in self.networks(from) {
            self.client_auth_by_ip.add(key, now);
        }
    }

    /// A request was refused, and its sender may have many refused: how many of anybody's were left out of the log since
    /// the last one that was not, if this one is to be in it.
    pub fn note_refusal(&self, from: IpAddr, now: Timestamp) -> Option<u64> {
        let charges = if self.is_exempt(from) {
            Vec::new()
        } else {
            self.networks(from).map(|key| (&self.refusal_logs, key)).collect()
        };
        if charge(charges, now).is_ok() {
            Some(self.unlogged_refusals.swap(0, Ordering::Relaxed))
        } else {
            self.unlogged_refusals.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    /// Room for a body of so many KiB, for as long as what comes back is kept.
    pub fn permit_for_body(&self, kib: usize, from: IpAddr) -> Option<Permit> {
        ConcurrencyLimit::take(&self.bodies, from, kib)
    }

    /// A place before the threads that check passwords, for as long as what comes back is kept.
    pub fn permit_for_password(&self, from: IpAddr) -> Option<Permit> {
        ConcurrencyLimit::take(&self.passwords, from, 1)
    }

    /// A place among the requests under way, for as long as what comes back is kept.
    pub fn permit_for_request(&self, from: IpAddr) -> Option<Permit> {
        ConcurrencyLimit::take(&self.requests, from, 1)
    }

    fn is_exempt(&self, from: IpAddr) -> bool {
        !self.policy.enabled || hold(&self.policy.exempt, from)
    }

    fn client_at(&self, name: &[u8], from: IpAddr) -> Key {
        self.name(&[narrow(from).to_string().as_bytes(), name])
    }

    fn networks(&self, from: IpAddr) -> impl Iterator<Item = Key> {
        networks(from).map(|network| self.network(network))
    }

    fn network(&self, (network, share): Network) -> Key {
        let (bytes, length) = match network {
            IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), 128_u8),
            IpAddr::V6(address) => (address.octets(), 0),
        };
        self.key(&[&[length], &share.to_be_bytes(), &bytes], share)
    }

    fn name(&self, parts: &[&[u8]]) -> Key {
        self.key(parts, 1)
    }

    /// Each part goes in with its length, so that no two lists of parts are the same.
    fn key(&self, parts: &[&[u8]], share: u32) -> Key {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(self.key.as_slice());
        for part in parts {
            context.update(&part.len().to_be_bytes());
            context.update(part);
        }
        Key::new(context.finish().as_ref(), share)
    }
}

/// Charges all of them, or none.
fn charge(charges: Vec<(&Buckets, Key)>, now: Timestamp) -> Result<Attempt<'_>, Wait> {
    let mut attempt = Attempt { charged: Vec::new() };
    for (buckets, key) in charges {
        if let Err(wait) = buckets.take(key, now) {
            attempt.refund(now);
            return Err(wait);
        }
        attempt.charged.push((buckets, key));
    }
    Ok(attempt)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::buckets::tests::{bytes, most_bytes};
    use super::concurrency::tests::holders;
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn limiter(change: impl FnOnce(&mut LimitPolicy)) -> Limiter {
        let mut policy = crate::config::default_limits();
        change(&mut policy);
        Limiter::new(policy, &Random::seeded(1))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// How many of so many failures are looked at.
    fn failures(
        limiter: &Limiter,
        count: usize,
        name: impl Fn(usize) -> String,
        from: impl Fn(usize) -> IpAddr,
    ) -> usize {
        (0..count)
            .filter(|at| limiter.try_password(&name(*at), None, from(*at), NOW).is_ok())
            .count()
    }

    #[test]
    fn one_name_is_guarded_against_all_addresses_together() {
        let limiter = limiter(|_| {});
        let spread = |at: usize| ip(&format!("198.51.{}.{}", at / 256, at % 256));
        assert_eq!(failures(&limiter, 1_000, |_| "alice".to_owned(), spread), 10);
        assert_eq!(failures(&limiter, 1_000, |_| "nobody".to_owned(), spread), 10);
        assert!(limiter.try_password("bob", None, spread(1), NOW).is_ok());
    }

    #[test]
    fn whoever_is_refused_all_the_time_does_not_fill_the_log() {
        let limiter = limiter(|_| {});
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let logged = (0..1_000)
            .filter(|_| limiter.note_refusal(one, NOW) == Some(0))
            .count();
        assert_eq!(logged, 100);
        assert_eq!(limiter.note_refusal(other, NOW), Some(900));
        assert_eq!(limiter.note_refusal(other, NOW), Some(0));
        assert_eq!(limiter.note_refusal(one, NOW + Duration::from_secs(1)), Some(0));
    }

    #[test]
    fn one_address_is_held_back_whatever_names_it_tries() {
        let limiter = limiter(|_| {});
        let names = |at: usize| format!("user {at}");
        assert_eq!(failures(&limiter, 1_000, names, |_| ip("192.0.2.1")), 30);
        assert_eq!(
            failures(&limiter, 1_000, names, |at| ip(&format!("2001:db8:1:2::{at:x}"))),
            30
        );
        let whole_site = |at: usize| ip(&format!("2001:db8:7:{at:x}::1"));
        assert_eq!(failures(&limiter, 1_000, names, whole_site), 240);
    }

    #[test]
    fn a_refused_attempt_is_charged_to_nobody() {
        let limiter = limiter(|_| {});
        let elsewhere = ip("198.51.100.7");
        assert_eq!(
            failures(&limiter, 10, |_| "alice".to_owned(), |_| ip("192.0.2.1")),
            10
        );
        assert_eq!(
            failures(&limiter, 1_000, |_| "alice".to_owned(), |_| elsewhere),
            0
        );
        assert_eq!(
            failures(&limiter, 100, |at| format!("user {at}"), |_| elsewhere),
            30
        );
    }

    #[test]
    fn signing_in_to_ones_own_account_in_between_buys_no_guesses() {
        let limiter = limiter(|_| {});
        let mut looked_at = 0;
        for _ in 0..100 {
            if let Ok(own) = limiter.try_password("mallory", None, ip("192.0.2.1"), NOW) {
                own.refund(NOW);
            }
            looked_at += usize::from(limiter.try_password("alice", None, ip("192.0.2.1"), NOW).is_ok());
        }
        assert_eq!(looked_at, 10);
    }

    #[test]
    fn a_browser_that_is_known_passes_and_is_counted_by_itself() {
        let limiter = limiter(|_| {});
        let from = ip("192.0.2.1");
        assert_eq!(failures(&limiter, 100, |at| format!("user {at}"), |_| from), 30);
        assert_eq!(
            failures(&limiter, 100, |_| "alice".to_owned(), |_| ip("192.0.2.2")),
            10
        );
        let with = |browser: &[u8]| limiter.try_password("alice", Some(browser), from, NOW).is_ok();
        assert_eq!((0..100).filter(|_| with(b"one")).count(), 10);
        assert!(with(b"two"));
    }

    #[test]
    fn an_exempt_network_and_a_service_without_limits_are_not_limited() {
        let exempt = limiter(|policy| policy.exempt = vec!["192.0.2.0/24".parse().unwrap()]);
        let off = limiter(|policy| policy.enabled = false);
        for limiter in [exempt, off] {
            let from = ip("192.0.2.1");
            assert_eq!(failures(&limiter, 500, |_| "alice".to_owned(), |_| from), 500);
            for _ in 0..500 {
                limiter.authentication_failed(b"web", from, NOW);
                assert_eq!(limiter.begin_sign_in(from, NOW), Ok(()));
                assert!(limiter.create_anonymous_user("web", from, NOW).is_ok());
            }
            assert_eq!(limiter.may_authenticate(b"web", from, NOW), Ok(()));
            assert!(limiter.permit_for_body(BODIES_KIB * 4, from).is_some());
        }
    }

    #[test]
    fn whoever_is_unknown_is_exempt_with_nobody() {
        let limiter = limiter(|policy| policy.exempt = vec!["0.0.0.0/0".parse().unwrap()]);
        let names = |at: usize| format!("user {at}");
        assert_eq!(failures(&limiter, 100, names, |_| ip("192.0.2.1")), 100);
        assert_eq!(failures(&limiter, 100, names, |_| ip("0.0.0.0")), 30);
        assert!(limiter.permit_for_body(BODIES_KIB + 1, ip("192.0.2.1")).is_some());
        assert!(limiter.permit_for_body(BODIES_KIB + 1, ip("0.0.0.0")).is_none());
    }

    #[test]
    fn a_client_that_fails_at_one_address_is_heard_at_another() {
        let limiter = limiter(|_| {});
        for _ in 0..20 {
            assert_eq!(limiter.may_authenticate(b"web", ip("192.0.2.1"), NOW), Ok(()));
            limiter.authentication_failed(b"web", ip("192.0.2.1"), NOW);
        }
        let wait = limiter
            .may_authenticate(b"web", ip("192.0.2.1"), NOW)
            .unwrap_err();
        assert_eq!(wait.seconds(), 10);
        assert_eq!(limiter.may_authenticate(b"web", ip("192.0.2.2"), NOW), Ok(()));
        assert_eq!(limiter.may_authenticate(b"app", ip("192.0.2.1"), NOW), Ok(()));
        for at in 0..200_u32 {
            limiter.authentication_failed(&at.to_be_bytes(), ip("192.0.2.1"), NOW);
        }
        assert!(limiter.may_authenticate(b"app", ip("192.0.2.1"), NOW).is_err());
    }

    #[test]
    fn anonymous_users_are_limited_for_the_address_and_for_the_client() {
        let limiter = limiter(|policy| {
            policy.anonymous_per_address = 3;
            policy.anonymous_per_client = 5;
        });
        let made = |client: &str, from: &str| {
            (0..10)
                .filter(|_| limiter.create_anonymous_user(client, ip(from), NOW).is_ok())
                .count()
        };
        assert_eq!(made("tv", "192.0.2.1"), 3);
        assert_eq!(made("tv", "192.0.2.2"), 2);
        assert_eq!(
            made("kiosk", "192.0.2.2"),
            1,
            "what the client was refused is not the address's"
        );
        assert_eq!(made("kiosk", "192.0.2.1"), 0);
    }

    #[test]
    fn one_address_cannot_hold_everything() {
        let limiter = limiter(|_| {});
        let places: Vec<_> = (0..100)
            .filter_map(|_| limiter.permit_for_password(ip("192.0.2.1")))
            .collect();
        assert_eq!(places.len(), 16);
        assert!(limiter.permit_for_password(ip("192.0.2.2")).is_some());
        let room: Vec<_> = (0..1_000)
            .filter_map(|_| limiter.permit_for_body(64, ip("192.0.2.1")))
            .collect();
        assert_eq!(room.len(), 128);
        assert!(limiter.permit_for_body(64, ip("192.0.2.2")).is_some());
        let requests: Vec<_> = (0..1_000)
            .filter_map(|_| limiter.permit_for_request(ip("192.0.2.1")))
            .collect();
        assert_eq!(requests.len(), 400);
        assert!(limiter.permit_for_request(ip("192.0.2.2")).is_some());
    }
    /// An address of which nobody is a neighbour: every other one is the only one of an IPv6 /48.
    fn of_many(number: u32) -> IpAddr {
        if number.is_multiple_of(2) {
            Ipv4Addr::from_bits(0x0100_0000 + number).into()
        } else {
            Ipv6Addr::from_bits((0x2001 << 112) | (u128::from(number) << 80) | 1).into()
        }
    }

    /// Whoever has three addresses for each place of a table, and as many names, fills eight tables. What they hold at one
    /// moment is all that is kept besides.
    #[test]
    fn more_addresses_than_there_are_places_fill_the_tables_and_leave_nothing_besides() {
        const ADDRESSES: u32 = 200_000;
        const AT_ONCE: usize = 100;
        let limiter = limiter(|_| {});
        let mut held = VecDeque::new();
        for number in 0..ADDRESSES {
            let (from, name) = (of_many(number), number.to_be_bytes());
            let client = number.to_string();
            let _ = limiter.try_password(&client, None, from, NOW);
            let _ = limiter.begin_sign_in(from, NOW);
            let _ = limiter.create_anonymous_user(&client, from, NOW);
            limiter.authentication_failed(&name, from, NOW);
            let _ = limiter.may_authenticate(&name, from, NOW);
            limiter.note_refusal(from, NOW);
            held.push_back([
                limiter.permit_for_body(64, from),
                limiter.permit_for_password(from),
                limiter.permit_for_request(from),
            ]);
            if held.len() > AT_ONCE {
                held.pop_front();
            }
        }
        let Limiter {
            policy: _,
            key: _,
            accounts,
            sign_ins,
            begun,
            clients,
            client_auth_by_ip,
            refusal_logs,
            unlogged_refusals: _,
            anonymous_addresses,
            anonymous_clients,
            bodies,
            passwords,
            requests,
        } = &limiter;
        let tables = [
            accounts,
            sign_ins,
            begun,
            clients,
            client_auth_by_ip,
            refusal_logs,
            anonymous_addresses,
            anonymous_clients,
        ];
        assert_eq!(tables.map(bytes), [most_bytes(); 8]);
        for shares in [bodies, passwords, requests] {
            // Half of them are in an IPv6 /48 besides.
            assert_eq!(holders(shares), AT_ONCE + AT_ONCE / 2);
        }
        drop(held);
        assert_eq!(
            [bodies, passwords, requests].map(|shares| holders(shares)),
            [0; 3]
        );
    }
}
