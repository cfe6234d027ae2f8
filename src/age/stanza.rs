//! The recipient types X25519 and scrypt: how a stanza wraps the file key (section "Native recipient types").

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};
use zeroize::Zeroizing;

use super::{AgeError, FILE_KEY_LEN, FileKey, Identities, Identity, Passphrase, Recipient, Recipients};
use super::{SecretKind, hkdf_key};
use crate::random::Random;

const X25519: &str = "X25519";
const X25519_INFO: &str = "age-encryption.org/v1/X25519";
const SCRYPT: &str = "scrypt";
const SCRYPT_LABEL: &[u8] = b"age-encryption.org/v1/scrypt";
/// The work factor of our own files: 2^17, which takes 128 MiB. The OWASP Password Storage Cheat Sheet names it first.
const WORK_FACTOR: u8 = 17;
/// The largest work factor that is accepted: 2^20, which takes a gibibyte.
pub(super) const MAX_WORK_FACTOR: u8 = 20;
const BODY_LEN: usize = FILE_KEY_LEN + 16;

/// One wrapped copy of the file key (section "Recipient stanza").
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stanza {
    /// The type of the recipient, then what belongs to it.
    pub(super) arguments: Vec<String>,
    pub(super) body: Vec<u8>,
}

pub(super) fn wrap(key: &FileKey, recipients: &Recipients, random: &Random) -> Vec<Stanza> {
    match recipients {
        Recipients::Keys(keys) => keys
            .iter()
            .map(|recipient| wrap_for_key(key, recipient, &Zeroizing::new(random.bytes())))
            .collect(),
        Recipients::Passphrase(passphrase) => {
            let salt = random.bytes();
            vec![Stanza {
                arguments: vec![
                    SCRYPT.to_owned(),
                    STANDARD_NO_PAD.encode(salt),
                    WORK_FACTOR.to_string(),
                ],
                body: seal(&scrypt_key(passphrase, salt, WORK_FACTOR), key),
            }]
        }
    }
}

fn wrap_for_key(key: &FileKey, recipient: &Recipient, ephemeral: &[u8; 32]) -> Stanza {
    let share = x25519(*ephemeral, X25519_BASEPOINT_BYTES);
    let shared = Zeroizing::new(x25519(*ephemeral, recipient.0));
    Stanza {
        arguments: vec![X25519.to_owned(), STANDARD_NO_PAD.encode(share)],
        body: seal(&x25519_key(&shared, share, recipient.0), key),
    }
}

/// What a stanza holds, if its recipient type is known.
enum ParsedStanza {
    X25519 {
        share: [u8; 32],
        body: [u8; BODY_LEN],
    },
    Scrypt {
        salt: [u8; 16],
        work_factor: u8,
        body: [u8; BODY_LEN],
    },
}

/// Parses a stanza. `None` for a recipient type that is not known.
fn parse(stanza: &Stanza) -> Result<Option<ParsedStanza>, AgeError> {
    let Some((kind, rest)) = stanza.arguments.split_first() else {
        return Ok(None);
    };
    let body = <[u8; BODY_LEN]>::try_from(stanza.body.as_slice());
    match kind.as_str() {
        X25519 => {
            let share = match rest {
                [share] => decode_array(share),
                _ => None,
            };
            match (share, body) {
                (Some(share), Ok(body)) => Ok(Some(ParsedStanza::X25519 { share, body })),
                _ => Err(AgeError::Malformed("a recipient of the type X25519")),
            }
        }
        SCRYPT => {
            let parsed = match rest {
                [salt, work_factor] => decode_array(salt).zip(exponent(work_factor)),
                _ => None,
            };
            match (parsed, body) {
                (Some((_, work_factor)), Ok(_)) if work_factor > MAX_WORK_FACTOR => {
                    Err(AgeError::WorkFactor(work_factor))
                }
                (Some((salt, work_factor)), Ok(body)) => Ok(Some(ParsedStanza::Scrypt {
                    salt,
                    work_factor,
                    body,
                })),
                _ => Err(AgeError::Malformed("a recipient of the type scrypt")),
            }
        }
        _ => Ok(None),
    }
}

/// The bytes of a canonical base64 text without padding, if there are `N`.
pub(super) fn decode_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    STANDARD_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// A decimal number without a sign or a leading zero.
fn exponent(text: &str) -> Option<u8> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_decimal)
}

