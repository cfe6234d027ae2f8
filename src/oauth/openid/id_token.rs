//! ID tokens: OpenID Connect Core 2 and 3.1.3.6.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::described::described;
use crate::jose::alg::Algorithm;

described! {
    /// The claims of an ID token.
    #[derive(Clone, Debug, Serialize)]
    pub struct IdTokenClaims<'a> {
        /// The issuer.
        pub iss: &'a str,
        /// The identifier of the user.
        pub sub: Uuid,
        /// The client that the token is for.
        pub aud: &'a str,
        /// The client that the token was issued to, the same as `aud`.
        pub azp: &'a str,
        /// When the token expires, in seconds since 1970.
        pub exp: Timestamp,
        /// When the token was issued, in seconds since 1970.
        pub iat: Timestamp,
        /// When the user signed in, in seconds since 1970; absent if a provider does not say it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub auth_time: Option<Timestamp>,
        /// `nonce` of the authorization request; absent if none was sent.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub nonce: Option<&'a str>,
        /// The left half of the access token's hash (OpenID Connect Core section 3.1.3.6).
        pub at_hash: String,
        /// The session of the browser; absent if there is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub sid: Option<Uuid>,
        /// How the user signed in (RFC 8176): `["pwd"]` with a password, `["otp"]` by a mail, `["fed"]` at a provider,
        /// `["hwk", "user", "mfa"]` with a passkey of a security key, `["swk", "user", "mfa"]` with one that is synced. With a
        /// code of an authenticator app or a recovery code as the second step, `otp` and `mfa` follow. At a provider that
        /// is trusted for it, `mfa` follows. Absent for an anonymous user.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub amr: Vec<&'a str>,
        /// How surely the user was authenticated: `1` by one factor, `2` by two, `phr` with a passkey, which
        /// resists phishing; absent for an anonymous user. For an essential `acr`, the highest requested value that the
        /// sign-in reaches.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub acr: Option<&'a str>,
        #[serde(flatten)]
        /// The requested claims of the user.
        pub requested: Map<String, Value>,
    }
}

/// `at_hash`: the left half of the access token's hash. The hash function is that of the ID token's signature. For
/// `EdDSA` with Ed25519 it is SHA-512 (RFC 8032 section 5.1).
pub fn at_hash(access_token: &str, alg: Algorithm) -> String {
    let algorithm = match alg {
        Algorithm::Rs256 | Algorithm::Ps256 | Algorithm::Es256 => &digest::SHA256,
        Algorithm::Rs384 | Algorithm::Ps384 | Algorithm::Es384 => &digest::SHA384,
        Algorithm::Rs512 | Algorithm::Ps512 | Algorithm::EdDsa => &digest::SHA512,
    };
    let hash = digest::digest(algorithm, access_token.as_bytes());
    let half = hash.as_ref().get(..algorithm.output_len() / 2);
    URL_SAFE_NO_PAD.encode(half.unwrap_or_default())
}

/// The claims of an ID token that is presented as a hint.
#[derive(Clone, Debug, Deserialize)]
pub struct IdTokenHint {
    /// The issuer.
    pub iss: String,
    /// The subject.
    pub sub: Uuid,
    /// The client it was issued to.
    pub aud: String,
    /// The same client. Access tokens, whose `typ` may be configured to be the same, lack this claim.
    pub azp: String,
    /// The session in which it was issued; absent if there was none.
    pub sid: Option<Uuid>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_hash_agrees_with_the_example_of_openid_connect_core_a_3() {
        assert_eq!(
            at_hash("jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y", Algorithm::Rs256),
            "77QmUPtjPfzWtF2AnpK9RQ"
        );
    }

    #[test]
    fn with_eddsa_it_is_twice_as_long() {
        assert_eq!(at_hash("token", Algorithm::EdDsa).len(), 43);
    }
}
