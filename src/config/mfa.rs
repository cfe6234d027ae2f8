//! The settings for second factors.

use std::time::Duration;

use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use crate::identity::SecondFactorRule;

pub(super) const REQUIRE: Setting = setting(
    "mfa.require",
    Kind::Text,
    (
        "WHO",
        "Who needs a second factor to sign in: off, password-users or all",
    ),
    Some(r#""off""#),
    r#""password-users""#,
    "Who needs a second factor to sign in: off for nobody, password-users for users who sign in with a password or by a\n\
     mail, all for users of other providers as well. A user without one sets it up at the next sign-in.",
);

pub(super) const REMEMBER_DEVICE: Setting = setting(
    "mfa.remember_device",
    Kind::Duration,
    (
        "TIME",
        "How many days a browser may go without the second step, as in 30d, or off",
    ),
    Some(r#""off""#),
    r#""30d""#,
    "For how many whole days a browser is not asked for the second step again, if the user checks the box there; off for\n\
     never. Such a sign-in has acr 1. If an application or client --acr demands two factors, the second step is asked for.",
);

/// Who has to have a second factor.
pub(super) fn rule(reader: &mut Reader<'_>) -> SecondFactorRule {
    match reader.one_of(REQUIRE.key, &["off", "password-users", "all"]) {
        Some("password-users") => SecondFactorRule::PasswordUsers,
        Some("all") => SecondFactorRule::All,
        _ => SecondFactorRule::Off,
    }
}

const DAY: Duration = Duration::from_hours(24);

/// How long a browser may go without the second step.
pub(super) fn remember_device(reader: &mut Reader<'_>) -> Option<Duration> {
    let (lifetime, origin) = reader.duration_or_off(REMEMBER_DEVICE.key)?;
    let days = lifetime.as_secs() / DAY.as_secs();
    if !(1..=365).contains(&days) || lifetime.as_secs() % DAY.as_secs() != 0 {
        let message = format!("{} must be 1d to 365d in whole days, or off", REMEMBER_DEVICE.key);
        reader.fault(&origin, message);
    }
    Some(lifetime)
}
