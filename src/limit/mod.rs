//! Rate limits and concurrency limits by address and by name.
//!
//! [`Buckets`] count what was done within a time, a [`ConcurrencyLimit`] counts what is held at one moment. Both are
//! bounded in memory, know only addresses and names, and are told the time. The counts live in memory: a restart
//! forgets them. Only wrong passwords in a row are counted in the store. That count holds for exempt senders too, and
//! does not go down with time.
//!
//! | what | burst, then one every | counted by |
//! |---|---|---|
//! | failed sign-ins | 10, 5 minutes | the name that was typed, whether a user has it or not |
//! | | 30, 20 seconds | the address |
//! | | 10, 5 minutes | the known browser of this user, instead of the name and the address |
//! | | 100 in a row | the user, in the store ([`password_attempt::AccountFailures`]); known browsers are let in |
//! | passwords typed, right or wrong | 300, half a second | the address; in known browsers the user instead |
//! | answers of providers | 300, half a second | the address |
//! | metadata documents and keys fetched for clients that register themselves | 30, 10 seconds | the address |
//! | | 3, 1 minute | the host of the document or the keys, for the address or the IPv6 /48 |
//! | | 60, 2 seconds | the host, for what is beyond that; the document of a client with a record is counted after a failed fetch |
//! | mails requested on pages | 4, 15 minutes | the recipient that was typed, whether a user has it or not; `+tag` does not count |
//! | | 10, 2 minutes | the address |
//! | mails requested on the page for a new account | 1,000, 1 second | nothing: all people together |
//! | notices of new devices | 4, 15 minutes | the user |
//! | codes and passwords typed after a mail | 30, 20 seconds | the address |
//! | wrong codes typed after a mail | 20, 1 hour | the recipient, as for mails |
//! | device codes for public clients | 60, 5 seconds | the address |
//! | wrong user codes | 10, 1 minute | the address; the user who is signed in |
//! | | 1,000, 1 second | nothing: all people together who are not signed in |
//! | failed client authentication | 20, 10 seconds | the client's name at the address |
//! | | 200, 1 second | the address; a public client that presents nothing is not counted |
//! | anonymous users | as configured | the address; the client |
//! | registrations of clients, and changes of registrations | 30, 5 minutes | the address |
//! | refusals that are logged | 100, 1 second | the address |
//! | refusals for lack of something that are logged | 1, 1 minute | the reason: all senders together |
//!
//! An address is an IPv4 address or an IPv6 /64. The /48 around it may do and hold eight times as much. No network may
//! hold more than half of what there is. Passwords are also counted by the /32 around it, which may do 500 times as much.
//!
//! # Guessing, and locking people out
//!
//! While a bucket is full, no password is checked: a right one and a wrong one get the same answer. An attacker could
//! therefore lock a user out by failing in the user's name. The known browser prevents that: after a sign-in it
//! carries a sealed cookie, and a request with this cookie has a bucket of its own. A stolen cookie gives its thief ten
//! guesses. A cookie is valid only until the user's password changes.
//!
//! Only a wrong password is a failure. [`PasswordAttempt`] is charged on the thread that checks it, after the check. The
//! attempts for one name are checked one after the other. So parallel attempts get no more guesses than sequential ones,
//! and right passwords are never refused because others are being checked. A failure stays charged, so signing in to
//! one's own account in between buys no guesses at another.
//!
//! # Who is checked first
//!
//! What a network tried and failed lately is its rank in the queue of passwords. A refused attempt counts, too. So an
//! attacker with many addresses falls behind all people who type a password now and then.

pub mod buckets;
pub mod charges;
pub mod concurrency;
mod mails;
pub mod network;
pub mod password_attempt;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use ring::digest;
use zeroize::Zeroizing;

use self::buckets::{Buckets, Key, RetryAfter, Rule};
use self::concurrency::{ConcurrencyLimit, Permit};
use self::network::{Network, any_contains, customer_of, subscriber_of};
use self::password_attempt::PasswordAttempt;
use crate::clock::Timestamp;
use crate::random::Random;

