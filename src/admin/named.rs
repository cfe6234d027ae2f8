//! Scope values and groups: add, list, show, update, remove.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::api::apis_with_role_group;
use super::claim::may_be_released;
use super::{
    Admin, AdminError, AdminResult, TxResult, about, all_or_none, already_exists, check_text, not_found,
};
use crate::flow::or_refuse;
use crate::oauth::fields::Form;
use crate::oauth::group::Groups;
use crate::oauth::named::NamedRecord;
use crate::oauth::{Fault, FaultCode, Scope};
pub use crate::oauth::{Group, GroupFields, GroupMetadata, RegisteredScope, ScopeFields, ScopeMetadata};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::table::Table;
use crate::store::tables::{GROUPS, SCOPES};

/// The settings of one kind of record, and the rules of this kind.
pub trait NamedKind:
    Clone + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind of record in faults, and the noun of the commands.
    const KIND: &'static str;
    /// The table.
    const TABLE: Table<String, NamedRecord<Self>>;
    /// The names and forms of the settings.
    const FIELDS: &'static [(&'static str, Form)];
    /// A change of the settings.
    type Fields: Clone + Default + PartialEq + Serialize + DeserializeOwned + Send + 'static;

    /// Applies a change.
    fn apply(&mut self, change: Self::Fields, faults: &mut Vec<Fault>);

    /// Checks the name of a record.
    fn check_name(name: &str, faults: &mut Vec<Fault>);

    /// Checks the settings.
    fn check(&self, faults: &mut Vec<Fault>);

    /// Refuses to remove a record that others need.
    fn check_removal(_: &dyn Snapshot, _: &str) -> TxResult<()> {
        Ok(Ok(()))
    }
}

/// The most claims of one scope value.
const MAX_CLAIMS: usize = 100;
/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 128;

impl NamedKind for ScopeMetadata {
    const KIND: &'static str = "scope";
    const TABLE: Table<String, NamedRecord<Self>> = SCOPES;
    const FIELDS: &'static [(&'static str, Form)] = ScopeFields::FIELDS;
    type Fields = ScopeFields;

    fn apply(&mut self, change: ScopeFields, faults: &mut Vec<Fault>) {
        change.apply(self, faults);
    }

    fn check_name(name: &str, faults: &mut Vec<Fault>) {
        let is_one_value = Scope::of([name]).is_ok() && name.len() <= MAX_NAME_BYTES;
        if !is_one_value {
            let detail = format!(
                "scope {name:?}: use up to {MAX_NAME_BYTES} printable ASCII characters, without spaces, quotes or backslashes"
            );
            faults.push(FaultCode::Invalid.at(["name"], detail));
        }
        if Scope::is_built_in(name) {
            let detail = format!("the value {name} has a meaning of its own, which cannot be changed");
            faults.push(FaultCode::Invalid.at(["name"], detail));
        }
    }

    fn check(&self, faults: &mut Vec<Fault>) {
        if self.claims.len() > MAX_CLAIMS {
            let detail = format!("there are more than {MAX_CLAIMS} claims");
            faults.push(FaultCode::TooMany.at(["claims"], detail));
        }
        for claim in self.claims.iter().filter(|claim| !may_be_released(claim)) {
            let detail = format!("claim {claim:?} is not a claim of a user, or belongs to the service");
            faults.push(FaultCode::Invalid.at(["claims"], detail));
        }
    }
}

impl NamedKind for GroupMetadata {
    const KIND: &'static str = "group";
    const TABLE: Table<String, NamedRecord<Self>> = GROUPS;
    const FIELDS: &'static [(&'static str, Form)] = GroupFields::FIELDS;
    type Fields = GroupFields;

    fn apply(&mut self, change: GroupFields, faults: &mut Vec<Fault>) {
        change.apply(self, faults);
    }

    fn check_name(name: &str, faults: &mut Vec<Fault>) {
        check_text(faults, "name", name);
        if name.trim() != name || name.len() > MAX_NAME_BYTES {
            let detail = format!(
                "group {name:?}: use up to {MAX_NAME_BYTES} bytes, without a space at the start or end"
            );
            faults.push(FaultCode::Invalid.at(["name"], detail));
        }
    }

    fn check(&self, _: &mut Vec<Fault>) {}

    fn check_removal(snapshot: &dyn Snapshot, name: &str) -> TxResult<()> {
        let apis = apis_with_role_group(snapshot, name)?;
        if apis.is_empty() {
            return Ok(Ok(()));
        }
        let detail = format!("the users of group {name} have roles in api {}", apis.join(", "));
        Ok(Err(FaultCode::InUse.of(Self::KIND, name, detail).into()))
    }
}

