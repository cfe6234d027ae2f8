//! What memory is shared out to: connections, requests, passwords, and the cache of the database.
//!
//! | what | may take |
//! |---|---|
//! | the program, writes that wait, background work | 16 MiB |
//! | what is counted by address and by name | a 16th of it all, 21 MiB at most |
//! | a password that is hashed | `password.memory_kib` |
//! | a password of `password.blocklist_file` | 8 bytes |
//! | a connection, with a header that is as long as may be | 56 KiB |
//! | a connection where clients show certificates, with the longest chain | 104 KiB |
//! | a request in progress, without its body | 40 KiB |
//! | clients that the operator did not register, if they may be | a 24th of it all, 64 MiB at most |
//! | documents that such clients publish | as much again |
//!
//! Half of a connection's share is for the longest header; an idle connection takes 25 KiB. So memory for a request is
//! needed in addition only where many are in progress, and there is room for a quarter as many requests as connections.

use std::ops::RangeInclusive;

use super::memory_limit::MemoryLimit;
use crate::limit::{ALL_BODIES_KIB, ALL_COUNTS_KIB, ALL_REQUESTS};
use crate::net::Limits;
use crate::password::{MAX_MEMORY_KIB, PasswordParams, PoolSize};

const KIB_PER_MIB: u64 = 1 << 10;
/// The program and all that is not shared out.
const BASE_KIB: u64 = 16 * KIB_PER_MIB;
const CONNECTION_KIB: u64 = 56;
/// The TLS library keeps the chain of a client, and so does the service.
const MTLS_CONNECTION_KIB: u64 = CONNECTION_KIB + 2 * 24;
const REQUEST_KIB: u64 = 40;
const BLOCKED_PASSWORD_BYTES: u64 = 8;
/// The most connections where clients show certificates.
const MTLS_CONNECTIONS: u64 = 256;
/// The default cache of the database.
const CACHE_KIB: u64 = 24 * KIB_PER_MIB;
/// The memory for clients that the operator did not register.
const REGISTRANTS_KIB: RangeInclusive<u64> = 2 * KIB_PER_MIB..=64 * KIB_PER_MIB;
/// The most memory that hashing passwords may take if the number of threads is not configured.
const PASSWORDS_KIB: u64 = 1024 * KIB_PER_MIB;
/// The fewest connections and requests. With fewer, one browser could take all.
const FEWEST: u64 = 32;
/// The least that `limits.memory` may be, in bytes.
pub(super) const LEAST: u64 = 48 << 20;
/// The memory of an encryption with a passphrase.
const PASSPHRASE_KIB: u64 = 128 * KIB_PER_MIB;

/// How much of each thing there may be at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The memory that all of it has to fit into; `None` if it is not known. Then the defaults apply.
    pub limit: Option<MemoryLimit>,
    /// Open connections.
    pub connections: usize,
    /// Open connections where clients show certificates. None if no listener asks for them.
    pub mtls_connections: usize,
    /// Requests in progress.
    pub requests: usize,
    /// Memory for the bodies of requests, in KiB.
    pub bodies_kib: usize,
    /// Memory for what is counted by address and by name, in KiB.
    pub counts_kib: usize,
    /// The threads that hash passwords, and their queue.
    pub passwords: PoolSize,
    /// The most memory of one hash, in KiB.
    pub hash_limit_kib: u32,
    /// The cache of the database, in bytes.
    pub cache_bytes: usize,
    /// Why the settings do not fit into the memory, if they do not.
    pub warning: Option<String>,
}

/// The settings that a [`MemoryPlan`] is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemorySettings {
    pub(super) limit: Option<MemoryLimit>,
    pub(super) cost: PasswordParams,
    /// The number of threads; zero for one on each core.
    pub(super) workers: usize,
    /// The passwords of the operator's blocklist.
    pub(super) blocked_passwords: usize,
    /// The number of connections, if one is configured.
    pub(super) connections: Option<usize>,
    /// Whether a listener asks clients for certificates.
    pub(super) has_mtls: bool,
    /// Whether clients may register themselves, or have metadata documents.
    pub(super) takes_registrants: bool,
}

fn registrants_kib(whole: u64) -> u64 {
    (whole / 24).clamp(*REGISTRANTS_KIB.start(), *REGISTRANTS_KIB.end())
}

/// The memory for clients that the operator did not register, in bytes. What they publish has as much again.
pub(super) fn registrant_bytes(limit: Option<MemoryLimit>) -> usize {
    as_usize(registrants_kib(limit.map_or(u64::MAX, |limit| limit.bytes >> 10)) << 10)
}

