//! Encryption at rest: the secrets in the store are sealed under the master key.
//!
//! A sealed value is a version byte, a random nonce of 96 bits, and the ciphertext and tag of AES-256-GCM. The context
//! (the table and the row) is authenticated too, so that a sealed value opens only in its place.
//!
//! What every browser may have sealed, without having authenticated, is sealed under the key of the hour. So no key seals
//! more than the requests of an hour: AES-GCM with random nonces allows 2^32 values for one key (NIST SP 800-38D section
//! 8.3).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest;
use ring::hkdf::{self, HKDF_SHA256};
use ring::hmac;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::hex;
use crate::random::Random;

const VERSION: u8 = 1;
const MASTER_KEY_LEN: usize = 32;

/// Seals and opens values under one master key.
pub struct Sealer {
    key: LessSafeKey,
    derived: hkdf::Prk,
    backup_key: hmac::Key,
    pseudonym_key: hmac::Key,
    fingerprint: String,
}

/// Why a sealed value does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// This release does not know the version.
    #[error("sealed value has an unknown version")]
    UnknownVersion,
    /// The value was sealed under another key or for another context, or was changed or truncated.
    #[error("sealed value does not open: wrong master key, wrong place, or damaged")]
    DoesNotOpen,
}

impl Sealer {
    pub fn generate(random: &Random) -> Zeroizing<[u8; MASTER_KEY_LEN]> {
        Zeroizing::new(random.bytes())
    }

    /// Derives the encryption key and the fingerprint from a master key (HKDF, RFC 5869).
    ///
    /// # Panics
    /// Never: the lengths are fixed and allowed.
    #[expect(
        clippy::expect_used,
        reason = "expanding fails beyond 8160 bytes only, and these are 32"
    )]
    pub fn new(master_key: &[u8; MASTER_KEY_LEN]) -> Self {
        let derived = hkdf::Salt::new(HKDF_SHA256, &[]).extract(master_key);
        let key = aead_key(&derived, &[b"idsvc seal v1"]);
        let hmac_key = |purpose: &[u8]| {
            let expanded = derived.expand(&[purpose], hmac::HMAC_SHA256).map(hmac::Key::from);
            expanded.expect("32 bytes")
        };
        let backup_key = hmac_key(b"idsvc backup v1");
        let pseudonym_key = hmac_key(b"idsvc pseudonym v1");
        let mut identity = Zeroizing::new([0; 32]);
        derived
            .expand(&[b"idsvc master key fingerprint v1"], HKDF_SHA256)
            .and_then(|expanded| expanded.fill(identity.as_mut_slice()))
            .expect("32 bytes");
        Self {
            key,
            derived,
            backup_key,
            pseudonym_key,
            fingerprint: hexadecimal_digest(identity.as_slice()),
        }
    }

    /// Identifies the master key without revealing it: the SHA-256 of a value that is derived from the key for this
    /// purpose only, as 64 hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    /// The HMAC key that authenticates backups under this master key.
    pub fn backup_key(&self) -> &hmac::Key {
        &self.backup_key
    }

    /// A name for something that must not be stored as it is, such as an address. Without the master key nobody can tell
    /// what it stands for.
    pub fn pseudonym(&self, kind: &str, value: &[u8]) -> Uuid {
        let tag = hmac::sign(&self.pseudonym_key, &[kind.as_bytes(), &[0], value].concat());
        let half = tag.as_ref().first_chunk().copied();
        Uuid::from_bytes(half.unwrap_or_default())
    }

    /// Seals `plain`. It opens only with the same `context`.
    ///
    /// # Panics
    /// When `plain` is longer than 64 GiB, the limit of AES-GCM for one nonce.
    pub fn seal(&self, context: &str, plain: &[u8], random: &Random) -> Vec<u8> {
        seal_with(&self.key, context, plain, random)
    }

    /// Opens a value that [`Sealer::seal`] sealed with the same `context`.
    pub fn open(&self, context: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        open_with(&self.key, context, sealed)
    }

    /// Seals `plain` under the key of an hour, which the result names. The result is base64url.
    ///
    /// # Panics
    /// As [`Sealer::seal`].
    pub fn seal_in_hour(&self, hour: u32, context: &str, plain: &[u8], random: &Random) -> String {
        let hour = hour.to_be_bytes();
        let sealed = seal_with(&self.key_of_hour(hour), context, plain, random);
        URL_SAFE_NO_PAD.encode([hour.as_slice(), &sealed].concat())
    }

    /// Opens a value that [`Sealer::seal_in_hour`] sealed with the same `context`. The content has to say whether it is
    /// still valid.
    pub fn open_of_hour(&self, context: &str, sealed: &str) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed);
        let sealed = sealed.map_err(|_| SealError::DoesNotOpen)?;
        let (hour, sealed) = sealed.split_first_chunk().ok_or(SealError::DoesNotOpen)?;
        open_with(&self.key_of_hour(*hour), context, sealed)
    }

    fn key_of_hour(&self, hour: [u8; 4]) -> LessSafeKey {
        aead_key(&self.derived, &[b"idsvc seal of an hour v1", &hour])
    }

    /// Seals a text. The result is base64url.
    ///
    /// # Panics
    /// As [`Sealer::seal`].
    pub fn seal_text(&self, context: &str, plain: &str, random: &Random) -> String {
        self.seal_base64(context, plain.as_bytes(), random)
    }

    /// Seals bytes. The result is base64url.
    ///
    /// # Panics
    /// As [`Sealer::seal`].
    pub fn seal_base64(&self, context: &str, plain: &[u8], random: &Random) -> String {
        URL_SAFE_NO_PAD.encode(self.seal(context, plain, random))
    }

    /// Opens bytes that [`Sealer::seal_base64`] sealed with the same `context`.
    pub fn open_base64(&self, context: &str, sealed: &str) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let sealed = URL_SAFE_NO_PAD
            .decode(sealed)
            .map_err(|_| SealError::DoesNotOpen)?;
        self.open(context, &sealed)
    }

    /// Opens a text that [`Sealer::seal_text`] sealed with the same `context`.
    pub fn open_text(&self, context: &str, sealed: &str) -> Result<Zeroizing<String>, SealError> {
        let plain = self.open_base64(context, sealed)?;
        let text = std::str::from_utf8(&plain).map_err(|_| SealError::DoesNotOpen)?;
        Ok(Zeroizing::new(text.to_owned()))
    }
}

