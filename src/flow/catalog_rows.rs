//! The rows that the catalog is made of.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::registrants::Registrants;
use crate::federation::Provider;
use crate::oauth::client::GrantType;
use crate::oauth::group::Group;
use crate::oauth::registered_scope::RegisteredScope;
use crate::oauth::{Api, Client};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, TableId};
use crate::store::records::{RefreshKeyRecord, SigningKeyRecord};
use crate::store::tables::{APIS, CLIENTS, GROUPS, PROVIDERS, REFRESH_KEYS, SCOPES, SIGNING_KEYS};

/// The stored rows of one moment.
pub(super) struct Rows {
    pub(super) clients: Vec<Client>,
    pub(super) registrants: Registrants,
    /// The scope values of the registrants.
    pub(super) registrant_scopes: HashSet<String>,
    pub(super) apis: Vec<(String, Api)>,
    pub(super) others: OtherRows,
}

/// The rows without which a client can be read.
pub(super) struct OtherRows {
    pub(super) scopes: Vec<(String, RegisteredScope)>,
    pub(super) groups: Vec<(String, Group)>,
    pub(super) providers: Vec<(String, Provider)>,
    pub(super) signing_keys: Vec<(String, SigningKeyRecord)>,
    pub(super) refresh_keys: Vec<(u32, RefreshKeyRecord)>,
}

impl OtherRows {
    pub(super) const TABLES: [TableId; 5] = [
        SCOPES.id(),
        GROUPS.id(),
        PROVIDERS.id(),
        SIGNING_KEYS.id(),
        REFRESH_KEYS.id(),
    ];

    pub(super) fn read(snapshot: &dyn Snapshot) -> Result<Self, StoreError> {
        Ok(Self {
            scopes: SCOPES.scan(snapshot, .., usize::MAX)?,
            groups: GROUPS.scan(snapshot, .., usize::MAX)?,
            providers: PROVIDERS.scan(snapshot, .., usize::MAX)?,
            signing_keys: SIGNING_KEYS.scan(snapshot, .., usize::MAX)?,
            refresh_keys: REFRESH_KEYS.scan(snapshot, .., usize::MAX)?,
        })
    }
}

impl Rows {
    /// `room` is the share of memory for clients that nobody vouches for.
    pub(super) fn read(snapshot: &dyn Snapshot, room: usize) -> Result<Self, StoreError> {
        let mut clients = Vec::new();
        let (registrants, mut registrant_scopes) = (Registrants::new(room), HashSet::new());
        CLIENTS.visit(snapshot, .., |_, client| {
            if is_vouched_for(&client) {
                clients.push(client);
            } else {
                registrant_scopes.extend(client.scope.iter().map(ToOwned::to_owned));
                registrants.put_stored(&client);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self {
            clients,
            registrants,
            registrant_scopes,
            apis: APIS.scan(snapshot, .., usize::MAX)?,
            others: OtherRows::read(snapshot)?,
        })
    }
}

/// Whether the operator made the client, or has given it what only the operator gives.
pub(super) fn is_vouched_for(client: &Client) -> bool {
    !client.registered_itself()
        || !client.api_keys.is_empty()
        || client.logo.is_some()
        || client.access_token_lifetime.is_some()
        || client.may_use(GrantType::ClientCredentials)
}
