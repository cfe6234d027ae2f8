//! How long things last.

use std::time::Duration;

use super::form::{Time, TimeOrOff};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::identity::SessionLifetimes;
use crate::oauth::policy::Lifetimes;
use crate::oauth::{code, device};

const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_hours(365 * 24);

pub(super) const SETTINGS: &[&Setting] = &[
    &ACCESS_TOKEN,
    &REFRESH_TOKEN,
    &REFRESH_ABSOLUTE,
    &CODE,
    &DEVICE_CODE,
    &PUSHED_REQUEST,
    &ID_TOKEN,
    &SESSION_IDLE,
    &SESSION_ABSOLUTE,
    &LOGIN_TRANSACTION,
];

pub(super) static ACCESS_TOKEN: Setting<Time> = Setting {
    key: "lifetimes.access_token",
    doc: "Access tokens.",
    default: Some(Literal::Text("24h")),
    example: Literal::Text("1h"),
    value_name: "TIME",
    help: Some("How long access tokens last"),
    form: Time::at_least(SECOND),
};

pub(super) static REFRESH_TOKEN: Setting<Time> = Setting {
    key: "lifetimes.refresh_token",
    doc: "Refresh tokens, counted from the newest one. One that stays the same counts from its last use.",
    default: Some(Literal::Text("90d")),
    example: Literal::Text("30d"),
    value_name: "TIME",
    help: Some("How long refresh tokens last"),
    form: Time::at_least(SECOND),
};

pub(super) static REFRESH_ABSOLUTE: Setting<TimeOrOff> = Setting {
    key: "lifetimes.refresh_absolute",
    doc: "How long one sign-in can be refreshed in all; off for no bound.\n\
         Left out: a year for public clients, no bound for the others.",
    default: None,
    example: Literal::Text("365d"),
    value_name: "TIME",
    help: Some("How long a sign-in can be refreshed in all"),
    form: TimeOrOff(Time::any()),
};

pub(super) static CODE: Setting<Time> = Setting {
    key: "lifetimes.code",
    doc: "Authorization codes; at most ten minutes (RFC 6749 section 4.1.2).",
    default: Some(Literal::Text("60s")),
    example: Literal::Text("60s"),
    value_name: "TIME",
    help: Some("How long authorization codes last"),
    form: Time::within(SECOND, code::LONGEST_LIFETIME),
};

pub(super) static DEVICE_CODE: Setting<Time> = Setting {
    key: "lifetimes.device_code",
    doc: "The time in which a person may allow a device that shows a code (RFC 8628); at most 30 minutes.",
    default: Some(Literal::Text("10m")),
    example: Literal::Text("15m"),
    value_name: "TIME",
    help: Some("How long device codes last"),
    form: Time::within(SECOND, device::LONGEST_LIFETIME),
};

pub(super) static PUSHED_REQUEST: Setting<Time> = Setting {
    key: "lifetimes.par",
    doc: "The time in which a browser may come with a pushed authorization request (RFC 9126 section 2.2).",
    default: Some(Literal::Text("60s")),
    example: Literal::Text("60s"),
    value_name: "TIME",
    help: Some("How long a pushed authorization request is good"),
    form: Time::at_least(SECOND),
};

pub(super) static ID_TOKEN: Setting<Time> = Setting {
    key: "lifetimes.id_token",
    doc: "ID tokens.",
    default: Some(Literal::Text("1h")),
    example: Literal::Text("1h"),
    value_name: "TIME",
    help: Some("How long ID tokens last"),
    form: Time::at_least(SECOND),
};

pub(super) static SESSION_IDLE: Setting<Time> = Setting {
    key: "lifetimes.session_idle",
    doc: "Browser sessions without use.",
    default: Some(Literal::Text("12h")),
    example: Literal::Text("12h"),
    value_name: "TIME",
    help: Some("How long sessions last without use"),
    form: Time::at_least(SECOND),
};

pub(super) static SESSION_ABSOLUTE: Setting<Time> = Setting {
    key: "lifetimes.session_absolute",
    doc: "Browser sessions in any case.",
    default: Some(Literal::Text("7d")),
    example: Literal::Text("7d"),
    value_name: "TIME",
    help: Some("How long sessions last in any case"),
    form: Time::at_least(SECOND),
};

pub(super) static LOGIN_TRANSACTION: Setting<Time> = Setting {
    key: "lifetimes.login_transaction",
    doc: "A sign-in under way.",
    default: Some(Literal::Text("30m")),
    example: Literal::Text("30m"),
    value_name: "TIME",
    help: Some("How long a sign-in may take"),
    form: Time::at_least(SECOND),
};

pub(super) fn lifetimes(reader: &mut Reader<'_>) -> Read<Lifetimes> {
    reader.check(SETTINGS);
    let refresh_absolute = reader.read_if_set(&REFRESH_ABSOLUTE)?;
    Ok(Lifetimes {
        access_token: reader.read(&ACCESS_TOKEN)?,
        refresh_token: reader.read(&REFRESH_TOKEN)?,
        refresh_absolute: refresh_absolute.flatten(),
        refresh_absolute_public: refresh_absolute.unwrap_or(Some(YEAR)),
        code: reader.read(&CODE)?,
        device_code: reader.read(&DEVICE_CODE)?,
        pushed_request: reader.read(&PUSHED_REQUEST)?,
        id_token: reader.read(&ID_TOKEN)?,
        login_transaction: reader.read(&LOGIN_TRANSACTION)?,
        session: SessionLifetimes {
            idle: reader.read(&SESSION_IDLE)?,
            absolute: reader.read(&SESSION_ABSOLUTE)?,
        },
    })
}
