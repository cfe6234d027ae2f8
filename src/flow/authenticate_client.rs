//! Authenticates a client, for all endpoints that clients call.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::client_lookup::{find_unstored_client, renew_client};
use super::{Core, Failure, FlowError, replay};
use crate::clock::Timestamp;
use crate::jose::jwk::JwkSet;
use crate::oauth::Client;
use crate::oauth::api_key::{self, PresentedApiKey};
use crate::oauth::assertion::Recipient;
use crate::oauth::client::AuthMethod;
use crate::oauth::client_auth::{self, AuthenticatedClient, Authentication, Credentials};
use crate::oauth::error::{Cause, ErrorCode, Refusal};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::records::ApiKeyUse;
use crate::store::tables::API_KEY_USES;

/// A use of an API key is recorded if the last recorded one is at least this long ago.
const RECORD_INTERVAL: Duration = Duration::from_hours(1);

/// Checks credentials against the client that they name. An assertion can be used once: its use is on disk before the
/// client is accepted. It must be addressed to the issuer or to one of these `endpoints`. Before keys or metadata of a
/// client that registered itself are fetched, `admit` gets their address, and can refuse the fetch.
pub async fn authenticate_client(
    core: &Core,
    credentials: &Credentials,
    endpoints: &[String],
    admit: impl Fn(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<AuthenticatedClient, FlowError> {
    let recipient = Recipient {
        issuer: &core.policy.issuer,
        endpoints,
    };
    renew_client(core, &credentials.client_id, &admit, now).await?;
    let unstored = find_unstored_client(core, &credentials.client_id, &admit, now).await?;
    let published = published_keys(core, credentials, unstored.as_ref(), admit, now).await?;
    // Fetching published keys may take long. So the record of the client is read after that.
    let catalog = core.catalog();
    let stored = catalog.client(&credentials.client_id);
    let client = stored.or(unstored);
    let keys = match &published {
        Some((before, keys)) => client
            .as_ref()
            .filter(|now| now.client_uuid == before.client_uuid && now.jwks_uri == before.jwks_uri)
            .map(|_| Arc::clone(keys)),
        None => client.as_ref().and_then(|client| catalog.client_keys(client)),
    };
    let keys = keys.as_deref();
    let authorities = core.client_authorities.as_ref();
    let unused =
        match client_auth::authenticate(credentials, client.as_ref(), keys, recipient, authorities, now)? {
            Authentication::Complete(client) => {
                if let Some(secret) = client.secret() {
                    core.secret_uses.note(&client.client_id, secret, now);
                }
                return Ok(client);
            }
            Authentication::IfUnused(unused) => unused,
        };
    let is_first = replay::use_once(core, "use_assertion", unused.replay_key, now).await?;
    if !is_first {
        audit::record(&Event::AssertionReplayed {
            client_id: &credentials.client_id,
        });
    }
    Ok(unused.recorded(is_first)?)
}

/// The published keys that an assertion or a certificate is checked with, and the record that names their address. `None`
/// if the client publishes none.
async fn published_keys(
    core: &Core,
    credentials: &Credentials,
    unstored: Option<&Arc<Client>>,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<Option<(Arc<Client>, Arc<JwkSet>)>, FlowError> {
    if credentials.assertion().is_none() && credentials.certificate().is_none() {
        return Ok(None);
    }
    let stored = core.catalog().client(&credentials.client_id);
    let client = stored.or_else(|| unstored.cloned());
    let Some(client) = client.filter(|client| client.enabled) else {
        return Ok(None);
    };
    let Some(uri) = &client.jwks_uri else {
        return Ok(None);
    };
    let keys = match (credentials.assertion(), credentials.certificate()) {
        (Some(assertion), _) => keys_of(core, &client, assertion, admit, now).await?,
        (None, Some(certificate))
            if client
                .token_endpoint_auth_methods
                .contains(&AuthMethod::SelfSignedTlsClientAuth) =>
        {
            let suffices = |keys: &JwkSet| certificate.has_key_of(keys);
            let keys = core.upstreams.key_set_that(uri, suffices, now).await;
            keys.map_err(|_| KEYS_UNAVAILABLE)?
        }
        (None, _) => return Ok(None),
    };
    Ok(Some((client, keys)))
}

const KEYS_UNAVAILABLE: Refusal = Refusal::new(
    ErrorCode::TemporarilyUnavailable,
    "the keys of this client could not be fetched from its jwks_uri",
);

/// The keys that `token` is verified with: those that the client publishes, or those that are registered with it.
pub(super) async fn keys_of(
    core: &Core,
    client: &Client,
    token: &str,
    admit: impl FnOnce(&Url) -> Result<(), Failure>,
    now: Timestamp,
) -> Result<Arc<JwkSet>, FlowError> {
    let Some(uri) = &client.jwks_uri else {
        return Ok(Arc::new(client.key_set()));
    };
    let upstreams = &core.upstreams;
    let keys = if client.registered_itself() {
        upstreams.registrant_key_set_for(uri, token, admit, now).await?
    } else {
        upstreams.key_set_for(uri, token, now).await
    };
    Ok(keys.map_err(|_| KEYS_UNAVAILABLE)?)
}

/// Checks an API key and records its use, so that the operator sees which keys are in use.
pub async fn authenticate_api_key(
    core: &Core,
    presented: &PresentedApiKey,
    now: Timestamp,
) -> Result<AuthenticatedClient, FlowError> {
    let catalog = core.catalog();
    let Some((id, client)) = catalog.api_key(&presented.key.digest()) else {
        return Err(api_key::UNKNOWN.because(Cause::UnknownKey).into());
    };
    let client = client_auth::authenticate_api_key(presented, client)?;
    let last_use = core
        .store
        .read(|snapshot| API_KEY_USES.get(snapshot, &id))
        .await?;
    if last_use.is_none_or(|last_use| now.since(last_use.last_used_at) >= RECORD_INTERVAL) {
        let this_use = ApiKeyUse { last_used_at: now };
        core.store
            .write("note_api_key_use", move |tx| API_KEY_USES.put(tx, &id, &this_use))
            .await?;
    }
    Ok(client)
}