const ACCOUNT: Rule = Rule::new(10, Duration::from_mins(5));
/// How many failures under one name are many for the user who reads of them.
const FAILED_OFTEN: u64 = 5;
const SIGN_IN: Rule = Rule::new(30, Duration::from_secs(20));
const TYPED_PASSWORD: Rule = Rule::new(300, Duration::from_millis(500));
const PROVIDER_ANSWER: Rule = Rule::new(300, Duration::from_millis(500));
const REGISTRANT_FETCH: Rule = Rule::new(30, Duration::from_secs(10));
const REGISTRANT_HOST: Rule = Rule::new(60, Duration::from_secs(2));
const REGISTRANT_HOST_SHARE: Rule = Rule::new(3, Duration::from_mins(1));
const MAIL_TO_RECIPIENT: Rule = Rule::new(4, Duration::from_mins(15));
const MAIL_FROM_ADDRESS: Rule = Rule::new(10, Duration::from_mins(2));
const TYPED_CODE: Rule = Rule::new(30, Duration::from_secs(20));
const WRONG_CODE: Rule = Rule::new(20, Duration::from_hours(1));
const DEVICE_CODE: Rule = Rule::new(60, Duration::from_secs(5));
const WRONG_USER_CODE: Rule = Rule::new(10, Duration::from_mins(1));
/// For wrong user codes, and for mails of the page for a new account.
const ALL_PEOPLE: Rule = Rule::new(1_000, Duration::from_secs(1));
const CLIENT: Rule = Rule::new(20, Duration::from_secs(10));
const CLIENT_AUTH_BY_IP: Rule = Rule::new(200, Duration::from_secs(1));
const REGISTRATION: Rule = Rule::new(30, Duration::from_mins(5));
const REFUSAL_LOG: Rule = Rule::new(100, Duration::from_secs(1));
const OUTAGE_LOG: Rule = Rule::new(1, Duration::from_mins(1));

/// The most memory for the request bodies of all addresses, in KiB: 64 MiB.
pub const ALL_BODIES_KIB: usize = 64 * 1024;
/// The most memory for what is counted by address and by name, in KiB: a mebibyte for each table of buckets.
pub const ALL_COUNTS_KIB: usize = TABLES * 1024;
/// The tables of buckets in a [`Limiter`].
const TABLES: usize = 21;

/// Memory for the request bodies of one address, in KiB.
const BODIES_KIB: usize = 8 * 1024;

/// The most requests of all addresses that may be in progress. Each takes less than 40 KiB with the largest header, without
/// its body.
pub const ALL_REQUESTS: usize = 8192;
/// Requests of one address that may be in progress. Each has at most one write waiting for the disk, so even an IPv6 /48
/// cannot fill the queue of 4,096 writes.
const REQUESTS: usize = 400;

/// The `limits` section of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitPolicy {
    /// Whether single addresses, names and clients are limited.
    pub enabled: bool,
    /// Networks whose requests are never limited: monitoring, gateways, load tests.
    pub exempt: Vec<IpNet>,
    /// Anonymous users that one address may create within an hour.
    pub anonymous_per_address: u32,
    /// Anonymous users that one client may create within an hour.
    pub anonymous_per_client: u32,
    /// Requests of all addresses that may be in progress, at most [`ALL_REQUESTS`].
    pub all_requests: usize,
    /// Memory for the request bodies of all addresses, in KiB, at most [`ALL_BODIES_KIB`].
    pub all_bodies_kib: usize,
    /// Memory for what is counted by address and by name, in KiB, at most [`ALL_COUNTS_KIB`].
    pub counts_kib: usize,
}

/// The limits and the current counts.
#[derive(Debug)]
pub struct Limiter {
    policy: LimitPolicy,
    /// Keys the digests of bucket names, so that an attacker cannot choose names that collide.
    digest_key: Zeroizing<[u8; 32]>,
    accounts: Arc<Buckets>,
    sign_ins: Arc<Buckets>,
    typed_passwords: Buckets,
    provider_answers: Buckets,
    registrant_fetches: Buckets,
    registrant_hosts: Buckets,
    registrant_host_shares: Buckets,
    mail_recipients: Buckets,
    mail_senders: Buckets,
    typed_codes: Buckets,
    wrong_codes: Buckets,
    device_codes: Buckets,
    wrong_user_codes: Buckets,
    all_people: Buckets,
    clients: Buckets,
    client_auth_by_ip: Buckets,
    registrations: Buckets,
    refusal_logs: Buckets,
    /// Refusals that were left out of the log since the last one that was logged.
    unlogged_refusals: AtomicU64,
    outage_log: Buckets,
    /// The same for refusals that all senders get.
    unlogged_outages: Mutex<BTreeMap<&'static str, u64>>,
    anonymous_addresses: Buckets,
    anonymous_clients: Buckets,
    bodies: Arc<ConcurrencyLimit>,
    requests: Arc<ConcurrencyLimit>,
}

