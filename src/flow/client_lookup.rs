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
use uuid::Uuid;

use super::client_room::ClientRoom;
use super::register_client::describe;
use super::unused_clients::RECORD_INTERVAL;
use super::{Catalog, Core, Failure, FlowError, unless_refused};
use crate::clock::Timestamp;
use crate::oauth::Client;
use crate::oauth::authorize::UntrustedRedirect;
use crate::oauth::client::{ClientOrigin, Holder};
use crate::oauth::client_document::{address_of, new_client};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::redirect_uri::lead_elsewhere;
use crate::oauth::registration::RequestedMetadata;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::seal::Sealer;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::CLIENTS;
use crate::store::{StoreError, TxError};

/// Why a metadata document of a new client is not accepted.
const FULL: &str = "there is no room for this client: the clients with metadata documents that are stored keep their places (clients.most_registered, limits.memory)";

/// The answer to a client that authenticates, and whose document has grown while there is no room.
const NO_ROOM_TO_RENEW: Refusal = Refusal::new(
    ErrorCode::TemporarilyUnavailable,
    "the metadata document of this client has grown, and there is no room for it",
);

/// Finds the client of a sign-in, also again in a later transaction.
#[derive(Clone)]
pub struct ClientLookup {
    catalog: Arc<Catalog>,
    sealer: Arc<Sealer>,
    /// `None` for a client without a metadata document.
    documented: Option<DocumentedClient>,
}

/// A client as its metadata document describes it.
#[derive(Clone)]
struct DocumentedClient {
    client: Client,
    /// Its record when the document was read.
    before: Option<Client>,
    room: ClientRoom,
}

impl DocumentedClient {
    /// The client, with what its record says now. `None` if the record was added, changed or removed since the document
    /// was read: then the record counts. A removed one must not come back, because its grants would.
    fn over(&self, stored: Option<&Client>) -> Option<Client> {
        let Some(stored) = stored else {
            return self.before.is_none().then(|| self.client.clone());
        };
        let as_used_now = |client: &Client| Client {
            enabled: stored.enabled,
            updated_at: stored.updated_at,
            ..client.clone()
        };
        let is_unchanged = as_used_now(self.before.as_ref()?) == *stored;
        is_unchanged.then(|| as_used_now(&self.client))
    }
}

impl ClientLookup {
    /// The lookup for a registered client, or for a sign-in without a client.
    pub(in crate::flow) fn registered(core: &Core) -> Self {
        Self {
            catalog: core.catalog(),
            sealer: Arc::clone(&core.sealer),
            documented: None,
        }
    }

    /// The client with this identifier, enabled or not.
    pub(in crate::flow) fn client(&self, client_id: &str) -> Option<Arc<Client>> {
        match &self.documented {
            Some(documented) => Some(Arc::new(self.catalog.expand_scope(documented.client.clone()))),
            None => self.catalog.client(client_id),
        }
    }

    /// The client as it is now, in a transaction. It may have been disabled, removed or changed.
    pub(in crate::flow) fn current(
        &self,
        snapshot: &dyn Snapshot,
        client_id: &str,
    ) -> Result<Option<Arc<Client>>, StoreError> {
        let stored = CLIENTS.get(snapshot, client_id)?;
        let documented = self.documented.as_ref();
        let client = documented.and_then(|documented| documented.over(stored.as_ref()));
        let client = client.or(stored);
        Ok(client.map(|client| Arc::new(self.catalog.expand_scope(client))))
    }

    /// Stores the client if it differs from its record, or if its last recorded use is older than [`RECORD_INTERVAL`]. The
    /// same transaction issues its code to this user.
    pub(in crate::flow) fn store(
        &self,
        tx: &mut dyn Tx,
        user: Uuid,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(documented) = &self.documented else {
            return Ok(());
        };
        let stored = CLIENTS.get(&*tx, &documented.client.client_id)?;
        let Some(mut client) = documented.over(stored.as_ref()) else {
            return Ok(());
        };
        let is_unchanged = stored.as_ref() == Some(&client);
        let user = self.sealer.pseudonym("user", user.as_bytes());
        let held_by = Some(Holder::with_user(client.held_by, user));
        if is_unchanged && client.held_by == held_by && now.since(client.updated_at) < RECORD_INTERVAL {
            return Ok(());
        }
        client.held_by = held_by;
        client.updated_at = now;
        if is_unchanged {
            return CLIENTS.put(tx, &client.client_id, &client);
        }
        if !documented.room.put(tx, &client)? {
            // There was room when the document was read.
            return Err(StoreError::Busy);
        }
        Ok(())
    }

