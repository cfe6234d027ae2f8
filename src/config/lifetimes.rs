//! The settings for how long things last.

use std::time::Duration;

use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use crate::identity::SessionLifetimes;
use crate::oauth::policy::Lifetimes;
use crate::oauth::{code, device};

pub(super) const DEVICE_CODE: Setting = setting(
    "lifetimes.device_code",
    Kind::Duration,
    ("TIME", "How long device codes last"),
    Some(r#""10m""#),
    r#""15m""#,
    "The time in which a person may allow a device that shows a code (RFC 8628); at most 30 minutes.",
);

/// How long things last.
pub(super) fn lifetimes(reader: &mut Reader<'_>) -> Lifetimes {
    const SECOND: Duration = Duration::from_secs(1);
    const YEAR: Duration = Duration::from_hours(365 * 24);
    let refresh_absolute = reader
        .duration_or_off("lifetimes.refresh_absolute")
        .map(|(bound, _)| bound);
    let is_bound_set = reader.value("lifetimes.refresh_absolute").is_some();
    let lifetimes = Lifetimes {
        access_token: reader.duration("lifetimes.access_token", SECOND),
        refresh_token: reader.duration("lifetimes.refresh_token", SECOND),
        refresh_absolute,
        refresh_absolute_public: if is_bound_set {
            refresh_absolute
        } else {
            Some(YEAR)
        },
        code: reader.duration("lifetimes.code", SECOND),
        device_code: reader.duration(DEVICE_CODE.key, SECOND),
        pushed_request: reader.duration("lifetimes.par", SECOND),
        id_token: reader.duration("lifetimes.id_token", SECOND),
        login_transaction: reader.duration("lifetimes.login_transaction", SECOND),
        session: SessionLifetimes {
            idle: reader.duration("lifetimes.session_idle", SECOND),
            absolute: reader.duration("lifetimes.session_absolute", SECOND),
        },
    };
    if lifetimes.code > code::LONGEST_LIFETIME {
        reader.fault_at(
            "lifetimes.code",
            "lifetimes.code must be at most ten minutes (RFC 6749 section 4.1.2)",
        );
    }
    if lifetimes.device_code > device::LONGEST_LIFETIME {
        let message = "lifetimes.device_code must be at most 30 minutes";
        reader.fault_at(DEVICE_CODE.key, message);
    }
    lifetimes
}