/// A new record, or a change of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedFields<F> {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub fields: F,
}

/// Adds a record.
pub async fn add<M: NamedKind>(
    admin: Admin<'_>,
    request: NamedFields<M::Fields>,
) -> AdminResult<NamedRecord<M>> {
    let core = admin.core;
    let NamedFields { name, fields } = request;
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let mut record = NamedRecord::<M>::new(&name, uuid, core.clock.now());
    let mut faults = Vec::new();
    M::check_name(&name, &mut faults);
    record.metadata.apply(fields, &mut faults);
    record.metadata.check(&mut faults);
    all_or_none(about(M::KIND, &name, faults).collect())?;
    let added = record.clone();
    let written = core
        .store
        .write(M::KIND, move |tx| -> TxResult<()> {
            if M::TABLE.contains(&*tx, &added.name)? {
                return Ok(Err(already_exists(M::KIND, &added.name).into()));
            }
            M::TABLE.put(tx, &added.name, &added).map(Ok)
        })
        .await;
    core.reload_after::<_, _, AdminError>(written).await??;
    admin.record(&format!("{} add", M::KIND), &name);
    Ok(record)
}

/// Every record, by name.
pub async fn list<M: NamedKind>(admin: Admin<'_>) -> AdminResult<Vec<NamedRecord<M>>> {
    let all = admin
        .core
        .store
        .read(|snapshot| M::TABLE.scan(snapshot, .., usize::MAX))
        .await?;
    Ok(all.into_iter().map(|(_, record)| record).collect())
}

/// One record.
pub async fn show<M: NamedKind>(admin: Admin<'_>, name: &str) -> AdminResult<NamedRecord<M>> {
    let found = admin
        .core
        .store
        .read(|snapshot| M::TABLE.get(snapshot, name))
        .await?;
    Ok(found.ok_or_else(|| not_found(M::KIND, name))?)
}

/// Changes a record.
pub async fn update<M: NamedKind>(
    admin: Admin<'_>,
    request: NamedFields<M::Fields>,
) -> AdminResult<NamedRecord<M>> {
    let core = admin.core;
    let now = core.clock.now();
    let written = core
        .store
        .write(M::KIND, move |tx| -> TxResult<NamedRecord<M>> {
            let name = &request.name;
            let Some(mut record) = M::TABLE.get(&*tx, name)? else {
                return Ok(Err(not_found(M::KIND, name).into()));
            };
            let mut faults = Vec::new();
            record.metadata.apply(request.fields.clone(), &mut faults);
            record.metadata.check(&mut faults);
            or_refuse!(all_or_none(about(M::KIND, name, faults).collect()));
            record.updated_at = now;
            M::TABLE.put(tx, name, &record)?;
            Ok(Ok(record))
        })
        .await;
    let record = core.reload_after::<_, _, AdminError>(written).await??;
    admin.record(&format!("{} update", M::KIND), &record.name);
    Ok(record)
}

/// Removes a record. Clients keep a removed scope value, but it releases nothing. Users keep the identifier of a
/// removed group, which no new group gets.
pub async fn remove<M: NamedKind>(admin: Admin<'_>, name: String) -> AdminResult<String> {
    let core = admin.core;
    let removed = name.clone();
    let written = core
        .store
        .write(M::KIND, move |tx| -> TxResult<()> {
            if !M::TABLE.contains(&*tx, &removed)? {
                return Ok(Err(not_found(M::KIND, &removed).into()));
            }
            or_refuse!(M::check_removal(&*tx, &removed)?);
            M::TABLE.remove(tx, &removed)?;
            Ok(Ok(()))
        })
        .await;
    core.reload_after::<_, _, AdminError>(written).await??;
    admin.record(&format!("{} remove", M::KIND), &name);
    Ok(name)
}

/// The stored groups.
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
