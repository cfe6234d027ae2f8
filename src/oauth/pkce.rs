//! Proof key for code exchange: RFC 7636, the S256 method only.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::oauth::error::Refusal;

/// `code_challenge` under `code_challenge_method=S256` (RFC 7636 section 4.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CodeChallenge(String);

/// Not the base64url of a SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("code_challenge is not the base64url of a SHA-256 digest")]
pub struct MalformedChallenge;

impl CodeChallenge {
    /// Reads an S256 challenge: 43 characters that stand for 32 bytes.
    pub fn parse(text: &str) -> Result<Self, MalformedChallenge> {
        match URL_SAFE_NO_PAD.decode(text) {
            Ok(bytes) if bytes.len() == digest::SHA256_OUTPUT_LEN => Ok(Self(text.to_owned())),
            _ => Err(MalformedChallenge),
        }
    }

    /// Whether the challenge was made from `code_verifier` (RFC 7636 section 4.6), in constant time.
    ///
    /// A verifier that is not `43*128unreserved` (section 4.1) is refused.
    pub fn is_met_by(&self, code_verifier: &str) -> bool {
        let well_formed = (43..=128).contains(&code_verifier.len())
            && code_verifier
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b));
        let made = challenge_of(code_verifier);
        well_formed & bool::from(made.as_bytes().ct_eq(self.0.as_bytes()))
    }
}

/// Checks the verifier of a token request (RFC 7636 section 4.6). A verifier without a challenge is refused too, because
/// the client believes that the request was protected (RFC 9700 section 2.1.1).
pub fn check_verifier(challenge: Option<&CodeChallenge>, code_verifier: Option<&str>) -> Result<(), Refusal> {
    match (challenge, code_verifier) {
        (None, None) => Ok(()),
        (Some(challenge), Some(verifier)) if challenge.is_met_by(verifier) => Ok(()),
        (Some(_), Some(_)) => Err(Refusal::invalid_grant(
            "code_verifier does not match code_challenge",
        )),
        (Some(_), None) => Err(Refusal::invalid_grant("code_verifier is missing")),
        (None, Some(_)) => Err(Refusal::invalid_grant(
            "code_verifier was sent but the authorization request had no code_challenge",
        )),
    }
}

/// The S256 challenge for a verifier (RFC 7636 section 4.2).
pub fn challenge_of(code_verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, code_verifier.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_of_rfc_7636_appendix_b_is_met() {
        let challenge = CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap();
        assert!(challenge.is_met_by("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"));
        assert!(!challenge.is_met_by("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXl"));
        assert!(!challenge.is_met_by(""));
    }

    #[test]
    fn a_short_verifier_is_refused_though_its_digest_agrees() {
        let challenge = CodeChallenge(URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, b"too-short")));
        assert!(!challenge.is_met_by("too-short"));
    }

    #[test]
    fn a_challenge_is_the_length_of_a_digest() {
        assert!(CodeChallenge::parse("abc").is_err());
        assert!(CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM=").is_err());
    }
}
