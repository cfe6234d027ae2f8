//! Finds the client of a sign-in. Its identifier may be the address of its metadata document
//! (draft-ietf-oauth-client-id-metadata-document).
//!
//! The document is fetched for each new authorization request, unless it is in the cache. A fetch writes nothing,
//! because anyone can cause one. The transaction that issues a code also stores the client's record. So all other
//! requests find the client like a registered one.
//!
//! The record is updated when the client gets another code, and when it authenticates. If the document cannot be
//! fetched, new authorization requests are refused. Existing grants remain valid, with the stored record.

use std::slice;
use std::sync::Arc;

use url::Url;

use super::register_client::describe;
use super::unused_clients::RECORD_INTERVAL;
use super::{Catalog, Core, Failure};
use crate::clock::Timestamp;
use crate::oauth::Client;
use crate::oauth::authorize::UntrustedRedirect;
use crate::oauth::client::ClientOrigin;
use crate::oauth::client_document::{address_of, new_client};
use crate::oauth::redirect_uri::lead_elsewhere;
use crate::oauth::registration::RequestedMetadata;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::CLIENTS;

/// Finds the client of a sign-in, also again in a later transaction.
#[derive(Clone)]
pub struct ClientLookup {
    catalog: Arc<Catalog>,
    /// The client as its metadata document describes it; `None` for a client without a document.
    documented: Option<Client>,
}

impl ClientLookup {
    /// The lookup for a registered client, or for a sign-in without a client.
    pub(in crate::flow) fn registered(core: &Core) -> Self {
        Self {
            catalog: core.catalog(),
            documented: None,
        }
    }

    /// The client with this identifier, enabled or not.
    pub(in crate::flow) fn client(&self, client_id: &str) -> Option<Arc<Client>> {
        match &self.documented {
            Some(client) => Some(Arc::new(self.catalog.expand_scope(client.clone()))),
            None => self.catalog.client(client_id).cloned(),
        }
    }

    /// The client as it is now, in a transaction. It may have been disabled, removed or changed.
    pub(in crate::flow) fn current(
        &self,
        snapshot: &dyn Snapshot,
        client_id: &str,
    ) -> Result<Option<Arc<Client>>, StoreError> {
        let stored = CLIENTS.get(snapshot, client_id)?;
        let client = match (&self.documented, stored) {
            (Some(documented), None) => Some(documented.clone()),
            (Some(documented), Some(stored)) if stored.client_uuid == documented.client_uuid => {
                Some(Client {
                    enabled: stored.enabled,
                    ..documented.clone()
                })
            }
            (_, stored) => stored,
        };
        Ok(client.map(|client| Arc::new(self.catalog.expand_scope(client))))
    }

    /// Stores the client, unless its record is up to date. The same transaction issues its code.
    pub(in crate::flow) fn store(&self, tx: &mut dyn Tx, now: Timestamp) -> Result<(), StoreError> {
        match &self.documented {
            Some(documented) => store(tx, documented, now),
            None => Ok(()),
        }
    }

    /// Updates the catalog after the commit of [`ClientLookup::store`].
    pub(in crate::flow) fn publish(&self, core: &Core) -> Result<(), StoreError> {
        match &self.documented {
            Some(documented) => publish(core, &documented.client_id),
            None => Ok(()),
        }
    }
}

