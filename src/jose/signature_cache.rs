//! Signatures that were found to hold, so that a token that comes again costs a hash and no verification.
//!
//! Whether a signature over a message holds under a key never changes: it is arithmetic. Everything that may change,
//! the key that is chosen, the times, whether a token was revoked, is judged each time anew, and a signature that
//! does not hold is never remembered. So what is forgotten or remembered here decides about time only.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use ring::digest::{Context, SHA256};

use super::alg::Algorithm;
use super::jwk::{BadSignature, PublicKey};

/// How many a generation holds: as many as a set of 2^15 places takes, about a mebibyte.
const GENERATION: usize = (1 << 15) / 8 * 7;

/// The signatures that were met last: at least those of one generation, at most those of two.
#[derive(Debug, Default)]
pub struct SignatureCache(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    recent: HashSet<[u8; 32]>,
    older: HashSet<[u8; 32]>,
}

impl SignatureCache {
    /// The same answer as [`PublicKey::verify`].
    pub fn verify(
        &self,
        key: &PublicKey,
        alg: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), BadSignature> {
        let name = name(key, alg, message, signature);
        if self.change(|generations| generations.meet(&name)) {
            return Ok(());
        }
        key.verify(alg, message, signature)?;
        self.change(|generations| generations.add(name));
        Ok(())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Generations) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Generations {
    /// Whether it is known. What is met again stays.
    fn meet(&mut self, name: &[u8; 32]) -> bool {
        if self.recent.contains(name) {
            return true;
        }
        let is_known = self.older.contains(name);
        if is_known {
            self.add(*name);
        }
        is_known
    }

    fn add(&mut self, name: [u8; 32]) {
        if self.recent.len() >= GENERATION {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(name);
    }
}

/// A digest of all that the answer depends on. Each part but the last goes with its length: no two questions have one
/// name.
fn name(key: &PublicKey, alg: Algorithm, message: &[u8], signature: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    let material = key.material();
    for part in [alg.as_str().as_bytes()]
        .iter()
        .chain(&material)
        .chain(&[message])
    {
        context.update(&part.len().to_le_bytes());
        context.update(part);
    }
    context.update(signature);
    let mut name = [0; 32];
    name.copy_from_slice(context.finish().as_ref());
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::keyring::SigningKey;
    use crate::random::Random;

    fn key() -> SigningKey {
        SigningKey::generate_es256(&Random::system()).unwrap()
    }

    fn known(proven: &SignatureCache) -> usize {
        proven.change(|generations| generations.recent.len() + generations.older.len())
    }

    #[test]
    fn what_was_found_to_hold_says_nothing_of_anything_else() {
        let (own, other) = (key(), key());
        let proven = SignatureCache::default();
        let verify = |key: &SigningKey, alg, message: &[u8], signature: &[u8]| {
            let answer = proven.verify(key.public(), alg, message, signature);
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
            assert!(!verify(
                &own,
                Algorithm::Es256,
                b"message",
                &[rest, &[end ^ 1]].concat()
            ));
            let moved = [&signature[..1], rest].concat();
            assert!(!verify(&own, Algorithm::Es256, b"messag", &moved));
        }
        assert_eq!(known(&proven), 1, "what does not hold is not remembered");
    }

    #[test]
    fn what_is_met_again_stays_and_the_rest_makes_room() {
        let mut generations = Generations::default();
        let name = |number: usize| {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&number.to_le_bytes());
            name
        };
        for number in 0..GENERATION * 5 {
            generations.add(name(number));
            assert!(generations.meet(&name(0)) && generations.meet(&name(number)));
            assert!(generations.recent.len() <= GENERATION && generations.older.len() <= GENERATION);
        }
        assert!(!generations.meet(&name(1)));
        assert!(
            generations.recent.capacity() <= GENERATION,
            "no place more than meant"
        );
    }
}
