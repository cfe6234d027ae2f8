//! Verifies a password, for all flows that ask for one.

use zeroize::Zeroizing;

use super::{Core, Failure};
use crate::identity::User;
use crate::limit::password_attempt::PasswordAttempt;
use crate::password::{NotComputed, PasswordCheck, PasswordHash};
use crate::text;

/// Verifies a typed password on the password threads. Without a hash, as for an unknown user, it does not match.
///
/// A password that is longer than the policy allows does not match. An empty one is hashed instead, so that the
/// answer takes as long as any other.
pub async fn check_password(
    core: &Core,
    hash: Option<PasswordHash>,
    typed: Zeroizing<String>,
    attempt: PasswordAttempt,
) -> Result<PasswordCheck, NotComputed> {
    let fits = text::opaque_string(&typed).len() <= core.policy.password.max_bytes;
    let typed = if fits { typed } else { Zeroizing::default() };
    let verdict = core.passwords.verify(hash, typed, attempt).await?;
    Ok(PasswordCheck {
        matches: verdict.matches && fits,
        rehash_needed: verdict.rehash_needed && fits,
    })
}

/// Whether this is the present password of a user who has chosen it as the new one.
pub(super) async fn is_present_password(
    core: &Core,
    user: &User,
    chosen: &Zeroizing<String>,
) -> Result<bool, Failure> {
    let attempt = PasswordAttempt::trusted();
    let check = check_password(core, user.password.clone(), chosen.clone(), attempt).await?;
    Ok(check.matches)
}
