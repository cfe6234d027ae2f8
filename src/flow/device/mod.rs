//! Devices that people allow on another device: RFC 8628. The device redeems its code in
//! [`crate::flow::token::device_code`].
//!
//! The device polls the token endpoint with its device code, and a person types the user code at `/device`. [`find`] begins
//! the sign-in, and `http/screen/device` asks for the decision. [`decide`] writes it to the
//! [`DeviceAuthorization`](crate::oauth::device::DeviceAuthorization), and the next poll redeems it. The session of the browser
//! is not a part of the grant.

pub mod authorize;
pub mod decide;
pub mod find;

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::oauth::code::Authorization;
use crate::oauth::device::{DeviceAuthorization, DeviceDecision, RETENTION, StoredUserCode, UserCode};
use crate::oauth::policy::Policy;
use crate::seal::Sealer;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::{
    DEVICE_AUTHORIZATIONS, DEVICE_AUTHORIZATIONS_BY_USER, DEVICE_AUTHORIZATIONS_BY_USER_CODE,
};

/// Removes a device authorization and its index rows.
fn forget(tx: &mut dyn Tx, id: Uuid, authorization: &DeviceAuthorization) -> Result<(), StoreError> {
    free_user_code(tx, id, authorization)?;
    if let DeviceDecision::Allowed(authorization) = &authorization.decision {
        DEVICE_AUTHORIZATIONS_BY_USER.remove(tx, &(authorization.user, id))?;
    }
    DEVICE_AUTHORIZATIONS.remove(tx, &id).map(|_| ())
}

/// Removes device authorizations that expired some time ago, at most `limit`. Returns how many.
pub(super) fn forget_expired(
    tx: &mut dyn Tx,
    limit: usize,
    policy: &Policy,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let first_kept = (now - (policy.lifetimes.device_code + RETENTION)).first_id();
    let old = DEVICE_AUTHORIZATIONS.scan(&*tx, ..first_kept, limit)?;
    for (id, authorization) in &old {
        forget(tx, *id, authorization)?;
    }
    Ok(old.len())
}

/// What is stored of a user code.
fn stored_user_code(sealer: &Sealer, user_code: &UserCode) -> StoredUserCode {
    StoredUserCode::new(sealer.pseudonym("user code", user_code.as_str().as_bytes()))
}

/// Removes the user code from the index, unless another device got it since.
fn free_user_code(tx: &mut dyn Tx, id: Uuid, authorization: &DeviceAuthorization) -> Result<(), StoreError> {
    let user_code = authorization.user_code.as_str();
    if DEVICE_AUTHORIZATIONS_BY_USER_CODE.get(&*tx, user_code)? == Some(id) {
        DEVICE_AUTHORIZATIONS_BY_USER_CODE.remove(tx, user_code)?;
    }
    Ok(())
}

/// Removes the device codes that a user has allowed and that match, and returns whether there were any.
pub(super) fn forget_allowed(
    tx: &mut dyn Tx,
    user: Uuid,
    matches: impl Fn(&Authorization) -> bool,
) -> Result<bool, StoreError> {
    let mut is_any = false;
    for ((_, id), ()) in DEVICE_AUTHORIZATIONS_BY_USER.scan_prefix(&*tx, &user, usize::MAX)? {
        if let Some(authorization) = DEVICE_AUTHORIZATIONS.get(&*tx, &id)?
            && let DeviceDecision::Allowed(granted) = &authorization.decision
            && matches(granted)
        {
            forget(tx, id, &authorization)?;
            is_any = true;
        }
    }
    Ok(is_any)
}
