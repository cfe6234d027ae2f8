//! APIs.

mod add;
mod list;
mod remove;
mod show;
mod update;

use std::collections::{BTreeMap, BTreeSet};

use url::Url;

pub use self::add::AddApi;
pub use self::list::ListApis;
pub use self::remove::RemoveApi;
pub use self::show::ShowApi;
pub use self::update::UpdateApi;
use super::groups::groups;
use super::provider::check::is_id;
use super::{Admin, AdminTxError, RecordChecks, about, all_or_none, check_text};
use crate::flow::client_check::{check_lifetime, check_signing};
pub use crate::oauth::api::Api;
use crate::oauth::api::{ApiMetadata, canonical_identifier};
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
        if let Some(alg) = api.metadata.access_token_alg {
            check_signing("access_token_alg", alg, &usable, faults);
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
    for name in named.into_iter().filter(|name| !groups.contains(name)) {
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
) -> Result<(), AdminTxError> {
    checks.check_api(snapshot, api, &all(snapshot)?, &mut faults)?;
    check_role_groups(&api.metadata, &groups(snapshot)?, &mut faults);
    for client_id in &api.metadata.introspection_clients {
        if !CLIENTS.contains(snapshot, client_id)? {
            let detail = format!("there is no client {client_id}");
            faults.push(FaultCode::NotFound.at(["introspection_clients"], detail));
        }
    }
    Ok(all_or_none(about(KIND, &api.id, faults).collect())?)
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
