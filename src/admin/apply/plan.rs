//! The changes that a declared state needs, and how they are made.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Action, Applied, Change, FieldChange, apis, clients, named, providers, users};
use crate::admin::named::NamedKind;
use crate::admin::{AdminRefusal, SecretString, about};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::flow::remove_client::remove_client;
use crate::flow::users::{remove_login_names, remove_user};
use crate::identity::User;
use crate::oauth::fault::RecordName;
use crate::oauth::group::Groups;
use crate::oauth::{
    Api, Client, Fault, FaultCode, Group, GroupMetadata, Logo, RegisteredScope, ScopeMetadata,
};
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{APIS, CLIENTS, GROUPS, PROVIDERS, SCOPES};
use crate::store::{StoreError, TxError};

/// An entry of a file, prepared for the comparison with the stored record.
pub(super) trait Entry {
    /// What entries of this kind are compared with, beside the stored record.
    type Context;
    /// The kind of record in faults.
    const KIND: &'static str;

    /// The name of the record in faults.
    fn id(&self) -> &str;

    /// Compares the entry with the stored record. Adds what is wrong with the record to `faults`.
    fn compare(
        &self,
        snapshot: &dyn Snapshot,
        context: &Self::Context,
        faults: &mut Vec<Fault>,
    ) -> Result<Comparison, TxError<AdminRefusal>>;

    /// The stored records that are removed if no entry declares them.
    fn prunable(snapshot: &dyn Snapshot) -> Result<Vec<StoredRecord>, StoreError>;
}

/// A record before and after the change.
pub(super) struct Comparison {
    pub(super) before: Option<StoredRecord>,
    /// The time of the last change is still that of `before`.
    pub(super) after: StoredRecord,
    /// The change of a secret. An entry of an export does not show it.
    pub(super) secret: Option<FieldChange>,
    /// A secret that was generated, to be shown once.
    pub(super) generated_secret: Option<SecretString>,
    /// The field of a generated identifier.
    pub(super) generated_field: Option<&'static str>,
}

impl Comparison {
    pub(super) fn of<R: Into<StoredRecord>>(before: Option<R>, after: R) -> Self {
        Self {
            before: before.map(Into::into),
            after: after.into(),
            secret: None,
            generated_secret: None,
            generated_field: None,
        }
    }
}

/// A record of one of the kinds that a file can declare.
#[derive(Clone, PartialEq)]
pub(super) enum StoredRecord {
    Scope(Box<RegisteredScope>),
    Group(Box<Group>),
    Provider(Box<Provider>),
    Api(Box<Api>),
    Client(Box<Client>),
    User(Box<User>),
}

macro_rules! from_records {
    ($($variant:ident($record:ty)),*) => {$(
        impl From<$record> for StoredRecord {
            fn from(record: $record) -> Self {
                Self::$variant(Box::new(record))
            }
        }
    )*};
}
from_records!(
    Scope(RegisteredScope),
    Group(Group),
    Provider(Provider),
    Api(Api),
    Client(Client),
    User(User)
);

impl StoredRecord {
    /// Its name in the list of changes.
    fn name(&self) -> RecordName {
        let (kind, id) = match self {
            Self::Scope(scope) => (ScopeMetadata::KIND, &scope.name),
            Self::Group(group) => (GroupMetadata::KIND, &group.name),
            Self::Provider(provider) => (providers::KIND, &provider.id),
            Self::Api(api) => (apis::KIND, &api.id),
            Self::Client(client) => (clients::KIND, &client.client_id),
            Self::User(user) => (users::KIND, &user.account_id),
        };
        RecordName {
            kind: kind.to_owned(),
            id: id.clone(),
        }
    }

    /// Its name in the audit log: the identifier stays when a user is renamed.
    fn lasting_name(&self) -> RecordName {
        let mut name = self.name();
        if let Self::User(user) = self {
            name.id = user.uuid.to_string();
        }
        name
    }

    /// Whether the operator has nothing to change for it to become `after`.
    fn is_as_declared(&self, after: &Self) -> bool {
        match (self, after) {
            (Self::User(before), Self::User(after)) => before.is_as_declared(after),
            _ => self == after,
        }
    }

    fn set_updated_at(&mut self, now: Timestamp) {
        match self {
            Self::Scope(scope) => scope.updated_at = now,
            Self::Group(group) => group.updated_at = now,
            Self::Provider(provider) => provider.updated_at = now,
            Self::Api(api) => api.updated_at = now,
            Self::Client(client) => client.updated_at = now,
            Self::User(user) => user.updated_at = now,
        }
    }

