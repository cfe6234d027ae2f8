//! APIs: add, show, update, remove.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use url::Url;

use super::named::groups;
use super::provider::check::is_id;
use super::{
    Admin, AdminError, AdminResult, RecordChecks, TxResult, about, all_or_none, already_exists, check_text,
    not_found,
};
use crate::flow::client_check::check_lifetime;
use crate::flow::or_refuse;
pub use crate::oauth::api::Api;
use crate::oauth::api::{ApiFields, ApiMetadata, canonical_identifier};
use crate::oauth::group::Groups;
use crate::oauth::scope::Scope;
use crate::oauth::{Fault, FaultCode};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{APIS, CLIENTS};

/// The longest identifier. Grants and tokens contain it.
const MAX_IDENTIFIER_BYTES: usize = 512;
/// The most roles of one API.
const MAX_ROLES: usize = 100;

/// An API to be registered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddApi {
    /// The name by which the operator and clients' records refer to it.
    pub id: String,
    /// The value of `resource` and `aud`.
    pub identifier: String,
    /// The metadata.
    pub fields: ApiFields,
}

/// A change of an API.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateApi {
    /// Which API.
    pub id: String,
    /// What changes.
    pub fields: ApiFields,
}

/// The kind of record in faults.
pub(super) const KIND: &str = "api";

impl RecordChecks {
    /// Checks an API as a whole, and compares it with `others`. This map of APIs by id may include the API itself.
    pub(super) fn check_api(
        &self,
        snapshot: &dyn Snapshot,
        api: &Api,
        others: &BTreeMap<String, Api>,
        faults: &mut Vec<Fault>,
    ) -> Result<(), StoreError> {
        if !is_id(&api.id) {
            let detail = format!(
                "api id {:?}: use 1 to 64 lower-case letters, digits and -, as in notes",
                api.id
            );
            faults.push(FaultCode::Invalid.at(["id"], detail));
        }
        self.check_identifier(&api.identifier, faults);
        check_scope(&api.metadata, faults);
        check_roles(&api.metadata, faults);
        check_lifetime(api.metadata.access_token_lifetime, &self.policy, faults);
        let usable = self.usable_algorithms(snapshot)?;
        if let Some(alg) = api.metadata.access_token_alg.filter(|alg| !usable.contains(alg)) {
            let detail = format!("there is no key for {alg}");
            faults.push(FaultCode::NotFound.at(["access_token_alg"], detail));
        }
        for other in others.values().filter(|other| other.id != api.id) {
            if canonical_identifier(&other.identifier) == canonical_identifier(&api.identifier) {
                let detail = format!("api {} has this identifier already", other.id);
                faults.push(FaultCode::AlreadyExists.at(["identifier"], detail));
            }
            for value in api.metadata.scope.iter() {
                if other.metadata.scope.contains(value) {
                    let detail = format!("scope {value} belongs to api {}", other.id);
                    faults.push(FaultCode::AlreadyExists.at(["scope"], detail));
                }
            }
        }
        Ok(())
    }

    /// RFC 8707 section 2: an absolute URI without a fragment.
    fn check_identifier(&self, identifier: &str, faults: &mut Vec<Fault>) {
        let mut refuse = |detail: &str| faults.push(FaultCode::Invalid.at(["identifier"], detail));
        if Url::parse(identifier).is_err() || identifier.contains('#') {
            refuse("an identifier is an absolute URI without a fragment, as in https://api.example/notes");
        } else if Scope::of([identifier]).is_err() {
            refuse("an identifier has printable ASCII characters only, and no quotes or backslashes");
        } else if identifier.len() > MAX_IDENTIFIER_BYTES {
            refuse("an identifier has at most 512 bytes");
        } else if canonical_identifier(identifier) == canonical_identifier(&self.policy.issuer) {
            refuse("this is the issuer, which is the audience of tokens without an API");
        }
    }
}

fn check_scope(metadata: &ApiMetadata, faults: &mut Vec<Fault>) {
    for value in metadata.scope.iter().filter(|value| Scope::is_built_in(value)) {
        let detail = format!("scope {value} has a meaning of its own, so it cannot belong to an API");
        faults.push(FaultCode::NotAllowed.at(["scope"], detail));
    }
    for value in metadata.scope_texts.keys() {
        if !metadata.scope.contains(value) {
            let detail = format!("scope text {value:?} is for a scope that the API does not have");
            faults.push(FaultCode::NotAllowed.at(["scope_texts", "scope"], detail));
        }
    }
}

fn check_roles(metadata: &ApiMetadata, faults: &mut Vec<Fault>) {
    if metadata.roles.len() > MAX_ROLES {
        let detail = format!("there are more than {MAX_ROLES} roles");
        faults.push(FaultCode::TooMany.at(["roles"], detail));
    }
    for role in &metadata.roles {
        check_text(faults, "roles", role);
    }
    for role in metadata.role_groups.keys() {
        if !metadata.roles.contains(role) {
            let detail = format!("role {role:?} has groups, but is not a role of the API");
            faults.push(FaultCode::NotAllowed.at(["role_groups", "roles"], detail));
        }
    }
}

/// Refuses a role for a group that does not exist.
pub(super) fn check_role_groups(metadata: &ApiMetadata, groups: &Groups, faults: &mut Vec<Fault>) {
    let named: BTreeSet<_> = metadata.role_groups.values().flatten().collect();
    for name in named.into_iter().filter(|name| groups.id_of(name).is_none()) {
        let detail = format!("there is no group {name}");
        faults.push(FaultCode::NotFound.at(["role_groups"], detail));
    }
}

