//! A typed password is compared with a user's, for every flow that asks for one.

use zeroize::Zeroizing;

use super::Core;
use crate::password::{Busy, PasswordHash, Verdict};

/// Checks what was typed on the pool. Without a hash, as for an unknown user, the answer is no.
///
/// More bytes than the operator's policy reads are no password of anybody: they are not hashed, and an empty
/// text is in their place, so that the answer takes the time of any other wrong one.
pub async fn check_password(
    core: &Core,
    hash: Option<PasswordHash>,
    typed: Zeroizing<String>,
) -> Result<Verdict, Busy> {
    let is_read = typed.len() <= core.policy.password.max_bytes;
    let typed = if is_read { typed } else { Zeroizing::default() };
    let verdict = core.passwords.verify(hash, typed).await?;
    Ok(Verdict {
        matches: verdict.matches && is_read,
        rehash_needed: verdict.rehash_needed && is_read,
    })
}
