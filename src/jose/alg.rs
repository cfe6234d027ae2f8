//! The supported signature algorithms.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A signature algorithm (RFC 7518 section 3.1, RFC 8037 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    #[serde(rename = "RS384")]
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    #[serde(rename = "RS512")]
    Rs512,
    /// RSASSA-PSS with SHA-256 and a salt of 32 bytes.
    #[serde(rename = "PS256")]
    Ps256,
    /// RSASSA-PSS with SHA-384 and a salt of 48 bytes.
    #[serde(rename = "PS384")]
    Ps384,
    /// RSASSA-PSS with SHA-512 and a salt of 64 bytes.
    #[serde(rename = "PS512")]
    Ps512,
    /// ECDSA over P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA over P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384,
    /// Ed25519. The other curve of this name, Ed448, is not supported.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

const ED25519: &str = "Ed25519";

/// The name is not that of a supported algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown signature algorithm: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA are known"
)]
pub struct UnknownAlgorithm;

impl Algorithm {
    /// Every algorithm, in the order for lists that people read.
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// The algorithms that the service signs with, in the same order. It only verifies the other ones.
    pub const SIGNING: [Self; 4] = [Self::Rs256, Self::Ps256, Self::Es256, Self::EdDsa];

    /// What is said of another algorithm than these.
    pub const SIGNING_SAID: &str = "the service signs with RS256, PS256, ES256 or EdDSA";

    /// The names that tokens and keys of others may have, in the same order.
    pub const RECEIVED_NAMES: [&str; 10] = [
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", ED25519,
    ];

    /// The algorithm that a token or key of others names. `Ed25519` is the newer name of `EdDSA` (RFC 9864 section 2.2).
    pub fn of_received(name: &str) -> Result<Self, UnknownAlgorithm> {
        if name == ED25519 {
            Ok(Self::EdDsa)
        } else {
            name.parse()
        }
    }

    /// The name in the registry of RFC 7518 section 7.1.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Names are case-sensitive (RFC 7515 section 4.1.1).
    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.as_str() == name)
            .ok_or(UnknownAlgorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.as_str().parse(), Ok(algorithm));
            assert_eq!(serde_json::to_value(algorithm).unwrap(), algorithm.as_str());
            assert_eq!(
                serde_json::from_value::<Algorithm>(algorithm.as_str().into()).unwrap(),
                algorithm
            );
        }
    }

    #[test]
    fn each_name_of_others_is_read() {
        for name in Algorithm::RECEIVED_NAMES {
            let own_name = if name == "Ed25519" { "EdDSA" } else { name };
            assert_eq!(Algorithm::of_received(name), own_name.parse());
        }
        assert_eq!("Ed25519".parse::<Algorithm>(), Err(UnknownAlgorithm));
    }

    #[test]
    fn symmetric_none_and_miswritten_names_are_unknown() {
        for name in ["HS256", "none", "None", "rs256", "ES256K", "ES512", "RS1", ""] {
            assert_eq!(name.parse::<Algorithm>(), Err(UnknownAlgorithm), "{name}");
            assert_eq!(Algorithm::of_received(name), Err(UnknownAlgorithm), "{name}");
        }
    }
}
