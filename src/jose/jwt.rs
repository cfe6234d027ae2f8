//! JSON Web Tokens (RFC 7519), signed and checked the way RFC 8725 asks for.

use std::ops::Deref;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::alg::Algorithm;
use super::json;
use super::jwk::{BadSignature, PublicKey};
use super::jws::{Compact, JwsError};
use super::keyring::{SignError, SigningKey};
use super::signature_cache::SignatureCache;
use crate::clock::Timestamp;

/// Claims that were read under a signature that holds. Only [`verify`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// The claims themselves.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The media type that the `typ` of a token has to be, so that one kind of token does not pass for another
/// (RFC 8725 section 3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedTyp<'a> {
    /// This one, and it has to be there.
    Exactly(&'a str),
    /// This one, or none at all.
    AbsentOr(&'a str),
    /// Whatever it is; for the tokens of others, who leave it out or write their own.
    Any,
}

impl ExpectedTyp<'_> {
    /// Media types do not depend on case, and `application/` may be left out (RFC 7515 section 4.1.9).
    fn admits(self, typ: Option<&str>) -> bool {
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

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// Its form is wrong.
    #[error(transparent)]
    Form(#[from] JwsError),
    /// Its algorithm is unknown, or not one the caller allows.
    #[error("token is signed with an algorithm that is not allowed here")]
    Algorithm,
    /// Its `typ` is that of another kind of token.
    #[error("token is of another type")]
    Typ,
    /// None of the caller's keys answers to its `kid`.
    #[error("token is signed with an unknown key")]
    UnknownKey,
    /// The signature does not hold.
    #[error("token signature does not match")]
    Signature,
    /// The payload is not a JSON object with distinct names and the expected claims.
    #[error("token claims are malformed")]
    Claims,
}

/// Reads the claims of a payload, whoever may have signed it.
///
/// A name that occurs twice, at any depth, is refused (RFC 7519 section 4), and so is nesting deeper than 127.
pub fn payload_claims(payload: &[u8]) -> Result<Map<String, Value>, JwtError> {
    json::object(payload).map_err(|_| JwtError::Claims)
}

/// One text claim of a token that nobody has verified: good for finding out whose keys to verify it with,
/// and for nothing else.
pub fn unverified_claim(token: &str, name: &str) -> Result<Option<String>, JwtError> {
    match payload_claims(Compact::parse(token)?.payload())?.remove(name) {
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(JwtError::Claims),
        None => Ok(None),
    }
}

/// Checks a token's form, algorithm, type and signature, and reads its claims, in that order.
///
/// `allowed` pins the algorithms. `select` finds the key among the caller's own by the token's `kid` and an
/// algorithm that is one of `allowed`. When a token is good is up to the caller: issuer, audience and times
/// are not looked at ([`check_times`] helps with the last).
pub fn verify<'k, T: DeserializeOwned>(
    token: &str,
    typ: ExpectedTyp<'_>,
    allowed: &[Algorithm],
    select: impl FnOnce(Option<&str>, Algorithm) -> Option<&'k PublicKey>,
) -> Result<Verified<T>, JwtError> {
    verify_with(token, typ, allowed, select, PublicKey::verify)
}

/// The same for tokens that are presented again and again: a signature in the cache is not verified again.
pub fn verify_again<'k, T: DeserializeOwned>(
    token: &str,
    typ: ExpectedTyp<'_>,
    allowed: &[Algorithm],
    select: impl FnOnce(Option<&str>, Algorithm) -> Option<&'k PublicKey>,
    cache: &SignatureCache,
) -> Result<Verified<T>, JwtError> {
    verify_with(token, typ, allowed, select, |key, alg, message, signature| {
        cache.verify(key, alg, message, signature)
    })
}

fn verify_with<'k, T: DeserializeOwned>(
    token: &str,
    typ: ExpectedTyp<'_>,
    allowed: &[Algorithm],
    select: impl FnOnce(Option<&str>, Algorithm) -> Option<&'k PublicKey>,
    check: impl FnOnce(&PublicKey, Algorithm, &[u8], &[u8]) -> Result<(), BadSignature>,
) -> Result<Verified<T>, JwtError> {
    let compact = Compact::parse(token)?;
    let algorithm: Algorithm = compact.alg().parse().map_err(|_| JwtError::Algorithm)?;
    if !allowed.contains(&algorithm) {
        return Err(JwtError::Algorithm);
    }
    if !typ.admits(compact.typ()) {
        return Err(JwtError::Typ);
    }
    let key = select(compact.kid(), algorithm).ok_or(JwtError::UnknownKey)?;
    let message = compact.signing_input().as_bytes();
    check(key, algorithm, message, compact.signature()).map_err(|_| JwtError::Signature)?;
    let claims = payload_claims(compact.payload())?;
    serde_json::from_value(Value::Object(claims))
        .map(Verified)
        .map_err(|_| JwtError::Claims)
}

/// Signs tokens of one type with one key; the header is encoded once.
#[derive(Clone, Debug)]
pub struct Encoder {
    key: SigningKey,
    header: String,
}

impl Encoder {
    /// Prepares the header `{"alg":…,"kid":…,"typ":…}`.
    pub fn new(key: &SigningKey, typ: &str) -> Self {
        let header = format!(
            r#"{{"alg":"{}","kid":"{}","typ":{}}}"#,
            key.alg().as_str(),
            key.kid(),
            Value::from(typ)
        );
        let mut encoded = URL_SAFE_NO_PAD.encode(header);
        encoded.push('.');
        Self {
            key: key.clone(),
            header: encoded,
        }
    }

    /// The compact token over these claims.
    pub fn encode(&self, claims: &impl Serialize) -> Result<String, SignError> {
        let mut payload = Vec::with_capacity(512);
        serde_json::to_writer(&mut payload, claims).map_err(|_| SignError::Claims)?;
        let longest_signature = 700;
        let mut token =
            String::with_capacity(self.header.len() + payload.len() * 4 / 3 + 4 + longest_signature);
        token.push_str(&self.header);
        URL_SAFE_NO_PAD.encode_string(&payload, &mut token);
        let signature = self.key.sign(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(&signature, &mut token);
        Ok(token)
    }
}

/// Signs one token; see [`Encoder`] for many of a kind.
pub fn sign(key: &SigningKey, typ: &str, claims: &impl Serialize) -> Result<String, SignError> {
    Encoder::new(key, typ).encode(claims)
}

/// Why a token does not hold at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// `exp` has come (RFC 7519 section 4.1.4).
    #[error("token has expired")]
    Expired,
    /// `nbf` lies ahead (RFC 7519 section 4.1.5).
    #[error("token is not valid yet")]
    NotYetValid,
    /// `iat` lies ahead (RFC 7519 section 4.1.6).
    #[error("token was issued in the future")]
    IssuedInFuture,
}

/// Checks the times of a token, each of them if it is there, with `leeway` for clocks that differ.
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