/// An attempt that has been charged. It counts unless it is refunded, also when the request is cut off.
#[derive(Debug)]
#[must_use = "an attempt that succeeded is refunded"]
pub struct Attempt<'a> {
    charged: Vec<(&'a Buckets, Key)>,
}

impl Attempt<'_> {
    /// Takes the charge back, because the attempt succeeded.
    pub fn refund(self, now: Timestamp) {
        for (buckets, key) in self.charged {
            buckets.refund(key, now);
        }
    }
}

impl Limiter {
    /// A limiter whose counts are all zero.
    pub fn new(policy: LimitPolicy, random: &Random) -> Self {
        let concurrency = |limit, all| {
            let limit = if policy.enabled { limit } else { usize::MAX };
            ConcurrencyLimit::new(limit, all, policy.exempt.clone())
        };
        let table = |rule| Buckets::new(rule, (policy.counts_kib << 10) / TABLES);
        Self {
            digest_key: Zeroizing::new(random.bytes()),
            accounts: Arc::new(table(ACCOUNT)),
            sign_ins: Arc::new(table(SIGN_IN)),
            typed_passwords: table(TYPED_PASSWORD),
            provider_answers: table(PROVIDER_ANSWER),
            registrant_fetches: table(REGISTRANT_FETCH),
            registrant_hosts: table(REGISTRANT_HOST),
            registrant_host_shares: table(REGISTRANT_HOST_SHARE),
            mail_recipients: table(MAIL_TO_RECIPIENT),
            mail_senders: table(MAIL_FROM_ADDRESS),
            typed_codes: table(TYPED_CODE),
            wrong_codes: table(WRONG_CODE),
            device_codes: table(DEVICE_CODE),
            wrong_user_codes: table(WRONG_USER_CODE),
            all_people: table(ALL_PEOPLE),
            clients: table(CLIENT),
            client_auth_by_ip: table(CLIENT_AUTH_BY_IP),
            registrations: table(REGISTRATION),
            refusal_logs: table(REFUSAL_LOG),
            unlogged_refusals: AtomicU64::new(0),
            outage_log: table(OUTAGE_LOG),
            unlogged_outages: Mutex::default(),
            anonymous_addresses: table(Rule::hourly(policy.anonymous_per_address)),
            anonymous_clients: table(Rule::hourly(policy.anonymous_per_client)),
            bodies: concurrency(BODIES_KIB, policy.all_bodies_kib),
            requests: concurrency(REQUESTS, policy.all_requests),
            policy,
        }
    }

    /// Charges a password that was typed, right or wrong, and refuses it if there were too many or too many failed.
    /// `known_browser` identifies a browser in which this user has signed in before.
    pub fn try_password(
        &self,
        name: &str,
        known_browser: Option<&[u8]>,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<PasswordAttempt, RetryAfter> {
        if self.is_exempt(from) {
            return Ok(PasswordAttempt::unlimited(known_browser.is_some(), now));
        }
        let (senders, subject) = match known_browser {
            // Counted by the user: one user can have many browsers.
            Some(browser) => (
                vec![self.key_of(&[b"user", name.as_bytes()])],
                self.key_of(&[b"browser", browser]),
            ),
            None => (
                Network::all_up_to_provider(from)
                    .map(|network| self.network_key(network))
                    .collect(),
                self.account_key(name),
            ),
        };
        let mut failures = vec![(Arc::clone(&self.accounts), subject)];
        if known_browser.is_none() {
            failures.extend(senders.iter().map(|key| (Arc::clone(&self.sign_ins), *key)));
        }
        let fill = |key: &Key| {
            self.typed_passwords
                .fill(*key, now)
                .saturating_add(self.sign_ins.fill(*key, now))
        };
        let attempt = PasswordAttempt {
            rank: senders.iter().map(fill).max().unwrap_or_default(),
            subject: Some(subject.tag()),
            failures,
            ..PasswordAttempt::unlimited(known_browser.is_some(), now)
        };
        let charges = senders.into_iter().map(|key| (&self.typed_passwords, key));
        let too_many_typed = charge_all(charges.collect(), now).err();
        match too_many_typed.max(attempt.may_check().err()) {
            Some(longest_wait) => Err(longest_wait),
            None => Ok(attempt),
        }
    }

    /// Whether strangers have failed under this name so often that its user may need to know what follows from it. Names
    /// that nobody has are no different.
    pub fn has_failed_often(&self, name: &str, now: Timestamp) -> bool {
        self.accounts.fill(self.account_key(name), now) >= FAILED_OFTEN * ACCOUNT.interval_ms()
    }

    /// Charges an answer of a provider. The provider is asked for tokens for it.
    pub fn receive_provider_answer(&self, from: IpAddr, now: Timestamp) -> Result<(), RetryAfter> {
        let mut charges = Vec::new();
        if !self.is_exempt(from) {
            charges.extend(self.network_keys(from).map(|key| (&self.provider_answers, key)));
        }
        charge_all(charges, now).map(|_| ())
    }

    /// Charges a registration of a client, or a change of one. The caller refunds it if nothing is written.
    pub fn register_client(&self, from: IpAddr, now: Timestamp) -> Result<Attempt<'_>, RetryAfter> {
        let mut charges = Vec::new();
        if !self.is_exempt(from) {
            charges.extend(self.network_keys(from).map(|key| (&self.registrations, key)));
        }
        charge_all(charges, now)
    }

