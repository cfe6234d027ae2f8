//! APIs in a declared state.

use serde::{Deserialize, Serialize};

use super::plan::{Comparison, Entry, Plan};
use super::refuse_duplicates;
use super::stored_record::StoredRecord;
pub(super) use crate::admin::api::KIND;
use crate::admin::api::{check_role_groups, new_api};
use crate::admin::{Admin, AdminRefusal, RecordChecks, about};
use crate::oauth::api::{Api, ApiFields};
use crate::oauth::fields::Form;
use crate::oauth::group::Groups;
use crate::oauth::{Fault, FaultCode};
use crate::store::engine::Snapshot;
use crate::store::tables::{APIS, CLIENTS};
use crate::store::{StoreError, TxError};

/// The keys of an entry beside [`ApiFields::FIELDS`].
pub const KEYS: &[(&str, Form)] = &[("id", Form::Text), ("identifier", Form::Text)];

/// A declared API. A missing field gets its default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeclaredApi {
    /// The name by which the operator and clients' records refer to it.
    pub id: String,
    /// The value of `resource` and `aud`.
    pub identifier: String,
    /// The metadata.
    #[serde(flatten)]
    pub fields: ApiFields,
}

/// Builds the record of each declared API as if it were new.
pub(super) fn prepare(admin: Admin<'_>, declared: Vec<DeclaredApi>, faults: &mut Vec<Fault>) -> Vec<Api> {
    refuse_duplicates(KIND, declared.iter().map(|entry| entry.id.clone()), faults);
    let mut records = Vec::new();
    for entry in declared {
        let mut own = Vec::new();
        let mut api = new_api(admin, entry.id, entry.identifier);
        entry.fields.apply(&mut api.metadata, &mut own);
        faults.extend(about(KIND, &api.id, own));
        records.push(api);
    }
    records
}

impl Entry for Api {
    type Context = ();
    const KIND: &'static str = KIND;

    fn id(&self) -> &str {
        &self.id
    }

    fn compare(
        &self,
        snapshot: &dyn Snapshot,
        (): &(),
        faults: &mut Vec<Fault>,
    ) -> Result<Comparison, TxError<AdminRefusal>> {
        let mut api = self.clone();
        let before = APIS.get(snapshot, &api.id)?;
        if let Some(before) = &before {
            api.uuid = before.uuid;
            api.created_at = before.created_at;
            api.updated_at = before.updated_at;
            if before.identifier != api.identifier {
                let detail = format!(
                    "the stored API has the identifier {}, which cannot be changed",
                    before.identifier
                );
                faults.push(FaultCode::NotAllowed.at(["identifier"], detail));
            }
        }
        Ok(Comparison::of(before, api))
    }

    fn prunable(snapshot: &dyn Snapshot) -> Result<Vec<StoredRecord>, StoreError> {
        let stored = APIS.scan(snapshot, .., usize::MAX)?;
        Ok(stored.into_iter().map(|(_, api)| api.into()).collect())
    }
}

/// Checks each declared API against all that are there after the change.
pub(super) fn check(
    snapshot: &dyn Snapshot,
    declared: &[Api],
    checks: &RecordChecks,
    plan: &mut Plan,
) -> Result<(), StoreError> {
    for api in declared {
        let mut faults = Vec::new();
        checks.check_api(snapshot, api, &plan.apis, &mut faults)?;
        plan.faults.extend(about(KIND, &api.id, faults));
    }
    Ok(())
}

/// Refuses an API that names a client that does not exist after the change.
pub(super) fn check_clients(
    snapshot: &dyn Snapshot,
    declared: &[Api],
    plan: &mut Plan,
) -> Result<(), StoreError> {
    let changed = plan.changed_clients();
    let mut faults = Vec::new();
    for api in declared {
        for client_id in &api.metadata.introspection_clients {
            let exists = match changed.get(client_id.as_str()) {
                Some(exists) => *exists,
                None => CLIENTS.contains(snapshot, client_id)?,
            };
            if !exists {
                let detail = format!("there is no client {client_id}");
                let fault = FaultCode::NotFound.at(["introspection_clients"], detail);
                faults.push(fault.about(KIND, &api.id));
            }
        }
    }
    plan.faults.extend(faults);
    Ok(())
}

/// Refuses a role for a group that does not exist after the change.
pub(super) fn check_groups(groups: &Groups, plan: &mut Plan) {
    for api in plan.apis.values() {
        let mut faults = Vec::new();
        check_role_groups(&api.metadata, groups, &mut faults);
        plan.faults.extend(about(KIND, &api.id, faults));
    }
}
