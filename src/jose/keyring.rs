//! The signing keys of the service, and the published key set.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
    RsaKeyPair,
};
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde::{Deserialize, Serialize};
use serde_json::json;
use zeroize::Zeroizing;

use super::alg::Algorithm;
use super::der;
use super::jwk::PublicKey;
use crate::random::Random;

/// Why a private key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// The file has no private key section.
    #[error("no private key in PEM form (PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY)")]
    NotPem,
    /// The file holds more than one private key.
    #[error("more than one private key in the file")]
    Several,
    /// The key is encrypted with a passphrase.
    #[error("private key is encrypted: decrypt it first, for example with openssl pkey")]
    Encrypted,
    /// The key is neither RSA nor P-256 nor Ed25519.
    #[error("private key is neither RSA nor P-256 nor Ed25519")]
    UnsupportedType,
    /// The key does not have the type of the requested algorithm.
    #[error("private key is not for the algorithm that was asked for")]
    WrongAlgorithm,
    /// The encoding is broken, or the parts of the key do not match.
    #[error(
        "private key is malformed or inconsistent, or an elliptic curve key without its uncompressed public part"
    )]
    Rejected,
    /// An RSA key of an unsupported size.
    #[error(
        "rsa private key is not 2048, 3072 or 4096 bits long with two equally long primes and an exponent of at least 65537"
    )]
    UnsupportedSize,
    /// A signature by the key was not valid under it.
    #[error("private key fails its own check")]
    SelfCheck,
}

/// Why signing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The claims cannot be written as JSON.
    #[error("claims cannot be written as json")]
    Claims,
    /// The operating system gave no entropy, or the key is damaged.
    #[error("signing failed")]
    Failed,
}

/// A private key and its algorithm. Clones share the key.
#[derive(Clone)]
pub struct SigningKey(Arc<Inner>);

struct Inner {
    alg: Algorithm,
    kid: String,
    public: PublicKey,
    pair: Pair,
    pkcs8: Zeroizing<Vec<u8>>,
    entropy: SystemRandom,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl SigningKey {
    /// A new P-256 key for ES256.
    ///
    /// The entropy is always that of the operating system, because ring takes no other. A seeded `random` does not make
    /// the key repeatable.
    pub fn generate_es256(random: &Random) -> Result<Self, SigningKeyError> {
        let own;
        let entropy = match random {
            Random::System(system) => system,
            Random::Seeded(..) => {
                own = system_entropy();
                &own
            }
        };
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, entropy)
            .map_err(|_| SigningKeyError::SelfCheck)?;
        Self::from_pkcs8_der(Algorithm::Es256, document.as_ref())
    }

    /// A new Ed25519 key for `EdDSA`.
    pub fn generate_ed25519(random: &Random) -> Result<Self, SigningKeyError> {
        let seed = Zeroizing::new(random.bytes::<32>());
        let pkcs8 = private_key_info(der::ED25519, &der::element(der::OCTET_STRING, &[seed.as_slice()]));
        Self::from_pkcs8_der(Algorithm::EdDsa, &pkcs8)
    }

