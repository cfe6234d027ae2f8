//! Verification keys: JSON Web Keys (RFC 7517) and the PEM files of other tools.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use rustls::pki_types::pem::{PemObject, SectionKind};
use serde_json::{Map, Value, json};

use super::alg::Algorithm;
use super::json::object;
use super::{der, roca};

const RSA_MIN_BITS: usize = 2048;
const RSA_MAX_BITS: usize = 8192;
/// The most bytes of an RSA modulus, and the exponent, in a key that a stranger chooses.
const CHEAP_MODULUS_LEN: usize = 4096 / 8;
const CHEAP_EXPONENT: [u8; 3] = [1, 0, 1];
const P256_LEN: usize = 32;
const P384_LEN: usize = 48;
const ED25519_LEN: usize = 32;

/// The members that belong to private and symmetric keys (RFC 7518 sections 6.2.2, 6.3.2 and 6.4.1).
const SECRET_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// A verification key, and the algorithms that it may be used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    kid: Option<String>,
    algorithms: &'static [Algorithm],
    material: Material,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// Why a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwkError {
    /// Not JSON, not an object, or a name occurs twice.
    #[error("key is not a JSON object with distinct names")]
    NotAnObject,
    /// A member that the key type requires is missing (RFC 7518 section 6).
    #[error("key lacks the member {0}")]
    Missing(&'static str),
    /// A member has a wrong type or encoding.
    #[error("key has a malformed member {0}")]
    Malformed(&'static str),
    /// The key is private or symmetric.
    #[error("key is a private key: give the public one only, and replace this one if it has been published")]
    Private,
    /// `kty` or `crv` is not supported.
    #[error("key is neither RSA nor P-256, P-384 or Ed25519")]
    UnsupportedType,
    /// `alg` is not supported or does not match the type of the key.
    #[error(
        "key is for another algorithm than RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA"
    )]
    UnsupportedAlgorithm,
    /// `use` or `key_ops` do not allow verification of signatures.
    #[error("key is not for signatures")]
    NotForSignatures,
    /// The RSA modulus is not 2048 to 8192 bits long, or the public exponent is even, 1, or over 33 bits.
    #[error("rsa key is not 2048 to 8192 bits long with an odd public exponent")]
    UnsupportedSize,
    /// The RSA key would make each verification slow. It was chosen by a stranger.
    #[error("rsa key has more than 4096 bits, or another exponent than 65537")]
    Costly,
    /// The RSA modulus can be factored (CVE-2017-15361).
    #[error(
        "rsa key was made by a faulty library and its private key can be computed (ROCA): make a new one"
    )]
    Weak,
    /// Not a PEM file with one `PUBLIC KEY` section.
    #[error("no public key in PEM form (-----BEGIN PUBLIC KEY-----)")]
    NotPem,
}

impl JwkError {
    /// Whether a key set is used without this key (RFC 7517 section 5), because the key is only unsupported.
    pub const fn is_unsupported(self) -> bool {
        match self {
            Self::UnsupportedType
            | Self::UnsupportedAlgorithm
            | Self::NotForSignatures
            | Self::UnsupportedSize
            | Self::Costly
            | Self::Weak
            | Self::Missing(_) => true,
            Self::NotAnObject | Self::Malformed(_) | Self::Private | Self::NotPem => false,
        }
    }
}

/// The signature does not belong to this message, key and algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("signature does not match")]
pub struct BadSignature;

