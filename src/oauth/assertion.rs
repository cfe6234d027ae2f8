//! Client authentication with a JWT that the client signed: RFC 7523 sections 2.2 and 3.

use std::time::Duration;

use ring::digest;
use serde::Deserialize;

use crate::clock::{Timestamp, hour_of};
use crate::jose::claims::{Audience, numeric_date, optional_numeric_date};
use crate::jose::jwk::JwkSet;
use crate::jose::jwt::{self, ExpectedTyp, JwtError};
use crate::oauth::client::{AssertionAudience, Client};
use crate::oauth::error::{Cause, ErrorCode, Refusal};

/// The one value of `client_assertion_type` (RFC 7523 section 2.2).
pub const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// How far the clocks of the client and the service may differ.
const LEEWAY: Duration = Duration::from_secs(30);
/// How far ahead `exp` may lie.
const LONGEST: Duration = Duration::from_hours(1);

/// The audiences that an assertion may have.
#[derive(Clone, Copy, Debug)]
pub struct Recipient<'a> {
    /// The issuer identifier.
    pub issuer: &'a str,
    /// The address of the called endpoint, and other addresses that are accepted there.
    pub endpoints: &'a [String],
}

/// The signer of an assertion or a proof. A `jti` is unique for each signer.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// The client with this identifier.
    Client(&'a str),
    /// The provider with this issuer identifier.
    Provider(&'a str),
    /// The holder of the key with this thumbprint (RFC 9449).
    Key(&'a str),
    /// The browser that got a challenge for a passkey.
    Browser,
}

/// The key under which the use of an assertion or a proof is recorded until it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayKey {
    /// The hour in which it expires.
    pub hour: u32,
    /// SHA-256 of its owner, a zero byte and the `jti`.
    pub digest: [u8; 32],
}

impl ReplayKey {
    /// The key for the `jti` of what `owner` signed and what expires at `until`.
    pub fn of(owner: Owner<'_>, jti: &str, until: Timestamp) -> Self {
        // No client identifier begins with these bytes, so the kinds of owners never share a key.
        let (mark, owner): (&[u8], _) = match owner {
            Owner::Client(client_id) => (&[], client_id),
            Owner::Provider(issuer) => (&[1], issuer),
            Owner::Key(thumbprint) => (&[2], thumbprint),
            Owner::Browser => (&[3], ""),
        };
        let mut context = digest::Context::new(&digest::SHA256);
        for part in [mark, owner.as_bytes(), &[0], jti.as_bytes()] {
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        Self {
            hour: hour_of(until),
            digest,
        }
    }

    /// The hours under which a use of the same `jti` may be recorded.
    pub fn hours(now: Timestamp) -> std::ops::RangeInclusive<u32> {
        hour_of(now)..=hour_of(now + LONGEST + LEEWAY + LEEWAY)
    }
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    #[serde(deserialize_with = "numeric_date")]
    exp: Timestamp,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    iat: Option<Timestamp>,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    nbf: Option<Timestamp>,
    jti: String,
}

/// Checks the audience, a string or a list with one value (RFC 7519 section 4.1.3). Several values are refused: another
/// recipient of the assertion could use it here. FAPI 2.0 section 5.3.2.1 demands the string.
fn check_audience(
    audience: &Audience,
    recipient: Recipient<'_>,
    client: &Client,
) -> Result<(), &'static str> {
    let audience = match audience {
        Audience::One(only) => only,
        Audience::Several(_) if client.profile.is_some() => {
            return Err("aud of client_assertion must be a string for this client");
        }
        Audience::Several(values) => match values.as_slice() {
            [only] => only,
            _ => return Err("aud of client_assertion must have exactly one value"),
        },
    };
    match client.assertion_audience {
        _ if audience == recipient.issuer => Ok(()),
        AssertionAudience::Strict => Err("aud of client_assertion must be the issuer"),
        AssertionAudience::Any if recipient.endpoints.contains(audience) => Ok(()),
        AssertionAudience::Any => {
            Err("aud of client_assertion must be the issuer or the URL of this endpoint")
        }
    }
}

/// Checks an assertion of `client`, whose keys are `keys`. Details are sent only after the signature was verified.
pub fn check(
    assertion: &str,
    client: &Client,
    keys: &JwkSet,
    recipient: Recipient<'_>,
    now: Timestamp,
) -> Result<ReplayKey, Refusal> {
    let allowed: Vec<_> = keys
        .keys
        .iter()
        .flat_map(|key| key.algorithms().iter().copied())
        .filter(|algorithm| client.may_use_algorithm(*algorithm))
        .collect();
    let verify = |typ| jwt::verify::<Claims>(assertion, typ, &allowed, |kid, alg| keys.select(kid, alg));
    let verified = match verify(ExpectedTyp::AbsentOr("JWT")) {
        Err(JwtError::Typ) => verify(ExpectedTyp::Exactly("client-authentication+jwt")),
        verified => verified,
    };
    let claims = match verified {
        Ok(claims) => claims,
        Err(JwtError::Claims) => {
            let problem = "client_assertion needs iss, sub, aud, exp and jti, each of its type";
            return Err(Refusal::invalid_client(problem));
        }
        Err(problem) => {
            let cause = match problem {
                JwtError::Algorithm => Cause::AlgorithmNotAllowed,
                JwtError::Typ => Cause::WrongTyp,
                JwtError::UnknownKey => Cause::UnknownKey,
                JwtError::Signature => Cause::BadSignature,
                JwtError::Form(_) | JwtError::Claims => Cause::Malformed,
            };
            return Err(Refusal::CLIENT_UNPROVEN.because(cause));
        }
    };
    if claims.iss != client.client_id || claims.sub != client.client_id {
        let problem = "iss and sub of client_assertion must be the client_id";
        return Err(Refusal::invalid_client(problem));
    }
    check_audience(&claims.aud, recipient, client).map_err(Refusal::invalid_client)?;
    jwt::check_times(Some(claims.exp), claims.nbf, claims.iat, now, LEEWAY).map_err(|problem| {
        Refusal::naming(ErrorCode::InvalidClient, &format!("client_assertion: {problem}"))
    })?;
    if claims.exp > now + LONGEST + LEEWAY {
        let problem = "exp of client_assertion must be at most one hour ahead";
        return Err(Refusal::invalid_client(problem));
    }
    if claims.jti.is_empty() {
        return Err(Refusal::invalid_client("jti of client_assertion is empty"));
    }
    let owner = Owner::Client(&client.client_id);
    Ok(ReplayKey::of(owner, &claims.jti, claims.exp + LEEWAY))
}
