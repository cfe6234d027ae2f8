//! The stored records as entries of a file.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{apis, clients, members, named, providers, users};
use crate::flow::Core;
use crate::flow::factors::users_with_factors;
use crate::oauth::fields::Form;
use crate::oauth::group::Groups;
use crate::store::StoreError;
use crate::store::tables::{APIS, CLIENTS, GROUPS, PROVIDERS, SCOPES, USERS};

/// A record of an export, as an entry of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exported {
    /// A scope value, in the order of their names.
    Scope(Map<String, Value>),
    /// A group, in the order of their names.
    Group(Map<String, Value>),
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
    /// Clients that registered themselves.
    #[serde(default)]
    pub registered: u64,
    /// Users who were created by a provider.
    pub brought: u64,
    /// Links of other users to providers.
    pub links: u64,
    /// Formerly anonymous users who can sign in.
    pub from_devices: u64,
    /// Users with an authenticator app, a passkey or recovery codes.
    #[serde(default)]
    pub with_factors: u64,
}

/// Passes the stored records that a file can declare to `pass`, until it returns `Break`. Hashes are included if
/// requested, secrets never. One user at a time is in memory. Returns what was left out.
pub fn export(
    core: &Core,
    with_hashes: bool,
    pass: &mut dyn FnMut(Exported) -> ControlFlow<()>,
) -> Result<NotExported, StoreError> {
    let mut not_exported = NotExported::default();
    let mut flow = ControlFlow::Continue(());
    // After a `Break`, `pass` must not be called again.
    let mut take = |record: Exported| {
        if flow.is_continue() {
            flow = pass(record);
        }
        Ok(flow)
    };
    core.store.stream(|snapshot| {
        SCOPES.visit(snapshot, .., |_, scope| {
            take(Exported::Scope(named::export(&scope)))
        })?;
        let mut groups = Vec::new();
        GROUPS.visit(snapshot, .., |name, group| {
            groups.push((name, group.uuid));
            take(Exported::Group(named::export(&group)))
        })?;
        let groups = Groups::new(groups);
        PROVIDERS.visit(snapshot, .., |_, provider| {
            take(Exported::Provider(providers::export(&provider)))
        })?;
        APIS.visit(snapshot, .., |_, api| take(Exported::Api(apis::export(&api))))?;
        CLIENTS.visit(snapshot, .., |_, client| {
            if client.registered_itself() {
                not_exported.registered += 1;
                return Ok(ControlFlow::Continue(()));
            }
            take(Exported::Client(clients::export(&client, with_hashes)))
        })?;
        USERS.visit(snapshot, .., |_, user| {
            if users::is_declarable(&user) {
                not_exported.links += user.identities.len() as u64;
                return take(Exported::User(users::export(&user, &groups, with_hashes)));
            }
            if user.comes_from_provider() {
                not_exported.brought += 1;
            } else if !user.is_anonymous() {
                not_exported.from_devices += 1;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        not_exported.with_factors = users_with_factors(snapshot)?;
        Ok(())
    })?;
    Ok(not_exported)
}

/// The fields of a record that differ from the `usual` one, as an entry of a file.
pub(super) fn export_fields(
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