    /// Updates the catalog after the transaction of [`ClientLookup::store`], also after a failed one.
    pub(in crate::flow) async fn publish(&self, core: &Core) -> Result<(), StoreError> {
        let Some(documented) = &self.documented else {
            return Ok(());
        };
        let (client, room) = (&documented.client, &documented.room);
        if room.is_taken() {
            publish_description(core, room, documented.before.as_ref(), client).await
        } else {
            publish(core, &client.client_id).await
        }
    }
}

/// Finds the client of a sign-in. Before a document is fetched, `admit` gets its address, and can refuse the fetch. For a
/// stored client, it gets the address only if the last fetch failed, so that users of a working client are not refused.
pub(in crate::flow) async fn find_client(
    core: &Core,
    client_id: &str,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<ClientLookup, FlowError<UntrustedRedirect>> {
    let registered = ClientLookup::registered(core);
    let known = registered.catalog.client(client_id);
    let is_without_document = known
        .as_ref()
        .is_some_and(|client| !has_metadata_document(client));
    let address = address_of(client_id).filter(|_| core.policy.metadata_documents && !is_without_document);
    match (known, &address) {
        (Some(client), _) if !client.enabled => return Err(UntrustedRedirect::DisabledClient.into()),
        (Some(_), None) if is_without_document => return Ok(registered),
        (_, None) => return Err(UntrustedRedirect::UnknownClient.into()),
        (None, Some(address)) => {
            if core.upstreams.would_fetch_client_document(client_id, now) {
                admit(address)?;
            }
        }
        (Some(_), Some(address)) => {
            if core.upstreams.would_retry_client_document(client_id, now) {
                admit(address)?;
            }
        }
    }
    let document = core.upstreams.client_document(client_id, now).await;
    let document = document.map_err(|unavailable| UntrustedRedirect::ClientDocument(unavailable.0))?;
    let stored = core
        .store
        .read(|snapshot| CLIENTS.get(snapshot, client_id))
        .await?;
    if stored
        .as_ref()
        .is_some_and(|client| !has_metadata_document(client))
    {
        // The operator added it during the fetch.
        return Ok(ClientLookup::registered(core));
    }
    let record = stored.clone();
    let record = record.unwrap_or_else(|| new_client(client_id, core.random.uuid_v4(), now));
    let client = documented(core, &document, record, now).map_err(UntrustedRedirect::ClientDocument)?;
    let most = core.policy.registration.most_clients;
    let replaced = registered.catalog.registrants().replaced_by(&client, most);
    if replaced.is_none() {
        return Err(UntrustedRedirect::ClientDocument(FULL.to_owned()).into());
    }
    Ok(ClientLookup {
        documented: Some(DocumentedClient {
            client,
            before: stored,
            room: ClientRoom::of(core),
        }),
        ..registered
    })
}

/// The client that authenticates, if it has a metadata document and no record yet. Such a client may push a request before
/// any user has allowed it.
pub(in crate::flow) async fn find_unstored_client(
    core: &Core,
    client_id: &str,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<Option<Arc<Client>>, Failure> {
    if core.catalog().client(client_id).is_some() {
        return Ok(None);
    }
    let found = unless_refused(find_client(core, client_id, admit, now).await)?;
    Ok(found.and_then(|lookup| lookup.client(client_id)))
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
/// document the record stays as it is. Without room for what the document says now, the client is refused: the keys of
/// the record may be revoked. Anyone can cause this, so it is not recorded as a use. `admit` is called with the address of
/// the document before it is fetched again after a failure.
pub(in crate::flow) async fn renew_client(
    core: &Core,
    client_id: &str,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<(), FlowError> {
    let is_renewed = |client: Arc<Client>| client.enabled && has_metadata_document(&client);
    let address = address_of(client_id).filter(|_| core.policy.metadata_documents);
    let Some(address) = address.filter(|_| core.catalog().client(client_id).is_some_and(is_renewed)) else {
        return Ok(());
    };
    if core.upstreams.would_retry_client_document(client_id, now) && admit(&address).is_err() {
        return Ok(());
    }
    let Ok(document) = core.upstreams.client_document(client_id, now).await else {
        return Ok(());
    };
    let stored = core
        .store
        .read(|snapshot| CLIENTS.get(snapshot, client_id))
        .await?;
    let Some(stored) = stored.filter(has_metadata_document) else {
        return Ok(());
    };
    let described = documented(core, &document, stored.clone(), now);
    let Some(client) = described.ok().filter(|client| *client != stored) else {
        return Ok(());
    };
    let room = ClientRoom::of(core);
    let (before, renewed, room_in_tx) = (stored.clone(), client.clone(), room.clone());
    let written = core
        .store
        .write("renew_client", move |tx| -> Result<_, TxError<Refusal>> {
            let is_current = CLIENTS.get(&*tx, &renewed.client_id)?.as_ref() == Some(&before);
            if is_current && !room_in_tx.put(tx, &renewed)? {
                return Err(NO_ROOM_TO_RENEW.into());
            }
            Ok(())
        })
        .await;
    let published = if room.is_taken() {
        publish_description(core, &room, Some(&stored), &client).await
    } else {
        publish(core, client_id).await
    };
    written?;
    Ok(published?)
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
        .write("record_client_use", move |tx| -> Result<_, StoreError> {
            let stored = CLIENTS.get(&*tx, &id)?;
            if let Some(mut stored) = stored.filter(|stored| is_use_due(stored, now)) {
                stored.updated_at = now;
                CLIENTS.put(tx, &id, &stored)?;
            }
            Ok(())
        })
        .await?;
    Ok(publish(core, &client.client_id).await?)
}

/// Reads the stored record into the catalog, unless the catalog has it already.
async fn publish(core: &Core, client_id: &str) -> Result<(), StoreError> {
    let catalog = core.catalog();
    let read = core.store.read(|snapshot| CLIENTS.get(snapshot, client_id));
    let Some(stored) = read.await? else {
        return Ok(());
    };
    let after = catalog.expand_scope(stored);
    match catalog.client(client_id) {
        Some(before) if *before == after => Ok(()),
        _ => core.reload_clients(slice::from_ref(&after.client_id)).await,
    }
}

/// Updates the catalog after a transaction that stores what the document says, and records that it was stored.
async fn publish_description(
    core: &Core,
    room: &ClientRoom,
    before: Option<&Client>,
    described: &Client,
) -> Result<(), StoreError> {
    let client_id = described.client_id.as_str();
    room.settle(core, client_id).await?;
    let read = core.store.read(|snapshot| CLIENTS.get(snapshot, client_id));
    let is_stored = read
        .await?
        .is_some_and(|stored| stored.metadata == described.metadata);
    let is_new = before.is_none_or(|before| before.metadata != described.metadata);
    if is_stored && is_new {
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
            publish(&core, ID).await.unwrap();
            assert_eq!(core.catalog().client(ID).unwrap().display_name(), name);
        }
    }

    #[tokio::test]
    async fn a_record_that_was_added_or_changed_during_a_sign_in_is_not_replaced_by_the_document() {
        let core = core();
        let now = core.clock.now();
        let [uuid, own_grant] = [core.random.uuid_v4(), core.random.uuid_v4()];
        let before = new_client(ID, own_grant, now);
        let mut described = before.clone();
        described.client_name = Some("described".to_owned());
        let mut changed = before.clone();
        changed.apis.insert("notes".to_owned());
        let added = Client::new(ID, uuid, own_grant, true, now);
        let mut disabled = before.clone();
        disabled.enabled = false;
        for (read, stored, kept) in [
            (None, added, true),
            (Some(&before), changed, true),
            (Some(&before), disabled, false),
        ] {
            let documented = DocumentedClient {
                client: described.clone(),
                before: read.cloned(),
                room: ClientRoom::of(&core),
            };
            let lookup = ClientLookup {
                documented: Some(documented),
                ..ClientLookup::registered(&core)
            };
            let row = stored.clone();
            let written = core
                .store
                .write("test_store", move |tx| -> Result<_, StoreError> {
                    CLIENTS.put(tx, ID, &row)?;
                    let current = lookup.current(&*tx, ID)?;
                    lookup.store(tx, Uuid::nil(), now)?;
                    Ok((current, CLIENTS.get(&*tx, ID)?))
                });
            let (current, written) = written.await.unwrap();
            let (current, written) = (current.unwrap(), written.unwrap());
            assert_eq!(
                (written == stored, current.client_name == stored.client_name),
                (kept, kept)
            );
            assert_eq!(written.enabled, stored.enabled);
        }
    }
}
