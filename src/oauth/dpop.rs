//! Demonstrating Proof of Possession: RFC 9449.

use std::str::FromStr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::jose::claims::{numeric_date, optional_numeric_date};
use crate::jose::jwt::{self, EmbeddedKeyError, EmbeddedKeyToken, ExpectedTyp, JwtError};
use crate::oauth::assertion::{Owner, ReplayKey};
use crate::oauth::client::Client;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::parameters::Parameters;

/// `token_type` of an access token that is bound to a key, and the scheme in which it is presented (section 7.1).
pub const SCHEME: &str = "DPoP";

/// How old a proof may be.
const MAX_AGE: Duration = Duration::from_mins(1);
/// How far the clock of the client may be ahead (FAPI 2.0 Security Profile section 5.3.2.1).
const LEEWAY: Duration = Duration::from_secs(10);
/// The most characters of `jti`.
const MAX_JTI_CHARS: usize = 255;

/// Whether proofs must have a nonce of the service (section 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DpopNonce {
    /// No nonce is asked for.
    #[default]
    Off,
    /// A proof without a current nonce is refused.
    Required,
}

/// The thumbprint of a key: SHA-256 in base64url (RFC 7638).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyThumbprint(String);

/// The text is not a SHA-256 in base64url.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the thumbprint of a key: it is SHA-256 in base64url, which has 43 characters")]
pub struct InvalidThumbprint;

impl FromStr for KeyThumbprint {
    type Err = InvalidThumbprint;

    fn from_str(text: &str) -> Result<Self, InvalidThumbprint> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidThumbprint)?;
        if bytes.len() == digest::SHA256_OUTPUT_LEN {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidThumbprint)
        }
    }
}

/// Returns the time until which a nonce is accepted, or `None` if it is not current.
pub type NonceEnd<'a> = &'a dyn Fn(&str) -> Option<Timestamp>;

/// The request that the proof must be for.
#[derive(Clone, Copy)]
pub struct ExpectedRequest<'a> {
    pub method: &'a str,
    /// The URL of the endpoint, made from `base_url`. The `Host` header does not count.
    pub url: &'a str,
    /// The access token that it presents.
    pub access_token: Option<&'a str>,
    /// Checks the nonce. `None` if no nonce is required.
    pub nonce_end: Option<NonceEnd<'a>>,
}

/// A valid proof. The caller must record its use, because a proof is accepted once.
#[derive(Clone, Debug)]
pub struct DpopProof {
    /// The algorithm of its signature.
    pub algorithm: Algorithm,
    /// The key that signed it.
    pub key: KeyThumbprint,
    /// The key under which its use is recorded.
    pub replay_key: ReplayKey,
}

#[derive(Deserialize)]
struct Claims {
    jti: String,
    htm: String,
    htu: String,
    #[serde(deserialize_with = "numeric_date")]
    iat: Timestamp,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    exp: Option<Timestamp>,
    #[serde(default, deserialize_with = "optional_numeric_date")]
    nbf: Option<Timestamp>,
    ath: Option<String>,
    nonce: Option<String>,
}

impl DpopProof {
    /// Checks a proof (section 4.3).
    pub fn check(proof: &str, request: ExpectedRequest<'_>, now: Timestamp) -> Result<Self, Refusal> {
        let typ = ExpectedTyp::Exactly("dpop+jwt");
        let verified = jwt::verify_embedded_key::<Claims>(proof, typ, &Algorithm::ALL);
        let EmbeddedKeyToken {
            key,
            algorithm,
            claims,
        } = verified.map_err(|error| refuse(&describe(error)))?;
        if !(1..=MAX_JTI_CHARS).contains(&claims.jti.chars().count()) {
            return Err(refuse("jti must have 1 to 255 characters"));
        }
        if claims.htm != request.method {
            return Err(refuse(&format!("htm must be {}", request.method)));
        }
        if !is_same_resource(&claims.htu, request.url) {
            return Err(refuse(&format!("htu must be {}", request.url)));
        }
        let end = match request.nonce_end {
            // The nonce tells when the proof was made, so the client needs no clock (section 11.1).
            Some(nonce_end) => {
                let nonce = claims.nonce.as_deref().ok_or(NONCE_NEEDED)?;
                nonce_end(nonce).ok_or(NONCE_NEEDED)?
            }
            None if claims.iat + MAX_AGE < now => {
                return Err(refuse("iat is more than 60 s before the time of the service"));
            }
            None if claims.iat > now + LEEWAY => {
                return Err(refuse("iat is more than 10 s after the time of the service"));
            }
            None => claims.iat + MAX_AGE,
        };
        jwt::check_times(claims.exp, claims.nbf, None, now, LEEWAY)
            .map_err(|error| refuse(&error.to_string()))?;
        if let Some(access_token) = request.access_token
            && claims.ath.as_deref() != Some(hash_of(access_token).as_str())
        {
            return Err(refuse("ath must be the SHA-256 of the access token in base64url"));
        }
        let key = KeyThumbprint(key.thumbprint());
        // A request may take a while after its time was read, so the record lasts longer than the proof.
        let replay_key = ReplayKey::of(Owner::Key(&key.0), &claims.jti, end + MAX_AGE);
        Ok(Self {
            algorithm,
            key,
            replay_key,
        })
    }
}

/// The refusal of a proof without a current nonce (section 8).
const NONCE_NEEDED: Refusal = Refusal::new(
    ErrorCode::UseDpopNonce,
    "the nonce of the DPoP proof must be the one in the header DPoP-Nonce",
);