    /// Charges a device code for a public client.
    pub fn authorize_device(&self, from: IpAddr, now: Timestamp) -> Result<(), RetryAfter> {
        let mut charges = Vec::new();
        if !self.is_exempt(from) {
            charges.extend(self.network_keys(from).map(|key| (&self.device_codes, key)));
        }
        charge_all(charges, now).map(|_| ())
    }

    /// Charges a user code that is typed. The caller refunds it if a device shows the code. `user` is who is signed in. All
    /// other people have a limit together, since one attacker may have many addresses: so the codes cannot be searched, and
    /// people who are signed in are not locked out.
    pub fn type_user_code(
        &self,
        user: Option<&[u8]>,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<Attempt<'_>, RetryAfter> {
        let mut charges = Vec::new();
        if !self.is_exempt(from) {
            charges.extend(self.network_keys(from).map(|key| (&self.wrong_user_codes, key)));
            charges.push(match user {
                Some(user) => (&self.wrong_user_codes, self.key_of(&[b"user", user])),
                None => (&self.all_people, self.key_of(&[b"user code"])),
            });
        }
        charge_all(charges, now)
    }

    /// Charges the fetch of a metadata document, or of keys of a client that registered itself, from `host`. A request from
    /// the address `from` causes it. Each network has a share of every host, so that others cannot use up a host for it.
    pub fn fetch_for_registrant(&self, host: &str, from: IpAddr, now: Timestamp) -> Result<(), RetryAfter> {
        if self.is_exempt(from) {
            return Ok(());
        }
        let networks = self.network_keys(from).map(|key| (&self.registrant_fetches, key));
        charge_all(networks.collect(), now).map(drop)?;
        let network = customer_of(from).to_string();
        let share = self.key_of(&[host.as_bytes(), network.as_bytes()]);
        let in_share = self.registrant_host_shares.take(share, now);
        in_share.or_else(|_| self.registrant_hosts.take(self.key_of(&[host.as_bytes()]), now))
    }

    /// Charges a client's request for an anonymous user. The caller refunds it if no user is created.
    pub fn create_anonymous_user(
        &self,
        client_id: &str,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<Attempt<'_>, RetryAfter> {
        let mut charges = Vec::new();
        if !self.is_exempt(from) {
            charges.extend(
                self.network_keys(from)
                    .map(|key| (&self.anonymous_addresses, key)),
            );
            charges.push((&self.anonymous_clients, self.key_of(&[client_id.as_bytes()])));
        }
        charge_all(charges, now)
    }

    /// Whether credentials of this client from this address may be checked now. `name` is what the sender presents: the
    /// client identifier or the identifier of an API key.
    pub fn may_authenticate(&self, name: &[u8], from: IpAddr, now: Timestamp) -> Result<(), RetryAfter> {
        if self.is_exempt(from) {
            return Ok(());
        }
        let client = self.clients.check(|| self.client_at(name, from), now);
        let networks = Network::all_around(from)
            .map(|network| self.client_auth_by_ip.check(|| self.network_key(network), now));
        let waits = networks.chain([client]).filter_map(Result::err);
        waits.max().map_or(Ok(()), Err)
    }