#[expect(
    clippy::expect_used,
    reason = "expanding fails beyond 8160 bytes only, and these are 32"
)]
fn aead_key(derived: &hkdf::Prk, info: &[&[u8]]) -> LessSafeKey {
    let key = derived.expand(info, &AES_256_GCM).expect("32 bytes");
    LessSafeKey::new(UnboundKey::from(key))
}

#[expect(clippy::expect_used, reason = "sealing fails beyond 64 GiB only")]
fn seal_with(key: &LessSafeKey, context: &str, plain: &[u8], random: &Random) -> Vec<u8> {
    let nonce = random.bytes::<NONCE_LEN>();
    let mut sealed = Vec::with_capacity(1 + NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
    sealed.push(VERSION);
    sealed.extend_from_slice(&nonce);
    let mut text = Zeroizing::new(plain.to_vec());
    let tag = key
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), &mut text)
        .expect("less than 64 GiB");
    sealed.extend_from_slice(&text);
    sealed.extend_from_slice(tag.as_ref());
    sealed
}

fn open_with(key: &LessSafeKey, context: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let (version, rest) = sealed.split_first().ok_or(SealError::DoesNotOpen)?;
    if *version != VERSION {
        return Err(SealError::UnknownVersion);
    }
    let (nonce, text) = rest
        .split_first_chunk::<NONCE_LEN>()
        .ok_or(SealError::DoesNotOpen)?;
    let mut plain = Zeroizing::new(text.to_vec());
    let length = key
        .open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            Aad::from(context),
            &mut plain,
        )
        .map_err(|_| SealError::DoesNotOpen)?
        .len();
    plain.truncate(length);
    Ok(plain)
}