impl PublicKey {
    /// Reads one JSON Web Key (RFC 7517 section 4).
    ///
    /// Without `alg` an RSA key is for all algorithms of RSA. Unknown members are ignored, and those of private keys
    /// are refused. A point that is not on its curve is accepted, but verifies nothing.
    pub fn from_jwk(jwk: &Value) -> Result<Self, JwkError> {
        let members = jwk.as_object().ok_or(JwkError::NotAnObject)?;
        let kty = text(members, "kty")?.ok_or(JwkError::Missing("kty"))?;
        if !matches!(kty, "RSA" | "EC" | "OKP") {
            return Err(JwkError::UnsupportedType);
        }
        if SECRET_MEMBERS.iter().any(|name| members.contains_key(*name)) {
            return Err(JwkError::Private);
        }
        let material = match (kty, text(members, "crv")?) {
            ("RSA", None) => Material::rsa(&bytes(members, "n")?, &bytes(members, "e")?)?,
            ("EC", Some("P-256")) => Material::P256(point(members, P256_LEN)?),
            ("EC", Some("P-384")) => Material::P384(point(members, P384_LEN)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(coordinate(members, "x", ED25519_LEN)?),
            ("RSA", Some(_)) => return Err(JwkError::Malformed("crv")),
            (_, None) => return Err(JwkError::Missing("crv")),
            _ => return Err(JwkError::UnsupportedType),
        };
        if !matches!(text(members, "use")?, None | Some("sig")) {
            return Err(JwkError::NotForSignatures);
        }
        match members.get("key_ops") {
            None => {}
            Some(Value::Array(operations)) if operations.iter().any(|operation| operation == "verify") => {}
            Some(Value::Array(_)) => return Err(JwkError::NotForSignatures),
            Some(_) => return Err(JwkError::Malformed("key_ops")),
        }
        let key = Self {
            kid: text(members, "kid")?.map(str::to_owned),
            algorithms: material.algorithms(),
            material,
        };
        match text(members, "alg")? {
            None => Ok(key),
            Some(name) => {
                key.pinned(Algorithm::of_received(name).map_err(|_| JwkError::UnsupportedAlgorithm)?)
            }
        }
    }

    /// Reads a `SubjectPublicKeyInfo` (RFC 5280 section 4.1) in PEM form, as `openssl pkey -pubout` writes it.
    ///
    /// The key has no `kid`. An RSA key is for all algorithms of RSA.
    pub fn from_pem(pem: &str) -> Result<Self, JwkError> {
        let mut keys = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes());
        let (kind, spki) = keys
            .next()
            .ok_or(JwkError::NotPem)?
            .map_err(|_| JwkError::NotPem)?;
        match kind {
            SectionKind::PublicKey if keys.next().is_none() => Self::from_spki(&spki),
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                Err(JwkError::Private)
            }
            _ => Err(JwkError::NotPem),
        }
    }

    /// Reads a `SubjectPublicKeyInfo` (RFC 5280 section 4.1). The key has no `kid`.
    pub fn from_spki(spki: &[u8]) -> Result<Self, JwkError> {
        const MALFORMED: JwkError = JwkError::Malformed("subject public key");
        let fields = || {
            let mut spki = der::Reader::new(der::Reader::only(spki, der::SEQUENCE)?);
            let algorithm = spki.element(der::SEQUENCE)?;
            let key = spki.bit_string()?;
            spki.end()?;
            Ok::<_, der::Malformed>((algorithm, key))
        };
        let (algorithm, key) = fields().map_err(|_| MALFORMED)?;
        let material = match (algorithm, key) {
            (der::RSA_ENCRYPTION, key) => {
                let components = || {
                    let mut key = der::Reader::new(der::Reader::only(key, der::SEQUENCE)?);
                    let (n, e) = (key.positive()?, key.positive()?);
                    key.end()?;
                    Ok::<_, der::Malformed>((n, e))
                };
                let (n, e) = components().map_err(|_| MALFORMED)?;
                Material::rsa(n, e)?
            }
            (der::EC_P256, [4, point @ ..]) if point.len() == 2 * P256_LEN => Material::P256(key.to_vec()),
            (der::EC_P384, [4, point @ ..]) if point.len() == 2 * P384_LEN => Material::P384(key.to_vec()),
            (der::ED25519, _) if key.len() == ED25519_LEN => Material::Ed25519(key.to_vec()),
            (der::EC_P256 | der::EC_P384 | der::ED25519, _) => return Err(MALFORMED),
            _ => return Err(JwkError::UnsupportedType),
        };
        Ok(Self {
            kid: None,
            algorithms: material.algorithms(),
            material,
        })
    }

    /// The public key of a key pair, from the bytes that ring returns: an `RSAPublicKey`, a point, or an Ed25519 key.
    /// Its `kid` is its thumbprint.
    pub(super) fn of_key_pair(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, JwkError> {
        let identifier = match algorithm {
            Algorithm::Es256 => der::EC_P256,
            Algorithm::Es384 => der::EC_P384,
            Algorithm::EdDsa => der::ED25519,
            _ => der::RSA_ENCRYPTION,
        };
        let spki = der::element(
            der::SEQUENCE,
            &[
                &der::element(der::SEQUENCE, &[identifier]),
                &der::element(der::BIT_STRING, &[&[0], bytes]),
            ],
        );
        let mut key = Self::from_spki(&spki)?.pinned(algorithm)?;
        key.kid = Some(key.thumbprint());
        Ok(key)
    }

    pub fn pinned(self, algorithm: Algorithm) -> Result<Self, JwkError> {
        let at = self.algorithms.iter().position(|known| *known == algorithm);
        let only = at.and_then(|at| self.algorithms.get(at..=at));
        let algorithms = only.ok_or(JwkError::UnsupportedAlgorithm)?;
        Ok(Self { algorithms, ..self })
    }

    /// `kid`, if the owner set one.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// The algorithms that it may be used for, never empty.
    pub fn algorithms(&self) -> &'static [Algorithm] {
        self.algorithms
    }

    /// The key, if a stranger may choose it: its RSA modulus has at most 4096 bits and its exponent is 65537, so that a
    /// verification is cheap.
    pub fn chosen_by_stranger(self) -> Result<Self, JwkError> {
        match &self.material {
            Material::Rsa { n, e } if n.len() > CHEAP_MODULUS_LEN || *e != CHEAP_EXPONENT => {
                Err(JwkError::Costly)
            }
            _ => Ok(self),
        }
    }

    /// The JSON Web Key: public members, `kid` (the thumbprint if it has none), `use`, and `alg` if there is only one.
    pub fn to_jwk(&self) -> Value {
        let mut jwk = match &self.material {
            Material::Rsa { n, e } => json!({ "kty": "RSA", "n": encode(n), "e": encode(e) }),
            Material::P256(point) | Material::P384(point) => {
                let (x, y) = coordinates(point);
                json!({ "kty": "EC", "crv": self.curve(), "x": encode(x), "y": encode(y) })
            }
            Material::Ed25519(x) => json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(x) }),
        };
        if let Some(members) = jwk.as_object_mut() {
            let kid = self.kid.clone().unwrap_or_else(|| self.thumbprint());
            members.insert("kid".to_owned(), json!(kid));
            members.insert("use".to_owned(), json!("sig"));
            if let [algorithm] = self.algorithms {
                members.insert("alg".to_owned(), json!(algorithm.as_str()));
            }
        }
        jwk
    }

    /// The SHA-256 thumbprint in base64url (RFC 7638, RFC 8037 section 2).
    pub fn thumbprint(&self) -> String {
        let required = match &self.material {
            Material::Rsa { n, e } => {
                format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, encode(e), encode(n))
            }
            Material::P256(point) | Material::P384(point) => {
                let (x, y) = coordinates(point);
                format!(
                    r#"{{"crv":"{}","kty":"EC","x":"{}","y":"{}"}}"#,
                    self.curve(),
                    encode(x),
                    encode(y)
                )
            }
            Material::Ed25519(x) => format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, encode(x)),
        };
        encode(digest::digest(&digest::SHA256, required.as_bytes()).as_ref())
    }

    /// The parts that identify the key.
    pub(super) fn material(&self) -> [&[u8]; 2] {
        match &self.material {
            Material::Rsa { n, e } => [n, e],
            Material::P256(point) | Material::P384(point) => [point, &[]],
            Material::Ed25519(key) => [key, &[]],
        }
    }

    /// Verifies a signature. An algorithm that the key is not for counts as a bad signature.
    pub fn verify(&self, alg: Algorithm, message: &[u8], signature: &[u8]) -> Result<(), BadSignature> {
        if !self.algorithms.contains(&alg) {
            return Err(BadSignature);
        }
        let verified =
            match &self.material {
                Material::Rsa { n, e } => {
                    let parameters = match alg {
                        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                        Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa => return Err(BadSignature),
                    };
                    RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
                }
                Material::P256(point) => UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature),
                Material::P384(point) => UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                    .verify(message, signature),
                Material::Ed25519(key) => {
                    UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature)
                }
            };
        verified.map_err(|_| BadSignature)
    }

    /// `crv` of a point.
    fn curve(&self) -> &'static str {
        match self.material {
            Material::P384(_) => "P-384",
            _ => "P-256",
        }
    }
}

