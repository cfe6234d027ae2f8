//! Stores a client that nobody vouches for, in place of others if there is no room.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::catalog_rows::is_vouched_for;
use super::registrants::AheadOfStore;
use super::remove_client::remove_client;
use super::{Catalog, Core};
use crate::oauth::client::{Client, Holder};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::CLIENTS;

/// The room for one client, in the transaction that stores it and after that.
///
/// In a store of one process, the client is in memory before the commit, so clients that are stored at once count each
/// other. [`ClientRoom::settle`] reads the store again, also after a failed transaction.
#[derive(Clone)]
pub(super) struct ClientRoom {
    catalog: Arc<ArcSwap<Catalog>>,
    most: usize,
    is_shared: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The clients whose place it takes. `None` until there is room for it.
    replaced: Option<Vec<String>>,
    ahead_of_store: Option<AheadOfStore>,
    /// Those of them that the transaction has removed.
    removed: Vec<Client>,
}

impl ClientRoom {
    pub(super) fn of(core: &Core) -> Self {
        Self {
            catalog: Arc::clone(&core.catalog),
            most: core.policy.registration.most_clients,
            is_shared: core.store.is_shared(),
            state: Arc::default(),
        }
    }

    /// Stores the client, and removes those whose place it takes. Without room, it writes nothing and returns `false`.
    ///
    /// It chooses in the transaction, because that comes after all that are counted. In a store of one process, the
    /// transaction may run twice, and chooses once.
    pub(super) fn put(&self, tx: &mut dyn Tx, client: &Client) -> Result<bool, StoreError> {
        let catalog = self.catalog.load();
        let registrants = catalog.registrants();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if is_vouched_for(client) {
            state.replaced = Some(Vec::new());
        } else if self.is_shared {
            state.replaced = registrants.replaced_by_newest(client, self.most);
        } else if state.replaced.is_none() {
            state.ahead_of_store = registrants.put_in_place(client, self.most);
            state.replaced = state.ahead_of_store.as_ref().map(|ahead| ahead.replaced.clone());
        }
        let Some(replaced) = &state.replaced else {
            return Ok(false);
        };
        let removed = remove_replaced(tx, replaced)?;
        CLIENTS.put(tx, &client.client_id, client)?;
        state.removed = removed;
        Ok(true)
    }

    /// Whether [`ClientRoom::put`] has stored the client.
    pub(super) fn is_taken(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.replaced.is_some()
    }

    /// Brings the catalog up to date after the transaction, and records the removals if it was committed.
    pub(super) async fn settle(&self, core: &Core, client_id: &str) -> Result<(), StoreError> {
        let state = std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
        drop(state.ahead_of_store);
        let mut changed = state.replaced.unwrap_or_default();
        changed.push(client_id.to_owned());
        core.reload_clients(&changed).await?;
        if state.removed.is_empty() {
            return Ok(());
        }
        let read = core.store.read(|snapshot| -> Result<_, StoreError> {
            let is_there = |removed: &Client| Ok(CLIENTS.get(snapshot, &removed.client_id)?.is_some());
            state
                .removed
                .iter()
                .map(is_there)
                .collect::<Result<Vec<_>, StoreError>>()
        });
        for (client, is_there) in state.removed.iter().zip(read.await?) {
            if !is_there {
                audit::record(&Event::ClientRegistrationRemoved {
                    client_id: &client.client_id,
                    name: client.own_name(),
                    reason: "replaced",
                });
            }
        }
        Ok(())
    }
}

/// Removes the clients whose place another takes, and returns them.
fn remove_replaced(tx: &mut dyn Tx, chosen: &[String]) -> Result<Vec<Client>, StoreError> {
    let mut removed = Vec::new();
    for id in chosen {
        let client = CLIENTS.get(&*tx, id)?;
        if let Some(client) = client.filter(|client| client.held_by != Some(Holder::Users)) {
            remove_client(tx, &client)?;
            removed.push(client);
        }
    }
    Ok(removed)
}