fn hexadecimal_digest(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * digest::SHA256_OUTPUT_LEN);
    hex::push(&mut digits, digest::digest(&digest::SHA256, bytes).as_ref());
    digits
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sealer([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(byte: u8) -> Sealer {
        Sealer::new(&[byte; MASTER_KEY_LEN])
    }

    #[test]
    fn what_is_sealed_opens_in_its_place() {
        let random = Random::system();
        let ours = Sealer::new(&Sealer::generate(&random));
        for plain in [&b""[..], b"secret", &[9; 5000]] {
            let sealed = ours.seal("keys/1", plain, &random);
            assert_eq!(sealed.len(), 1 + 12 + plain.len() + 16);
            assert_eq!(ours.open("keys/1", &sealed).unwrap().as_slice(), plain);
        }
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_noticed() {
        let sealed = sealer(1).seal("keys/1", b"secret", &Random::system());
        for position in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone();
                changed[position] ^= 1 << bit;
                assert!(
                    sealer(1).open("keys/1", &changed).is_err(),
                    "byte {position} bit {bit}"
                );
            }
            assert!(
                sealer(1).open("keys/1", &sealed[..position]).is_err(),
                "cut at {position}"
            );
        }
        assert!(
            sealer(1)
                .open("keys/1", &[sealed.as_slice(), &[0]].concat())
                .is_err()
        );
    }

    #[test]
    fn another_place_and_another_master_key_do_not_open() {
        let sealed = sealer(1).seal("keys/1", b"secret", &Random::system());
        assert_eq!(sealer(1).open("keys/2", &sealed), Err(SealError::DoesNotOpen));
        assert_eq!(sealer(1).open("", &sealed), Err(SealError::DoesNotOpen));
        assert_eq!(sealer(2).open("keys/1", &sealed), Err(SealError::DoesNotOpen));
    }

    #[test]
    fn what_is_sealed_in_an_hour_opens_later_and_under_no_other_key_or_context() {
        let random = Random::system();
        let sealed = sealer(1).seal_in_hour(7, "a", b"secret", &random);
        assert_eq!(
            sealer(1).open_of_hour("a", &sealed).unwrap().as_slice(),
            b"secret"
        );
        assert!(sealer(1).open_of_hour("b", &sealed).is_err());
        assert!(sealer(2).open_of_hour("a", &sealed).is_err());
        let bytes = URL_SAFE_NO_PAD.decode(&sealed).unwrap();
        assert!(
            sealer(1).open("a", &bytes[4..]).is_err(),
            "it is not the key of stored secrets"
        );
        for position in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[position] ^= 1;
            assert!(
                sealer(1)
                    .open_of_hour("a", &URL_SAFE_NO_PAD.encode(changed))
                    .is_err(),
                "byte {position}"
            );
            let cut = URL_SAFE_NO_PAD.encode(&bytes[..position]);
            assert!(sealer(1).open_of_hour("a", &cut).is_err(), "cut at {position}");
        }
        assert!(sealer(1).open_of_hour("a", "!").is_err());
    }

    #[test]
    fn a_version_from_the_future_is_named_as_such() {
        let mut sealed = sealer(1).seal("keys/1", b"secret", &Random::system());
        sealed[0] = 2;
        assert_eq!(sealer(1).open("keys/1", &sealed), Err(SealError::UnknownVersion));
    }

    #[test]
    fn equal_texts_are_sealed_differently() {
        let random = Random::system();
        assert_ne!(
            sealer(1).seal("a", b"secret", &random),
            sealer(1).seal("a", b"secret", &random)
        );
    }

    #[test]
    fn a_fingerprint_tells_keys_apart_and_gives_nothing_away() {
        assert_eq!(sealer(1).fingerprint(), sealer(1).fingerprint());
        assert_ne!(sealer(1).fingerprint(), sealer(2).fingerprint());
        assert_eq!(sealer(1).fingerprint().len(), 64);
        assert_ne!(sealer(1).fingerprint(), hexadecimal_digest(&[1; MASTER_KEY_LEN]));
        assert_eq!(format!("{:?}", sealer(1)), "Sealer([redacted])");
    }
}
