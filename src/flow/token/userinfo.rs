//! `UserInfo`, the claims about the user of an access token: OpenID Connect Core 5.3.

use serde_json::{Map, Value, json};

use super::introspect::live_access_token;
use crate::clock::Timestamp;
use crate::flow::{Core, Failure, FlowError, replay};
use crate::jose::claims::Audience;
use crate::oauth::client::Client;
use crate::oauth::client_certificate::ClientCertificate;
use crate::oauth::confirmation::check_binding;
use crate::oauth::dpop::{DpopProof, check_algorithm};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::scope::Scope;

const NOT_LIVE: Refusal = Refusal::new(
    ErrorCode::InvalidToken,
    "access token is unknown, expired or revoked",
);

/// What `UserInfo` answers.
pub enum UserInfo {
    Claims(Map<String, Value>),
    /// A JWT, for a client with `userinfo_signed_response_alg`.
    Signed(String),
}

/// The claims that the token's scope and the original request ask for, as far as the client may still have them. A token
/// in the scheme `DPoP` comes with a proof, and one that is bound to a certificate with this certificate.
pub async fn read_userinfo(
    core: &Core,
    token: &str,
    proof: Option<&DpopProof>,
    certificate: Option<&ClientCertificate>,
    now: Timestamp,
) -> Result<UserInfo, FlowError> {
    let Some(live) = live_access_token(core, token, now).await? else {
        return Err(NOT_LIVE.into());
    };
    check_binding(live.claims.cnf.as_ref(), proof, certificate)?;
    let catalog = core.catalog();
    // It may have been removed since.
    let client = catalog.client(&live.claims.client_id).ok_or(NOT_LIVE)?;
    check_algorithm(&client, proof)?;
    let audience = &live.claims.aud;
    // `UserInfo` also accepts a token for `--audience` of the client, unless a registered API has this identifier.
    let is_default = |audience: &Audience| {
        let own = client.audience.as_ref();
        own.is_some_and(|own| audience.contains(own) && catalog.apis().named(own).is_none())
    };
    if !audience.contains(&core.policy.issuer) && !is_default(audience) {
        return Err(Refusal::new(
            ErrorCode::InvalidToken,
            "access token is for an API only; refresh without resource to get a token for UserInfo",
        )
        .into());
    }
    let scope = &live.claims.scope;
    let Some((user, family)) = live.grant.as_ref().filter(|_| scope.contains(Scope::OPENID)) else {
        return Err(Refusal::new(ErrorCode::InsufficientScope, "the scope openid is needed").into());
    };
    let allowed = &client.scope;
    // The client of an exchanged token did not request the claims of the grant behind it.
    let is_own_grant = family.authorization.client_id == live.claims.client_id;
    let requested = if is_own_grant {
        family.authorization.claims_within(scope, allowed)
    } else {
        ClaimsRequest::default()
    };
    let scope = scope.kept_within(allowed);
    let claims = catalog.claims_of(user, &client).userinfo(&scope, &requested);
    replay::use_proof(core, proof.map(|proof| proof.replay_key), now)
        .await
        .inspect_err(|error| replay::record_refusal(error, &live.claims.client_id))?;
    Ok(sign(core, &client, claims)?)
}

/// Signs the claims if the client is registered for that (OpenID Connect Core 5.3.2). The JWT lacks `exp` and `azp`, so
/// it is not accepted as an ID token.
fn sign(core: &Core, client: &Client, mut claims: Map<String, Value>) -> Result<UserInfo, Failure> {
    let Some(alg) = client.userinfo_signed_response_alg else {
        return Ok(UserInfo::Claims(claims));
    };
    let alg = client.allowed_algorithm(alg);
    claims.insert("iss".to_owned(), json!(core.policy.issuer));
    claims.insert("aud".to_owned(), json!(client.client_id));
    let jwt = core.catalog().id_token_encoder(alg)?.encode(&claims)?;
    Ok(UserInfo::Signed(jwt))
}
