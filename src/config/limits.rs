//! What single addresses, names and clients may do, and what all of them together may take.

use ipnet::IpNet;

use super::form::{Flag, List, Number, Parsed};
use super::memory::{LEAST, MemoryPlan};
use super::memory_limit::{LimitOrigin, MemoryLimit, Size};
use super::networks::parse_network;
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::limit::LimitPolicy;
use crate::net::Limits;

/// A thousand requests a second.
const MOST_PER_HOUR: u64 = 3_600_000;
const MOST_CONNECTIONS: u64 = 1_000_000;

pub(super) const SETTINGS: &[&Setting] = &[
    &ENABLED,
    &EXEMPT,
    &ANONYMOUS_PER_ADDRESS,
    &ANONYMOUS_PER_CLIENT,
    &MEMORY,
    &CONNECTIONS,
    &CONNECTIONS_PER_ADDRESS,
];

pub(super) static ENABLED: Setting<Flag> = Setting {
    key: "limits.enabled",
    doc: "Whether failed sign-ins, failed client authentication, answers of providers, anonymous users, connections, requests,\n\
         bodies and typed passwords are limited for single addresses, names and clients. What all of them together may\n\
         take is bounded in any case.",
    default: Some(Literal::Flag(true)),
    example: Literal::Flag(true),
    value_name: "BOOL",
    help: Some("Limit what single addresses, names and clients may do"),
    form: Flag,
};

pub(super) static EXEMPT: Setting<List<IpNet>> = Setting {
    key: "limits.exempt",
    doc: "Networks whose requests are not limited, and whose open connections are not counted for an address, such as\n\
         those of a gateway that many people share.",
    default: Some(Literal::List(&[])),
    example: Literal::List(&["192.0.2.0/24"]),
    value_name: "NETWORK",
    help: Some("A network whose requests are not limited"),
    form: List::of(parse_network),
};

pub(super) static ANONYMOUS_PER_ADDRESS: Setting<Number<u32>> = Setting {
    key: "limits.anonymous_per_address",
    doc: "Anonymous users that one address may have made within an hour.",
    default: Some(Literal::Number(60)),
    example: Literal::Number(1000),
    value_name: "COUNT",
    help: Some("Anonymous users for one address in an hour"),
    form: Number::within(1, MOST_PER_HOUR),
};

pub(super) static ANONYMOUS_PER_CLIENT: Setting<Number<u32>> = Setting {
    key: "limits.anonymous_per_client",
    doc: "Anonymous users that one client may have made within an hour.",
    default: Some(Literal::Number(10_000)),
    example: Literal::Number(100_000),
    value_name: "COUNT",
    help: Some("Anonymous users for one client in an hour"),
    form: Number::within(1, MOST_PER_HOUR),
};

pub(super) static MEMORY: Setting<Parsed<u64>> = Setting {
    key: "limits.memory",
    doc: "The memory that the service may use, in MiB or GiB. Connections, requests, passwords hashed at once and the cache\n\
         of the database are sized by it. Left out: the limit of the control group, else half of the machine's memory.",
    default: None,
    example: Literal::Text("256MiB"),
    value_name: "SIZE",
    help: Some("The memory that the service may use"),
    form: Parsed(parse_memory),
};

pub(super) static CONNECTIONS: Setting<Number<usize>> = Setting {
    key: "limits.connections",
    doc: "Open connections in all, fewer where limits.memory is low; one more closes an idle one of the address that has\n\
         most. The hard limit of open files (ulimit -Hn, LimitNOFILE) must be above it.",
    default: Some(Literal::Number(Limits::MAX_CONNECTIONS as u64)),
    example: Literal::Number(50_000),
    value_name: "COUNT",
    help: Some("Open connections in all"),
    form: Number::within(1, MOST_CONNECTIONS),
};

pub(super) static CONNECTIONS_PER_ADDRESS: Setting<Number<usize>> = Setting {
    key: "limits.connections_per_address",
    doc: "Open connections from one IPv4 address or IPv6 /64; more are closed. No address gets more than half of all\n\
         connections, of those that the limit of open files allows where these are fewer. Proxies are not counted.",
    default: Some(Literal::Number(Limits::MAX_CONNECTIONS_PER_ADDRESS as u64)),
    example: Literal::Number(256),
    value_name: "COUNT",
    help: Some("Open connections from one address"),
    form: Number::within(1, MOST_CONNECTIONS),
};

/// The rate limits, with the limits for all that follow from the memory.
pub(super) fn limits(reader: &mut Reader<'_>, memory: Read<&MemoryPlan>) -> Read<LimitPolicy> {
    let memory = memory?;
    Ok(LimitPolicy {
        enabled: reader.read(&ENABLED)?,
        exempt: reader.read(&EXEMPT)?,
        anonymous_per_address: reader.read(&ANONYMOUS_PER_ADDRESS)?,
        anonymous_per_client: reader.read(&ANONYMOUS_PER_CLIENT)?,
        all_requests: memory.requests,
        all_bodies_kib: memory.bodies_kib,
        counts_kib: memory.counts_kib,
    })
}

/// The limit that is set, or else that of this process.
pub(super) fn memory_limit(reader: &mut Reader<'_>) -> Read<Option<MemoryLimit>> {
    let Some(bytes) = reader.read_if_set(&MEMORY)? else {
        return Ok(reader.sources.memory);
    };
    let origin = LimitOrigin::Setting;
    Ok(Some(MemoryLimit { bytes, origin }))
}

fn parse_memory(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Size(bytes)) if bytes >= LEAST => Ok(bytes),
        Ok(Size(_)) => Err(format!("must be at least {}MiB", LEAST >> 20)),
        Err(problem) => Err(format!(": {problem}")),
    }
}
