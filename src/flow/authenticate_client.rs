//! A client proves who it is, at whatever endpoint asks.

use std::time::Duration;

use super::{Answer, Core, Failure};
use crate::clock::Timestamp;
use crate::oauth::api_key::{self, PresentedApiKey};
use crate::oauth::client_auth::{self, AuthenticatedClient, Credentials};
use crate::store::records::ApiKeyUse;
use crate::store::tables::API_KEY_USES;

/// A use of an API key is written down only when the last one noted is at least this long ago.
const NOTE_AFTER: Duration = Duration::from_hours(1);

/// Checks credentials against the client they name.
pub fn authenticate_client(
    core: &Core,
    credentials: &Credentials,
    now: Timestamp,
) -> Answer<AuthenticatedClient> {
    client_auth::authenticate(credentials, core.catalog().client(&credentials.client_id), now)
}

/// Checks an API key and notes that it was used, so that the operator sees which ones still are.
pub async fn authenticate_api_key(
    core: &Core,
    presented: &PresentedApiKey,
    now: Timestamp,
) -> Result<Answer<AuthenticatedClient>, Failure> {
    let catalog = core.catalog();
    let Some((id, client)) = catalog.api_key(&presented.key.digest()) else {
        return Ok(Err(api_key::UNKNOWN));
    };
    let client = match client_auth::authenticate_api_key(presented, Some(client)) {
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
