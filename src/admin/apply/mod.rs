//! Declared state: what providers, clients and users there are to be, compared with what there is, and made so in one
//! transaction.
//!
//! Every kind of record has a file here with three functions: what it is called, `export` (a record as a file has
//! it), and `plan` (what must change). A further kind is one more of these files, one more member of [`State`],
//! and one line in each function below.

pub mod clients;
pub mod providers;
pub mod users;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::clients::DeclaredClient;
use self::providers::DeclaredProvider;
use self::users::DeclaredUser;
use super::grant_revocation::GrantRevocation;
use super::{Admin, AdminError, AdminRefusal, Decided, Done, SecretString, all_or_none, provider};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::flow::Core;
use crate::identity::User;
use crate::oauth::Client;
use crate::oauth::fields::Form;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{CLIENTS, PROVIDERS, USERS};

/// What there is to be. A kind that is left out is left alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// Upstream providers.
    pub provider: Option<Vec<DeclaredProvider>>,
    /// Clients.
    pub client: Option<Vec<DeclaredClient>>,
    /// Users.
    pub user: Option<Vec<DeclaredUser>>,
}

/// A state to be brought about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Apply {
    /// The state.
    pub state: State,
    /// Whether to say only what would change.
    pub dry_run: bool,
    /// Whether what is not declared is removed, of the kinds that are.
    pub prune: bool,
    /// The records that may be removed, each by its kind and what it is called, where somebody was asked about these; any
    /// that are not declared otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<(String, String)>>,
}

/// What happens to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is new.
    Add,
    /// It changes.
    Change,
    /// It goes.
    Remove,
}

/// What happens to a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretChange {
    /// There is a new one.
    New,
    /// There is none any more.
    Removed,
}

/// A part of a record that changes. Of a secret, neither value is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The part, as the file calls it.
    pub name: String,
    /// What it was.
    pub before: Option<Value>,
    /// What it is to be.
    pub after: Option<Value>,
    /// What happens to it, if it is a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretChange>,
}

/// A record that changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// `provider`, `client` or `user`.
    pub kind: String,
    /// Which.
    pub id: String,
    /// What happens to it.
    pub action: Action,
    /// What is different.
    pub fields: Vec<FieldChange>,
    /// A client's secret that was made because none was given, this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretString>,
}

/// What changed, or would.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// Whether it was only looked at.
    pub dry_run: bool,
    /// Each record that changes.
    pub changes: Vec<Change>,
    /// How many declared records are as they are to be.
    pub unchanged: u64,
}

impl Applied {
    /// What is removed, by its kind and what it is called.
    pub fn removed(&self) -> impl Iterator<Item = (String, String)> {
        let removed = self
            .changes
            .iter()
            .filter(|change| change.action == Action::Remove);
        removed.map(|change| (change.kind.clone(), change.id.clone()))
    }

    /// Refuses what would remove a record that nobody was asked about: it came after the question.
    fn removes_only(&self, asked: Option<&[(String, String)]>) -> Result<(), AdminRefusal> {
        let is_new = |record: &(String, String)| asked.is_some_and(|asked| !asked.contains(record));
        match self.removed().find(is_new) {
            None => Ok(()),
            Some((kind, id)) => Err(AdminRefusal::new(format!(
                "what there is has changed meanwhile, and nobody was asked whether to remove {kind} {id}: nothing was changed, run it again"
            ))),
        }
    }
}

/// A record as a file has it; what an export consists of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exported {
    /// An upstream provider; they come by id.
    Provider(Map<String, Value>),
    /// A client; they come by identifier.
    Client(Map<String, Value>),
    /// A user; they come in the order in which they were added.
    User(Map<String, Value>),
}

/// What an export does not hold, because no file can declare it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Users whom a provider brought.
    pub brought: u64,
    /// Who other users are at providers.
    pub links: u64,
    /// Users of devices who can sign in by now.
    pub from_devices: u64,
}

/// One write of a plan.
enum Step {
    PutProvider(Box<Provider>),
    RemoveProvider(String),
    PutClient(Box<Client>),
    RemoveClient(Box<Client>),
    PutUser(Option<Box<User>>, Box<User>),
    /// The user stays as they are, and it is kept which hash the file has of their password.
    NoteUser(Box<User>),
    RemoveUser(Box<User>),
}

impl Step {
    /// Which record it changes, if it does: its kind, and the identifier that it keeps under any name.
    fn record(&self) -> Option<(&'static str, String)> {
        Some(match self {
            Self::PutProvider(provider) => (providers::KIND, provider.id.clone()),
            Self::RemoveProvider(id) => (providers::KIND, id.clone()),
            Self::PutClient(client) | Self::RemoveClient(client) => (clients::KIND, client.client_id.clone()),
            Self::PutUser(_, user) | Self::RemoveUser(user) => (users::KIND, user.uuid.to_string()),
            Self::NoteUser(_) => return None,
        })
    }
}

