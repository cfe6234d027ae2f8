//! How much of the audit is kept.

use std::time::Duration;

use super::form::{Number, Time, TimeOrOff};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};

pub(super) const SETTINGS: &[&Setting] = &[&KEEP, &TOKENS, &MAX_MIB];

pub(super) static KEEP: Setting<TimeOrOff> = Setting {
    key: "events.keep",
    doc: "How long events other than routine ones are kept in the data directory. off for as long as there is room.",
    default: Some(Literal::Text("365d")),
    example: Literal::Text("90d"),
    value_name: "TIME",
    help: Some("How long security events are kept"),
    form: TimeOrOff(Time::at_least(Duration::from_hours(1))),
};

pub(super) static TOKENS: Setting<TimeOrOff> = Setting {
    key: "events.tokens",
    doc: "How long routine events are kept: each issue of tokens, and anonymous users that come and go. off for none.",
    default: Some(Literal::Text("7d")),
    example: Literal::Text("off"),
    value_name: "TIME",
    help: Some("How long routine events are kept, or off"),
    form: TimeOrOff(Time::at_least(Duration::from_hours(1))),
};

pub(super) static MAX_MIB: Setting<Number<u64>> = Setting {
    key: "events.max_mib",
    doc: "The most MiB of events: half for routine events, unless events.tokens is off, and the rest for all others.",
    default: Some(Literal::Number(128)),
    example: Literal::Number(1024),
    value_name: "COUNT",
    help: Some("How many MiB of events are kept"),
    form: Number::within(1, 65_536),
};

/// How many events are kept in the data directory.
#[derive(Clone, Debug)]
pub struct EventRetention {
    /// The most bytes of events. Security events and routine events have half of them each; without routine events,
    /// security events have all.
    pub max_bytes: u64,
    /// How long security events are kept; without a bound if none.
    pub keep: Option<Duration>,
    /// How long routine events are kept; none to keep no routine events.
    pub routine: Option<Duration>,
}

pub(super) fn events(reader: &mut Reader<'_>) -> Read<EventRetention> {
    reader.check(SETTINGS);
    Ok(EventRetention {
        max_bytes: reader.read(&MAX_MIB)? << 20,
        keep: reader.read(&KEEP)?,
        routine: reader.read(&TOKENS)?,
    })
}
