//! Keys of clients and providers, for the algorithms that the service verifies and does not sign with.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::jose::alg::Algorithm;
use idsvc::jose::keyring::SigningKey;
use idsvc::jose::rsa_keygen;
use idsvc::random::Random;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use serde_json::{Value, json};

/// A private key of a client or a provider.
pub(crate) struct ForeignKey {
    pub(crate) alg: Algorithm,
    /// The public key, without `alg`.
    pub(crate) jwk: Value,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    P384(EcdsaKeyPair),
}

fn entropy() -> SystemRandom {
    match Random::system() {
        Random::System(system) => system,
        Random::Seeded(..) => unreachable!(),
    }
}

impl ForeignKey {
    /// A key for RS384, RS512, PS384, PS512 and ES384 each. Those of RSA are one key.
    pub(crate) fn one_of_each() -> [Self; 5] {
        let pkcs8 = rsa_keygen::generate(&Random::system()).unwrap();
        let of_rsa = |alg, encoding| {
            let public = SigningKey::from_pkcs8_der(Algorithm::Rs256, &pkcs8).unwrap();
            let mut jwk = public.public().to_jwk();
            jwk.as_object_mut().unwrap().remove("alg");
            let pair = Pair::Rsa(RsaKeyPair::from_pkcs8(&pkcs8).unwrap(), encoding);
            Self { alg, jwk, pair }
        };
        [
            of_rsa(Algorithm::Rs384, &RSA_PKCS1_SHA384),
            of_rsa(Algorithm::Rs512, &RSA_PKCS1_SHA512),
            of_rsa(Algorithm::Ps384, &RSA_PSS_SHA384),
            of_rsa(Algorithm::Ps512, &RSA_PSS_SHA512),
            Self::es384(),
        ]
    }

    pub(crate) fn es384() -> Self {
        let (algorithm, entropy) = (&ECDSA_P384_SHA384_FIXED_SIGNING, entropy());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &entropy).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &entropy).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(48);
        let [x, y] = [x, y].map(|coordinate| URL_SAFE_NO_PAD.encode(coordinate));
        Self {
            alg: Algorithm::Es384,
            jwk: json!({ "kty": "EC", "crv": "P-384", "x": x, "y": y }),
            pair: Pair::P384(pair),
        }
    }

    /// A token with these claims. `header` has the members beside `alg`.
    pub(crate) fn sign(&self, mut header: Value, claims: &Value) -> String {
        header["alg"] = json!(self.alg);
        self.sign_as(&header, claims)
    }

    /// The same with a header that may name another algorithm.
    pub(crate) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let input = format!("{}.{}", part(header), part(claims));
        let signature = match &self.pair {
            Pair::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &entropy(), input.as_bytes(), &mut signature)
                    .unwrap();
                signature
            }
            Pair::P384(pair) => {
                let signature = pair.sign(&entropy(), input.as_bytes());
                signature.unwrap().as_ref().to_vec()
            }
        };
        format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
