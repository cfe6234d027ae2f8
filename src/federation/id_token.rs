//! Validation of the ID tokens of a provider: OpenID Connect Core 3.1.3.7, RFC 7523 section 3. Identity assertions for
//! this service are checked here too (Identity Assertion JWT Authorization Grant, ID-JAG).

use std::time::Duration;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::provider::Provider;
use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::jose::claims::{Audience, numeric_date, optional_numeric_date};
use crate::jose::jwk::JwkSet;
use crate::jose::jws::{Compact, MAX_TOKEN_LEN};
use crate::jose::jwt::{self, ExpectedTyp, JwtError, TimeError};
use crate::oauth::assertion::{Owner, ReplayKey};
use crate::oauth::openid::id_token::at_hash;
use crate::oauth::resource::Resources;
use crate::oauth::scope::Scope;
use crate::oauth::token_exchange::Actor;

/// How far the clocks of the provider and the service may differ.
const LEEWAY: Duration = Duration::from_secs(30);
/// OpenID Connect Core 2: `sub` has at most 255 ASCII characters.
const LONGEST_SUBJECT: usize = 255;
/// `typ` of an identity assertion.
const ID_JAG_TYP: &str = "oauth-id-jag+jwt";

/// How an ID token is used, and what it must contain for that.
#[derive(Clone, Copy)]
pub enum IdTokenUse<'a> {
    /// A client exchanges it for tokens of this service.
    Exchange,
    /// It is an identity assertion that the provider made for one client of this service.
    IdJag {
        /// This service.
        issuer: &'a str,
        /// The client that presents it.
        client_id: &'a str,
    },
    /// It is the result of a sign-in that this service began.
    SignIn {
        /// The identifier of this service at the provider.
        client_id: &'a str,
        /// `nonce` of the request.
        nonce: &'a str,
        /// The access token of the same response.
        access_token: &'a str,
        /// The requested greatest age of the sign-in, in seconds.
        max_age: Option<u64>,
        /// When the request was sent.
        asked_at: Timestamp,
        /// When the provider was asked to authenticate the user again, if it was.
        proof_asked_at: Option<Timestamp>,
    },
}

/// A validated ID token.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedIdToken {
    /// `sub`: the account at the issuer.
    pub subject: String,
    /// When the user authenticated there, if the token contains it.
    pub auth_time: Option<Timestamp>,
    pub claims: Map<String, Value>,
    /// The key under which its use is recorded, if it has a `jti`. The record lasts until the token is too old.
    pub replay_key: Option<ReplayKey>,
    pub expires_at: Timestamp,
    /// The parties that act for the subject; none at a sign-in.
    pub actor: Option<Actor>,
    /// What an identity assertion allows. An ID token does not say it.
    pub bounds: AssertionBounds,
}

/// What an identity assertion allows. Without a value, the client decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssertionBounds {
    /// `scope`.
    pub scope: Option<Scope>,
    /// `resource`: the APIs.
    pub resources: Option<Resources>,
}

/// Why an ID token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    /// It cannot be read, or its signature is not valid.
    #[error(transparent)]
    Jwt(#[from] JwtError),
    /// `iss` is not the provider's.
    #[error("iss is not the issuer of the provider")]
    Issuer,
    /// It has the claim `events`, as a logout token does, so it is not an ID token (RFC 8417 section 4.1, OpenID
    /// Connect Back-Channel Logout 1.0 section 2.4).
    #[error("token has the claim events: it is no ID token")]
    Event,
    /// `aud` has no accepted audience.
    #[error("aud is none of the audiences accepted from this provider")]
    Audience,
    /// `azp` is missing although there are several audiences, or names another party.
    #[error("azp is missing or is not an accepted party")]
    AuthorizedParty,
    /// The identity assertion was made for another client.
    #[error("client_id is not the client that presents the assertion")]
    Client,
    /// The identity assertion has no `jti`, so it could be presented any number of times.
    #[error("jti is missing")]
    NoIdentifier,
    /// `scope`, `resource` or `act` cannot be read.
    #[error("scope, resource or act has a form that is not allowed")]
    Bounds,
    /// The identity assertion limits what it allows in a way that this service does not know.
    #[error("cnf and authorization_details are not supported in an assertion")]
    UnknownBound,
    /// `sub` is empty, too long, or not ASCII.
    #[error("sub is not 1 to 255 ASCII characters")]
    Subject,
    /// It has expired, or is not valid yet.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// It was issued longer ago than the provider's record allows.
    #[error("token is older than this provider's tokens may be")]
    TooOld,
    /// `nonce` is missing or differs from that of the request.
    #[error("nonce is not the one that was sent")]
    Nonce,
    /// `at_hash` does not belong to the access token.
    #[error("at_hash does not match the access token")]
    AccessTokenHash,
    /// The sign-in at the provider is older than requested.
    #[error("the sign-in at the provider is older than was asked for")]
    SignInTooOld,
    /// `max_age` was requested, and `auth_time` is missing (OpenID Connect Core 2).
    #[error("auth_time is missing although max_age was sent")]
    SignInUndated,
}