    /// Reads a `PrivateKeyInfo` (RFC 5208 section 5), and signs once to check that its parts match.
    pub fn from_pkcs8_der(alg: Algorithm, pkcs8: &[u8]) -> Result<Self, SigningKeyError> {
        let entropy = system_entropy();
        let (pair, public) = match alg {
            Algorithm::Rs256 | Algorithm::Ps256 => {
                let pair = RsaKeyPair::from_pkcs8(pkcs8).map_err(rejected)?;
                let public = PublicKey::of_key_pair(alg, pair.public_key().as_ref());
                (Pair::Rsa(pair), public)
            }
            Algorithm::Es256 => {
                let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &entropy)
                    .map_err(rejected)?;
                let public = PublicKey::of_key_pair(alg, pair.public_key().as_ref());
                (Pair::Ecdsa(pair), public)
            }
            Algorithm::EdDsa => {
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).map_err(rejected)?;
                let public = PublicKey::of_key_pair(alg, pair.public_key().as_ref());
                (Pair::Ed25519(pair), public)
            }
            _ => return Err(SigningKeyError::WrongAlgorithm),
        };
        let public = public.map_err(|_| SigningKeyError::Rejected)?;
        let key = Self(Arc::new(Inner {
            alg,
            kid: public.thumbprint(),
            public,
            pair,
            pkcs8: Zeroizing::new(pkcs8.to_vec()),
            entropy,
        }));
        let message = b"self check";
        let signature = key.sign(message).map_err(|_| SigningKeyError::SelfCheck)?;
        key.public()
            .verify(alg, message, &signature)
            .map_err(|_| SigningKeyError::SelfCheck)?;
        Ok(key)
    }

    /// Reads the private key in a PEM file: PKCS#8, PKCS#1 for RSA (RFC 8017 appendix A.1.2) or SEC 1 for P-256
    /// (RFC 5915), as openssl writes them.
    ///
    /// Without `alg` an RSA key signs with RS256.
    pub fn from_pem(pem: &str, alg: Option<Algorithm>) -> Result<Self, SigningKeyError> {
        let unreadable = if pem.contains("ENCRYPTED") {
            SigningKeyError::Encrypted
        } else {
            SigningKeyError::NotPem
        };
        let mut found = None;
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes()) {
            let (kind, contents) = section.map_err(|_| unreadable)?;
            let contents = Zeroizing::new(contents);
            let pkcs8 = match kind {
                SectionKind::PrivateKey => contents,
                SectionKind::RsaPrivateKey => private_key_info(der::RSA_ENCRYPTION, &contents),
                SectionKind::EcPrivateKey => from_sec1(&contents)?,
                _ => continue,
            };
            if found.replace(pkcs8).is_some() {
                return Err(SigningKeyError::Several);
            }
        }
        let pkcs8 = found.ok_or(unreadable)?;
        let default_alg = default_algorithm(&pkcs8)?;
        match (default_alg, alg.unwrap_or(default_alg)) {
            (Algorithm::Rs256, Algorithm::Ps256) => Self::from_pkcs8_der(Algorithm::Ps256, &pkcs8),
            (default_alg, alg) if default_alg == alg => Self::from_pkcs8_der(alg, &pkcs8),
            _ => Err(SigningKeyError::WrongAlgorithm),
        }
    }

    /// The key ID: its thumbprint (RFC 7638).
    pub fn kid(&self) -> &str {
        &self.0.kid
    }

    pub fn alg(&self) -> Algorithm {
        self.0.alg
    }

    pub fn public(&self) -> &PublicKey {
        &self.0.public
    }

    /// The private key as a `PrivateKeyInfo`. The caller must seal it before it is stored.
    pub fn pkcs8(&self) -> &[u8] {
        &self.0.pkcs8
    }

    /// The bytes of a signature.
    pub fn signature_len(&self) -> usize {
        match &self.0.pair {
            Pair::Rsa(pair) => pair.public().modulus_len(),
            Pair::Ecdsa(_) | Pair::Ed25519(_) => 64,
        }
    }

    /// Signs a message (RFC 7518 section 3).
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let Inner {
            alg, pair, entropy, ..
        } = &*self.0;
        match pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; self.signature_len()];
                let padding: &'static dyn ring::signature::RsaEncoding = if *alg == Algorithm::Ps256 {
                    &RSA_PSS_SHA256
                } else {
                    &RSA_PKCS1_SHA256
                };
                pair.sign(padding, entropy, message, &mut signature)
                    .map(|()| signature)
                    .map_err(|_| SignError::Failed)
            }
            Pair::Ecdsa(pair) => pair
                .sign(entropy, message)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(|_| SignError::Failed),
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SigningKey({} {} [redacted])", self.alg(), self.kid())
    }
}

/// The entropy for the nonces of ECDSA and the salts of PSS, always from the operating system. A seed must not be used,
/// because a repeated nonce reveals the private key.
fn system_entropy() -> SystemRandom {
    #[expect(
        clippy::disallowed_methods,
        reason = "what ring draws while signing must never be seeded"
    )]
    SystemRandom::new()
}

fn rejected(error: ring::error::KeyRejected) -> SigningKeyError {
    match error.to_string().as_str() {
        "TooSmall" | "TooLarge" | "PrivateModulusLenNotMultipleOf512Bits" => SigningKeyError::UnsupportedSize,
        "WrongAlgorithm" => SigningKeyError::WrongAlgorithm,
        _ => SigningKeyError::Rejected,
    }
}