/// What must change, and why it cannot.
#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
    applied: Applied,
    faults: Vec<String>,
    /// The issuer of every provider that there will be, by id.
    providers: BTreeMap<String, String>,
}

impl Plan {
    /// Notes a record that comes, changes or goes, by what the file says of it before and after.
    fn note(
        &mut self,
        kind: &str,
        id: &str,
        before: Option<&Map<String, Value>>,
        after: Option<&Map<String, Value>>,
    ) {
        let action = match (before, after) {
            (None, _) => Action::Add,
            (_, None) => Action::Remove,
            _ => Action::Change,
        };
        let fields = if action == Action::Remove {
            Vec::new()
        } else {
            differences(before, after)
        };
        self.applied.changes.push(Change {
            kind: kind.to_owned(),
            id: id.to_owned(),
            action,
            fields,
            client_secret: None,
        });
    }

    /// Adds to the last note that a secret changes.
    fn note_secret(&mut self, name: &str, what: SecretChange) {
        if let Some(change) = self.applied.changes.last_mut() {
            change.fields.push(FieldChange {
                name: name.to_owned(),
                before: None,
                after: None,
                secret: Some(what),
            });
        }
    }

    /// Adds the client's secret that was made to the last note. Where nothing is done, nobody will have it.
    fn note_made(&mut self, secret: Option<SecretString>) {
        if let Some(change) = self.applied.changes.last_mut().filter(|_| !self.applied.dry_run) {
            change.client_secret = secret;
        }
    }

    /// Takes an identifier that was made out of the last note, where nothing is done: the next time it is another one.
    fn forget_made(&mut self, name: &str) {
        if let Some(change) = self.applied.changes.last_mut().filter(|_| self.applied.dry_run) {
            change.fields.retain(|field| field.name != name);
        }
    }
}

fn differences(before: Option<&Map<String, Value>>, after: Option<&Map<String, Value>>) -> Vec<FieldChange> {
    let empty = Map::new();
    let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
    let mut names: Vec<&String> = after.keys().collect();
    names.extend(before.keys().filter(|name| !after.contains_key(*name)));
    names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| FieldChange {
            name: name.clone(),
            before: before.get(name).cloned(),
            after: after.get(name).cloned(),
            secret: None,
        })
        .collect()
}

/// Brings a state about, or says what that would change. Everything or nothing.
pub async fn apply(admin: Admin<'_>, request: Apply) -> Done<Applied> {
    let Apply {
        state,
        dry_run,
        prune,
        only,
    } = request;
    let mut faults = Vec::new();
    let providers = match state.provider {
        Some(declared) => Some(providers::prepare(admin, declared, &mut faults)?),
        None => None,
    };
    let clients = state
        .client
        .map(|declared| clients::prepare(admin, declared, &mut faults));
    let users = match state.user {
        Some(declared) => Some(users::prepare(admin, declared, &mut faults).await?),
        None => None,
    };
    all_or_none(&faults)?;
    let now = admin.core.clock.now();
    let plan = move |snapshot: &dyn Snapshot| -> Result<Plan, StoreError> {
        let mut plan = Plan::default();
        plan.applied.dry_run = dry_run;
        plan.providers = provider::issuers(snapshot)?;
        if let Some(providers) = &providers {
            providers::plan(snapshot, providers, prune, now, &mut plan)?;
        }
        if let Some(clients) = &clients {
            clients::plan(snapshot, clients, prune, now, &mut plan)?;
        }
        if providers.is_some() {
            providers::refuse_orphans(snapshot, &mut plan)?;
        }
        if let Some(users) = &users {
            users::plan(snapshot, users, prune, now, &mut plan)?;
        }
        Ok(plan)
    };
    if dry_run {
        let plan = admin.core.store.read(plan)?;
        all_or_none(&plan.faults)?;
        return Ok(plan.applied);
    }
    let written = admin
        .core
        .store
        .write("apply", move |tx: &mut dyn Tx| -> Decided<(Applied, Vec<_>)> {
            let plan = plan(&*tx)?;
            let checked = all_or_none(&plan.faults).and_then(|()| plan.applied.removes_only(only.as_deref()));
            if let Err(refusal) = checked {
                return Ok(Err(refusal));
            }
            execute(tx, &plan.steps, now)?;
            let written = plan.steps.iter().filter_map(Step::record).collect();
            Ok(Ok((plan.applied, written)))
        })
        .await;
    let (applied, written) = admin.core.reload_after::<_, AdminError>(written)??;
    for (kind, subject) in &written {
        audit::record(&Event::Applied { kind, subject });
    }
    Ok(applied)
}

