//! JSON Web Tokens (RFC 7519), signed and verified as RFC 8725 requires.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::alg::Algorithm;
use super::json;
use super::jwk::{JwkError, PublicKey};
use super::jws::{Compact, JwsError};
use super::keyring::{SignError, SigningKey};
use super::signature_cache::SignatureCache;
use crate::clock::Timestamp;

/// The required `typ` of a token, so that one kind of token is not accepted as another (RFC 8725 section 3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedTyp<'a> {
    /// This media type.
    Exactly(&'a str),
    /// This media type, or no `typ`.
    AbsentOr(&'a str),
    /// Every `typ`, for tokens of others.
    Any,
}

impl ExpectedTyp<'_> {
    /// The case of media types does not matter, and `application/` may be left out (RFC 7515 section 4.1.9).
    pub fn admits(self, typ: Option<&str>) -> bool {
        fn same(one: &str, other: &str) -> bool {
            subtype(one).eq_ignore_ascii_case(subtype(other))
        }
        fn subtype(typ: &str) -> &str {
            const PREFIX: &str = "application/";
            match typ.split_at_checked(PREFIX.len()) {
                Some((prefix, rest)) if prefix.eq_ignore_ascii_case(PREFIX) && !rest.contains('/') => rest,
                _ => typ,
            }
        }
        match (self, typ) {
            (Self::Any, _) | (Self::AbsentOr(_), None) => true,
            (Self::Exactly(_), None) => false,
            (Self::Exactly(expected) | Self::AbsentOr(expected), Some(typ)) => same(expected, typ),
        }
    }
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// Its form is wrong.
    #[error(transparent)]
    Form(#[from] JwsError),
    /// Its algorithm is unknown or not allowed by the caller.
    #[error("token is signed with an algorithm that is not allowed here")]
    Algorithm,
    /// Its `typ` is that of another kind of token.
    #[error("token is of another type")]
    Typ,
    /// The caller has no key for its `kid`.
    #[error("token is signed with an unknown key")]
    UnknownKey,
    /// The signature is not valid.
    #[error("token signature does not match")]
    Signature,
    /// The payload is not a JSON object with the expected claims, or a name is repeated.
    #[error("token claims are malformed")]
    Claims,
}

/// Reads the claims of a payload. The signature is not verified.
///
/// Repeated names at any depth are refused (RFC 7519 section 4), and so is nesting deeper than 127.
pub fn payload_claims(payload: &[u8]) -> Result<Map<String, Value>, JwtError> {
    json::object(payload).map_err(|_| JwtError::Claims)
}

/// One text claim of a token that is not verified. Use it only to find the keys to verify the token with.
pub fn unverified_claim(token: &str, name: &str) -> Result<Option<String>, JwtError> {
    match payload_claims(Compact::parse(token)?.payload())?.remove(name) {
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(JwtError::Claims),
        None => Ok(None),
    }
}

/// Checks a token's form, algorithm, type and signature, and reads its claims, in that order.
///
/// `allowed` are the accepted algorithms. `select` finds a key of the caller by the token's `kid` and algorithm. The
/// caller must check issuer, audience and times ([`check_times`]).
pub fn verify<'k, T: DeserializeOwned>(
    token: &str,
    typ: ExpectedTyp<'_>,
    allowed: &[Algorithm],
    select: impl FnOnce(Option<&str>, Algorithm) -> Option<&'k PublicKey>,
) -> Result<T, JwtError> {
    verify_with(token, typ, allowed, select, None)
}

/// The same as [`verify`]. A signature in the cache is not verified again, which helps if tokens are presented often.
pub fn verify_with<'k, T: DeserializeOwned>(
    token: &str,
    typ: ExpectedTyp<'_>,
    allowed: &[Algorithm],
    select: impl FnOnce(Option<&str>, Algorithm) -> Option<&'k PublicKey>,
    cache: Option<&SignatureCache>,
) -> Result<T, JwtError> {
    let compact = Compact::parse(token)?;
    let algorithm = algorithm_of(&compact, typ, allowed)?;
    let key = select(compact.kid(), algorithm).ok_or(JwtError::UnknownKey)?;
    verify_parsed(&compact, algorithm, key, cache)
}

/// The algorithm of a token of this type, if it is allowed.
fn algorithm_of(
    compact: &Compact<'_>,
    typ: ExpectedTyp<'_>,
    allowed: &[Algorithm],
) -> Result<Algorithm, JwtError> {
    let algorithm = Algorithm::of_received(compact.alg()).map_err(|_| JwtError::Algorithm)?;
    if !allowed.contains(&algorithm) {
        return Err(JwtError::Algorithm);
    }
    if !typ.admits(compact.typ()) {
        return Err(JwtError::Typ);
    }
    Ok(algorithm)
}

fn verify_parsed<T: DeserializeOwned>(
    compact: &Compact<'_>,
    algorithm: Algorithm,
    key: &PublicKey,
    cache: Option<&SignatureCache>,
) -> Result<T, JwtError> {
    let message = compact.signing_input().as_bytes();
    match cache {
        Some(cache) => cache.verify(key, algorithm, message, compact.signature()),
        None => key.verify(algorithm, message, compact.signature()),
    }
    .map_err(|_| JwtError::Signature)?;
    let claims = payload_claims(compact.payload())?;
    serde_json::from_value(Value::Object(claims)).map_err(|_| JwtError::Claims)
}

