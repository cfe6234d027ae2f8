//! Records that are a name and settings: what the operations of scope values and groups have in common.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::operation::{Done, Operation};
use super::updated::Updated;
use super::{Admin, AdminResult, AdminTxError, about, all_or_none, already_exists, not_found};
use crate::oauth::Fault;
use crate::oauth::fields::Form;
use crate::oauth::named::NamedRecord;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::table::Table;

/// The settings of one kind of record, and the rules of this kind.
pub(crate) trait NamedKind:
    Clone + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind of record in faults, and the noun of the commands.
    const KIND: &'static str;
    const TABLE: Table<String, NamedRecord<Self>>;
    /// The names and forms of the settings.
    const FIELDS: &'static [(&'static str, Form)];
    /// A change of the settings.
    type Fields: Clone + Default + PartialEq + Serialize + DeserializeOwned + Send + 'static;

    fn apply(&mut self, change: Self::Fields, faults: &mut Vec<Fault>);

    /// Checks the name of a record.
    fn check_name(name: &str, faults: &mut Vec<Fault>);

    /// The form in which names are compared.
    fn form(name: &str) -> String {
        name.to_owned()
    }

    /// Checks the settings.
    fn check(&self, faults: &mut Vec<Fault>);

    /// Refuses to remove a record that others need.
    fn check_removal(_: &dyn Snapshot, _: &str) -> Result<(), AdminTxError> {
        Ok(())
    }
}

/// The record with this name, or with another form of it.
pub(super) fn find<M: NamedKind>(
    snapshot: &dyn Snapshot,
    name: &str,
) -> Result<Option<NamedRecord<M>>, StoreError> {
    if let Some(exact) = M::TABLE.get(snapshot, name)? {
        return Ok(Some(exact));
    }
    let form = M::form(name);
    let all = M::TABLE.scan(snapshot, .., usize::MAX)?;
    let mut records = all.into_iter().map(|(_, record)| record);
    Ok(records.find(|record| M::form(&record.name) == form))
}

/// The longest name, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 128;

/// Adds a record.
pub(super) async fn add<O: Operation, M: NamedKind>(
    admin: Admin<'_>,
    name: String,
    fields: M::Fields,
) -> AdminResult<Done<NamedRecord<M>>> {
    let core = admin.core;
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let mut record = NamedRecord::<M>::new(&name, uuid, core.clock.now());
    let mut faults = Vec::new();
    M::check_name(&name, &mut faults);
    record.metadata.apply(fields, &mut faults);
    record.metadata.check(&mut faults);
    all_or_none(about(M::KIND, &name, faults).collect())?;
    let added = record.clone();
    let write = admin.write_catalog(O::NAME, move |tx| {
        if let Some(existing) = find::<M>(&*tx, &added.name)? {
            return Err(already_exists(M::KIND, &existing.name).into());
        }
        Ok(M::TABLE.put(tx, &added.name, &added)?)
    });
    write.await?;
    Ok(Done::about(name, record))
}

pub(super) async fn list<M: NamedKind>(admin: Admin<'_>) -> AdminResult<Done<Vec<NamedRecord<M>>>> {
    let all = admin
        .core
        .store
        .read(|snapshot| M::TABLE.scan(snapshot, .., usize::MAX))
        .await?;
    Ok(Done::unrecorded(
        all.into_iter().map(|(_, record)| record).collect(),
    ))
}

pub(super) async fn show<M: NamedKind>(admin: Admin<'_>, name: &str) -> AdminResult<Done<NamedRecord<M>>> {
    let found = admin
        .core
        .store
        .read(|snapshot| find::<M>(snapshot, name))
        .await?;
    Ok(Done::unrecorded(found.ok_or_else(|| not_found(M::KIND, name))?))
}

/// Changes a record.
pub(super) async fn update<O: Operation, M: NamedKind>(
    admin: Admin<'_>,
    name: String,
    fields: M::Fields,
) -> AdminResult<Done<Updated<NamedRecord<M>>>> {
    let now = admin.core.clock.now();
    let write = admin.write_catalog(O::NAME, move |tx| {
        let Some(before) = find::<M>(&*tx, &name)? else {
            return Err(not_found(M::KIND, &name).into());
        };
        let mut record = before.clone();
        let mut faults = Vec::new();
        record.metadata.apply(fields.clone(), &mut faults);
        record.metadata.check(&mut faults);
        all_or_none(about(M::KIND, &name, faults).collect())?;
        record.updated_at = now;
        M::TABLE.put(tx, &record.name, &record)?;
        Ok([before, record])
    });
    let [before, record] = write.await?;
    let updated = Updated::of(&before, record, M::FIELDS);
    Ok(Done::about(updated.name.clone(), updated))
}

/// Removes a record.
pub(super) async fn remove<O: Operation, M: NamedKind>(
    admin: Admin<'_>,
    name: String,
) -> AdminResult<Done<()>> {
    let write = admin.write_catalog(O::NAME, move |tx| {
        let Some(removed) = find::<M>(&*tx, &name)? else {
            return Err(not_found(M::KIND, &name).into());
        };
        M::check_removal(&*tx, &removed.name)?;
        M::TABLE.remove(tx, &removed.name)?;
        Ok(removed.name)
    });
    let name = write.await?;
    Ok(Done::about(name, ()))
}
