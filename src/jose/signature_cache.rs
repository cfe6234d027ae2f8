//! A cache of verified signatures. With it, introspecting a token takes the time of one ES256 signature instead of
//! four.
//!
//! The cache holds only what cannot change: a signature is valid for a message and a key. The choice of the key, the
//! times and revocation are checked each time.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ring::digest::{Context, SHA256};

use super::alg::Algorithm;
use super::jwk::{BadSignature, PublicKey};

/// The capacity of a hash set with 2^16 slots, about two mebibytes.
const CAPACITY: usize = (1 << 16) / 8 * 7;

/// Digests of valid signatures. A full cache is emptied.
#[derive(Debug, Default)]
pub struct SignatureCache(Mutex<HashSet<[u8; 32]>>);

impl SignatureCache {
    /// Returns the same result as [`PublicKey::verify`].
    pub fn verify(
        &self,
        key: &PublicKey,
        alg: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), BadSignature> {
        let digest = digest(key, alg, message, signature);
        if self.lock().contains(&digest) {
            return Ok(());
        }
        key.verify(alg, message, signature)?;
        let mut verified = self.lock();
        if verified.len() >= CAPACITY {
            verified.clear();
        }
        verified.insert(digest);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<[u8; 32]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A digest of all inputs of the verification, each with its length.
fn digest(key: &PublicKey, alg: Algorithm, message: &[u8], signature: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    let [first, second] = key.material();
    for part in [alg.as_str().as_bytes(), first, second, message, signature] {
        context.update(&part.len().to_le_bytes());
        context.update(part);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::keyring::SigningKey;
    use crate::random::Random;

    fn key() -> SigningKey {
        SigningKey::generate_es256(&Random::system()).unwrap()
    }

    #[test]
    fn a_verified_signature_says_nothing_of_another_key_algorithm_message_or_signature() {
        let (own, other) = (key(), key());
        let cache = SignatureCache::default();
        let verify = |key: &SigningKey, alg, message: &[u8], signature: &[u8]| {
            let answer = cache.verify(key.public(), alg, message, signature);
            assert_eq!(answer, key.public().verify(alg, message, signature));
            answer.is_ok()
        };
        let signature = own.sign(b"message").unwrap();
        for _ in 0..2 {
            assert!(verify(&own, Algorithm::Es256, b"message", &signature));
            assert!(!verify(&other, Algorithm::Es256, b"message", &signature));
            assert!(!verify(&own, Algorithm::Rs256, b"message", &signature));
            assert!(!verify(&own, Algorithm::Es256, b"massage", &signature));
            let (end, rest) = signature.split_last().unwrap();
            assert!(!verify(&own, Algorithm::Es256, b"message", rest));
            let changed = [rest, &[end ^ 1]].concat();
            assert!(!verify(&own, Algorithm::Es256, b"message", &changed));
        }
        assert_eq!(
            cache.lock().len(),
            1,
            "a signature that does not hold is not kept"
        );
    }

    #[test]
    fn a_full_cache_is_emptied() {
        let (key, cache) = (key(), SignatureCache::default());
        cache.lock().extend((0..CAPACITY).map(|number| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            digest
        }));
        let signature = key.sign(b"message").unwrap();
        let verified = cache.verify(key.public(), Algorithm::Es256, b"message", &signature);
        assert_eq!((verified, cache.lock().len()), (Ok(()), 1));
    }
}
