//! Whose a passkey is: an index by credential id, for responses that do not name their user.
//!
//! Earlier releases had no index. [`complete`] adds the passkeys that were there before, once. A node of an earlier
//! release may add a passkey after that. Such a passkey is found if the response names its user, and its use adds it to
//! the index.

use std::ops::Bound;

use ring::digest;
use uuid::Uuid;

use super::{Core, Failure};
use crate::identity::{Factor, FactorKind};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::schema::{meta_get, meta_put};
use crate::store::tables::{FACTORS, USERS_BY_PASSKEY};

/// The store's own value that says that all passkeys are in the index.
const IS_COMPLETE: &str = "passkey_index";

/// The factors that are read in one transaction.
const PAGE_FACTORS: usize = 500;

/// The most users whose factors are read for one credential id. An authenticator makes an id for one user, so the
/// others copied it.
const MOST_USERS: usize = 8;

/// The first half of the SHA-256.
pub(super) fn half_digest(bytes: &[u8]) -> Uuid {
    let digest = digest::digest(&digest::SHA256, bytes);
    let half = digest.as_ref().first_chunk().copied().unwrap_or_default();
    Uuid::from_bytes(half)
}

/// Adds a factor of this user, if it is a passkey.
pub(super) fn insert(tx: &mut dyn Tx, user: Uuid, factor: &Factor) -> Result<(), StoreError> {
    match &factor.kind {
        FactorKind::Passkey(passkey) => {
            USERS_BY_PASSKEY.put(tx, &(half_digest(&passkey.credential_id), user), &())
        }
        _ => Ok(()),
    }
}

/// Removes a factor of this user, if it is a passkey.
pub(super) fn remove(tx: &mut dyn Tx, user: Uuid, factor: &Factor) -> Result<(), StoreError> {
    if let FactorKind::Passkey(passkey) = &factor.kind {
        USERS_BY_PASSKEY.remove(tx, &(half_digest(&passkey.credential_id), user))?;
    }
    Ok(())
}

/// The users who may have a passkey with this credential id.
pub(super) fn candidates(snapshot: &dyn Snapshot, credential_id: &[u8]) -> Result<Vec<Uuid>, StoreError> {
    let rows = USERS_BY_PASSKEY.scan_prefix(snapshot, &half_digest(credential_id), MOST_USERS)?;
    Ok(rows.into_iter().map(|((_, user), ())| user).collect())
}

/// Whether as many users have a passkey with this credential id as [`candidates`] reads. One more could hide another.
pub(super) fn is_full(snapshot: &dyn Snapshot, credential_id: &[u8]) -> Result<bool, StoreError> {
    Ok(candidates(snapshot, credential_id)?.len() >= MOST_USERS)
}

/// Adds all passkeys, unless that was done before.
pub(super) async fn build(core: &Core) -> Result<(), Failure> {
    let is_complete = |snapshot: &dyn Snapshot| -> Result<_, StoreError> {
        let is_marked = meta_get(snapshot, IS_COMPLETE)?.is_some();
        Ok(is_marked || FACTORS.scan(snapshot, .., 1)?.is_empty())
    };
    if core.store.read(is_complete).await? {
        return Ok(());
    }
    let mut last = None;
    loop {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let add_page = move |tx: &mut dyn Tx| -> Result<_, StoreError> {
            let factors = FACTORS.scan(&*tx, (from, Bound::Unbounded), PAGE_FACTORS)?;
            for ((user, _), factor) in &factors {
                insert(tx, *user, factor)?;
            }
            if factors.len() < PAGE_FACTORS {
                meta_put(tx, IS_COMPLETE, "1")?;
            }
            Ok(factors
                .last()
                .map(|(key, _)| *key)
                .filter(|_| factors.len() == PAGE_FACTORS))
        };
        last = core.store.write("passkey_index", add_page).await?;
        if last.is_none() {
            return Ok(());
        }
    }
}
