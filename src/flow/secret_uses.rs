//! When each secret of a client was last used, so that the operator sees which one is unused.
//!
//! A request notes the use in memory only. Each node stores what it has noted once a minute, and when it stops.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Core;
use crate::clock::Timestamp;
use crate::oauth::Client;
use crate::secret::{ClientSecret, Digest};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::records::ClientSecretUses;
use crate::store::tables::{CLIENT_SECRET_USES, CLIENTS};

/// The most clients whose uses are stored in one transaction.
const MOST_CLIENTS: usize = 100;

/// When secrets were last used, by the bytes of their digests.
type Noted = BTreeMap<[u8; 32], Timestamp>;

/// The uses that are not stored yet, by `client_id`. Only accepted secrets are stored, so the map has at most one entry for each
/// secret.
#[derive(Debug, Default)]
pub struct SecretUses(Mutex<BTreeMap<String, Noted>>);

impl SecretUses {
    /// Notes that a client has authenticated with this secret.
    pub fn note(&self, client_id: &str, secret: &Digest<ClientSecret>, now: Timestamp) {
        let mut all = self.lock();
        if let Some(noted) = all.get_mut(client_id) {
            noted.insert(*secret.as_bytes(), now);
        } else {
            all.insert(client_id.to_owned(), Noted::from([(*secret.as_bytes(), now)]));
        }
    }

    fn put_back(&self, unstored: impl Iterator<Item = (String, Noted)>) {
        let mut all = self.lock();
        for (client_id, mut earlier) in unstored {
            let noted = all.entry(client_id).or_default();
            earlier.append(noted);
            *noted = earlier;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Noted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last uses of the secrets that a client has, with those that this node has not stored yet.
pub fn read(core: &Core, snapshot: &dyn Snapshot, client: &Client) -> Result<ClientSecretUses, StoreError> {
    let stored = CLIENT_SECRET_USES.get(snapshot, &client.client_id)?;
    let noted = core.secret_uses.lock().get(&client.client_id).cloned();
    Ok(merge(
        stored.unwrap_or_default(),
        client,
        &noted.unwrap_or_default(),
    ))
}

/// Stores what was noted since the last call. A later use that another node has stored stays.
pub async fn store(core: &Core) -> Result<(), StoreError> {
    let all = std::mem::take(&mut *core.secret_uses.lock());
    let mut rest = all.into_iter();
    loop {
        let batch: Vec<_> = rest.by_ref().take(MOST_CLIENTS).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let stored = batch.clone();
        let write = move |tx: &mut dyn Tx| put(tx, &stored);
        if let Err(error) = core.store.write("store_secret_uses", write).await {
            core.secret_uses.put_back(batch.into_iter().chain(rest));
            return Err(error);
        }
    }
}

fn put(tx: &mut dyn Tx, batch: &[(String, Noted)]) -> Result<(), StoreError> {
    for (client_id, noted) in batch {
        // The client may be removed by now.
        let Some(client) = CLIENTS.get(&*tx, client_id)? else {
            continue;
        };
        let before = CLIENT_SECRET_USES.get(&*tx, client_id)?.unwrap_or_default();
        let after = merge(before.clone(), &client, noted);
        if after != before {
            CLIENT_SECRET_USES.put(tx, client_id, &after)?;
        }
    }
    Ok(())
}

/// Of two uses, the later one counts. Secrets that the client no longer has are left out.
fn merge(mut uses: ClientSecretUses, client: &Client, noted: &Noted) -> ClientSecretUses {
    let before = std::mem::take(&mut uses.last_used_at);
    for secret in &client.secrets {
        let id = secret.id();
        let last_used_at = before.get(&id).max(noted.get(secret.digest.as_bytes()));
        if let Some(last_used_at) = last_used_at {
            uses.last_used_at.insert(id, *last_used_at);
        }
    }
    uses
}
