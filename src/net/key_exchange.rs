//! X25519MLKEM768, the key exchange of TLS 1.3 that a quantum computer does not break (draft-ietf-tls-ecdhe-mlkem).
//!
//! It joins ring's X25519 and ML-KEM-768 (FIPS 203). A recorded connection stays secret while one of both is secure.

use ml_kem::{Decapsulate, KeyExport, MlKem768};
use rustls::crypto::ring::{default_provider, kx_group::X25519};
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};
use zeroize::Zeroizing;

use crate::random::Random;

type DecapsulationKey = ml_kem::DecapsulationKey<MlKem768>;
type EncapsulationKey = ml_kem::EncapsulationKey<MlKem768>;

/// The length of an encapsulation key of ML-KEM-768 (FIPS 203 section 8).
const ENCAPSULATION_KEY_LEN: usize = 1184;
/// The length of a ciphertext of ML-KEM-768.
const CIPHERTEXT_LEN: usize = 1088;

const INVALID_KEY_SHARE: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// ring's cryptography, with this key exchange before the others.
pub fn crypto_provider() -> CryptoProvider {
    let mut provider = default_provider();
    provider.kx_groups.insert(0, &X25519MlKem768);
    provider
}

#[derive(Debug)]
struct X25519MlKem768;

impl SupportedKxGroup for X25519MlKem768 {
    /// The client's share: the encapsulation key, then the X25519 key (section 4.1 of the draft).
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let classical = X25519.start()?;
        let seed = Zeroizing::new(Random::system().bytes());
        let key = DecapsulationKey::from_seed((*seed).into());
        let share = [&key.encapsulation_key().to_bytes(), classical.pub_key()].concat();
        Ok(Box::new(ClientExchange {
            key,
            classical,
            share,
        }))
    }

    /// The server's share: the ciphertext, then the X25519 key (section 4.2 of the draft).
    fn start_and_complete(&self, client_share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (encapsulation_key, point) = client_share
            .split_at_checked(ENCAPSULATION_KEY_LEN)
            .ok_or(INVALID_KEY_SHARE)?;
        let encapsulation_key = encapsulation_key.try_into().map_err(|_| INVALID_KEY_SHARE)?;
        // Refuses a key whose coefficients are not reduced (FIPS 203 section 7.2).
        let encapsulation_key = EncapsulationKey::new(encapsulation_key).map_err(|_| INVALID_KEY_SHARE)?;
        let classical = X25519.start_and_complete(point)?;
        let message = Zeroizing::new(Random::system().bytes());
        let (ciphertext, secret) = encapsulation_key.encapsulate_deterministic((&*message).into());
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [&ciphertext, classical.pub_key.as_slice()].concat(),
            secret: join(&Zeroizing::new(secret.into()), &classical.secret),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

/// The shared secret: that of ML-KEM, then that of X25519 (section 4.3 of the draft).
fn join(post_quantum: &[u8; 32], classical: &SharedSecret) -> SharedSecret {
    SharedSecret::from([post_quantum, classical.secret_bytes()].concat())
}

/// A client's exchange that waits for the server's share.
struct ClientExchange {
    key: DecapsulationKey,
    classical: Box<dyn ActiveKeyExchange>,
    share: Vec<u8>,
}

impl ActiveKeyExchange for ClientExchange {
    fn complete(self: Box<Self>, server_share: &[u8]) -> Result<SharedSecret, Error> {
        let (ciphertext, point) = server_share
            .split_at_checked(CIPHERTEXT_LEN)
            .ok_or(INVALID_KEY_SHARE)?;
        let secret = self
            .key
            .decapsulate_slice(ciphertext)
            .map_err(|_| INVALID_KEY_SHARE)?;
        let classical = self.classical.complete(point)?;
        Ok(join(&Zeroizing::new(secret.into()), &classical))
    }

    /// Offers X25519 alone as well, so that a server without ML-KEM needs no second hello.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((self.classical.group(), self.classical.pub_key()))
    }

    fn complete_hybrid_component(self: Box<Self>, server_share: &[u8]) -> Result<SharedSecret, Error> {
        self.classical.complete(server_share)
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

#[cfg(test)]
mod tests {
    use ring::digest::{SHA256, digest};
    use rustls::crypto::GetRandomFailed;

    use super::*;

    /// The shared secret of RFC 7748 section 6.1.
    const CLASSICAL: &str = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742";
    const POINT: [u8; 32] = [0xde; 32];

    /// An X25519 exchange with a known result.
    struct KnownExchange;

    impl ActiveKeyExchange for KnownExchange {
        fn complete(self: Box<Self>, point: &[u8]) -> Result<SharedSecret, Error> {
            if point != POINT {
                return Err(GetRandomFailed.into());
            }
            Ok(SharedSecret::from(bytes(CLASSICAL)))
        }

        fn pub_key(&self) -> &[u8] {
            &POINT
        }

        fn group(&self) -> NamedGroup {
            NamedGroup::X25519
        }
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    fn numbers<const N: usize>(from: u8) -> [u8; N] {
        std::array::from_fn(|at| from + u8::try_from(at).unwrap())
    }

    fn sha256(data: &[u8]) -> Vec<u8> {
        digest(&SHA256, data).as_ref().to_vec()
    }

    /// Made with `crypto/mlkem` of Go 1.26: the key of the seed 0, 1, … 63, encapsulated with the message 64, 65, … 95.
    #[test]
    fn another_implementation_has_the_same_key_ciphertext_and_secret() {
        let key = DecapsulationKey::from_seed(numbers::<64>(0).into());
        let encapsulation_key = key.encapsulation_key().clone();
        assert_eq!(
            sha256(&encapsulation_key.to_bytes()),
            bytes("0b7934c83125c788995e2ba6bd761e33046b3e40571be53e023309a29f398cc9")
        );
        let (ciphertext, _) = encapsulation_key.encapsulate_deterministic(&numbers::<32>(64).into());
        assert_eq!(
            sha256(&ciphertext),
            bytes("dbf4e9aa48b078ad46ec1c9c47bda8c2d2fec9d0e7a21bd48d2238a2abedb856")
        );
        let client = ClientExchange {
            key,
            classical: Box::new(KnownExchange),
            share: Vec::new(),
        };
        let secret = Box::new(client)
            .complete(&[ciphertext.as_slice(), &POINT].concat())
            .unwrap();
        let post_quantum = "9cddd089ffe70e3996e76f7c8d06746df34d07e8657bc0fcf2bb0e1c3084aea1";
        assert_eq!(
            secret.secret_bytes(),
            bytes(&format!("{post_quantum}{CLASSICAL}"))
        );
    }

    #[test]
    fn both_sides_have_the_same_secret_and_a_new_one_each_time() {
        let exchange = || {
            let client = X25519MlKem768.start().unwrap();
            let server = X25519MlKem768.start_and_complete(client.pub_key()).unwrap();
            let (secret, group) = (client.complete(&server.pub_key).unwrap(), server.group);
            assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
            assert_eq!(
                (secret.secret_bytes().len(), group),
                (64, NamedGroup::X25519MLKEM768)
            );
            secret.secret_bytes().to_vec()
        };
        assert_ne!(exchange(), exchange());
    }

    #[test]
    fn a_share_of_another_length_and_a_key_out_of_range_are_refused() {
        let share = X25519MlKem768.start().unwrap().pub_key().to_vec();
        let mut too_large = share.clone();
        // The first coefficient is 4095, and the modulus is 3329.
        too_large[..2].copy_from_slice(&[0xff, 0xff]);
        let no_point = [&share[..ENCAPSULATION_KEY_LEN], &[0; 32]].concat();
        for wrong in [
            &share[..share.len() - 1],
            &[share.as_slice(), &[0]].concat(),
            &[],
            &too_large,
            &no_point,
        ] {
            assert!(
                X25519MlKem768.start_and_complete(wrong).is_err(),
                "{}",
                wrong.len()
            );
        }
        let server = X25519MlKem768.start_and_complete(&share).unwrap().pub_key;
        for wrong in [
            &server[..server.len() - 1],
            &[server.as_slice(), &[0]].concat(),
            &[],
        ] {
            assert!(
                X25519MlKem768.start().unwrap().complete(wrong).is_err(),
                "{}",
                wrong.len()
            );
        }
    }
}
