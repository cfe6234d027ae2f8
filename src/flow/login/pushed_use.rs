//! Records that a pushed request was answered: it may be used once (RFC 9126 section 7.3).

use crate::oauth::login::{LoginPurpose, LoginRecord};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::USED_ASSERTIONS;

/// Whether a pushed request was answered in another sign-in than the one with this record (RFC 9126 section 7.3).
pub(super) fn is_answered_elsewhere(
    snapshot: &dyn Snapshot,
    purpose: &LoginPurpose,
    record: &LoginRecord,
) -> Result<bool, StoreError> {
    match purpose.use_key() {
        Some(key) if record.answered_at.is_none() => {
            USED_ASSERTIONS.contains(snapshot, &(key.hour, key.random))
        }
        _ => Ok(false),
    }
}

/// Records that a pushed request was answered.
pub(super) fn record_answer(tx: &mut dyn Tx, purpose: &LoginPurpose) -> Result<(), StoreError> {
    match purpose.use_key() {
        Some(key) => USED_ASSERTIONS.put(tx, &(key.hour, key.random), &()),
        None => Ok(()),
    }
}
