//! The keys from which refresh tokens are derived.
//!
//! A refresh token contains what it names and HMAC-SHA256 (RFC 2104) over that, under a key of the service. So the
//! same token can be answered again without being stored, and only a token that was derived here is genuine. The token
//! contains the number of its key: when keys rotate, earlier tokens are verified under the key that they were derived
//! from.

use std::collections::BTreeMap;

use ring::hmac;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::secret::{Kind, Malformed, RefreshToken, Secret};

/// The number of bytes of a lineage.
pub const LINEAGE_LEN: usize = 16;

const TAG_LEN: usize = 32;

/// What a refresh token names. [`RefreshKeys`] makes it: for a new family, or of a token whose tag it has verified.
#[derive(Clone)]
pub struct RefreshTokenId {
    pub family: Uuid,
    /// The number of the key that the token is derived from.
    pub(super) key: u32,
    /// How often the family had been refreshed before.
    pub(super) generation: u32,
    /// The secret that all tokens of the family share.
    pub(super) lineage: Zeroizing<[u8; LINEAGE_LEN]>,
}

impl RefreshTokenId {
    /// Another token of the same family.
    #[must_use]
    pub(super) fn with(&self, key: u32, generation: u32) -> Self {
        Self {
            key,
            generation,
            ..self.clone()
        }
    }

    fn locator(&self) -> Zeroizing<Vec<u8>> {
        let mut locator = Zeroizing::new(Vec::with_capacity(RefreshToken::LOCATOR_LEN));
        locator.extend_from_slice(self.family.as_bytes());
        locator.extend_from_slice(&self.key.to_be_bytes());
        locator.extend_from_slice(&self.generation.to_be_bytes());
        locator.extend_from_slice(self.lineage.as_slice());
        locator
    }

    fn parse(locator: &[u8]) -> Result<Self, Malformed> {
        let (family, rest) = locator.split_first_chunk().ok_or(Malformed)?;
        let (key, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let (generation, lineage) = rest.split_first_chunk().ok_or(Malformed)?;
        Ok(Self {
            family: Uuid::from_bytes(*family),
            key: u32::from_be_bytes(*key),
            generation: u32::from_be_bytes(*generation),
            lineage: Zeroizing::new(lineage.try_into().map_err(|_| Malformed)?),
        })
    }
}

/// A refresh token as a client presents it.
pub struct PresentedRefreshToken(Secret<RefreshToken>);

impl PresentedRefreshToken {
    /// Reads a token. Only its form is checked.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        Secret::parse(text).map(Self)
    }
}

/// The keys of the service, by number. The one with the highest number is used for new tokens.
#[derive(Clone, Default)]
pub struct RefreshKeys(BTreeMap<u32, hmac::Key>);

impl RefreshKeys {
    /// Collects keys under their numbers.
    pub fn new(keys: impl IntoIterator<Item = (u32, Zeroizing<Vec<u8>>)>) -> Self {
        let keys = keys.into_iter();
        Self(
            keys.map(|(number, key)| (number, hmac::Key::new(hmac::HMAC_SHA256, &key)))
                .collect(),
        )
    }

    /// The number of the key for new tokens; none before the first key was made.
    pub fn newest(&self) -> Option<u32> {
        self.0.last_key_value().map(|(number, _)| *number)
    }

    pub fn first_token(&self, family: Uuid, lineage: [u8; LINEAGE_LEN]) -> Option<RefreshTokenId> {
        Some(RefreshTokenId {
            family,
            key: self.newest()?,
            generation: 0,
            lineage: Zeroizing::new(lineage),
        })
    }

    /// The text of a token. `None` if its key is not here.
    pub fn derive(&self, id: &RefreshTokenId) -> Option<Secret<RefreshToken>> {
        let locator = id.locator();
        let signed = hmac::sign(self.0.get(&id.key)?, &locator);
        let mut tag = Zeroizing::new([0; TAG_LEN]);
        tag.copy_from_slice(signed.as_ref());
        Some(Secret::assemble(&locator, &tag))
    }

    /// What a presented token names, if it was derived from one of the keys.
    pub fn verify(&self, token: &PresentedRefreshToken) -> Option<RefreshTokenId> {
        let PresentedRefreshToken(secret) = token;
        let id = RefreshTokenId::parse(secret.locator()).ok()?;
        hmac::verify(self.0.get(&id.key)?, secret.locator(), secret.secret_bytes()).ok()?;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn keys(numbers: &[u32]) -> RefreshKeys {
        let key = |number: &u32| {
            (
                *number,
                Zeroizing::new(vec![7; usize::try_from(*number).unwrap()]),
            )
        };
        RefreshKeys::new(numbers.iter().map(key))
    }

    fn present(token: &Secret<RefreshToken>) -> PresentedRefreshToken {
        PresentedRefreshToken::parse(token.reveal()).unwrap()
    }

    #[test]
    fn a_token_is_derived_the_same_each_time_and_differs_in_all_that_it_names() {
        let keys = keys(&[1, 2]);
        let first = keys.first_token(Uuid::from_u128(1), [3; LINEAGE_LEN]).unwrap();
        assert_eq!((first.key, first.generation), (2, 0));
        let other_family = keys.first_token(Uuid::from_u128(2), [3; LINEAGE_LEN]).unwrap();
        let other_lineage = keys.first_token(Uuid::from_u128(1), [4; LINEAGE_LEN]).unwrap();
        let all = [
            first.with(2, 1),
            first.with(1, 0),
            first,
            other_family,
            other_lineage,
        ];
        let derived = all.each_ref().map(|id| keys.derive(id).unwrap());
        let tags: std::collections::HashSet<_> = derived.iter().map(Secret::secret_bytes).collect();
        assert_eq!(tags.len(), all.len());
        for (id, token) in all.iter().zip(&derived) {
            assert_eq!(keys.derive(id).unwrap().reveal(), token.reveal());
            let verified = keys.verify(&present(token)).unwrap();
            assert_eq!(verified.locator(), id.locator());
        }
    }

    #[test]
    fn what_was_not_derived_here_is_unknown() {
        let ours = keys(&[1]);
        let id = ours.first_token(Uuid::from_u128(1), [3; LINEAGE_LEN]).unwrap();
        let token = ours.derive(&id).unwrap();
        let random = Random::seeded(1);
        let other_tag = Secret::generate(token.locator(), &random);
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(token.secret_bytes());
        for names in [
            id.with(1, 1),
            id.with(2, 0),
            keys(&[1])
                .first_token(Uuid::from_u128(2), [3; LINEAGE_LEN])
                .unwrap(),
            keys(&[1])
                .first_token(Uuid::from_u128(1), [4; LINEAGE_LEN])
                .unwrap(),
        ] {
            let moved = Secret::assemble(&names.locator(), &tag);
            assert!(ours.verify(&present(&moved)).is_none());
        }
        assert!(ours.verify(&present(&other_tag)).is_none());
        for others in [keys(&[2]), RefreshKeys::default()] {
            assert!(others.verify(&present(&token)).is_none());
            assert!(others.derive(&id).is_none());
        }
    }
}