#[derive(Deserialize)]
struct UpstreamClaims {
    iss: String,
    sub: String,
    aud: Audience,
    azp: Option<String>,
    #[serde(deserialize_with = "numeric_date")]
    exp: Timestamp,
    #[serde(deserialize_with = "numeric_date")]
    iat: Timestamp,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    nbf: Option<Timestamp>,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    auth_time: Option<Timestamp>,
    jti: Option<String>,
    nonce: Option<String>,
    at_hash: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The compact token of an `assertion`. Some clients encode it again in base64, in either alphabet, padded or not.
pub fn compact(assertion: &str) -> Zeroizing<String> {
    const ENCODED_MAX: usize = MAX_TOKEN_LEN / 3 * 4 + 8;
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let decode = |alphabet| {
        let bytes = GeneralPurpose::new(alphabet, config).decode(assertion).ok()?;
        String::from_utf8(bytes).ok()
    };
    let decoded = if assertion.contains('.') || assertion.len() > ENCODED_MAX {
        None
    } else {
        decode(&alphabet::URL_SAFE).or_else(|| decode(&alphabet::STANDARD))
    };
    Zeroizing::new(decoded.unwrap_or_else(|| assertion.to_owned()))
}

/// Whether the header of a token says that it is an identity assertion.
pub fn is_id_jag(token: &str) -> bool {
    Compact::parse(token).is_ok_and(|token| ExpectedTyp::Exactly(ID_JAG_TYP).admits(token.typ()))
}

/// Whether the set has the key that the header of the token names.
pub fn is_signed_by_one_of(token: &str, keys: &JwkSet) -> bool {
    let Ok(token) = Compact::parse(token) else {
        return true;
    };
    match Algorithm::of_received(token.alg()) {
        Ok(alg) => keys.select(token.kid(), alg).is_some(),
        Err(_) => true,
    }
}

/// Checks an ID token of `provider` with its keys. The record decides which algorithms are accepted.
pub fn check(
    token: &str,
    provider: &Provider,
    keys: &JwkSet,
    purpose: IdTokenUse<'_>,
    now: Timestamp,
) -> Result<VerifiedIdToken, TokenProblem> {
    let allowed: Vec<Algorithm> = provider.algs.iter().copied().collect();
    let select = |kid: Option<&str>, alg| keys.select(kid, alg);
    let typ = match purpose {
        IdTokenUse::IdJag { .. } => ExpectedTyp::Exactly(ID_JAG_TYP),
        IdTokenUse::Exchange | IdTokenUse::SignIn { .. } => ExpectedTyp::AbsentOr("JWT"),
    };
    let claims = jwt::verify::<UpstreamClaims>(token, typ, &allowed, select)?;
    if claims.iss != provider.issuer {
        return Err(TokenProblem::Issuer);
    }
    if claims.others.contains_key("events") {
        return Err(TokenProblem::Event);
    }
    check_audience(&claims, provider, purpose)?;
    let is_bounded = |sub: &str| !sub.is_empty() && sub.len() <= LONGEST_SUBJECT && sub.is_ascii();
    if !is_bounded(&claims.sub) || claims.sub.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(TokenProblem::Subject);
    }
    jwt::check_times(Some(claims.exp), claims.nbf, Some(claims.iat), now, LEEWAY)?;
    match purpose {
        IdTokenUse::Exchange | IdTokenUse::IdJag { .. }
            if now.since(claims.iat) > provider.longest_age() + LEEWAY =>
        {
            return Err(TokenProblem::TooOld);
        }
        IdTokenUse::Exchange | IdTokenUse::IdJag { .. } => {}
        IdTokenUse::SignIn {
            nonce,
            access_token,
            max_age,
            asked_at,
            proof_asked_at,
            ..
        } => {
            if claims.nonce.as_deref() != Some(nonce) {
                return Err(TokenProblem::Nonce);
            }
            if let Some(hash) = &claims.at_hash {
                let alg = Compact::parse(token)
                    .ok()
                    .and_then(|token| Algorithm::of_received(token.alg()).ok())
                    .ok_or(TokenProblem::AccessTokenHash)?;
                if *hash != at_hash(access_token, alg) {
                    return Err(TokenProblem::AccessTokenHash);
                }
            }
            // The age counts when the request is sent. The time that the user then spends at the provider does not
            // count.
            if let Some(limit) = max_age {
                let at = claims.auth_time.ok_or(TokenProblem::SignInUndated)?;
                if asked_at.since(at) > Duration::from_secs(limit).saturating_add(LEEWAY) {
                    return Err(TokenProblem::SignInTooOld);
                }
            }
            // A token without `auth_time` is accepted, because some providers never send it.
            let is_older = |asked_at| claims.auth_time.is_some_and(|at| at + LEEWAY < asked_at);
            if proof_asked_at.is_some_and(is_older) {
                return Err(TokenProblem::SignInTooOld);
            }
        }
    }
    let owner = Owner::Provider(&provider.issuer);
    let jti = claims.jti.as_deref().filter(|jti| !jti.is_empty());
    let (bounds, actor) = match purpose {
        IdTokenUse::IdJag { .. } if jti.is_none() => return Err(TokenProblem::NoIdentifier),
        IdTokenUse::IdJag { .. } => (bounds(&claims.others)?, actor(&claims.others, &provider.issuer)?),
        IdTokenUse::Exchange => (
            AssertionBounds::default(),
            actor(&claims.others, &provider.issuer)?,
        ),
        IdTokenUse::SignIn { .. } => (AssertionBounds::default(), None),
    };
    let max_age_end = claims.iat + Duration::from_secs(Provider::LONGEST_AGE);
    let until = claims.exp.min(max_age_end) + LEEWAY;
    Ok(VerifiedIdToken {
        subject: claims.sub,
        auth_time: claims.auth_time.map(|at| at.min(now)),
        expires_at: claims.exp,
        actor,
        bounds,
        claims: claims.others,
        replay_key: jti.map(|jti| ReplayKey::of(owner, jti, until)),
    })
}

