//! Scope values and groups in a declared state.

use serde::{Deserialize, Serialize};

use super::plan::{Comparison, Entry};
use super::refuse_duplicates;
use super::stored_record::StoredRecord;
use crate::admin::named::NamedKind;
use crate::admin::{Admin, AdminRefusal, about, named};
use crate::oauth::fields::Form;
use crate::oauth::named::NamedRecord;
use crate::oauth::{Fault, FaultCode};
use crate::store::engine::Snapshot;
use crate::store::{StoreError, TxError};

/// The key of an entry that is not a setting.
pub const KEYS: &[(&str, Form)] = &[("name", Form::Text)];

/// A declared record. A missing field gets its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeclaredNamed<F> {
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

impl<M: NamedKind> Entry for NamedRecord<M>
where
    StoredRecord: From<Self>,
{
    type Context = ();
    const KIND: &'static str = M::KIND;

    fn id(&self) -> &str {
        &self.name
    }

    fn compare(
        &self,
        snapshot: &dyn Snapshot,
        (): &(),
        faults: &mut Vec<Fault>,
    ) -> Result<Comparison, TxError<AdminRefusal>> {
        let before = named::find::<M>(snapshot, &self.name)?;
        let before = before.filter(|before| {
            let has_same_name = before.name == self.name;
            if !has_same_name {
                let detail = format!("it is registered as {}: write the name this way", before.name);
                faults.push(
                    FaultCode::AlreadyExists
                        .at(["name"], detail)
                        .about(M::KIND, &self.name),
                );
            }
            has_same_name
        });
        let mut after = self.clone();
        if let Some(before) = &before {
            after.uuid = before.uuid;
            after.created_at = before.created_at;
            after.updated_at = before.updated_at;
        }
        Ok(Comparison::of(before, after))
    }

    fn prunable(snapshot: &dyn Snapshot) -> Result<Vec<StoredRecord>, StoreError> {
        let stored = M::TABLE.scan(snapshot, .., usize::MAX)?;
        Ok(stored.into_iter().map(|(_, record)| record.into()).collect())
    }
}