impl MemorySettings {
    /// Shares the memory out. What is configured is not changed, and warned of if it does not fit.
    pub(super) fn plan(self) -> MemoryPlan {
        let whole = self.limit.map_or(u64::MAX, |limit| limit.bytes >> 10);
        let cost = u64::from(self.cost.memory_kib());
        let passwords = match self.workers {
            0 => PoolSize::fitting(self.cost, PASSWORDS_KIB.min(whole / 4)),
            threads => PoolSize {
                threads,
                waiting: PoolSize::WAITING,
            },
        };
        let cache = (whole / 32).clamp(2 * KIB_PER_MIB, CACHE_KIB);
        let bodies = (whole / 12).min(as_u64(ALL_BODIES_KIB));
        let counts = (whole / 16).min(as_u64(ALL_COUNTS_KIB));
        let hashing = cost.saturating_mul(as_u64(passwords.threads));
        let registrants = if self.takes_registrants {
            2 * registrants_kib(whole)
        } else {
            0
        };
        let rest = whole
            .saturating_sub(BASE_KIB + counts + cache + bodies + registrants)
            .saturating_sub(hashing)
            .saturating_sub(as_u64(self.blocked_passwords) * BLOCKED_PASSWORD_BYTES / 1024);
        let most = as_u64(Limits::MAX_CONNECTIONS);
        let room = self.room(rest).max(FEWEST);
        let connections = self.connections.map_or(room.min(most), as_u64);
        let mtls_connections = if self.has_mtls {
            connections.min(MTLS_CONNECTIONS)
        } else {
            0
        };
        let left = rest
            .saturating_sub(connections.saturating_mul(CONNECTION_KIB))
            .saturating_sub(mtls_connections * MTLS_CONNECTION_KIB)
            / REQUEST_KIB;
        let limit_kib = (whole / 2).clamp(cost, u64::from(MAX_MEMORY_KIB).max(cost));
        let mut plan = MemoryPlan {
            limit: self.limit,
            connections: as_usize(connections),
            mtls_connections: as_usize(mtls_connections),
            requests: as_usize(left.clamp(FEWEST, as_u64(ALL_REQUESTS))),
            bodies_kib: as_usize(bodies),
            counts_kib: as_usize(counts),
            passwords,
            hash_limit_kib: u32::try_from(limit_kib).unwrap_or(u32::MAX),
            cache_bytes: as_usize(cache << 10),
            warning: None,
        };
        plan.warning = self.limit.and_then(|MemoryLimit { bytes, origin }| {
            let mib = bytes >> 20;
            if rest < FEWEST * CONNECTION_KIB {
                let (hashing, base) = (hashing / KIB_PER_MIB, (BASE_KIB + counts + cache + bodies + registrants) / KIB_PER_MIB);
                return Some(format!(
                    "{mib} MiB ({origin}) are too few: hashing passwords takes {hashing} MiB, and the service {base} MiB without any connection. Give it more memory, or lower password.workers or password.memory_kib"
                ));
            }
            (room < connections).then(|| {
                format!(
                    "limits.connections is {connections}, and {mib} MiB ({origin}) have room for {room} connections: give the service more memory, or lower limits.connections"
                )
            })
        });
        plan
    }

    /// How many connections `rest` is enough for, with those where clients show certificates beside them.
    fn room(&self, rest: u64) -> u64 {
        let (each, each_mtls) = (
            CONNECTION_KIB + REQUEST_KIB / 4,
            MTLS_CONNECTION_KIB + REQUEST_KIB / 4,
        );
        if !self.has_mtls {
            return rest / each;
        }
        let beside_all = rest.saturating_sub(MTLS_CONNECTIONS * each_mtls) / each;
        if beside_all < MTLS_CONNECTIONS {
            rest / (each + each_mtls)
        } else {
            beside_all
        }
    }
}

/// Why an encryption with a passphrase does not fit into the memory, if it does not.
pub(super) fn passphrase_warning(limit: Option<MemoryLimit>) -> Option<String> {
    let MemoryLimit { bytes, origin } = limit.filter(|limit| limit.bytes >> 10 < 2 * PASSPHRASE_KIB)?;
    Some(format!(
        "with backup.passphrase_file each backup takes 128 MiB for a moment, of {} MiB ({origin}): encrypt to recipients with backup.to",
        bytes >> 20
    ))
}

fn as_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn as_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
