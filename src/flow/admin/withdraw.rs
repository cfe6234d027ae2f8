//! What was granted ends with what it stood on.

use std::ops::ControlFlow;

use crate::clock::Timestamp;
use crate::flow::sessions;
use crate::oauth::code::Authorization;
use crate::store::StoreError;
use crate::store::backend::Tx;
use crate::store::tables::{CODES, FAMILIES, SESSIONS};

/// Ends the refresh families of these authorizations and forgets their codes. Looks at every row of these tables: no
/// index is kept for what happens once in the life of a client or a provider.
pub(super) fn end_grants(
    tx: &mut dyn Tx,
    is_meant: impl Fn(&Authorization) -> bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut families = Vec::new();
    FAMILIES.visit(&*tx, .., |id, family| {
        if family.revoked_at.is_none() && is_meant(&family.authorization) {
            families.push(id);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for id in families {
        sessions::end_family(tx, id, now)?;
    }
    let mut codes = Vec::new();
    CODES.visit(&*tx, .., |id, code| {
        if is_meant(&code.authorization) {
            codes.push(id);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for id in codes {
        CODES.remove(tx, &id)?;
    }
    Ok(())
}

/// Ends everything that stands on the word of a provider: sessions, refresh families and codes. Its name may become
/// that of another one, whose word was never given for any of it.
pub(super) fn end_vouched(tx: &mut dyn Tx, provider: &str, now: Timestamp) -> Result<(), StoreError> {
    let mut vouched = Vec::new();
    SESSIONS.visit(&*tx, .., |id, session| {
        if session.factor.provider() == Some(provider) {
            vouched.push((id, session));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for (id, session) in vouched {
        sessions::end(tx, id, &session, now)?;
    }
    end_grants(
        tx,
        |authorization| authorization.factor.provider() == Some(provider),
        now,
    )
}
