//! A client proves who it is, at whatever endpoint asks.

use std::sync::Arc;
use std::time::Duration;

use super::{Answer, Core, Failure};
use crate::clock::Timestamp;
use crate::jose::jwk::JwkSet;
use crate::oauth::Client;
use crate::oauth::api_key::{self, PresentedApiKey};
use crate::oauth::assertion::{Recipient, ReplayKey};
use crate::oauth::client_auth::{self, AuthenticatedClient, Authentication, Credentials};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::records::ApiKeyUse;
use crate::store::tables::{API_KEY_USES, USED_ASSERTIONS};

/// A use of an API key is written down only when the last one noted is at least this long ago.
const NOTE_AFTER: Duration = Duration::from_hours(1);

/// Checks credentials against the client they name. An assertion counts once: that it was used is on disk before
/// anything is done for it.
pub async fn authenticate_client(
    core: &Core,
    credentials: &Credentials,
    token_endpoint: &str,
    now: Timestamp,
) -> Result<Answer<AuthenticatedClient>, Failure> {
    let recipient = Recipient {
        issuer: &core.policy.issuer,
        token_endpoint,
    };
    let published = match published_keys(core, credentials, now).await {
        Ok(published) => published,
        Err(refusal) => return Ok(Err(refusal)),
    };
    // Whoever publishes keys chooses how long it takes to fetch them: what counts is the record as it is by now.
    let catalog = core.catalog();
    let client = catalog.client(&credentials.client_id);
    let keys = match &published {
        Some((asked, keys)) => client
            .filter(|now| now.client_uuid == asked.client_uuid && now.jwks_uri == asked.jwks_uri)
            .map(|_| keys),
        None => catalog.client_keys(&credentials.client_id),
    };
    let known = (client, keys.map(|keys| &**keys));
    let unused = match client_auth::authenticate(credentials, known, recipient, now) {
        Ok(Authentication::Complete(client)) => return Ok(Ok(client)),
        Ok(Authentication::IfUnused(unused)) => unused,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let replay_key = unused.replay_key;
    let is_first = core
        .store
        .write("use_assertion", move |tx| {
            for hour in ReplayKey::hours(now) {
                if USED_ASSERTIONS.contains(&*tx, &(hour, replay_key.digest))? {
                    return Ok(false);
                }
            }
            USED_ASSERTIONS.put(tx, &(replay_key.hour, replay_key.digest), &())?;
            Ok(true)
        })
        .await?;
    if !is_first {
        audit::record(&Event::AssertionReplayed {
            client_id: &credentials.client_id,
        });
    }
    Ok(unused.recorded(is_first))
}

/// The keys that an assertion is checked with where its client publishes them, and the record that says so.
async fn published_keys(
    core: &Core,
    credentials: &Credentials,
    now: Timestamp,
) -> Result<Option<(Arc<Client>, Arc<JwkSet>)>, Refusal> {
    let Some(assertion) = credentials.assertion() else {
        return Ok(None);
    };
    let client = core.catalog().client(&credentials.client_id).cloned();
    let Some(client) = client.filter(|client| client.enabled) else {
        return Ok(None);
    };
    let Some(uri) = &client.jwks_uri else {
        return Ok(None);
    };
    match core.upstreams.key_set_for(uri, assertion, now).await {
        Ok(keys) => Ok(Some((client, keys))),
        Err(_) => Err(Refusal::new(
            ErrorCode::TemporarilyUnavailable,
            "the keys of this client could not be fetched from its jwks_uri",
        )),
    }
}

/// Checks an API key and notes that it was used, so that the operator sees which ones still are.
pub async fn authenticate_api_key(
    core: &Core,
    presented: &PresentedApiKey,
    now: Timestamp,
) -> Result<Answer<AuthenticatedClient>, Failure> {
    let catalog = core.catalog();
    let Some((id, client)) = catalog.api_key(&presented.key.digest()) else {
        return Ok(Err(api_key::UNKNOWN.because("unknown_key")));
    };
    let client = match client_auth::authenticate_api_key(presented, client) {
        Ok(client) => client,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let noted = core.store.read(|snapshot| API_KEY_USES.get(snapshot, &id))?;
    if noted.is_none_or(|noted| now.since(noted.last_used_at) >= NOTE_AFTER) {
        let noted = ApiKeyUse { last_used_at: now };
        core.store
            .write("note_api_key_use", move |tx| API_KEY_USES.put(tx, &id, &noted))
            .await?;
    }
    Ok(Ok(client))
}