    /// Charges wrong credentials of this client from this address.
    pub fn authentication_failed(&self, name: &[u8], from: IpAddr, now: Timestamp) {
        if self.is_exempt(from) {
            return;
        }
        self.clients.add(self.client_at(name, from), now);
        for key in self.network_keys(from) {
            self.client_auth_by_ip.add(key, now);
        }
    }

    /// Decides whether a refusal is logged. If so, returns how many refusals of all addresses were left out since the
    /// last one that was logged.
    pub fn note_refusal(&self, from: IpAddr, now: Timestamp) -> Option<u64> {
        let mut charges = Vec::new();
        if !self.is_exempt(from) {
            charges.extend(self.network_keys(from).map(|key| (&self.refusal_logs, key)));
        }
        if charge_all(charges, now).is_ok() {
            Some(self.unlogged_refusals.swap(0, Ordering::Relaxed))
        } else {
            self.unlogged_refusals.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    /// Decides whether a refusal is logged that all senders get alike, because the service lacks something: one a minute
    /// is, for each reason. If so, returns how many were left out since the last one.
    pub fn note_outage(&self, reason: &'static str, now: Timestamp) -> Option<u64> {
        let mut unlogged = self
            .unlogged_outages
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let left_out = unlogged.entry(reason).or_default();
        if self
            .outage_log
            .take(self.key_of(&[reason.as_bytes()]), now)
            .is_ok()
        {
            return Some(std::mem::take(left_out));
        }
        *left_out += 1;
        None
    }

    /// Reserves memory for a body of `kib` KiB until the permit is dropped.
    pub fn permit_for_body(&self, kib: usize, from: IpAddr) -> Option<Permit> {
        ConcurrencyLimit::take(&self.bodies, from, kib)
    }

    /// Counts a request as in progress until the permit is dropped.
    pub fn permit_for_request(&self, from: IpAddr) -> Option<Permit> {
        ConcurrencyLimit::take(&self.requests, from, 1)
    }

    fn is_exempt(&self, from: IpAddr) -> bool {
        !self.policy.enabled || any_contains(&self.policy.exempt, from)
    }

    fn account_key(&self, name: &str) -> Key {
        self.key_of(&[b"account", name.as_bytes()])
    }

    fn client_at(&self, name: &[u8], from: IpAddr) -> Key {
        self.key_of(&[subscriber_of(from).to_string().as_bytes(), name])
    }

    fn network_keys(&self, from: IpAddr) -> impl Iterator<Item = Key> {
        Network::all_around(from).map(|network| self.network_key(network))
    }

    fn network_key(&self, Network { address, multiplier }: Network) -> Key {
        let (bytes, length) = match address {
            IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), 128_u8),
            IpAddr::V6(address) => (address.octets(), 0),
        };
        self.scaled_key_of(&[&[length], &multiplier.to_be_bytes(), &bytes], multiplier)
    }

    fn key_of(&self, parts: &[&[u8]]) -> Key {
        self.scaled_key_of(parts, 1)
    }

    /// Hashes each part with its length, so that two different lists of parts have different digests.
    fn scaled_key_of(&self, parts: &[&[u8]], multiplier: u32) -> Key {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(self.digest_key.as_slice());
        for part in parts {
            context.update(&part.len().to_be_bytes());
            context.update(part);
        }
        Key::new(context.finish().as_ref(), multiplier)
    }
}

/// Charges all of these buckets, or none of them if one is full. Of several full ones, the longest wait is the answer: a
/// shorter one would end in another refusal.
fn charge_all(charges: Vec<(&Buckets, Key)>, now: Timestamp) -> Result<Attempt<'_>, RetryAfter> {
    let mut attempt = Attempt { charged: Vec::new() };
    let mut charges = charges.into_iter();
    while let Some((buckets, key)) = charges.next() {
        if let Err(wait) = buckets.take(key, now) {
            attempt.refund(now);
            // A refused attempt takes no slot of the other tables, so they are only checked.
            let other_waits = charges.filter_map(|(buckets, key)| buckets.check(|| key, now).err());
            return Err(other_waits.fold(wait, RetryAfter::max));
        }
        attempt.charged.push((buckets, key));
    }
    Ok(attempt)
}