/// Checks what can be known of stanzas without a secret. One of the type scrypt must be alone.
pub(super) fn check(stanzas: &[Stanza]) -> Result<(), AgeError> {
    if stanzas.is_empty() {
        return Err(AgeError::Malformed("it has no recipient"));
    }
    for stanza in stanzas {
        if matches!(parse(stanza)?, Some(ParsedStanza::Scrypt { .. })) && stanzas.len() > 1 {
            return Err(AgeError::Malformed("it has a passphrase and another recipient"));
        }
    }
    Ok(())
}

/// The kind of secret that opens one of these stanzas.
pub(super) fn wanted(stanzas: &[Stanza]) -> SecretKind {
    let is_scrypt = |stanza: &Stanza| stanza.arguments.first().is_some_and(|kind| kind == SCRYPT);
    if stanzas.iter().any(is_scrypt) {
        SecretKind::Passphrase
    } else {
        SecretKind::Identity
    }
}

pub(super) fn unwrap(stanzas: &[Stanza], identities: &Identities) -> Result<FileKey, AgeError> {
    for stanza in stanzas {
        match (parse(stanza)?, identities) {
            (Some(ParsedStanza::X25519 { share, body }), Identities::Keys(keys)) => {
                for identity in keys {
                    if let Some(key) = open(&agreed_key(identity, share)?, &body) {
                        return Ok(key);
                    }
                }
            }
            (
                Some(ParsedStanza::Scrypt {
                    salt,
                    work_factor,
                    body,
                }),
                Identities::Passphrase(passphrase),
            ) => {
                let key = open(&scrypt_key(passphrase, salt, work_factor), &body);
                return key.ok_or(AgeError::WrongPassphrase);
            }
            _ => {}
        }
    }
    Err(match (wanted(stanzas), identities) {
        (SecretKind::Passphrase, _) => AgeError::NeedsPassphrase,
        (SecretKind::Identity, Identities::Passphrase(_)) => AgeError::NeedsIdentity,
        (SecretKind::Identity, Identities::Keys(_)) => AgeError::NoMatch,
    })
}

/// The key of a stanza that was made for this identity.
fn agreed_key(identity: &Identity, share: [u8; 32]) -> Result<LessSafeKey, AgeError> {
    let shared = Zeroizing::new(x25519(*identity.0, share));
    if is_low_order(&shared) {
        return Err(AgeError::Malformed("the share of a recipient"));
    }
    Ok(x25519_key(
        &shared,
        share,
        x25519(*identity.0, X25519_BASEPOINT_BYTES),
    ))
}

/// Whether a shared secret is that of a point of low order, which is the same for every key (RFC 7748 section 6.1).
pub(super) fn is_low_order(shared: &[u8; 32]) -> bool {
    shared.iter().fold(0, |all, byte| all | byte) == 0
}

fn x25519_key(shared: &[u8; 32], share: [u8; 32], recipient: [u8; 32]) -> LessSafeKey {
    hkdf_key(shared, &[share, recipient].concat(), X25519_INFO.as_bytes())
}

#[expect(
    clippy::expect_used,
    reason = "scrypt refuses lengths and factors that overflow, and these are far below"
)]
fn scrypt_key(passphrase: &Passphrase, salt: [u8; 16], work_factor: u8) -> LessSafeKey {
    let params = scrypt::Params::new(work_factor, 8, 1).expect("a work factor from 1 to 20");
    let salt = [SCRYPT_LABEL, &salt].concat();
    let mut key = Zeroizing::new([0; 32]);
    scrypt::scrypt(passphrase.0.as_bytes(), &salt, &params, key.as_mut_slice()).expect("32 bytes");
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.as_slice()).expect("32 bytes"))
}

/// The key is used once, so its nonce is zero.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

#[expect(clippy::expect_used, reason = "sealing fails beyond 256 GiB only")]
fn seal(wrapping: &LessSafeKey, key: &FileKey) -> Vec<u8> {
    let mut body = Vec::with_capacity(BODY_LEN);
    body.extend_from_slice(key.0.as_slice());
    wrapping
        .seal_in_place_append_tag(nonce(), Aad::empty(), &mut body)
        .expect("16 bytes");
    body
}

fn open(wrapping: &LessSafeKey, body: &[u8; BODY_LEN]) -> Option<FileKey> {
    let mut body = Zeroizing::new(*body);
    let key = wrapping
        .open_in_place(nonce(), Aad::empty(), body.as_mut_slice())
        .ok()?;
    Some(FileKey(Zeroizing::new(
        <[u8; FILE_KEY_LEN]>::try_from(&*key).ok()?,
    )))
}