    /// The record as an entry of a file.
    fn export(&self, groups: &Groups) -> Map<String, Value> {
        match self {
            Self::Scope(scope) => named::export(scope),
            Self::Group(group) => named::export(group),
            Self::Provider(provider) => providers::export(provider),
            Self::Api(api) => apis::export(api),
            Self::Client(client) => clients::export(client, false),
            Self::User(user) => users::export(user, groups, false),
        }
    }

    fn put(&self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        match self {
            Self::Scope(scope) => SCOPES.put(tx, &scope.name, scope),
            Self::Group(group) => GROUPS.put(tx, &group.name, group),
            Self::Provider(provider) => PROVIDERS.put(tx, &provider.id, provider),
            Self::Api(api) => APIS.put(tx, &api.id, api),
            Self::Client(client) => CLIENTS.put(tx, &client.client_id, client),
            Self::User(user) => crate::admin::user::write(tx, user),
        }
    }

    fn remove(&self, tx: &mut dyn Tx, now: Timestamp) -> Result<(), StoreError> {
        match self {
            Self::Scope(scope) => SCOPES.remove(tx, &scope.name).map(drop),
            Self::Group(group) => GROUPS.remove(tx, &group.name).map(drop),
            Self::Provider(provider) => PROVIDERS.remove(tx, &provider.id).map(drop),
            Self::Api(api) => APIS.remove(tx, &api.id).map(drop),
            Self::Client(client) => remove_client(tx, client),
            Self::User(user) => remove_user(tx, user, now),
        }
    }
}

/// A write of a plan.
struct PlannedWrite {
    before: Option<StoredRecord>,
    /// `None` if the record is removed.
    after: Option<StoredRecord>,
    /// Whether the operator changes the record. If not, only the note of which hash was declared changes.
    is_audited: bool,
}

/// The changes to make, and the faults that prevent them.
pub(super) struct Plan {
    pub(super) applied: Applied,
    pub(super) faults: Vec<Fault>,
    /// The providers after the change, by id.
    pub(super) providers: BTreeMap<String, Provider>,
    /// The APIs after the change, by id.
    pub(super) apis: BTreeMap<String, Api>,
    /// The identifiers of the groups after the change, by name.
    pub(super) groups: BTreeMap<String, Uuid>,
    /// Whether records that are not declared are removed, of the kinds that are declared.
    prunes: bool,
    now: Timestamp,
    writes: Vec<PlannedWrite>,
}

impl Plan {
    /// A plan without changes.
    pub(super) fn new(dry_run: bool, prunes: bool, now: Timestamp) -> Self {
        Self {
            applied: Applied {
                dry_run,
                ..Applied::default()
            },
            faults: Vec::new(),
            providers: BTreeMap::new(),
            apis: BTreeMap::new(),
            groups: BTreeMap::new(),
            prunes,
            now,
            writes: Vec::new(),
        }
    }

    /// Adds the changes that the entries of one kind need. Does nothing if the file does not declare this kind.
    pub(super) fn compare<E: Entry>(
        &mut self,
        snapshot: &dyn Snapshot,
        declared: Option<&[E]>,
        context: &E::Context,
    ) -> Result<(), StoreError> {
        let Some(declared) = declared else {
            return Ok(());
        };
        let groups = Groups::new(self.groups.clone());
        let mut known = HashSet::new();
        for entry in declared {
            let mut faults = Vec::new();
            match entry.compare(snapshot, context, &mut faults) {
                Ok(comparison) => {
                    if !known.insert(comparison.after.lasting_name().id) {
                        let detail = format!("another entry is about the same {}", E::KIND);
                        faults.push(FaultCode::AlreadyExists.of(E::KIND, entry.id(), detail));
                    }
                    self.change(comparison, &groups);
                }
                Err(TxError::Refused(AdminRefusal(refused))) => faults.extend(refused),
                Err(TxError::Failed(error)) => return Err(error),
            }
            self.faults.extend(about(E::KIND, entry.id(), faults));
        }
        if self.prunes {
            let mut undeclared = E::prunable(snapshot)?;
            undeclared.retain(|record| !known.contains(&record.lasting_name().id));
            undeclared.into_iter().for_each(|record| self.remove(record));
        }
        Ok(())
    }

