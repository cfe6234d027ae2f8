//! The setting for who has to have a second factor.

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

/// Who has to have a second factor.
pub(super) fn rule(reader: &mut Reader<'_>) -> SecondFactorRule {
    match reader.one_of(REQUIRE.key, &["off", "password-users", "all"]) {
        Some("password-users") => SecondFactorRule::PasswordUsers,
        Some("all") => SecondFactorRule::All,
        _ => SecondFactorRule::Off,
    }
}