impl Material {
    fn rsa(n: &[u8], e: &[u8]) -> Result<Self, JwkError> {
        let (Some(1..), Some(1..)) = (n.first(), e.first()) else {
            return Err(JwkError::Malformed("n or e"));
        };
        let bits = n
            .iter()
            .take(1)
            .fold(n.len() * 8, |bits, first| bits - first.leading_zeros() as usize);
        let exponent = e
            .iter()
            .fold(0_u64, |exponent, byte| exponent << 8 | u64::from(*byte));
        let is_usable = (RSA_MIN_BITS..=RSA_MAX_BITS).contains(&bits)
            && e.len() <= 5
            && (3..1 << 33).contains(&exponent)
            && exponent % 2 == 1;
        if !is_usable {
            return Err(JwkError::UnsupportedSize);
        }
        if roca::is_weak(n) {
            return Err(JwkError::Weak);
        }
        Ok(Self::Rsa {
            n: n.to_vec(),
            e: e.to_vec(),
        })
    }

    fn algorithms(&self) -> &'static [Algorithm] {
        match self {
            Self::Rsa { .. } => &[
                Algorithm::Rs256,
                Algorithm::Rs384,
                Algorithm::Rs512,
                Algorithm::Ps256,
                Algorithm::Ps384,
                Algorithm::Ps512,
            ],
            Self::P256(_) => &[Algorithm::Es256],
            Self::P384(_) => &[Algorithm::Es384],
            Self::Ed25519(_) => &[Algorithm::EdDsa],
        }
    }
}

