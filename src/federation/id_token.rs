//! Which ID tokens of a provider are believed: OpenID Connect Core 3.1.3.7, RFC 7523 section 3.

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
use crate::oauth::assertion::{Owner, Use};
use crate::oauth::openid::id_token::at_hash;

/// How far the clocks of provider and service may differ.
const LEEWAY: Duration = Duration::from_secs(30);
/// OpenID Connect Core 2: `sub` has at most 255 ASCII characters.
const LONGEST_SUBJECT: usize = 255;

/// What the token was issued for, and with it what it must say.
#[derive(Clone, Copy)]
pub enum Purpose<'a> {
    /// It is exchanged: whoever holds it presents it.
    Exchange,
    /// It answers a sign-in that this service began.
    SignIn {
        /// The identifier of this service at the provider.
        client_id: &'a str,
        /// What the request sent along.
        nonce: &'a str,
        /// The access token that came with it.
        access_token: &'a str,
        /// The greatest age of the sign-in, in seconds, where one was asked for.
        max_age: Option<u64>,
        /// When it was asked for.
        asked_at: Timestamp,
        /// When the user was asked to sign in anew, if they were.
        proof_asked_at: Option<Timestamp>,
    },
}

/// Somebody, in the words of a provider whose signature holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// `sub`: who it is, among all of this issuer.
    pub subject: String,
    /// When they signed in there, if it says so.
    pub auth_time: Option<Timestamp>,
    /// Every other claim.
    pub claims: Map<String, Value>,
    /// How its use is remembered, when it has a `jti`: until it would be refused for its age in any case.
    pub once: Option<Use>,
}

/// Why a token is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    /// It cannot be read, or its signature does not hold.
    #[error(transparent)]
    Jwt(#[from] JwtError),
    /// `iss` is not the provider's.
    #[error("iss is not the issuer of the provider")]
    Issuer,
    /// It tells of an event, as a logout token does, and proves no sign-in (RFC 8417 section 4.1, OpenID Connect
    /// Back-Channel Logout 1.0 section 2.4).
    #[error("token has the claim events: it is no ID token")]
    Event,
    /// `aud` is for others.
    #[error("aud is none of the audiences accepted from this provider")]
    Audience,
    /// `azp` is missing beside several audiences, or names another party.
    #[error("azp is missing or is not an accepted party")]
    AuthorizedParty,
    /// `sub` is empty, too long, or not ASCII.
    #[error("sub is not 1 to 255 ASCII characters")]
    Subject,
    /// It is too old, or not good yet.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// It was issued longer ago than the provider's record allows.
    #[error("token is older than this provider's tokens may be")]
    TooOld,
    /// `nonce` is missing or not the one that was sent.
    #[error("nonce is not the one that was sent")]
    Nonce,
    /// `at_hash` does not belong to the access token.
    #[error("at_hash does not match the access token")]
    AccessTokenHash,
    /// The sign-in there is older than was asked for.
    #[error("the sign-in at the provider is older than was asked for")]
    SignInTooOld,
    /// An age was asked for, and `auth_time` is missing (OpenID Connect Core 2).
    #[error("auth_time is missing although max_age was sent")]
    SignInUndated,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    #[serde(deserialize_with = "numeric_date")]
    exp: Timestamp,
    #[serde(deserialize_with = "numeric_date")]
    iat: Timestamp,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    nbf: Option<Timestamp>,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    auth_time: Option<Timestamp>,
    #[serde(default)]
    jti: Option<String>,
    #[serde(default)]
    nonce: Option<String>,
    #[serde(default)]
    at_hash: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The compact token of an `assertion`, which may be base64-encoded once more, in either alphabet, padded or not.
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

/// Whether the set has the key that the token claims to be signed with.
pub fn is_signed_by_one_of(token: &str, keys: &JwkSet) -> bool {
    let Ok(token) = Compact::parse(token) else {
        return true;
    };
    match token.alg().parse() {
        Ok(alg) => keys.select(token.kid(), alg).is_some(),
        Err(_) => true,
    }
}

/// Checks an ID token of `provider` against its keys. The algorithm is the record's word, never the token's.
pub fn check(
    token: &str,
    provider: &Provider,
    keys: &JwkSet,
    purpose: Purpose<'_>,
    now: Timestamp,
) -> Result<Subject, TokenProblem> {
    let allowed: Vec<Algorithm> = provider.algs.iter().copied().collect();
    let select = |kid: Option<&str>, alg| keys.select(kid, alg);
    let claims = jwt::verify::<Claims>(token, ExpectedTyp::AbsentOr("JWT"), &allowed, select)?.into_inner();
    if claims.iss != provider.issuer {
        return Err(TokenProblem::Issuer);
    }
    if claims.others.contains_key("events") {
        return Err(TokenProblem::Event);
    }
    check_audience(&claims, provider, purpose)?;
    let is_fit = |sub: &str| !sub.is_empty() && sub.len() <= LONGEST_SUBJECT && sub.is_ascii();
    if !is_fit(&claims.sub) || claims.sub.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(TokenProblem::Subject);
    }
    jwt::check_times(Some(claims.exp), claims.nbf, Some(claims.iat), now, LEEWAY)?;
    match purpose {
        Purpose::Exchange if now.since(claims.iat) > provider.longest_age() + LEEWAY => {
            return Err(TokenProblem::TooOld);
        }
        Purpose::Exchange => {}
        Purpose::SignIn {
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
                    .and_then(|token| token.alg().parse().ok())
                    .ok_or(TokenProblem::AccessTokenHash)?;
                if *hash != at_hash(access_token, alg) {
                    return Err(TokenProblem::AccessTokenHash);
                }
            }
            // The age was asked for there and then: the time that people take there after that does not count.
            if let Some(most) = max_age {
                let at = claims.auth_time.ok_or(TokenProblem::SignInUndated)?;
                if asked_at.since(at) > Duration::from_secs(most).saturating_add(LEEWAY) {
                    return Err(TokenProblem::SignInTooOld);
                }
            }
            // One that does not say when is believed, though it was asked: some never do, and their users have to get on.
            let is_older = |asked_at| claims.auth_time.is_some_and(|at| at + LEEWAY < asked_at);
            if proof_asked_at.is_some_and(is_older) {
                return Err(TokenProblem::SignInTooOld);
            }
        }
    }
    let owner = Owner::Provider(&provider.issuer);
    let jti = claims.jti.as_deref().filter(|jti| !jti.is_empty());
    let too_old_from = claims.iat + Duration::from_secs(Provider::LONGEST_AGE);
    let until = claims.exp.min(too_old_from) + LEEWAY;
    Ok(Subject {
        subject: claims.sub,
        auth_time: claims.auth_time.map(|at| at.min(now)),
        claims: claims.others,
        once: jti.map(|jti| Use::of(owner, jti, until)),
    })
}

fn check_audience(claims: &Claims, provider: &Provider, purpose: Purpose<'_>) -> Result<(), TokenProblem> {
    let values = claims.aud.values();
    match purpose {
        Purpose::Exchange => {
            let accepted = provider.accepted_audiences();
            if !values.iter().any(|value| accepted.contains(value)) {
                return Err(TokenProblem::Audience);
            }
            let is_party = |azp: &String| accepted.contains(azp);
            if values.len() > 1 && !claims.azp.as_ref().is_some_and(is_party) {
                return Err(TokenProblem::AuthorizedParty);
            }
        }
        Purpose::SignIn { client_id, .. } => {
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
