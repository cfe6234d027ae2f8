//! What a user has allowed a client before, and whether the client is told of errors.

use super::session::LiveSession;
use crate::identity::Consent;
use crate::oauth::Client;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::CONSENTS;

/// What the user of this session has allowed the client, if the client still accepts it.
pub(super) fn given_consent(
    snapshot: &dyn Snapshot,
    live: &LiveSession,
    client: &Client,
) -> Result<Option<Consent>, StoreError> {
    let given = CONSENTS.get(snapshot, &(live.user.uuid, client.client_id.clone()))?;
    Ok(given.filter(|consent| client.accepts_consent(consent)))
}

/// Whether the client gets errors by redirect although nobody has used a page of this sign-in. Otherwise the person at the
/// browser sees them.
///
/// Anybody can register a client with any redirect URI. Without this rule, a link to this service would send browsers there
/// (RFC 9700 section 4.11.2). So a client that registered itself must have been allowed by the user who is signed in.
pub(super) fn may_send_errors(
    snapshot: &dyn Snapshot,
    client: &Client,
    live: Option<&LiveSession>,
) -> Result<bool, StoreError> {
    match live {
        _ if !client.registered_itself() => Ok(true),
        Some(live) => Ok(given_consent(snapshot, live, client)?.is_some()),
        None => Ok(false),
    }
}