/// The refusal of a second header `DPoP` (section 4.3).
pub const SEVERAL_PROOFS: Refusal = Refusal::new(
    ErrorCode::InvalidDpopProof,
    "the request has more than one DPoP header",
);

/// The refusal of a header `DPoP` that has other characters than a token.
pub const UNREADABLE_PROOF: Refusal = Refusal::new(
    ErrorCode::InvalidDpopProof,
    "the DPoP header has characters that are not allowed in a token",
);

/// The refusal of a proof that was used before (section 11.1).
pub const REPLAYED: Refusal = Refusal::new(ErrorCode::InvalidDpopProof, "DPoP proof: it was used before");

/// The refusal of an access token in the scheme `DPoP` without a proof (section 7.1).
pub const PROOF_MISSING: Refusal = Refusal::new(
    ErrorCode::InvalidDpopProof,
    "the request has no DPoP header with a proof",
);

/// Refuses a token request without a proof if the client must send one (section 5.2).
pub fn require_proof(client: &Client, proof: Option<&DpopProof>) -> Result<(), Refusal> {
    if client.dpop_bound_access_tokens && proof.is_none() {
        return Err(Refusal::new(
            ErrorCode::InvalidDpopProof,
            "this client must send a DPoP proof with each token request",
        ));
    }
    check_algorithm(client, proof)
}

/// Refuses a proof by an algorithm that the client may not use.
pub fn check_algorithm(client: &Client, proof: Option<&DpopProof>) -> Result<(), Refusal> {
    if proof.is_some_and(|proof| !client.may_use_algorithm(proof.algorithm)) {
        return Err(refuse("alg must be PS256, ES256 or EdDSA for this client"));
    }
    Ok(())
}

/// The key of the parameter `dpop_jkt` of an authorization request (section 10).
pub fn requested_key(parameters: &Parameters) -> Result<Option<KeyThumbprint>, Refusal> {
    let key = parameters.get("dpop_jkt").map(str::parse).transpose();
    key.map_err(|error: InvalidThumbprint| {
        Refusal::naming(ErrorCode::InvalidRequest, &format!("dpop_jkt: {error}"))
    })
}

/// The key that a pushed authorization request is bound to: the one of its proof, which must be that of `dpop_jkt` if both
/// are there (section 10.1).
pub fn pushed_key(
    named: Option<KeyThumbprint>,
    proof: Option<&DpopProof>,
) -> Result<Option<KeyThumbprint>, Refusal> {
    match (named, proof) {
        (Some(named), Some(proof)) if named != proof.key => {
            Err(refuse("it is not signed by the key of dpop_jkt"))
        }
        (named, proof) => Ok(named.or_else(|| proof.map(|proof| proof.key.clone()))),
    }
}

/// The algorithms that may sign a proof, as a challenge names them (section 7.1).
pub fn algorithms() -> String {
    Algorithm::RECEIVED_NAMES.join(" ")
}

const MALFORMED_CLAIMS: &str =
    "a claim is missing or malformed: jti, htm, htu, ath and nonce are text; iat, exp and nbf are seconds";

fn refuse(problem: &str) -> Refusal {
    Refusal::naming(ErrorCode::InvalidDpopProof, &format!("DPoP proof: {problem}"))
}

fn describe(error: EmbeddedKeyError) -> String {
    match error {
        EmbeddedKeyError::Token(JwtError::Typ) => "typ must be dpop+jwt".to_owned(),
        EmbeddedKeyError::Token(JwtError::Algorithm) => format!("alg must be one of {}", algorithms()),
        EmbeddedKeyError::Token(JwtError::Signature) => "the signature is not by the key in jwk".to_owned(),
        EmbeddedKeyError::Token(JwtError::Claims) => MALFORMED_CLAIMS.to_owned(),
        EmbeddedKeyError::Token(error) => error.to_string(),
        EmbeddedKeyError::NoKey => "its header has no jwk".to_owned(),
        EmbeddedKeyError::Key(error) => format!("jwk: {error}"),
    }
}

/// Whether `htu` is this address, after syntax- and scheme-based normalization (section 4.3). Query and fragment are
/// ignored.
fn is_same_resource(htu: &str, url: &str) -> bool {
    let normal = |text: &str| {
        let mut url = Url::parse(text).ok()?;
        url.set_query(None);
        url.set_fragment(None);
        let path = decode_unreserved(url.path());
        url.set_path(&path);
        Some(url)
    };
    htu == url || normal(htu).is_some_and(|htu| Some(htu) == normal(url))
}

/// The path with its unreserved characters decoded, and the digits of other encoded ones in upper case (RFC 3986
/// section 6.2.2).
fn decode_unreserved(path: &str) -> String {
    let mut parts = path.split('%');
    let mut normal = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..2).unwrap_or_default();
        let is_encoded = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_encoded);
        match byte.map(char::from) {
            Some(unreserved @ ('A'..='Z' | 'a'..='z' | '0'..='9' | '-' | '.' | '_' | '~')) => {
                normal.push(unreserved);
            }
            Some(_) => {
                normal.push('%');
                normal.push_str(&digits.to_ascii_uppercase());
            }
            None => {
                normal.push('%');
                normal.push_str(digits);
            }
        }
        normal.push_str(part.get(digits.len()..).unwrap_or_default());
    }
    normal
}

/// `ath` of an access token (section 4.2).
fn hash_of(access_token: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, access_token.as_bytes()))
}

#[cfg(test)]
mod tests;