/// The ids of the APIs in which users of a group have roles.
pub(super) fn apis_with_role_group(snapshot: &dyn Snapshot, group: &str) -> Result<Vec<String>, StoreError> {
    let apis = APIS.scan(snapshot, .., usize::MAX)?.into_iter();
    let names_it = |(_, api): &(String, Api)| {
        let mut groups = api.metadata.role_groups.values();
        groups.any(|groups| groups.contains(group))
    };
    Ok(apis.filter(names_it).map(|(id, _)| id).collect())
}

/// All APIs by id.
pub(super) fn all(snapshot: &dyn Snapshot) -> Result<BTreeMap<String, Api>, StoreError> {
    Ok(APIS.scan(snapshot, .., usize::MAX)?.into_iter().collect())
}

/// Checks an API that is about to be stored, and the clients that it names.
fn check_in(
    snapshot: &dyn Snapshot,
    checks: &RecordChecks,
    api: &Api,
    mut faults: Vec<Fault>,
) -> TxResult<()> {
    checks.check_api(snapshot, api, &all(snapshot)?, &mut faults)?;
    check_role_groups(&api.metadata, &groups(snapshot)?, &mut faults);
    for client_id in &api.metadata.introspection_clients {
        if !CLIENTS.contains(snapshot, client_id)? {
            let detail = format!("there is no client {client_id}");
            faults.push(FaultCode::NotFound.at(["introspection_clients"], detail));
        }
    }
    Ok(all_or_none(about(KIND, &api.id, faults).collect()))
}

/// A new API with default metadata.
pub(super) fn new_api(admin: Admin<'_>, id: String, identifier: String) -> Api {
    let now = admin.core.clock.now();
    Api {
        id,
        uuid: admin.core.random.uuid_v7(admin.core.clock.since_epoch()),
        identifier,
        metadata: ApiMetadata::default(),
        created_at: now,
        updated_at: now,
    }
}

/// Registers an API.
pub async fn add(admin: Admin<'_>, request: AddApi) -> AdminResult<Api> {
    let mut faults = Vec::new();
    let mut api = new_api(admin, request.id, request.identifier);
    request.fields.apply(&mut api.metadata, &mut faults);
    let (view, checks) = (api.clone(), RecordChecks::new(admin.core));
    let written = admin
        .core
        .store
        .write("api add", move |tx| -> TxResult<()> {
            or_refuse!(check_in(&*tx, &checks, &api, faults.clone())?);
            if APIS.contains(&*tx, &api.id)? {
                return Ok(Err(already_exists(KIND, &api.id).into()));
            }
            APIS.put(tx, &api.id, &api)?;
            Ok(Ok(()))
        })
        .await;
    admin.core.reload_after::<_, _, AdminError>(written).await??;
    admin.record("api add", &view.id);
    Ok(view)
}

/// Every API, by id.
pub async fn list(admin: Admin<'_>) -> AdminResult<Vec<Api>> {
    let apis = admin.core.store.read(all).await?;
    Ok(apis.into_values().collect())
}

/// One API.
pub async fn show(admin: Admin<'_>, id: &str) -> AdminResult<Api> {
    let api = admin.core.store.read(|snapshot| APIS.get(snapshot, id)).await?;
    Ok(api.ok_or_else(|| not_found(KIND, id))?)
}

/// Changes an API.
pub async fn update(admin: Admin<'_>, request: UpdateApi) -> AdminResult<Api> {
    let (now, checks) = (admin.core.clock.now(), RecordChecks::new(admin.core));
    let UpdateApi { id, fields } = request;
    let subject = id.clone();
    let written = admin
        .core
        .store
        .write("api update", move |tx| -> TxResult<Api> {
            let Some(mut api) = APIS.get(&*tx, &id)? else {
                return Ok(Err(not_found(KIND, &id).into()));
            };
            let mut faults = Vec::new();
            fields.clone().apply(&mut api.metadata, &mut faults);
            or_refuse!(check_in(&*tx, &checks, &api, faults)?);
            api.updated_at = now;
            APIS.put(tx, &id, &api)?;
            Ok(Ok(api))
        })
        .await;
    let api = admin.core.reload_after::<_, _, AdminError>(written).await??;
    admin.record("api update", &subject);
    Ok(api)
}

/// Removes an API that no client names. Refreshes of grants that are only for this API are refused. They work again if
/// an API with the same identifier is added.
pub async fn remove(admin: Admin<'_>, id: String) -> AdminResult<String> {
    let subject = id.clone();
    let written = admin
        .core
        .store
        .write("api remove", move |tx| -> TxResult<()> {
            if !APIS.contains(&*tx, &id)? {
                return Ok(Err(not_found(KIND, &id).into()));
            }
            let clients = CLIENTS.scan(&*tx, .., usize::MAX)?;
            let named_by: Vec<_> = clients
                .into_iter()
                .filter(|(_, client)| client.apis.contains(&id))
                .map(|(client_id, _)| client_id)
                .collect();
            if !named_by.is_empty() {
                let detail = format!("clients may name api {id}: {}", named_by.join(", "));
                return Ok(Err(FaultCode::InUse.of(KIND, &id, detail).into()));
            }
            APIS.remove(tx, &id)?;
            Ok(Ok(()))
        })
        .await;
    admin.core.reload_after::<_, _, AdminError>(written).await??;
    admin.record("api remove", &subject);
    Ok(subject)
}
