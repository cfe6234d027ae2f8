//! Scope values and groups in a declared state.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Plan, PlannedWrite, export_fields, members, refuse_duplicates};
use crate::admin::named::NamedKind;
use crate::admin::{Admin, about};
use crate::clock::Timestamp;
use crate::oauth::fields::Form;
use crate::oauth::named::NamedRecord;
use crate::oauth::{Fault, Group, GroupMetadata, RegisteredScope, ScopeMetadata};
use crate::store::StoreError;
use crate::store::engine::Snapshot;

/// The key of an entry that is not a setting.
pub const KEYS: &[(&str, Form)] = &[("name", Form::Text)];

/// A declared record. A missing field gets its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeclaredNamed<F> {
    /// The name.
    #[serde(default)]
    pub name: String,
    /// The settings.
    #[serde(flatten)]
    pub fields: F,
}

/// Builds each declared record as if it were new.
pub(super) fn prepare<M: NamedKind>(
    admin: Admin<'_>,
    declared: Vec<DeclaredNamed<M::Fields>>,
    faults: &mut Vec<Fault>,
) -> Vec<NamedRecord<M>> {
    let (core, now) = (admin.core, admin.core.clock.now());
    refuse_duplicates(M::KIND, declared.iter().map(|entry| entry.name.clone()), faults);
    let mut all = Vec::new();
    for entry in declared {
        let mut own = Vec::new();
        let uuid = core.random.uuid_v7(core.clock.since_epoch());
        let mut record = NamedRecord::<M>::new(&entry.name, uuid, now);
        M::check_name(&entry.name, &mut own);
        record.metadata.apply(entry.fields, &mut own);
        record.metadata.check(&mut own);
        faults.extend(about(M::KIND, &entry.name, own));
        all.push(record);
    }
    all
}

/// A kind of record that a file can declare.
pub(super) trait DeclaredKind: NamedKind {
    /// The write that stores a record.
    fn put(record: NamedRecord<Self>) -> PlannedWrite;

    /// The write that removes a record.
    fn remove(name: String) -> PlannedWrite;
}

impl DeclaredKind for ScopeMetadata {
    fn put(scope: RegisteredScope) -> PlannedWrite {
        PlannedWrite::PutScope(Box::new(scope))
    }

    fn remove(name: String) -> PlannedWrite {
        PlannedWrite::RemoveScope(name)
    }
}

impl DeclaredKind for GroupMetadata {
    fn put(group: Group) -> PlannedWrite {
        PlannedWrite::PutGroup(Box::new(group))
    }

    fn remove(name: String) -> PlannedWrite {
        PlannedWrite::RemoveGroup(name)
    }
}

/// Plans the changes to the declared records.
pub(super) fn plan<M: DeclaredKind>(
    snapshot: &dyn Snapshot,
    declared: &[NamedRecord<M>],
    prune: bool,
    now: Timestamp,
    plan: &mut Plan,
) -> Result<(), StoreError> {
    for record in declared {
        let before = M::TABLE.get(snapshot, &record.name)?;
        if before
            .as_ref()
            .is_some_and(|before| before.metadata == record.metadata)
        {
            plan.applied.unchanged += 1;
            continue;
        }
        let mut after = record.clone();
        after.updated_at = now;
        if let Some(before) = &before {
            (after.uuid, after.created_at) = (before.uuid, before.created_at);
        }
        let then = before.as_ref().map(export);
        plan.note(M::KIND, &after.name, then.as_ref(), Some(&export(&after)));
        plan.writes.push(M::put(after));
    }
    if prune {
        for (name, _) in M::TABLE.scan(snapshot, .., usize::MAX)? {
            if declared.iter().all(|record| record.name != name) {
                plan.note(M::KIND, &name, Some(&Map::new()), None);
                plan.writes.push(M::remove(name));
            }
        }
    }
    Ok(())
}

/// A record as an entry of a file.
pub(super) fn export<M: NamedKind>(record: &NamedRecord<M>) -> Map<String, Value> {
    let mut entry = export_fields(&record.metadata, &members(&M::default()), M::FIELDS);
    entry.insert("name".to_owned(), json!(record.name));
    entry
}
