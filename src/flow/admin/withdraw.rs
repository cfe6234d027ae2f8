//! What was granted ends with what it stood on.

use crate::clock::Timestamp;
use crate::flow::sessions;
use crate::identity::Factor;
use crate::oauth::code::Authorization;
use crate::store::StoreError;
use crate::store::backend::Tx;
use crate::store::tables::{FAMILIES, SESSIONS};

/// Ends the refresh families of these authorizations and forgets their codes. Looks at every row of these tables: no
/// index is kept for what happens once in the life of a client or a provider.
pub(super) fn end_grants(
    tx: &mut dyn Tx,
    is_meant: impl Fn(&Authorization) -> bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    let families = FAMILIES.keys_where(&*tx, |_, family| {
        family.revoked_at.is_none() && is_meant(&family.authorization)
    });
    for id in families? {
        sessions::end_family(tx, id, now)?;
    }
    sessions::forget_codes(tx, is_meant)
}

/// Ends everything that stands on the word of a provider: sessions, refresh families and codes. Its name may become
/// that of another one, whose word was never given for any of it.
pub(super) fn end_vouched(tx: &mut dyn Tx, provider: &str, now: Timestamp) -> Result<(), StoreError> {
    let is_vouched = |factor: &Factor| factor.provider() == Some(provider);
    for id in SESSIONS.keys_where(&*tx, |_, session| is_vouched(&session.factor))? {
        if let Some(session) = SESSIONS.get(&*tx, &id)? {
            sessions::end(tx, id, &session, now)?;
        }
    }
    end_grants(tx, |authorization| is_vouched(&authorization.factor), now)
}
