//! The settings for second factors.

use std::time::Duration;

use super::form::{Time, TimeOrOff, Words};
use super::setting::{Literal, Setting};
use crate::identity::SecondFactorRule;

const DAY: Duration = Duration::from_hours(24);

pub(super) const SETTINGS: &[&Setting] = &[&REQUIRE, &REMEMBER_DEVICE];

pub(super) static REQUIRE: Setting<Words<SecondFactorRule>> = Setting {
    key: "mfa.require",
    doc: "Who needs a second factor to sign in: off for nobody, password-users for users who sign in with a password or by a\n\
     mail, all for users of other providers as well. A user without one sets it up at the next sign-in.",
    default: Some(Literal::Text("off")),
    example: Literal::Text("password-users"),
    value_name: "WHO",
    help: Some("Who needs a second factor to sign in: off, password-users or all"),
    form: Words(&[
        ("off", SecondFactorRule::Off),
        ("password-users", SecondFactorRule::PasswordUsers),
        ("all", SecondFactorRule::All),
    ]),
};

pub(super) static REMEMBER_DEVICE: Setting<TimeOrOff> = Setting {
    key: "mfa.remember_device",
    doc: "For how many whole days a browser is not asked for the second step again, if the user checks the box there; off for\n\
     never. Such a sign-in has acr 1. If an application or client --acr demands two factors, the second step is asked for.",
    default: Some(Literal::Text("off")),
    example: Literal::Text("30d"),
    value_name: "TIME",
    help: Some("How many days a browser may go without the second step, as in 30d, or off"),
    form: TimeOrOff(Time::within(DAY, Duration::from_hours(24 * 365)).in_whole_days()),
};
