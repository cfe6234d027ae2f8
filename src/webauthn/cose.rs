//! Public keys of credentials: `COSE_Key` (RFC 9052 section 7, RFC 9053 section 7, RFC 8230 section 4).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde_json::json;

use super::WebAuthnError;
use super::cbor::Value;
use crate::jose::{Algorithm, PublicKey};

const ES256: i128 = -7;
const EDDSA: i128 = -8;
const RS256: i128 = -257;

/// The algorithms that the service offers, the preferred one first: `ES256`, `EdDSA`, `RS256`.
pub const ALGORITHMS: [i128; 3] = [ES256, EDDSA, RS256];

/// The public key of a credential. Each key is for one algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialKey {
    /// A point on P-256, uncompressed.
    Es256([u8; 65]),
    /// An Ed25519 key.
    EdDsa(PublicKey),
    /// An RSA key of 2048 to 8192 bits. That of a new credential has 4096 at most.
    Rs256(PublicKey),
}

impl CredentialKey {
    /// Reads a key with exactly the parameters that its type requires (section 6.5.1), for one of [`ALGORITHMS`] and on the
    /// curve that section 5.8.5 fixes. The parameters are in canonical order: `kty`, `alg`, then those of the type.
    pub fn of_value(key: &Value<'_>) -> Result<Self, WebAuthnError> {
        let Value::Map(parameters) = key else {
            return Err(WebAuthnError::Key);
        };
        let values: Vec<(i128, &Value<'_>)> = parameters
            .iter()
            .map(|(label, value)| match label {
                Value::Integer(label) => Ok((*label, value)),
                _ => Err(WebAuthnError::Key),
            })
            .collect::<Result<_, _>>()?;
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let read = |jwk| PublicKey::from_jwk(&jwk).map_err(|_| WebAuthnError::Key);
        match values.as_slice() {
            [
                (1, Value::Integer(2)),
                (3, Value::Integer(ES256)),
                (-1, Value::Integer(1)),
                (-2, Value::Bytes(x)),
                (-3, Value::Bytes(y)),
            ] if x.len() == 32 && y.len() == 32 => {
                let point = [&[4], *x, *y].concat();
                point.try_into().map(Self::Es256).map_err(|_| WebAuthnError::Key)
            }
            [
                (1, Value::Integer(1)),
                (3, Value::Integer(EDDSA)),
                (-1, Value::Integer(6)),
                (-2, Value::Bytes(x)),
            ] => read(json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(x) })).map(Self::EdDsa),
            [
                (1, Value::Integer(3)),
                (3, Value::Integer(RS256)),
                (-1, Value::Bytes(n)),
                (-2, Value::Bytes(e)),
            ] => read(json!({ "kty": "RSA", "n": encode(n), "e": encode(e) })).map(Self::Rs256),
            _ => Err(WebAuthnError::Key),
        }
    }

    /// The key of a new credential, which a stranger chose. Keys that are stored already are not asked.
    pub fn chosen_by_stranger(self) -> Result<Self, WebAuthnError> {
        match self {
            Self::Rs256(key) => key.chosen_by_stranger().map(Self::Rs256),
            Self::Es256(_) | Self::EdDsa(_) => return Ok(self),
        }
        .map_err(|_| WebAuthnError::Key)
    }

    /// The identifier of its algorithm.
    pub const fn algorithm(&self) -> i128 {
        match self {
            Self::Es256(_) => ES256,
            Self::EdDsa(_) => EDDSA,
            Self::Rs256(_) => RS256,
        }
    }

    /// Verifies a signature in the form of section 6.5.5: an ECDSA signature is DER, not two numbers as in a JWS.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), WebAuthnError> {
        let verified = match self {
            Self::Es256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point)
                .verify(message, signature)
                .is_ok(),
            Self::EdDsa(key) => key.verify(Algorithm::EdDsa, message, signature).is_ok(),
            Self::Rs256(key) => key.verify(Algorithm::Rs256, message, signature).is_ok(),
        };
        verified.then_some(()).ok_or(WebAuthnError::Signature)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cbor;
    use super::super::tests::unhex;
    use super::*;

    fn read(hexadecimal: &str) -> Result<CredentialKey, WebAuthnError> {
        let bytes = unhex(hexadecimal);
        let value = cbor::only(&bytes).map_err(|_| WebAuthnError::Key)?;
        CredentialKey::of_value(&value)
    }

    /// The example of section 6.5.1.1.
    const P256: &str = "a5 0102 0326 2001 \
        215820 65eda5a12577c2bae829437fe338701a10aaa375e1bb5b5de108de439c08551d \
        225820 1e52ed75701163f7f9e40ddf9f341b3dc9ba860af7e0ca7ca7e9eecd0084d19c";

    fn rsa(bits: usize) -> String {
        format!(
            "a4 0103 03390100 2059{:04x}{}81 2143010001",
            bits / 8,
            "d3".repeat(bits / 8 - 1)
        )
    }

    #[test]
    fn keys_of_the_three_algorithms_are_read() {
        assert_eq!(read(P256).unwrap().algorithm(), -7);
        let ed25519 = format!("a4 0101 0327 2006 215820 {}", "5a".repeat(32));
        assert_eq!(read(&ed25519).unwrap().algorithm(), -8);
        for bits in [2048, 3072, 8192] {
            assert_eq!(read(&rsa(bits)).unwrap().algorithm(), -257);
        }
    }

    /// A stored passkey goes on.
    #[test]
    fn the_rsa_key_of_a_new_credential_is_cheap_to_verify_with() {
        let new = |key: &str| read(key).unwrap().chosen_by_stranger();
        for key in [P256.to_owned(), rsa(2048), rsa(4096)] {
            assert!(new(&key).is_ok(), "{key}");
        }
        for key in [rsa(4104), rsa(8192), rsa(2048).replace("43010001", "4103")] {
            assert_eq!(new(&key), Err(WebAuthnError::Key));
        }
    }

    #[test]
    fn other_keys_are_refused() {
        for (key, reason) in [
            ("a0".to_owned(), "no parameter"),
            ("80".to_owned(), "no map"),
            (P256.replace("0326", "0327"), "a point with the algorithm EdDSA"),
            (P256.replace("0326", "033822"), "ES384"),
            (P256.replace("2001", "2002"), "another curve"),
            (P256.replace("2001", "2008"), "secp256k1"),
            (P256.replace("a5", "a4").replace(" 0326", ""), "no algorithm"),
            (
                format!("{}22f5", P256.split("225820").next().unwrap()),
                "a compressed point",
            ),
            (
                P256.replace("a5", "a6").replace("0326", "024101 0326"),
                "a key id",
            ),
            (P256.replace("225820 1e", "22581f "), "a short coordinate"),
            (P256.replace("a5", "a6") + "234101", "a private key"),
            (format!("a4 0101 0327 2004 215820 {}", "5a".repeat(32)), "X25519"),
            (
                format!("a4 0101 0327 2006 21581f {}", "5a".repeat(31)),
                "a short Ed25519 key",
            ),
            (rsa(1024), "a short RSA key"),
            (rsa(8200), "a long RSA key"),
            (rsa(2048).replace("43010001", "4101"), "the exponent 1"),
            (rsa(2048).replace("03390100", "033824"), "RSASSA-PSS"),
            (rsa(2048).replace("205901", "205902"), "a length behind the end"),
        ] {
            assert_eq!(read(&key), Err(WebAuthnError::Key), "{reason}");
        }
    }
}