    fn change(&mut self, comparison: Comparison, groups: &Groups) {
        let Comparison {
            before,
            mut after,
            secret,
            generated_secret,
            generated_field,
        } = comparison;
        match &after {
            StoredRecord::Group(group) => drop(self.groups.insert(group.name.clone(), group.uuid)),
            StoredRecord::Provider(provider) => {
                self.providers.insert(provider.id.clone(), (**provider).clone());
            }
            StoredRecord::Api(api) => drop(self.apis.insert(api.id.clone(), (**api).clone())),
            StoredRecord::Scope(_) | StoredRecord::Client(_) | StoredRecord::User(_) => {}
        }
        let is_same = before.as_ref() == Some(&after);
        let is_unchanged = before
            .as_ref()
            .is_some_and(|before| before.is_as_declared(&after));
        if is_unchanged {
            self.applied.unchanged += 1;
        } else {
            after.set_updated_at(self.now);
            let then = before.as_ref().map(|before| before.export(groups));
            let mut fields = differences(&then.unwrap_or_default(), &after.export(groups));
            // The real run generates other identifiers and secrets.
            let is_dry = self.applied.dry_run;
            fields.retain(|field| !is_dry || Some(field.name.as_str()) != generated_field);
            fields.extend(secret);
            let RecordName { kind, id } = after.name();
            self.applied.changes.push(Change {
                kind,
                id,
                action: if before.is_none() {
                    Action::Add
                } else {
                    Action::Change
                },
                fields,
                client_secret: generated_secret.filter(|_| !is_dry),
            });
        }
        if !is_same {
            self.writes.push(PlannedWrite {
                before,
                after: Some(after),
                is_audited: !is_unchanged,
            });
        }
    }

    /// Plans the removal of a record.
    pub(super) fn remove(&mut self, record: StoredRecord) {
        match &record {
            StoredRecord::Group(group) => drop(self.groups.remove(&group.name)),
            StoredRecord::Provider(provider) => drop(self.providers.remove(&provider.id)),
            StoredRecord::Api(api) => drop(self.apis.remove(&api.id)),
            StoredRecord::Scope(_) | StoredRecord::Client(_) | StoredRecord::User(_) => {}
        }
        let RecordName { kind, id } = record.name();
        self.applied.changes.push(Change {
            kind,
            id,
            action: Action::Remove,
            fields: Vec::new(),
            client_secret: None,
        });
        self.writes.push(PlannedWrite {
            before: Some(record),
            after: None,
            is_audited: true,
        });
    }

    /// The clients that are stored or removed, by identifier, and whether they are there after the change.
    pub(super) fn changed_clients(&self) -> BTreeMap<&str, bool> {
        let mut changed = BTreeMap::new();
        for write in &self.writes {
            let record = write.after.as_ref().or(write.before.as_ref());
            if let Some(StoredRecord::Client(client)) = record {
                changed.insert(client.client_id.as_str(), write.after.is_some());
            }
        }
        changed
    }

    /// The users who are added or changed, as they are after the change.
    pub(super) fn users_after(&self) -> impl Iterator<Item = &User> {
        self.writes.iter().filter_map(|write| match &write.after {
            Some(StoredRecord::User(user)) => Some(&**user),
            _ => None,
        })
    }

    /// The stored users who are changed or removed.
    pub(super) fn users_before(&self) -> impl Iterator<Item = &User> {
        self.writes.iter().filter_map(|write| match &write.before {
            Some(StoredRecord::User(user)) => Some(&**user),
            _ => None,
        })
    }

    /// The records that the operator changes, as the audit log names them.
    pub(super) fn audited(&self) -> Vec<RecordName> {
        let audited = self.writes.iter().filter(|write| write.is_audited);
        let records = audited.filter_map(|write| write.after.as_ref().or(write.before.as_ref()));
        records.map(StoredRecord::lasting_name).collect()
    }

    /// Makes the writes. Names are removed before others are added, so that one user may get the name of another.
    pub(super) fn execute(&self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        for write in &self.writes {
            match (&write.before, &write.after) {
                (Some(before), None) => before.remove(tx, self.now)?,
                (Some(StoredRecord::User(before)), Some(_)) => remove_login_names(tx, before)?,
                _ => {}
            }
        }
        let mut put = self.writes.iter().filter_map(|write| write.after.as_ref());
        put.try_for_each(|record| record.put(tx))
    }
}

fn differences(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<FieldChange> {
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let names = after.keys().chain(removed);
    let changed = names.filter(|name| before.get(*name) != after.get(*name));
    let changes = changed.map(|name| FieldChange {
        name: name.clone(),
        before: before.get(name).map(|value| shown(name, value)),
        after: after.get(name).map(|value| shown(name, value)),
        secret: None,
    });
    changes.collect()
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
