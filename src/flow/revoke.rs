//! A client gives a token up: RFC 7009.

use super::introspect::signed_access_token;
use super::{Core, Failure, sessions};
use crate::audit::{self, Event};
use crate::clock::Timestamp;
use crate::oauth::access_token::hour_of;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::refresh::PresentedRefreshToken;
use crate::store::tables::{FAMILIES, REVOKED_TOKENS};

/// Revokes a refresh token with its whole family, or one access token.
///
/// A token that is unknown or another client's changes nothing, and the client is told the same as on success
/// (section 2.2): it has nothing left to do. A refresh token that was replaced since ends its family all the same.
pub async fn revoke(
    core: &Core,
    client: &AuthenticatedClient,
    token: &str,
    now: Timestamp,
) -> Result<(), Failure> {
    let revoked = match PresentedRefreshToken::parse(token) {
        Ok(token) => revoke_family(core, client, token, now)
            .await?
            .then_some("refresh_token"),
        Err(_) => revoke_access_token(core, client, token, now)
            .await?
            .then_some("access_token"),
    };
    if let Some(token_type) = revoked {
        audit::record(&Event::TokenRevoked {
            client_id: &client.client_id,
            token_type,
        });
    }
    Ok(())
}

async fn revoke_family(
    core: &Core,
    client: &AuthenticatedClient,
    token: PresentedRefreshToken,
    now: Timestamp,
) -> Result<bool, Failure> {
    let owner = client.client_id.clone();
    let revoked = core
        .store
        .write("revoke_family", move |tx| {
            let family = FAMILIES.get(&*tx, &token.family)?;
            let found =
                family.is_some_and(|family| family.authorization.client_id == owner && family.knows(&token));
            if found {
                sessions::end_family(tx, token.family, now)?;
            }
            Ok(found)
        })
        .await?;
    Ok(revoked)
}

async fn revoke_access_token(
    core: &Core,
    client: &AuthenticatedClient,
    token: &str,
    now: Timestamp,
) -> Result<bool, Failure> {
    let Some(claims) = signed_access_token(core, &core.catalog(), token) else {
        return Ok(false);
    };
    if claims.client_id != client.client_id || !claims.is_current(&core.policy.issuer, now) {
        return Ok(false);
    }
    let key = (hour_of(claims.exp), claims.jti);
    core.store
        .write("revoke_access_token", move |tx| REVOKED_TOKENS.put(tx, &key, &()))
        .await?;
    Ok(true)
}
