//! Declared state: compares the providers, clients and users of a file with the stored ones, and makes the changes in
//! one transaction.
//!
//! Each kind of record has a file here with its name (`KIND`), `export` (a record as an entry of a file) and `plan`
//! (the changes). A new kind needs such a file, a member of [`DeclaredState`], and a line in each function below.

pub mod apis;
pub mod clients;
mod plan;
pub mod providers;
pub mod users;

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use self::apis::DeclaredApi;
use self::clients::DeclaredClient;
use self::plan::{Plan, PlannedWrite, execute};
use self::providers::DeclaredProvider;
use self::users::DeclaredUser;
use super::{
    Admin, AdminError, AdminRefusal, AdminResult, SecretString, TxResult, all_or_none, api, provider,
};
use crate::flow::{Core, or_refuse};
use crate::identity::User;
use crate::oauth::fields::Form;
use crate::oauth::{Fault, FaultCode};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{APIS, CLIENTS, PROVIDERS, USERS};

/// The declared records. A kind that is left out is not changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeclaredState {
    /// Upstream providers.
    pub provider: Option<Vec<DeclaredProvider>>,
    /// APIs.
    pub api: Option<Vec<DeclaredApi>>,
    /// Clients.
    pub client: Option<Vec<DeclaredClient>>,
    /// Users.
    pub user: Option<Vec<DeclaredUser>>,
}

/// A request to apply a declared state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Apply {
    /// The state.
    pub state: DeclaredState,
    /// Whether to report the changes without making them.
    pub dry_run: bool,
    /// Whether records that are not declared are removed, of the kinds that are declared.
    pub prune: bool,
    /// The records that may be removed, by kind and id, if the operator was asked to confirm them. If this is
    /// missing, all that are not declared may be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<(String, String)>>,
    /// Users to remove. One who was renamed in the meantime stays. A file that is applied in batches needs this: no batch
    /// has all users, so `prune` cannot find those who are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_users: Vec<RemovedUser>,
}

/// A user to remove, with the names that the operator saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedUser {
    /// The uuid.
    pub uuid: Uuid,
    /// The account identifier.
    pub account_id: String,
    /// The email address.
    pub email: Option<String>,
}

impl RemovedUser {
    fn is(&self, user: &User) -> bool {
        (&self.account_id, &self.email) == (&user.account_id, &user.email)
    }
}

/// What happens to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is added.
    Add,
    /// It changes.
    Change,
    /// It is removed.
    Remove,
}

/// What happens to a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretChange {
    /// It is set or replaced.
    New,
    /// It is removed.
    Removed,
}

/// A field of a record that changes. The values of a secret are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The field, by its key in the file.
    pub name: String,
    /// The old value.
    pub before: Option<Value>,
    /// The new value.
    pub after: Option<Value>,
    /// What happens to it, if it is a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretChange>,
}

/// A record that changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// `provider`, `api`, `client` or `user`.
    pub kind: String,
    /// Its id.
    pub id: String,
    /// What happens to it.
    pub action: Action,
    /// The fields that change.
    pub fields: Vec<FieldChange>,
    /// A client's secret that was generated because none was given. Only this answer shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretString>,
}

/// The changes that were made, or would be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// Whether no change was made.
    pub dry_run: bool,
    /// Each record that changes.
    pub changes: Vec<Change>,
    /// How many declared records did not need a change.
    pub unchanged: u64,
}

impl Applied {
    /// The removed records, by kind and id.
    pub fn removed(&self) -> impl Iterator<Item = (String, String)> {
        let removed = self
            .changes
            .iter()
            .filter(|change| change.action == Action::Remove);
        removed.map(|change| (change.kind.clone(), change.id.clone()))
    }

    /// Refuses to remove a record that the operator did not confirm, since it was added after the question.
    fn check_confirmed(&self, confirmed: Option<&[(String, String)]>) -> Result<(), AdminRefusal> {
        let Some(confirmed) = confirmed else {
            return Ok(());
        };
        match self.removed().find(|record| !confirmed.contains(record)) {
            None => Ok(()),
            Some((kind, id)) => {
                let detail = format!("{kind} {id} was added after you were asked what to remove");
                Err(FaultCode::Conflict.of(&kind, &id, detail).into())
            }
        }
    }
}

/// A record of an export, as an entry of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exported {
    /// An upstream provider, in the order of their ids.
    Provider(Map<String, Value>),
    /// An API, in the order of their ids.
    Api(Map<String, Value>),
    /// A client, in the order of their identifiers.
    Client(Map<String, Value>),
    /// A user, in the order in which they were added.
    User(Map<String, Value>),
    /// Counts the records that the export leaves out. It comes last. An export without such records has none.
    NotExported(NotExported),
}

/// What an export leaves out, because a file cannot declare it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotExported {
    /// Users who were created by a provider.
    pub brought: u64,
    /// Links of other users to providers.
    pub links: u64,
    /// Formerly anonymous users who can sign in.
    pub from_devices: u64,
}

