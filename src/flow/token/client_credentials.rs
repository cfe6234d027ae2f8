//! A client gets a token for itself: RFC 6749 section 4.4.

use super::issue::issue_tokens_for_client;
use crate::clock::Timestamp;
use crate::flow::{Core, FlowError, replay};
use crate::oauth::client::{AuthMethod, GrantType};
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::confirmation::Possession;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::resource::Resources;
use crate::oauth::scope::Scope;
use crate::oauth::token::{TokenResponse, client_scope};

/// Issues an access token for the client itself. Only the use of a proof is written: the token ends with the record of the
/// client, or when it is revoked.
pub async fn issue_client_token(
    core: &Core,
    client: &AuthenticatedClient,
    requested: Option<&Scope>,
    resources: &Resources,
    possession: Option<Possession>,
    now: Timestamp,
) -> Result<TokenResponse, FlowError> {
    core.grant_policy()
        .check_grant(client, GrantType::ClientCredentials)?;
    let catalog = core.catalog();
    let own = catalog.client_credentials_scope(&client.client_id);
    let most = match (client.method(), &client.max_scope) {
        (
            Some(AuthMethod::PrivateKeyJwt | AuthMethod::TlsClientAuth | AuthMethod::SelfSignedTlsClientAuth),
            _,
        ) => own,
        (Some(AuthMethod::ClientSecretBasic | AuthMethod::ClientSecretPost), Some(most)) => {
            own.filter(|value| most.contains(value))
        }
        (Some(AuthMethod::ClientSecretBasic | AuthMethod::ClientSecretPost), None) => {
            return Err(Refusal::new(
                ErrorCode::UnauthorizedClient,
                "this client must authenticate with client_assertion for this grant",
            )
            .into());
        }
        (Some(AuthMethod::None) | None, _) => {
            return Err(Refusal::new(
                ErrorCode::UnauthorizedClient,
                "this grant is for clients that authenticate",
            )
            .into());
        }
    };
    let scope = client_scope(requested, client, &most)?;
    let target = catalog.apis().target_without_user(client, &scope, resources)?;
    replay::use_proof(core, possession.as_ref().and_then(Possession::replay_key), now).await?;
    let bound_to = possession.map(|shown| shown.confirmation());
    issue_tokens_for_client(core, client, target, bound_to, now)
}
