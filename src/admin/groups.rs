//! Reads the stored groups, by which users and APIs name them.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::oauth::group::Groups;
use crate::oauth::{Fault, FaultCode};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::GROUPS;

pub(super) fn groups(snapshot: &dyn Snapshot) -> Result<Groups, StoreError> {
    let all = GROUPS.scan(snapshot, .., usize::MAX)?;
    Ok(Groups::new(
        all.into_iter().map(|(name, group)| (name, group.uuid)),
    ))
}

/// The identifiers of the groups with these names. Empty texts are left out, and an unknown name is a fault.
pub(super) fn group_ids<'a>(
    groups: &Groups,
    names: impl IntoIterator<Item = &'a String>,
    faults: &mut Vec<Fault>,
) -> BTreeSet<Uuid> {
    let mut ids = BTreeSet::new();
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        match groups.id_of(name) {
            Some(id) => drop(ids.insert(id)),
            None => faults.push(FaultCode::NotFound.at(["groups"], format!("there is no group {name}"))),
        }
    }
    ids
}