/// Makes the changes to a declared state, or reports them. All of them or none.
pub async fn apply(admin: Admin<'_>, request: Apply) -> AdminResult<Applied> {
    let Apply {
        state,
        dry_run,
        prune,
        only,
        remove_users,
    } = request;
    let mut faults = Vec::new();
    let providers = match state.provider {
        Some(declared) => Some(providers::prepare(admin, declared, &mut faults)?),
        None => None,
    };
    let apis = state
        .api
        .map(|declared| apis::prepare(admin, declared, &mut faults));
    let clients = state
        .client
        .map(|declared| clients::prepare(admin, declared, &mut faults));
    let users = match state.user {
        Some(declared) => Some(users::prepare(admin, declared, &mut faults).await?),
        None => None,
    };
    all_or_none(faults)?;
    let now = admin.core.clock.now();
    let plan = move |snapshot: &dyn Snapshot| -> Result<Plan, StoreError> {
        let mut plan = Plan::default();
        plan.applied.dry_run = dry_run;
        plan.providers = provider::issuers(snapshot)?;
        plan.apis = api::all(snapshot)?;
        if let Some(providers) = &providers {
            providers::plan(snapshot, providers, prune, now, &mut plan)?;
        }
        if let Some(apis) = &apis {
            apis::plan(snapshot, apis, prune, now, &mut plan)?;
        }
        if let Some(clients) = &clients {
            clients::plan(snapshot, clients, prune, now, &mut plan)?;
        }
        if providers.is_some() {
            providers::refuse_orphans(snapshot, &mut plan)?;
        }
        if let Some(apis) = &apis {
            apis::refuse_orphans(snapshot, apis, &mut plan)?;
        }
        if let Some(users) = &users {
            users::plan(snapshot, users, prune, now, &mut plan)?;
        }
        for named in &remove_users {
            let found = USERS.get(snapshot, &named.uuid)?;
            if let Some(user) = found.filter(|user| users::is_declarable(user) && named.is(user)) {
                users::plan_removal(user, &mut plan);
            }
        }
        Ok(plan)
    };
    if dry_run {
        let plan = admin.core.store.read(plan)?;
        all_or_none(plan.faults)?;
        return Ok(plan.applied);
    }
    let written = admin
        .core
        .store
        .write("apply", move |tx: &mut dyn Tx| -> TxResult<(Applied, Vec<_>)> {
            let plan = plan(&*tx)?;
            or_refuse!(all_or_none(plan.faults));
            or_refuse!(plan.applied.check_confirmed(only.as_deref()));
            execute(tx, &plan.writes, now)?;
            let written = plan
                .writes
                .iter()
                .filter_map(PlannedWrite::audited_record)
                .collect();
            Ok(Ok((plan.applied, written)))
        })
        .await;
    let (applied, written) = admin.core.reload_after::<_, AdminError>(written)??;
    let actor = &admin.actor.to_string();
    for (kind, subject) in &written {
        audit::record(&Event::Applied { kind, subject, actor });
    }
    Ok(applied)
}

/// Passes the stored records that a file can declare to `take`, until it returns `Break`. Hashes are included if
/// requested, secrets never. One user at a time is in memory. Returns what was left out.
pub fn export(
    core: &Core,
    with_hashes: bool,
    take: &mut dyn FnMut(Exported) -> ControlFlow<()>,
) -> Result<NotExported, StoreError> {
    let mut not_exported = NotExported::default();
    let mut flow = ControlFlow::Continue(());
    // After a `Break`, `take` must not be called again.
    core.store.read(|snapshot| {
        PROVIDERS.visit(snapshot, .., |_, provider| {
            flow = take(Exported::Provider(providers::export(&provider)));
            Ok(flow)
        })?;
        if flow.is_break() {
            return Ok(());
        }
        APIS.visit(snapshot, .., |_, api| {
            flow = take(Exported::Api(apis::export(&api)));
            Ok(flow)
        })?;
        if flow.is_break() {
            return Ok(());
        }
        CLIENTS.visit(snapshot, .., |_, client| {
            flow = take(Exported::Client(clients::export(&client, with_hashes)));
            Ok(flow)
        })?;
        if flow.is_break() {
            return Ok(());
        }
        USERS.visit(snapshot, .., |_, user| {
            if users::is_declarable(&user) {
                not_exported.links += user.identities.len() as u64;
                flow = take(Exported::User(users::export(&user, with_hashes)));
            } else if user.comes_from_provider() {
                not_exported.brought += 1;
            } else if !user.is_anonymous() {
                not_exported.from_devices += 1;
            }
            Ok(flow)
        })
    })?;
    Ok(not_exported)
}

/// Adds a fault for each record that is declared twice.
fn refuse_duplicates(kind: &str, ids: impl Iterator<Item = String>, faults: &mut Vec<Fault>) {
    let mut known = std::collections::HashSet::new();
    for id in ids {
        if known.contains(&id) {
            faults.push(FaultCode::AlreadyExists.of(kind, &id, "it is declared twice"));
        }
        known.insert(id);
    }
}

/// The members of a record as JSON.
fn members(record: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(record) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    }
}

/// The fields of a record that differ from the `usual` one, as an entry of a file.
fn export_fields(
    record: &impl Serialize,
    usual: &Map<String, Value>,
    fields: &[(&str, Form)],
) -> Map<String, Value> {
    let mut entry = members(record);
    entry.retain(|name, value| usual.get(name) != Some(value) && !value.is_null());
    // In a file a scope is a list of values.
    for (name, _) in fields.iter().filter(|(_, form)| *form == Form::Texts) {
        if let Some(Value::String(scope)) = entry.get(*name) {
            let values: Value = scope.split(' ').filter(|value| !value.is_empty()).collect();
            entry.insert((*name).to_owned(), values);
        }
    }
    entry
}

/// Refuses public keys that are given in two ways.
fn check_keys(keys: Option<&Vec<Value>>, jwks_uri: Option<&String>, faults: &mut Vec<Fault>) {
    if keys.is_some_and(|keys| !keys.is_empty()) && jwks_uri.is_some() {
        let detail = "there are both keys and an address of published keys";
        faults.push(FaultCode::NotAllowed.at(["keys", "jwks_uri"], detail));
    }
}

#[cfg(test)]
mod tests;
