//! A client acts for itself: RFC 6749 section 4.4.

use super::issue::issue_tokens_for_client;
use crate::clock::Timestamp;
use crate::flow::{Answer, Core, Failure};
use crate::oauth::client::{AuthMethod, GrantType};
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::scope::Scope;
use crate::oauth::token::{TokenResponse, client_scope};

/// Issues an access token that speaks of the client itself. There is nothing to write: what ends the token is
/// the client's record, or its own revocation.
pub fn issue_client_token(
    core: &Core,
    client: &AuthenticatedClient,
    asked: Option<&Scope>,
    now: Timestamp,
) -> Result<Answer<TokenResponse>, Failure> {
    if let Err(refusal) = core
        .grant_policy()
        .check_grant(client, GrantType::ClientCredentials)
    {
        return Ok(Err(refusal));
    }
    let most = match (client.method(), &client.max_scope) {
        (Some(AuthMethod::PrivateKeyJwt), _) => &client.scope,
        (Some(AuthMethod::ClientSecretBasic | AuthMethod::ClientSecretPost), Some(most)) => most,
        (Some(AuthMethod::ClientSecretBasic | AuthMethod::ClientSecretPost), None) => {
            return Ok(Err(Refusal::new(
                ErrorCode::UnauthorizedClient,
                "this client must authenticate with client_assertion for this grant",
            )));
        }
        (Some(AuthMethod::None) | None, _) => {
            return Ok(Err(Refusal::new(
                ErrorCode::UnauthorizedClient,
                "this grant is for clients that authenticate",
            )));
        }
    };
    match client_scope(asked, client, most) {
        Ok(scope) => issue_tokens_for_client(core, client, scope, now).map(Ok),
        Err(refusal) => Ok(Err(refusal)),
    }
}
