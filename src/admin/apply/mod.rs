//! Declared state: compares the records of a file with the stored ones, and makes the changes in
//! one transaction.
//!
//! Each kind of record has a file here with its name (`KIND`), `export` (a record as an entry of a file) and its
//! [`plan::Entry`]. A new kind needs such a file, a variant of [`stored_record::StoredRecord`], a member of [`DeclaredState`], and a
//! line in [`Prepared`].

pub mod apis;
pub mod clients;
mod entry;
mod export;
pub mod named;
mod plan;
pub mod providers;
mod stored_record;
pub mod users;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use self::apis::DeclaredApi;
use self::clients::{DeclaredClient, PreparedClient};
pub use self::export::{Export, Exported, NotExported, export};
use self::named::DeclaredNamed;
use self::plan::Plan;
use self::providers::{DeclaredProvider, PreparedProvider};
use self::users::{DeclaredUser, PreparedUser};
use super::operation::{Done, Effect, Operation};
use super::{Admin, AdminRefusal, AdminResult, RecordChecks, SecretString, all_or_none, api};
use crate::clock::Timestamp;
use crate::flow::client_check::ClientRules;
use crate::identity::User;
use crate::oauth::fault::RecordName;
use crate::oauth::group::Groups;
use crate::oauth::resource::Apis;
use crate::oauth::{Api, Fault, FaultCode, Group, GroupFields, RegisteredScope, ScopeFields};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{GROUPS, PROVIDERS, USERS};

/// The declared records. A kind that is left out is not changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeclaredState {
    pub scope: Option<Vec<DeclaredNamed<ScopeFields>>>,
    pub group: Option<Vec<DeclaredNamed<GroupFields>>>,
    /// Upstream providers.
    pub provider: Option<Vec<DeclaredProvider>>,
    pub api: Option<Vec<DeclaredApi>>,
    pub client: Option<Vec<DeclaredClient>>,
    pub user: Option<Vec<DeclaredUser>>,
}

/// A request to apply a declared state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Apply {
    pub state: DeclaredState,
    /// Whether to report the changes without making them.
    pub dry_run: bool,
    /// Whether records that are not declared are removed, of the kinds that are declared, except users.
    pub prune: bool,
    /// The records that may be removed, by kind and id, if the operator was asked to confirm them. If this is
    /// missing, all that are not declared may be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<(String, String)>>,
    /// Users to remove. A user who was renamed in the meantime stays. A request has some users of a file only, so
    /// `prune` removes no users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_users: Vec<RemovedUser>,
    /// The names of the groups that the file of these users declares, if it declares any. A dry run counts them as stored,
    /// and with `prune` no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared_groups: Option<Vec<String>>,
}

/// A user to remove, with the names that the operator saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedUser {
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
    Add,
    Change,
    Remove,
}

/// What happens to a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretChange {
    /// It is set or replaced.
    New,
    Removed,
}

/// A field of a record that changes. The values of a secret are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The field, by its key in the file.
    pub name: String,
    /// The old value.
    pub before: Option<Value>,
    pub after: Option<Value>,
    /// What happens to it, if it is a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretChange>,
}

impl FieldChange {
    /// The change of a secret: it is set, or it is removed.
    fn of_secret(name: &str, is_set: bool) -> Self {
        Self {
            name: name.to_owned(),
            before: None,
            after: None,
            secret: Some(if is_set {
                SecretChange::New
            } else {
                SecretChange::Removed
            }),
        }
    }
}

/// A record that changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The kind of the record, such as `client`.
    pub kind: String,
    pub id: String,
    /// What happens to it.
    pub action: Action,
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

/// Declared records, each checked by itself. Hashes and random values are made before the transaction.
struct Prepared {
    scopes: Option<Vec<RegisteredScope>>,
    groups: Option<Vec<Group>>,
    /// The groups that the file of the users declares, with identifiers for those that are not stored yet.
    declared_groups: Option<BTreeMap<String, Uuid>>,
    providers: Option<Vec<PreparedProvider>>,
    apis: Option<Vec<Api>>,
    clients: Option<Vec<PreparedClient>>,
    users: Option<Vec<PreparedUser>>,
    remove_users: Vec<RemovedUser>,
    checks: RecordChecks,
    dry_run: bool,
    prune: bool,
    now: Timestamp,
}

