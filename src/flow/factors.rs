//! The factors of a user: read in one range, and bounded in number.

use uuid::Uuid;

use crate::identity::Factor;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::FACTORS;

/// The most factors of one user. A sign-in reads all of them.
pub const MAX_PER_USER: usize = 20;

/// The factors of a user, in the order in which they were added.
pub fn of_user(snapshot: &dyn Snapshot, user: Uuid) -> Result<Vec<(Uuid, Factor)>, StoreError> {
    let rows = FACTORS.scan_prefix(snapshot, &user, usize::MAX)?;
    Ok(rows.into_iter().map(|((_, id), factor)| (id, factor)).collect())
}

/// Adds a factor. Returns whether there was room.
pub fn add(tx: &mut dyn Tx, user: Uuid, id: Uuid, factor: &Factor) -> Result<bool, StoreError> {
    if of_user(&*tx, user)?.len() >= MAX_PER_USER {
        return Ok(false);
    }
    FACTORS.put(tx, &(user, id), factor)?;
    Ok(true)
}

/// Removes all factors of a user, and returns them.
pub fn remove_all(tx: &mut dyn Tx, user: Uuid) -> Result<Vec<(Uuid, Factor)>, StoreError> {
    let factors = of_user(&*tx, user)?;
    for (id, _) in &factors {
        FACTORS.remove(tx, &(user, *id))?;
    }
    Ok(factors)
}