/// Names go before names come, so that two users may swap theirs. Grants end last, for all that goes at once.
fn execute(tx: &mut dyn Tx, steps: &[Step], now: Timestamp) -> Result<(), StoreError> {
    let mut withdrawal = GrantRevocation::default();
    for step in steps {
        match step {
            Step::RemoveClient(client) => super::client::remove_in(tx, client, &mut withdrawal)?,
            Step::RemoveUser(user) => super::user::remove_in(tx, user, now)?,
            Step::PutUser(Some(before), _) => super::user::drop_names(tx, before)?,
            Step::RemoveProvider(id) => provider::remove_in(tx, id, &mut withdrawal)?,
            Step::PutProvider(_) | Step::PutClient(_) | Step::PutUser(None, _) | Step::NoteUser(_) => {}
        }
    }
    for step in steps {
        match step {
            Step::PutProvider(provider) => provider::put_in(tx, provider, &mut withdrawal)?,
            Step::PutClient(client) => clients::put(tx, client)?,
            Step::PutUser(_, user) | Step::NoteUser(user) => super::user::write(tx, user)?,
            Step::RemoveProvider(_) | Step::RemoveClient(_) | Step::RemoveUser(_) => {}
        }
    }
    withdrawal.carry_out(tx, now)
}

/// Hands everything that can be declared to `take`, as it is now, until that says `Break`. Hashes are in it only when
/// asked for, secrets never. No more than one user is in memory at a time. What comes back is what it has passed over.
pub fn export(
    core: &Core,
    with_hashes: bool,
    take: &mut dyn FnMut(Exported) -> ControlFlow<()>,
) -> Result<LeftOut, StoreError> {
    let mut left_out = LeftOut::default();
    let mut flow = ControlFlow::Continue(());
    // Who has said no is not asked again, whatever comes after.
    core.store.read(|snapshot| {
        PROVIDERS.visit(snapshot, .., |_, provider| {
            flow = take(Exported::Provider(providers::export(&provider)));
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
                left_out.links += user.identities.len() as u64;
                flow = take(Exported::User(users::export(&user, with_hashes)));
            } else if user.comes_from_provider() {
                left_out.brought += 1;
            } else if !user.is_anonymous() {
                left_out.from_devices += 1;
            }
            Ok(flow)
        })
    })?;
    Ok(left_out)
}

/// Two entries of a kind that mean the same record.
fn refuse_twins(kind: &str, ids: impl Iterator<Item = String>, faults: &mut Vec<String>) {
    let mut seen = std::collections::HashSet::new();
    for id in ids {
        if seen.contains(&id) {
            faults.extend(about(kind, &id, vec!["it is declared twice".to_owned()]));
        }
        seen.insert(id);
    }
}

/// What the lines of a refusal begin with that are about this record.
pub fn subject(kind: &str, id: &str) -> String {
    format!("{kind} {id}: ")
}

/// A refusal with the record that it is about before each of its lines.
fn about(kind: &str, id: &str, faults: Vec<String>) -> impl Iterator<Item = String> {
    let subject = subject(kind, id);
    faults.into_iter().map(move |fault| format!("{subject}{fault}"))
}

/// The members of a record as JSON.
fn members(record: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(record) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    }
}

/// The fields of a record in which it differs from the `usual` one, as a file has them.
fn export_fields(
    record: &impl Serialize,
    usual: &Map<String, Value>,
    fields: &[(&str, Form)],
) -> Map<String, Value> {
    let mut entry = members(record);
    entry.retain(|name, value| usual.get(name) != Some(value) && !value.is_null());
    // A file has scope values one by one.
    for (name, _) in fields.iter().filter(|(_, form)| *form == Form::Texts) {
        if let Some(Value::String(scope)) = entry.get(*name) {
            let values: Value = scope.split(' ').filter(|value| !value.is_empty()).collect();
            entry.insert((*name).to_owned(), values);
        }
    }
    entry
}

/// Refuses public keys that are said in two ways.
fn check_keys(keys: Option<&Vec<Value>>, jwks_uri: Option<&String>, faults: &mut Vec<String>) {
    if keys.is_some_and(|keys| !keys.is_empty()) && jwks_uri.is_some() {
        faults.push("keys beside jwks_uri: give one of them".to_owned());
    }
}

#[cfg(test)]
mod tests;