/// Why a token that contains its own key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddedKeyError {
    /// The token is refused.
    Token(JwtError),
    /// Its header has no `jwk`.
    NoKey,
    /// The key in its header is refused.
    Key(JwkError),
}

impl From<JwtError> for EmbeddedKeyError {
    fn from(error: JwtError) -> Self {
        Self::Token(error)
    }
}

/// A token that is signed by the key in its own header.
pub struct EmbeddedKeyToken<T> {
    pub key: PublicKey,
    /// The algorithm of the signature.
    pub algorithm: Algorithm,
    pub claims: T,
}

/// Checks a token that is signed by the key in its own header (RFC 9449 section 4.2). The token proves that the sender holds the key. It does not prove who the sender is.
pub fn verify_embedded_key<T: DeserializeOwned>(
    token: &str,
    typ: ExpectedTyp<'_>,
    allowed: &[Algorithm],
) -> Result<EmbeddedKeyToken<T>, EmbeddedKeyError> {
    let compact = Compact::parse(token).map_err(JwtError::from)?;
    let algorithm = algorithm_of(&compact, typ, allowed)?;
    let jwk = compact.jwk().ok_or(EmbeddedKeyError::NoKey)?;
    let key = PublicKey::from_jwk(jwk)
        .and_then(PublicKey::chosen_by_stranger)
        .map_err(EmbeddedKeyError::Key)?;
    if !key.algorithms().contains(&algorithm) {
        return Err(EmbeddedKeyError::Token(JwtError::Signature));
    }
    let claims = verify_parsed(&compact, algorithm, &key, None)?;
    Ok(EmbeddedKeyToken {
        key,
        algorithm,
        claims,
    })
}

/// Signs tokens of one type with one key. The header is encoded once.
#[derive(Clone, Debug)]
pub struct Encoder {
    key: SigningKey,
    header: String,
}

impl Encoder {
    /// Prepares the header `{"alg":…,"kid":…,"typ":…}`.
    pub fn new(key: &SigningKey, typ: &str) -> Self {
        Self::named(key, key.kid(), typ)
    }

    /// Prepares the same header with another `kid` than the key has here.
    pub fn named(key: &SigningKey, kid: &str, typ: &str) -> Self {
        let header = format!(
            r#"{{"alg":"{}","kid":{},"typ":{}}}"#,
            key.alg().as_str(),
            Value::from(kid),
            Value::from(typ)
        );
        let mut encoded = URL_SAFE_NO_PAD.encode(header);
        encoded.push('.');
        Self {
            key: key.clone(),
            header: encoded,
        }
    }

    /// Makes a compact token with these claims.
    pub fn encode(&self, claims: &impl Serialize) -> Result<String, SignError> {
        let mut token = self.signing_input(claims)?;
        let signature = self.key.sign(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(&signature, &mut token);
        Ok(token)
    }

    /// The same with zeros in place of the signature, for the length of the token.
    pub fn encode_unsigned(&self, claims: &impl Serialize) -> Result<String, SignError> {
        let mut token = self.signing_input(claims)?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(vec![0; self.key.signature_len()], &mut token);
        Ok(token)
    }

    fn signing_input(&self, claims: &impl Serialize) -> Result<String, SignError> {
        let mut payload = Vec::with_capacity(512);
        serde_json::to_writer(&mut payload, claims).map_err(|_| SignError::Claims)?;
        let max_signature_len = 700;
        let mut token =
            String::with_capacity(self.header.len() + payload.len() * 4 / 3 + 4 + max_signature_len);
        token.push_str(&self.header);
        URL_SAFE_NO_PAD.encode_string(&payload, &mut token);
        Ok(token)
    }
}

/// Signs one token. For many tokens of a type use [`Encoder`].
pub fn sign(key: &SigningKey, typ: &str, claims: &impl Serialize) -> Result<String, SignError> {
    Encoder::new(key, typ).encode(claims)
}

/// Why the times of a token are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// `exp` has passed (RFC 7519 section 4.1.4).
    #[error("token has expired")]
    Expired,
    /// `nbf` is in the future (RFC 7519 section 4.1.5).
    #[error("token is not valid yet")]
    NotYetValid,
    /// `iat` is in the future (RFC 7519 section 4.1.6).
    #[error("token was issued in the future")]
    IssuedInFuture,
}

/// Checks the times that a token has, with `leeway` for clock differences.
pub fn check_times(
    exp: Option<Timestamp>,
    nbf: Option<Timestamp>,
    iat: Option<Timestamp>,
    now: Timestamp,
    leeway: Duration,
) -> Result<(), TimeError> {
    let latest = now + leeway;
    if exp.is_some_and(|exp| now >= exp + leeway) {
        Err(TimeError::Expired)
    } else if nbf.is_some_and(|nbf| nbf > latest) {
        Err(TimeError::NotYetValid)
    } else if iat.is_some_and(|iat| iat > latest) {
        Err(TimeError::IssuedInFuture)
    } else {
        Ok(())
    }
}