/// Reads what an identity assertion allows. `resource` is one text or several (RFC 8707 section 2).
fn bounds(claims: &Map<String, Value>) -> Result<AssertionBounds, TokenProblem> {
    if ["cnf", "authorization_details"]
        .iter()
        .any(|name| claims.contains_key(*name))
    {
        return Err(TokenProblem::UnknownBound);
    }
    let scope = match claims.get("scope") {
        None => None,
        Some(Value::String(text)) => Some(text.parse().map_err(|_| TokenProblem::Bounds)?),
        Some(_) => return Err(TokenProblem::Bounds),
    };
    let resources = match claims.get("resource") {
        None => None,
        Some(value) => {
            let values = value
                .as_array()
                .map_or(std::slice::from_ref(value), Vec::as_slice);
            let values = values.iter().map(|value| value.as_str().map(ToOwned::to_owned));
            let values: Option<Resources> = values.collect();
            Some(values.ok_or(TokenProblem::Bounds)?)
        }
    };
    Ok(AssertionBounds { scope, resources })
}

/// The parties in `act`. One without `iss` is known to the provider.
fn actor(claims: &Map<String, Value>, issuer: &str) -> Result<Option<Actor>, TokenProblem> {
    let Some(act) = claims.get("act") else {
        return Ok(None);
    };
    let actor = serde_json::from_value::<Actor>(act.clone())
        .ok()
        .filter(Actor::is_bounded);
    actor
        .map(|actor| Some(actor.known_to(issuer)))
        .ok_or(TokenProblem::Bounds)
}

fn check_audience(
    claims: &UpstreamClaims,
    provider: &Provider,
    purpose: IdTokenUse<'_>,
) -> Result<(), TokenProblem> {
    let values = claims.aud.values();
    match purpose {
        IdTokenUse::Exchange => {
            let accepted = provider.accepted_audiences();
            if !values.iter().any(|value| accepted.contains(value)) {
                return Err(TokenProblem::Audience);
            }
            let is_party = |azp: &String| accepted.contains(azp);
            if values.len() > 1 && !claims.azp.as_ref().is_some_and(is_party) {
                return Err(TokenProblem::AuthorizedParty);
            }
        }
        IdTokenUse::IdJag { issuer, client_id } => {
            if values != [issuer] {
                return Err(TokenProblem::Audience);
            }
            if claims.others.get("client_id").and_then(Value::as_str) != Some(client_id) {
                return Err(TokenProblem::Client);
            }
        }
        IdTokenUse::SignIn { client_id, .. } => {
            if !values.iter().any(|value| value == client_id) {
                return Err(TokenProblem::Audience);
            }
            let azp = claims.azp.as_deref();
            if azp.is_some_and(|azp| azp != client_id) || (values.len() > 1 && azp.is_none()) {
                return Err(TokenProblem::AuthorizedParty);
            }
        }
    }
    Ok(())
}