impl Prepared {
    async fn of(admin: Admin<'_>, request: Apply) -> AdminResult<Self> {
        let Apply {
            state,
            dry_run,
            prune,
            remove_users,
            declared_groups,
            ..
        } = request;
        let mut faults = Vec::new();
        let scopes = state
            .scope
            .map(|declared| named::prepare(admin, declared, &mut faults));
        let groups = state
            .group
            .map(|declared| named::prepare(admin, declared, &mut faults));
        let providers = match state.provider {
            Some(declared) => Some(providers::prepare(admin, declared, &mut faults).await?),
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
        let with_id = |name| (name, admin.core.random.uuid_v4());
        Ok(Self {
            scopes,
            groups,
            declared_groups: declared_groups.map(|names| names.into_iter().map(with_id).collect()),
            providers,
            apis,
            clients,
            users,
            remove_users,
            checks: RecordChecks::new(admin.core),
            dry_run,
            prune,
            now: admin.core.clock.now(),
        })
    }

    /// The changes that the stored records need.
    fn plan(&self, snapshot: &dyn Snapshot) -> Result<Plan, StoreError> {
        let mut plan = Plan::new(self.dry_run, self.prune, self.now);
        plan.providers = PROVIDERS.scan(snapshot, .., usize::MAX)?.into_iter().collect();
        plan.apis = api::all(snapshot)?;
        plan.groups = self.groups_before(snapshot)?;
        plan.compare(snapshot, self.scopes.as_deref(), &())?;
        plan.compare(snapshot, self.groups.as_deref(), &())?;
        plan.compare(snapshot, self.providers.as_deref(), &())?;
        if self.providers.is_some() {
            providers::check_issuers(&mut plan);
        }
        plan.compare(snapshot, self.apis.as_deref(), &())?;
        if let Some(apis) = &self.apis {
            apis::check(snapshot, apis, &self.checks, &mut plan)?;
        }
        if self.clients.is_some() {
            let rules = ClientRules::for_operator(
                &self.checks.policy,
                self.checks.usable_algorithms(snapshot)?,
                Apis::new(plan.apis.values().cloned()),
                Groups::new(plan.groups.clone()),
                plan.providers.values(),
            );
            plan.compare(snapshot, self.clients.as_deref(), &rules)?;
        }
        if self.providers.is_some() || self.apis.is_some() || self.groups.is_some() {
            clients::refuse_orphans(snapshot, &mut plan)?;
        }
        if let Some(apis) = &self.apis {
            apis::check_clients(snapshot, apis, &mut plan)?;
        }
        let groups = Groups::new(plan.groups.clone());
        if self.apis.is_some() || self.groups.is_some() {
            apis::check_groups(&groups, &mut plan);
        }
        plan.compare(snapshot, self.users.as_deref(), &groups)?;
        for named in &self.remove_users {
            let found = USERS.get(snapshot, &named.uuid)?;
            if let Some(user) = found.filter(|user| users::is_declarable(user) && named.is(user)) {
                plan.remove(user.into());
            }
        }
        users::check_names(snapshot, &mut plan)?;
        Ok(plan)
    }

    /// The groups before the change, with those that the file of the users declares.
    fn groups_before(&self, snapshot: &dyn Snapshot) -> Result<BTreeMap<String, Uuid>, StoreError> {
        let mut groups = self.declared_groups.clone().unwrap_or_default();
        let removes_others = self.prune && self.declared_groups.is_some();
        for (name, group) in GROUPS.scan(snapshot, .., usize::MAX)? {
            if !removes_others || groups.contains_key(&name) {
                groups.insert(name, group.uuid);
            }
        }
        Ok(groups)
    }
}

/// The answer of a transaction.
struct Written {
    applied: Applied,
    audited: Vec<RecordName>,
}

impl Operation for Apply {
    const NAME: &'static str = "apply";
    const EFFECT: Effect = Effect::Destructive;
    const MAY_CREATE_DATA_DIR: bool = true;
    type Output = Applied;

    /// Makes the changes, or reports them. Either all are made or none. There is an audit event for each.
    async fn run(mut self, admin: Admin<'_>) -> AdminResult<Done<Applied>> {
        let only = self.only.take();
        let prepared = Prepared::of(admin, self).await?;
        if prepared.dry_run {
            let plan = admin.core.store.read(|snapshot| prepared.plan(snapshot)).await?;
            all_or_none(plan.faults)?;
            return Ok(Done::unrecorded(plan.applied));
        }
        let write = admin.write_catalog(Self::NAME, move |tx| {
            let mut plan = prepared.plan(&*tx)?;
            all_or_none(std::mem::take(&mut plan.faults))?;
            plan.applied.check_confirmed(only.as_deref())?;
            plan.execute(tx)?;
            Ok(Written {
                audited: plan.audited(),
                applied: plan.applied,
            })
        });
        let written = write.await?;
        let actor = &admin.actor.to_string();
        for RecordName { kind, id } in &written.audited {
            let subject = id;
            audit::record(&Event::Applied { kind, subject, actor });
        }
        Ok(Done::unrecorded(written.applied))
    }

    fn changes_nothing(&self) -> bool {
        self.dry_run
    }
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

/// Refuses public keys that are given in two ways.
fn check_keys(keys: Option<&Vec<Value>>, jwks_uri: Option<&String>, faults: &mut Vec<Fault>) {
    if keys.is_some_and(|keys| !keys.is_empty()) && jwks_uri.is_some() {
        let detail = "there are both keys and an address of published keys";
        faults.push(FaultCode::NotAllowed.at(["keys", "jwks_uri"], detail));
    }
}

#[cfg(test)]
mod tests;
