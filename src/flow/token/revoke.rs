//! A client revokes a token: RFC 7009.

use super::introspect::signed_access_token;
use crate::clock::Timestamp;
use crate::flow::grant_policy::read_family;
use crate::flow::login::session;
use crate::flow::{Core, FlowError};
use crate::oauth::access_token::hour_of;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::error::Refusal;
use crate::oauth::refresh_keys::PresentedRefreshToken;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::REVOKED_TOKENS;
use crate::store::{StoreError, TxError};

/// The answer for a token of another client (section 2.1).
const FOREIGN: Refusal = Refusal::invalid_grant("token was issued to another client");

/// Revokes a refresh token with its whole family, or one access token.
///
/// An unknown token changes nothing, and the answer is the same as on success (section 2.2). A refresh token that was
/// replaced still revokes its family.
pub async fn revoke(
    core: &Core,
    client: &AuthenticatedClient,
    token: &str,
    now: Timestamp,
) -> Result<(), FlowError> {
    let (token_type, is_revoked) = match PresentedRefreshToken::parse(token) {
        Ok(token) => ("refresh_token", revoke_family(core, client, &token, now).await?),
        Err(_) => (
            "access_token",
            revoke_access_token(core, client, token, now).await?,
        ),
    };
    if is_revoked {
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
    token: &PresentedRefreshToken,
    now: Timestamp,
) -> Result<bool, FlowError> {
    let Some(token) = core.catalog().verify_refresh_token(token) else {
        return Ok(false);
    };
    let owner = client.clone();
    let revoked = core
        .store
        .write("revoke_family", move |tx| -> Result<_, TxError<Refusal>> {
            let family = read_family(&*tx, token.family, &owner, now)?;
            let Some(family) = family.filter(|family| family.knows(&token)) else {
                return Ok(false);
            };
            if family.authorization.client_id != owner.client_id {
                return Err(FOREIGN.into());
            }
            session::end_family(tx, token.family, now)?;
            Ok(family.revoked_at.is_none())
        })
        .await?;
    Ok(revoked)
}

async fn revoke_access_token(
    core: &Core,
    client: &AuthenticatedClient,
    token: &str,
    now: Timestamp,
) -> Result<bool, FlowError> {
    let Some(claims) = signed_access_token(core, &core.catalog(), token) else {
        return Ok(false);
    };
    if claims.client_id != client.client_id {
        return Err(FOREIGN.into());
    }
    if !claims.is_current(&core.policy.issuer, now) {
        return Ok(false);
    }
    let key = (hour_of(claims.exp), claims.jti);
    let is_new = core
        .store
        .write("revoke_access_token", move |tx| -> Result<_, StoreError> {
            let is_new = !REVOKED_TOKENS.contains(&*tx, &key)?;
            if is_new {
                REVOKED_TOKENS.put(tx, &key, &())?;
            }
            Ok(is_new)
        })
        .await?;
    Ok(is_new)
}