/// Wraps a private key into a `PrivateKeyInfo` (RFC 5208 section 5). `identifier` is its algorithm.
pub(super) fn private_key_info(identifier: &[u8], key: &[u8]) -> Zeroizing<Vec<u8>> {
    der::element(
        der::SEQUENCE,
        &[
            &der::unsigned(&[0]),
            &der::element(der::SEQUENCE, &[identifier]),
            &der::element(der::OCTET_STRING, &[key]),
        ],
    )
}

/// The default algorithm for the type of a `PrivateKeyInfo`; RS256 for RSA.
fn default_algorithm(pkcs8: &[u8]) -> Result<Algorithm, SigningKeyError> {
    let identifier = || {
        let mut info = der::Reader::new(der::Reader::only(pkcs8, der::SEQUENCE)?);
        info.element(der::INTEGER)?;
        info.element(der::SEQUENCE)
    };
    match identifier().map_err(|_| SigningKeyError::Rejected)? {
        der::RSA_ENCRYPTION => Ok(Algorithm::Rs256),
        der::EC_P256 => Ok(Algorithm::Es256),
        der::ED25519 => Ok(Algorithm::EdDsa),
        _ => Err(SigningKeyError::UnsupportedType),
    }
}

/// Wraps an `ECPrivateKey` (RFC 5915 section 3) on P-256 into a `PrivateKeyInfo`.
fn from_sec1(contents: &[u8]) -> Result<Zeroizing<Vec<u8>>, SigningKeyError> {
    let curve = || {
        let mut key = der::Reader::new(der::Reader::only(contents, der::SEQUENCE)?);
        key.element(der::INTEGER)?;
        key.element(der::OCTET_STRING)?;
        let parameters = key.optional(der::CONTEXT_0)?;
        key.optional(der::CONTEXT_1)?;
        key.end()?;
        parameters
            .map(|parameters| der::Reader::only(parameters, der::OBJECT_IDENTIFIER))
            .transpose()
    };
    match curve().map_err(|_| SigningKeyError::Rejected)? {
        None | Some(der::SECP256R1) => Ok(private_key_info(der::EC_P256, contents)),
        Some(_) => Err(SigningKeyError::UnsupportedType),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// Published but not signing yet, so that verifiers have it before the first token.
    Announced,
    /// Published and signing.
    Active,
    /// No longer signing. It is published until the last token that it signed has expired.
    Retired,
}

/// All keys of the service. A rotation makes a new keyring.
#[derive(Clone, Debug)]
pub struct Keyring {
    keys: Vec<(SigningKey, KeyState)>,
    jwks: Bytes,
}

impl Keyring {
    /// A keyring of these keys. The first active key of an algorithm signs. A repeated key is left out, even if its
    /// algorithm differs, because a key must be used with one algorithm only.
    pub fn new(keys: Vec<(SigningKey, KeyState)>) -> Self {
        let mut distinct: Vec<(SigningKey, KeyState)> = Vec::with_capacity(keys.len());
        for (key, state) in keys {
            if distinct.iter().all(|(other, _)| other.kid() != key.kid()) {
                distinct.push((key, state));
            }
        }
        let published: Vec<_> = distinct.iter().map(|(key, _)| key.public().to_jwk()).collect();
        let jwks = Bytes::from(json!({ "keys": published }).to_string());
        Self { keys: distinct, jwks }
    }

    /// The active key for this algorithm.
    pub fn signer(&self, alg: Algorithm) -> Option<&SigningKey> {
        self.keys
            .iter()
            .find(|(key, state)| key.alg() == alg && *state == KeyState::Active)
            .map(|(key, _)| key)
    }

    /// The key with this `kid`, in any state.
    pub fn verifier(&self, kid: &str) -> Option<&PublicKey> {
        self.keys
            .iter()
            .find(|(key, _)| key.kid() == kid)
            .map(|(key, _)| key.public())
    }

    /// The algorithms of all keys, in the order of [`Algorithm::SIGNING`].
    pub fn published_algorithms(&self) -> Vec<Algorithm> {
        Algorithm::SIGNING
            .into_iter()
            .filter(|alg| self.keys.iter().any(|(key, _)| key.alg() == *alg))
            .collect()
    }

    pub fn keys(&self) -> &[(SigningKey, KeyState)] {
        &self.keys
    }

    /// The published JWK Set (RFC 7517 section 5), as JSON.
    pub fn jwks(&self) -> &Bytes {
        &self.jwks
    }
}
