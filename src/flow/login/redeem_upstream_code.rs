//! Redeems the code of a provider, whose client this service is: OpenID Connect Core 3.1.3, RFC 7523 section 2.2.

use std::time::Duration;

use serde::Serialize;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::metadata::Metadata;
use crate::federation::provider::UpstreamAuth;
use crate::federation::upstreams::{
    UpstreamCodeExchange, UpstreamCredentials, UpstreamError, UpstreamTokens,
};
use crate::flow::Core;
use crate::jose::alg::Algorithm;
use crate::jose::jwt::{self, Encoder};
use crate::jose::keyring::SigningKey;

/// How long an assertion for a provider is valid.
const ASSERTION_LIFETIME: Duration = Duration::from_mins(1);

/// How long a client secret for Apple is valid. Apple's clock may differ.
const APPLE_SECRET_LIFETIME: Duration = Duration::from_mins(5);

/// Why a code was not redeemed.
#[derive(Debug, thiserror::Error)]
pub enum RedeemError {
    /// This service could not authenticate to the provider.
    #[error("{0}")]
    Proof(String),
    /// The provider did not answer, or refused.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// Redeems a code with the verifier that belongs to it.
pub async fn redeem(
    core: &Core,
    provider: &Provider,
    metadata: &Metadata,
    code: &str,
    code_verifier: &str,
    now: Timestamp,
) -> Result<UpstreamTokens, RedeemError> {
    let client_id = provider.client_id.as_deref().unwrap_or_default();
    let proof = match provider.auth_method {
        UpstreamAuth::ClientSecretBasic => secret(core, provider, now).map(UpstreamCredentials::Basic),
        UpstreamAuth::ClientSecretPost => secret(core, provider, now).map(UpstreamCredentials::Post),
        UpstreamAuth::PrivateKeyJwt => {
            assertion(core, client_id, &provider.issuer, now).map(UpstreamCredentials::Assertion)
        }
    };
    let exchange = UpstreamCodeExchange {
        client_id,
        credentials: proof.map_err(RedeemError::Proof)?,
        code,
        code_verifier,
        redirect_uri: &provider.redirect_uri(&core.policy.issuer),
    };
    Ok(core.upstreams.redeem(metadata, exchange).await?)
}

fn secret(core: &Core, provider: &Provider, now: Timestamp) -> Result<Zeroizing<String>, String> {
    let sealed = provider.sealed_secret.as_deref();
    let sealed = sealed.ok_or("the record of the provider has no secret")?;
    let opened = core
        .sealer
        .open_text(&Provider::secret_context(&provider.id), sealed);
    let opened = opened.map_err(|problem| format!("the secret of the provider: {problem}"))?;
    match (&provider.apple_team_id, &provider.apple_key_id) {
        (Some(team), Some(key_id)) => sign_apple_secret(provider, &opened, team, key_id, now),
        _ => Ok(opened),
    }
}

/// Signs the client secret that Apple demands: a JWT of the team for this client, by the team's private key.
fn sign_apple_secret(
    provider: &Provider,
    key: &str,
    team: &str,
    key_id: &str,
    now: Timestamp,
) -> Result<Zeroizing<String>, String> {
    #[derive(Serialize)]
    struct Claims<'a> {
        iss: &'a str,
        sub: &'a str,
        aud: &'a str,
        iat: Timestamp,
        exp: Timestamp,
    }
    let key = SigningKey::from_pem(key, Some(Algorithm::Es256));
    let key = key.map_err(|problem| format!("the key of Apple: {problem}"))?;
    let claims = Claims {
        iss: team,
        sub: provider.client_id.as_deref().unwrap_or_default(),
        aud: &provider.issuer,
        iat: now,
        exp: now + APPLE_SECRET_LIFETIME,
    };
    let signed = Encoder::named(&key, key_id, "JWT").encode(&claims);
    signed.map(Zeroizing::new).map_err(|problem| problem.to_string())
}

/// Signs an assertion that authenticates this service to a provider. The audience is the provider's issuer, which was
/// compared with its metadata. The address of a token endpoint is not checked like that.
fn assertion(
    core: &Core,
    client_id: &str,
    issuer: &str,
    now: Timestamp,
) -> Result<Zeroizing<String>, String> {
    #[derive(Serialize)]
    struct Claims<'a> {
        iss: &'a str,
        sub: &'a str,
        aud: &'a str,
        iat: Timestamp,
        exp: Timestamp,
        jti: Uuid,
    }
    let catalog = core.catalog();
    let key = catalog.keyring().signer(Algorithm::Rs256);
    let claims = Claims {
        iss: client_id,
        sub: client_id,
        aud: issuer,
        iat: now,
        exp: now + ASSERTION_LIFETIME,
        jti: core.random.uuid_v4(),
    };
    let signed = jwt::sign(key.ok_or("there is no RS256 key to sign with")?, "JWT", &claims);
    signed.map(Zeroizing::new).map_err(|problem| problem.to_string())
}
