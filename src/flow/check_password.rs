//! Verifies a password, for every flow that asks for one.

use zeroize::Zeroizing;

use super::Core;
use crate::password::{Busy, PasswordCheck, PasswordHash};

/// Verifies on the pool what was typed. Without a hash, as for an unknown user, it does not match.
///
/// A password that is longer than the operator's policy allows does not match. An empty one is hashed in its place, so that
/// the answer takes as long as any other.
pub async fn check_password(
    core: &Core,
    hash: Option<PasswordHash>,
    typed: Zeroizing<String>,
) -> Result<PasswordCheck, Busy> {
    let is_read = typed.len() <= core.policy.password.max_bytes;
    let typed = if is_read { typed } else { Zeroizing::default() };
    let verdict = core.passwords.verify(hash, typed).await?;
    Ok(PasswordCheck {
        matches: verdict.matches && is_read,
        rehash_needed: verdict.rehash_needed && is_read,
    })
}
