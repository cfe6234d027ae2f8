//! The changes that a declared state needs, and how they are made.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Action, Applied, Change, FieldChange, SecretChange, apis, clients, providers, users};
use crate::admin::SecretString;
use crate::admin::named::NamedKind;
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::flow::remove_client::remove_client;
use crate::flow::users::{remove_login_names, remove_user};
use crate::identity::User;
use crate::oauth::group::Groups;
use crate::oauth::{Api, Client, Fault, Group, GroupMetadata, Logo, RegisteredScope, ScopeMetadata};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{APIS, CLIENTS, GROUPS, PROVIDERS, SCOPES};

/// A write of a plan.
pub(super) enum PlannedWrite {
    PutScope(Box<RegisteredScope>),
    RemoveScope(String),
    PutGroup(Box<Group>),
    RemoveGroup(String),
    PutProvider(Box<Provider>),
    RemoveProvider(String),
    PutApi(Box<Api>),
    RemoveApi(String),
    PutClient(Box<Client>),
    RemoveClient(Box<Client>),
    PutUser(Option<Box<User>>, Box<User>),
    /// Only the record of which hash was declared changes.
    UpdateDeclaredHash(Box<User>),
    RemoveUser(Box<User>),
}

impl PlannedWrite {
    /// How the audit log names the changed record: its kind, and the identifier that stays when its name changes. `None` for
    /// a change that is not audited.
    pub(super) fn audited_record(&self) -> Option<(&'static str, String)> {
        Some(match self {
            Self::PutScope(scope) => (ScopeMetadata::KIND, scope.name.clone()),
            Self::RemoveScope(name) => (ScopeMetadata::KIND, name.clone()),
            Self::PutGroup(group) => (GroupMetadata::KIND, group.name.clone()),
            Self::RemoveGroup(name) => (GroupMetadata::KIND, name.clone()),
            Self::PutProvider(provider) => (providers::KIND, provider.id.clone()),
            Self::RemoveProvider(id) => (providers::KIND, id.clone()),
            Self::PutApi(api) => (apis::KIND, api.id.clone()),
            Self::RemoveApi(id) => (apis::KIND, id.clone()),
            Self::PutClient(client) | Self::RemoveClient(client) => (clients::KIND, client.client_id.clone()),
            Self::PutUser(_, user) | Self::RemoveUser(user) => (users::KIND, user.uuid.to_string()),
            Self::UpdateDeclaredHash(_) => return None,
        })
    }
}

/// The changes to make, and the faults that prevent them.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) writes: Vec<PlannedWrite>,
    pub(super) applied: Applied,
    pub(super) faults: Vec<Fault>,
    /// The providers after the change, by id.
    pub(super) providers: BTreeMap<String, Provider>,
    /// The APIs after the change, by id.
    pub(super) apis: BTreeMap<String, Api>,
    /// The groups after the change.
    pub(super) groups: Groups,
}

impl Plan {
    /// The groups after the changes that are planned so far, including groups of `new` that are not stored yet.
    pub(super) fn groups_after(
        &self,
        snapshot: &dyn Snapshot,
        new: &[(String, Uuid)],
    ) -> Result<Groups, StoreError> {
        let mut groups: BTreeMap<String, Uuid> = new.iter().cloned().collect();
        let stored = GROUPS.scan(snapshot, .., usize::MAX)?;
        groups.extend(stored.into_iter().map(|(name, group)| (name, group.uuid)));
        for write in &self.writes {
            match write {
                PlannedWrite::PutGroup(group) => drop(groups.insert(group.name.clone(), group.uuid)),
                PlannedWrite::RemoveGroup(name) => drop(groups.remove(name)),
                _ => {}
            }
        }
        Ok(Groups::new(groups))
    }

    /// Adds the change of a record, by its entries in a file before and after.
    pub(super) fn note(
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

    /// Adds the change of a secret to the last change.
    pub(super) fn note_secret(&mut self, name: &str, what: SecretChange) {
        if let Some(change) = self.applied.changes.last_mut() {
            change.fields.push(FieldChange {
                name: name.to_owned(),
                before: None,
                after: None,
                secret: Some(what),
            });
        }
    }

    /// Adds a generated client secret to the last change. A dry run shows none, since that secret is not stored.
    pub(super) fn note_generated_secret(&mut self, secret: Option<SecretString>) {
        if let Some(change) = self.applied.changes.last_mut().filter(|_| !self.applied.dry_run) {
            change.client_secret = secret;
        }
    }

    /// Removes a generated identifier from the last change of a dry run: the real run will generate another one.
    pub(super) fn hide_generated(&mut self, name: &str) {
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
            before: before.get(name).map(|value| shown(name, value)),
            after: after.get(name).map(|value| shown(name, value)),
            secret: None,
        })
        .collect()
}

/// A value as the plan shows it: of a logo, its size and its version.
fn shown(name: &str, value: &Value) -> Value {
    match value.as_str() {
        Some(data) if name == "logo" => {
            let version = Logo::version_of(data);
            format!("{} bytes of base64, version {version}", data.len()).into()
        }
        _ => value.clone(),
    }
}

/// Makes the writes. Names are removed before others are added, so that two users may swap theirs.
pub(super) fn execute(tx: &mut dyn Tx, writes: &[PlannedWrite], now: Timestamp) -> Result<(), StoreError> {
    for write in writes {
        match write {
            PlannedWrite::RemoveClient(client) => remove_client(tx, client)?,
            PlannedWrite::RemoveUser(user) => remove_user(tx, user, now)?,
            PlannedWrite::PutUser(Some(before), _) => remove_login_names(tx, before)?,
            PlannedWrite::RemoveProvider(id) => {
                PROVIDERS.remove(tx, id)?;
            }
            PlannedWrite::RemoveApi(id) => {
                APIS.remove(tx, id)?;
            }
            PlannedWrite::RemoveScope(name) => {
                SCOPES.remove(tx, name)?;
            }
            PlannedWrite::RemoveGroup(name) => {
                GROUPS.remove(tx, name)?;
            }
            PlannedWrite::PutScope(_)
            | PlannedWrite::PutGroup(_)
            | PlannedWrite::PutProvider(_)
            | PlannedWrite::PutApi(_)
            | PlannedWrite::PutClient(_)
            | PlannedWrite::PutUser(None, _)
            | PlannedWrite::UpdateDeclaredHash(_) => {}
        }
    }
    for write in writes {
        match write {
            PlannedWrite::PutScope(scope) => SCOPES.put(tx, &scope.name, scope)?,
            PlannedWrite::PutGroup(group) => GROUPS.put(tx, &group.name, group)?,
            PlannedWrite::PutProvider(provider) => PROVIDERS.put(tx, &provider.id, provider)?,
            PlannedWrite::PutApi(api) => APIS.put(tx, &api.id, api)?,
            PlannedWrite::PutClient(client) => CLIENTS.put(tx, &client.client_id, client)?,
            PlannedWrite::PutUser(_, user) | PlannedWrite::UpdateDeclaredHash(user) => {
                crate::admin::user::write(tx, user)?;
            }
            PlannedWrite::RemoveScope(_)
            | PlannedWrite::RemoveGroup(_)
            | PlannedWrite::RemoveProvider(_)
            | PlannedWrite::RemoveApi(_)
            | PlannedWrite::RemoveClient(_)
            | PlannedWrite::RemoveUser(_) => {}
        }
    }
    Ok(())
}
