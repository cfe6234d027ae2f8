//! APIs in a declared state.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Plan, PlannedWrite, export_fields, members, refuse_duplicates};
pub(super) use crate::admin::api::KIND;
use crate::admin::api::{check_role_groups, new_api};
use crate::admin::{Admin, RecordChecks, about};
use crate::clock::Timestamp;
use crate::oauth::api::{Api, ApiFields, ApiMetadata};
use crate::oauth::fields::Form;
use crate::oauth::{Fault, FaultCode};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{APIS, CLIENTS};

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

/// Declared APIs, and the settings that they are checked with.
pub(super) struct PreparedApis {
    records: Vec<Api>,
    checks: RecordChecks,
}

/// Builds the record of each declared API as if it were new.
pub(super) fn prepare(admin: Admin<'_>, declared: Vec<DeclaredApi>, faults: &mut Vec<Fault>) -> PreparedApis {
    refuse_duplicates(KIND, declared.iter().map(|entry| entry.id.clone()), faults);
    let mut records = Vec::new();
    for entry in declared {
        let mut own = Vec::new();
        let mut api = new_api(admin, entry.id, entry.identifier);
        entry.fields.apply(&mut api.metadata, &mut own);
        faults.extend(about(KIND, &api.id, own));
        records.push(api);
    }
    PreparedApis {
        records,
        checks: RecordChecks::new(admin.core),
    }
}

/// Plans the changes to the declared APIs, and adds the resulting APIs to the plan.
pub(super) fn plan(
    snapshot: &dyn Snapshot,
    declared: &PreparedApis,
    prune: bool,
    now: Timestamp,
    plan: &mut Plan,
) -> Result<(), StoreError> {
    for entry in &declared.records {
        let mut api = entry.clone();
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
                let fault = FaultCode::NotAllowed.at(["identifier"], detail);
                plan.faults.push(fault.about(KIND, &api.id));
            }
        }
        plan.apis.insert(api.id.clone(), api.clone());
        if before.as_ref() == Some(&api) {
            plan.applied.unchanged += 1;
            continue;
        }
        api.updated_at = now;
        let then = before.as_ref().map(export);
        plan.note(KIND, &api.id, then.as_ref(), Some(&export(&api)));
        plan.writes.push(PlannedWrite::PutApi(Box::new(api)));
    }
    if prune {
        for (id, _) in APIS.scan(snapshot, .., usize::MAX)? {
            if declared.records.iter().all(|entry| entry.id != id) {
                plan.apis.remove(&id);
                plan.note(KIND, &id, Some(&Map::new()), None);
                plan.writes.push(PlannedWrite::RemoveApi(id));
            }
        }
    }
    for entry in &declared.records {
        let mut faults = Vec::new();
        declared
            .checks
            .check_api(snapshot, entry, &plan.apis, &mut faults)?;
        plan.faults.extend(about(KIND, &entry.id, faults));
    }
    Ok(())
}

/// Refuses an API that names a client that does not exist after the change. Refuses the removal of an API that a client
/// outside of the file names.
pub(super) fn refuse_orphans(
    snapshot: &dyn Snapshot,
    declared: &PreparedApis,
    plan: &mut Plan,
) -> Result<(), StoreError> {
    let mut clients: BTreeSet<String> = BTreeSet::new();
    for (client_id, client) in CLIENTS.scan(snapshot, .., usize::MAX)? {
        let is_planned = plan.writes.iter().any(|write| match write {
            PlannedWrite::PutClient(planned) | PlannedWrite::RemoveClient(planned) => {
                planned.client_id == client_id
            }
            _ => false,
        });
        if is_planned {
            continue;
        }
        for id in client.apis.iter().filter(|id| !plan.apis.contains_key(*id)) {
            let detail = format!("client {client_id} names it");
            plan.faults.push(FaultCode::InUse.of(KIND, id, detail));
        }
        clients.insert(client_id);
    }
    let planned = plan.writes.iter().filter_map(|write| match write {
        PlannedWrite::PutClient(client) => Some(client.client_id.clone()),
        _ => None,
    });
    clients.extend(planned);
    for api in &declared.records {
        let named = api.metadata.introspection_clients.iter();
        for client_id in named.filter(|client_id| !clients.contains(*client_id)) {
            let fault = FaultCode::NotFound.at(
                ["introspection_clients"],
                format!("there is no client {client_id}"),
            );
            plan.faults.push(fault.about(KIND, &api.id));
        }
    }
    Ok(())
}

/// Refuses a role for a group that does not exist after the change.
pub(super) fn check_groups(plan: &mut Plan) {
    for api in plan.apis.values() {
        let mut faults = Vec::new();
        check_role_groups(&api.metadata, &plan.groups, &mut faults);
        plan.faults.extend(about(KIND, &api.id, faults));
    }
}

/// An API as an entry of a file.
pub(super) fn export(api: &Api) -> Map<String, Value> {
    let usual = members(&ApiMetadata::default());
    let mut entry = export_fields(&api.metadata, &usual, ApiFields::FIELDS);
    entry.insert("id".to_owned(), json!(api.id));
    entry.insert("identifier".to_owned(), json!(api.identifier));
    entry
}
