//! A record of one of the kinds that a file can declare, as the store has it.

use serde_json::{Map, Value};

use super::entry;
use crate::admin::named::NamedKind;
use crate::admin::{api, client, provider, user};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::flow::remove_client::remove_client;
use crate::flow::users::remove_user;
use crate::identity::User;
use crate::oauth::fault::RecordName;
use crate::oauth::group::Groups;
use crate::oauth::{Api, Client, Group, GroupMetadata, RegisteredScope, ScopeMetadata};
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::{APIS, CLIENTS, GROUPS, PROVIDERS, SCOPES};

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
    pub(super) fn name(&self) -> RecordName {
        let (kind, id) = match self {
            Self::Scope(scope) => (ScopeMetadata::KIND, &scope.name),
            Self::Group(group) => (GroupMetadata::KIND, &group.name),
            Self::Provider(provider) => (provider::KIND, &provider.id),
            Self::Api(api) => (api::KIND, &api.id),
            Self::Client(client) => (client::KIND, &client.client_id),
            Self::User(user) => (user::KIND, &user.account_id),
        };
        RecordName {
            kind: kind.to_owned(),
            id: id.clone(),
        }
    }

    /// Its name in the audit log: the identifier stays when a user is renamed.
    pub(super) fn lasting_name(&self) -> RecordName {
        let mut name = self.name();
        if let Self::User(user) = self {
            name.id = user.uuid.to_string();
        }
        name
    }

    /// Whether the operator has nothing to change for it to become `after`.
    pub(super) fn is_as_declared(&self, after: &Self) -> bool {
        match (self, after) {
            (Self::User(before), Self::User(after)) => before.is_as_declared(after),
            _ => self == after,
        }
    }

    pub(super) fn set_updated_at(&mut self, now: Timestamp) {
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
    pub(super) fn export(&self, groups: &Groups) -> Map<String, Value> {
        match self {
            Self::Scope(scope) => entry::named(scope),
            Self::Group(group) => entry::named(group),
            Self::Provider(provider) => entry::provider(provider),
            Self::Api(api) => entry::api(api),
            Self::Client(client) => entry::client(client, false),
            Self::User(user) => entry::user(user, groups, false),
        }
    }

    pub(super) fn put(&self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        match self {
            Self::Scope(scope) => SCOPES.put(tx, &scope.name, scope),
            Self::Group(group) => GROUPS.put(tx, &group.name, group),
            Self::Provider(provider) => PROVIDERS.put(tx, &provider.id, provider),
            Self::Api(api) => APIS.put(tx, &api.id, api),
            Self::Client(client) => CLIENTS.put(tx, &client.client_id, client),
            Self::User(user) => crate::admin::user::write(tx, user),
        }
    }

    pub(super) fn remove(&self, tx: &mut dyn Tx, now: Timestamp) -> Result<(), StoreError> {
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