/// Finds the client of a sign-in. Before a document is fetched, `admit` gets its address, and can refuse the fetch. The
/// document of a stored client counts only if the last attempt to fetch it failed: users of a client that works do not
/// wait.
pub(in crate::flow) async fn find_client(
    core: &Core,
    client_id: &str,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<Result<ClientLookup, UntrustedRedirect>, Failure> {
    let registered = ClientLookup::registered(core);
    let known = registered.catalog.client(client_id);
    let is_registered_by_operator = known.is_some_and(|client| !has_metadata_document(client));
    let address =
        address_of(client_id).filter(|_| core.policy.metadata_documents && !is_registered_by_operator);
    match (known, &address) {
        (Some(client), _) if !client.enabled => return Ok(Err(UntrustedRedirect::DisabledClient)),
        (Some(_), None) if is_registered_by_operator => return Ok(Ok(registered)),
        (_, None) => return Ok(Err(UntrustedRedirect::UnknownClient)),
        (None, Some(address)) => {
            if core.upstreams.would_fetch_client_document(client_id, now) {
                admit(address)?;
            }
            let stored = registered
                .catalog
                .clients()
                .filter(|client| has_metadata_document(client));
            if stored.count() >= core.policy.registration.most_clients {
                let detail =
                    "the number of clients with metadata documents has reached clients.most_registered";
                return Ok(Err(UntrustedRedirect::ClientDocument(detail.to_owned())));
            }
        }
        (Some(_), Some(address)) => {
            if core.upstreams.would_retry_client_document(client_id, now) {
                admit(address)?;
            }
        }
    }
    let document = match core.upstreams.client_document(client_id, now).await {
        Ok(document) => document,
        Err(unavailable) => return Ok(Err(UntrustedRedirect::ClientDocument(unavailable.0))),
    };
    let stored = core.store.read(|snapshot| CLIENTS.get(snapshot, client_id))?;
    if stored
        .as_ref()
        .is_some_and(|client| !has_metadata_document(client))
    {
        // The operator added it during the fetch.
        return Ok(Ok(ClientLookup::registered(core)));
    }
    let before = stored.unwrap_or_else(|| new_client(client_id, core.random.uuid_v4(), now));
    let documented = documented(core, &document, before, now);
    Ok(documented
        .map(|documented| ClientLookup {
            documented: Some(documented),
            ..registered
        })
        .map_err(UntrustedRedirect::ClientDocument))
}

/// The client as its document describes it. `before` is its record, or a new one.
fn documented(
    core: &Core,
    document: &RequestedMetadata,
    before: Client,
    now: Timestamp,
) -> Result<Client, String> {
    let client_id = before.client_id.clone();
    let redirect_uris = before.redirect_uris.clone();
    let mut client = describe(core, document, before).map_err(|refusal| {
        let problem = format!("the document at {client_id}: {}", refusal.description);
        core.upstreams.reject_client_document(&client_id, problem.clone());
        problem
    })?;
    if lead_elsewhere(&redirect_uris, &client.redirect_uris) {
        client.redirects_changed_at = Some(now);
    }
    Ok(client)
}

/// Renews the record of a client that authenticates, if it has a metadata document and that has changed. Without the
/// document the record stays as it is. Anyone can cause this, so it is not recorded as a use. `admit` is called with the
/// address of the document before it is fetched again after a failure.
pub(in crate::flow) async fn renew_client(
    core: &Core,
    client_id: &str,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<(), Failure> {
    let is_renewed = |client: &Arc<Client>| client.enabled && has_metadata_document(client);
    let address = address_of(client_id).filter(|_| core.policy.metadata_documents);
    let Some(address) = address.filter(|_| core.catalog().client(client_id).is_some_and(is_renewed)) else {
        return Ok(());
    };
    if core.upstreams.would_retry_client_document(client_id, now) {
        admit(&address)?;
    }
    let Ok(document) = core.upstreams.client_document(client_id, now).await else {
        return Ok(());
    };
    let stored = core.store.read(|snapshot| CLIENTS.get(snapshot, client_id))?;
    let Some(stored) = stored.filter(has_metadata_document) else {
        return Ok(());
    };
    let client = documented(core, &document, stored.clone(), now);
    let Some(client) = client.ok().filter(|client| *client != stored) else {
        return Ok(());
    };
    core.store
        .write("renew_client", move |tx| {
            if CLIENTS.get(&*tx, &client.client_id)?.as_ref() == Some(&stored) {
                CLIENTS.put(tx, &client.client_id, &client)?;
            }
            Ok(())
        })
        .await?;
    Ok(publish(core, client_id)?)
}

fn is_use_due(client: &Client, now: Timestamp) -> bool {
    has_metadata_document(client) && now.since(client.updated_at) >= RECORD_INTERVAL
}

/// Records, at most once a day, that a client with a metadata document got tokens by a refresh. A code is recorded when it
/// is issued.
pub(in crate::flow) async fn record_use(core: &Core, client: &Client, now: Timestamp) -> Result<(), Failure> {
    if !is_use_due(client, now) {
        return Ok(());
    }
    let id = client.client_id.clone();
    core.store
        .write("record_client_use", move |tx| {
            let stored = CLIENTS.get(&*tx, &id)?;
            if let Some(mut stored) = stored.filter(|stored| is_use_due(stored, now)) {
                stored.updated_at = now;
                CLIENTS.put(tx, &id, &stored)?;
            }
            Ok(())
        })
        .await?;
    Ok(publish(core, &client.client_id)?)
}

/// Stores a client if it differs from its record, or if its last recorded use is older than `RECORD_INTERVAL`. A client
/// of the operator with the same identifier stays.
fn store(tx: &mut dyn Tx, client: &Client, now: Timestamp) -> Result<(), StoreError> {
    let mut client = client.clone();
    if let Some(stored) = CLIENTS.get(&*tx, &client.client_id)? {
        if stored.client_uuid != client.client_uuid {
            return Ok(());
        }
        client.enabled = stored.enabled;
        client.updated_at = stored.updated_at;
        if client == stored && now.since(stored.updated_at) < RECORD_INTERVAL {
            return Ok(());
        }
    }
    client.updated_at = now;
    CLIENTS.put(tx, &client.client_id, &client)
}

/// Reads the stored record into the catalog, unless the catalog has it already.
fn publish(core: &Core, client_id: &str) -> Result<(), StoreError> {
    let catalog = core.catalog();
    let before = catalog.client(client_id);
    let Some(stored) = core.store.read(|snapshot| CLIENTS.get(snapshot, client_id))? else {
        return Ok(());
    };
    let after = catalog.expand_scope(stored);
    if before.is_some_and(|before| **before == after) {
        return Ok(());
    }
    core.reload_clients(slice::from_ref(&after.client_id))?;
    if before.is_none_or(|before| before.metadata != after.metadata) {
        audit::record(&Event::ClientDocumentStored { client_id });
    }
    Ok(())
}

fn has_metadata_document(client: &Client) -> bool {
    client.origin == ClientOrigin::MetadataDocument
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::core;

    const ID: &str = "https://app.example/client";

    #[tokio::test]
    async fn of_two_records_of_one_second_the_later_one_counts() {
        let core = core();
        let now = core.clock.now();
        let mut client = new_client(ID, core.random.uuid_v4(), now);
        for name in ["first", "second"] {
            client.client_name = Some(name.to_owned());
            let row = client.clone();
            let put = move |tx: &mut dyn Tx| CLIENTS.put(tx, ID, &row);
            core.store.write("test_store", put).await.unwrap();
            publish(&core, ID).unwrap();
            assert_eq!(core.catalog().client(ID).unwrap().display_name(), name);
        }
    }

    #[tokio::test]
    async fn a_client_that_the_operator_adds_during_a_sign_in_is_not_replaced_by_the_document() {
        let core = core();
        let now = core.clock.now();
        let lookup = ClientLookup {
            documented: Some(new_client(ID, core.random.uuid_v4(), now)),
            ..ClientLookup::registered(&core)
        };
        let [uuid, own_grant] = [core.random.uuid_v4(), core.random.uuid_v4()];
        let registered = Client::new(ID, uuid, own_grant, true, now);
        let row = registered.clone();
        let stored = core
            .store
            .write("test_store", move |tx| {
                CLIENTS.put(tx, ID, &row)?;
                lookup.store(tx, now)?;
                CLIENTS.get(&*tx, ID)
            })
            .await;
        assert_eq!(stored.unwrap(), Some(registered));
    }
}