/// A set of verification keys (RFC 7517 section 5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JwkSet {
    /// The supported keys, in the order of the document.
    pub keys: Vec<PublicKey>,
}

impl JwkSet {
    /// Reads a JWK Set.
    ///
    /// Keys of an unsupported type, algorithm, size or use are skipped, and so are keys that lack a member. A malformed
    /// or private key makes the set invalid.
    pub fn parse(document: &[u8]) -> Result<Self, JwkError> {
        let document = object(document).map_err(|_| JwkError::NotAnObject)?;
        let keys = document.get("keys").ok_or(JwkError::Missing("keys"))?;
        let mut usable = Vec::new();
        for key in keys.as_array().ok_or(JwkError::Malformed("keys"))? {
            match PublicKey::from_jwk(key) {
                Ok(key) => usable.push(key),
                Err(error) if error.is_unsupported() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { keys: usable })
    }

    /// The keys of a stored list. Keys that are no longer supported are left out.
    pub fn of_jwks(jwks: &[Value]) -> Self {
        Self {
            keys: jwks
                .iter()
                .filter_map(|jwk| PublicKey::from_jwk(jwk).ok())
                .collect(),
        }
    }

    /// The keys that a stranger may choose ([`PublicKey::chosen_by_stranger`]). The others are left out.
    #[must_use]
    pub fn chosen_by_stranger(mut self) -> Self {
        self.keys.retain(|key| key.clone().chosen_by_stranger().is_ok());
        self
    }

    /// The key for a token with this `kid` and algorithm.
    ///
    /// A key with the same `kid` is preferred. Otherwise, if the token or the key has no `kid`, it is the only key for
    /// the algorithm. If there are several such keys, none is selected.
    pub fn select(&self, kid: Option<&str>, alg: Algorithm) -> Option<&PublicKey> {
        let usable = || self.keys.iter().filter(|key| key.algorithms.contains(&alg));
        if let Some(key) = kid.and_then(|kid| usable().find(|key| key.kid() == Some(kid))) {
            return Some(key);
        }
        let mut candidates = usable().filter(|key| kid.is_none() || key.kid.is_none());
        let only = candidates.next()?;
        candidates.next().is_none().then_some(only)
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The two coordinates of an uncompressed point (SEC 1 section 2.3.3).
fn coordinates(point: &[u8]) -> (&[u8], &[u8]) {
    let coordinates = point.get(1..).unwrap_or_default();
    coordinates
        .split_at_checked(coordinates.len() / 2)
        .unwrap_or_default()
}

fn text<'a>(members: &'a Map<String, Value>, name: &'static str) -> Result<Option<&'a str>, JwkError> {
    match members.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(JwkError::Malformed(name)),
    }
}

fn bytes(members: &Map<String, Value>, name: &'static str) -> Result<Vec<u8>, JwkError> {
    let encoded = text(members, name)?.ok_or(JwkError::Missing(name))?;
    URL_SAFE_NO_PAD
        .decode(encoded)
        .map_err(|_| JwkError::Malformed(name))
}

fn coordinate(members: &Map<String, Value>, name: &'static str, length: usize) -> Result<Vec<u8>, JwkError> {
    let bytes = bytes(members, name)?;
    if bytes.len() == length {
        Ok(bytes)
    } else {
        Err(JwkError::Malformed(name))
    }
}

/// The point whose coordinates have this length, uncompressed.
fn point(members: &Map<String, Value>, length: usize) -> Result<Vec<u8>, JwkError> {
    let (x, y) = (
        coordinate(members, "x", length)?,
        coordinate(members, "y", length)?,
    );
    Ok([&[4], x.as_slice(), y.as_slice()].concat())
}
