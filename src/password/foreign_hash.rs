//! Password hashes of other systems: bcrypt, PBKDF2, scrypt, and Firebase's form of scrypt.
//!
//! They are only verified. The first successful sign-in replaces them by argon2id. A hash contains its own cost, so
//! every cost has a limit here.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::pbkdf2;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::InvalidPasswordHash;

/// The highest cost of bcrypt: about two seconds on a core of 2026.
const MAX_BCRYPT_COST: u32 = 15;
/// The most iterations of PBKDF2, summed over the blocks of its output.
const MAX_PBKDF2_ITERATIONS: u32 = 4_000_000;
/// The most memory of scrypt, in bytes: 256 MiB.
const MAX_SCRYPT_MEMORY: u64 = 256 << 20;
/// The most work of scrypt: its memory times its parallelism.
const MAX_SCRYPT_WORK: u64 = 1 << 30;

/// Shorter outputs would match too many passwords.
const MIN_OUTPUT: usize = 16;
const MAX_OUTPUT: usize = 128;
const MAX_SALT: usize = 256;

use InvalidPasswordHash::{Malformed, TooCostly, Unknown};

/// A parsed hash of another system, with a cost within the limits.
pub(super) enum ImportedHash {
    Bcrypt(String),
    Pbkdf2 {
        algorithm: pbkdf2::Algorithm,
        iterations: NonZeroU32,
        salt: Vec<u8>,
        output: Vec<u8>,
    },
    Scrypt {
        cost: ::scrypt::Params,
        salt: Vec<u8>,
        output: Vec<u8>,
    },
    /// The output is the project's signer key, encrypted with the key that scrypt derives. Both are stored without
    /// their first [`FIREBASE_SKIPPED`] bytes.
    Firebase {
        cost: ::scrypt::Params,
        salt: Vec<u8>,
        signer_key: Vec<u8>,
        output: Vec<u8>,
    },
}

impl ImportedHash {
    /// Reads a stored hash. Returns `None` if its name is not known here.
    pub(super) fn read(text: &str) -> Option<Result<Self, InvalidPasswordHash>> {
        let mut parts = text.strip_prefix('$')?.split('$');
        let name = parts.next()?;
        let parts: Vec<&str> = parts.collect();
        match name {
            "2a" | "2b" | "2y" => Some(bcrypt(text)),
            "scrypt" => Some(scrypt(&parts)),
            "firebase-scrypt" => Some(firebase(&parts)),
            _ if name.starts_with("pbkdf2") => Some(pbkdf2(name, &parts)),
            _ => None,
        }
    }

    /// The memory of a computation, in bytes. That of bcrypt and PBKDF2 is small.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Bcrypt(_) | Self::Pbkdf2 { .. } => 0,
            Self::Scrypt { cost, .. } | Self::Firebase { cost, .. } => {
                (128 << cost.log_n()) * usize::try_from(cost.r()).unwrap_or(0)
            }
        }
    }

    /// Whether the hash was made from this password.
    pub(super) fn matches(&self, password: &[u8]) -> bool {
        match self {
            // bcrypt ignores bytes after the 72nd, as the system that made the hash did.
            Self::Bcrypt(text) => ::bcrypt::verify(password, text).unwrap_or(false),
            Self::Pbkdf2 {
                algorithm,
                iterations,
                salt,
                output,
            } => pbkdf2::verify(*algorithm, *iterations, salt, password, output).is_ok(),
            Self::Scrypt { cost, salt, output } => derive_scrypt(cost, password, salt, output.len())
                .is_some_and(|made| made.as_slice().ct_eq(output).into()),
            Self::Firebase {
                cost,
                salt,
                signer_key,
                output,
            } => derive_scrypt(cost, password, salt, 64)
                .and_then(|key| encrypt_from_third_block(key.get(..32)?, signer_key))
                .is_some_and(|made| made.ct_eq(output).into()),
        }
    }
}

fn check(salt: &[u8], output: &[u8]) -> Result<(), InvalidPasswordHash> {
    let fits = (1..=MAX_SALT).contains(&salt.len()) && (MIN_OUTPUT..=MAX_OUTPUT).contains(&output.len());
    fits.then_some(()).ok_or(Malformed)
}

fn derive_scrypt(
    cost: &::scrypt::Params,
    password: &[u8],
    salt: &[u8],
    length: usize,
) -> Option<Zeroizing<Vec<u8>>> {
    let mut output = Zeroizing::new(vec![0; length]);
    ::scrypt::scrypt(password, salt, cost, &mut output).ok()?;
    Some(output)
}

/// How many bytes of Firebase's output are not compared: its first two blocks. The 32 bytes that follow are enough.
const FIREBASE_SKIPPED: usize = 32;

/// AES-256 in counter mode, for a text that begins at the third block. ring has no plain counter mode. GCM with a nonce
/// of zeros encrypts with the same counters from the third block on (NIST SP 800-38D section 7.1).
fn encrypt_from_third_block(key: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
    let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
    let mut text = text.to_vec();
    let _ = key
        .seal_in_place_separate_tag(nonce, Aad::empty(), &mut text)
        .ok()?;
    Some(text)
}

/// Decodes base64 in any alphabet, padded or not. That of passlib has a dot in place of a plus.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, InvalidPasswordHash> {
    let plain: String = text
        .trim_end_matches('=')
        .chars()
        .map(|c| match c {
            '-' | '.' => '+',
            '_' => '/',
            c => c,
        })
        .collect();
    STANDARD_NO_PAD.decode(plain).map_err(|_| Malformed)
}

fn bcrypt(text: &str) -> Result<ImportedHash, InvalidPasswordHash> {
    let is_cost = text
        .get(4..6)
        .is_some_and(|cost| cost.bytes().all(|byte| byte.is_ascii_digit()));
    let parts: ::bcrypt::HashParts = text.parse().map_err(|_| Malformed)?;
    if !is_cost || parts.get_cost() < 4 {
        return Err(Malformed);
    }
    if parts.get_cost() > MAX_BCRYPT_COST {
        return Err(TooCostly("bcrypt with too high a cost"));
    }
    Ok(ImportedHash::Bcrypt(text.to_owned()))
}

/// The parts are the cost (`i=600000,l=32`, or `600000` by passlib), the salt and the hash. The name contains the
/// pseudo-random function (RFC 8018 section 5.2). `pbkdf2` alone means SHA-1.
fn pbkdf2(name: &str, parts: &[&str]) -> Result<ImportedHash, InvalidPasswordHash> {
    let (algorithm, block) = match name {
        "pbkdf2" | "pbkdf2-sha1" => (pbkdf2::PBKDF2_HMAC_SHA1, 20),
        "pbkdf2-sha256" => (pbkdf2::PBKDF2_HMAC_SHA256, 32),
        "pbkdf2-sha384" => (pbkdf2::PBKDF2_HMAC_SHA384, 48),
        "pbkdf2-sha512" => (pbkdf2::PBKDF2_HMAC_SHA512, 64),
        _ => return Err(Unknown),
    };
    let [cost, salt, output] = parts else {
        return Err(Malformed);
    };
    let iterations = number(value(cost, "i").unwrap_or(cost))?;
    let (salt, output) = (decode(salt)?, decode(output)?);
    check(&salt, &output)?;
    if value(cost, "l").is_some_and(|length| length.parse() != Ok(output.len())) {
        return Err(Malformed);
    }
    let blocks = u32::try_from(output.len().div_ceil(block)).unwrap_or(u32::MAX);
    if iterations.saturating_mul(blocks) > MAX_PBKDF2_ITERATIONS {
        return Err(TooCostly("PBKDF2 with too many iterations"));
    }
    Ok(ImportedHash::Pbkdf2 {
        algorithm,
        iterations: NonZeroU32::new(iterations).ok_or(Malformed)?,
        salt,
        output,
    })
}

fn scrypt(parts: &[&str]) -> Result<ImportedHash, InvalidPasswordHash> {
    let [cost, salt, output] = parts else {
        return Err(Malformed);
    };
    let (cost, salt, output) = (scrypt_cost(cost)?, decode(salt)?, decode(output)?);
    check(&salt, &output)?;
    Ok(ImportedHash::Scrypt { cost, salt, output })
}

/// The parts are cost, salt, salt separator, signer key and hash.
fn firebase(parts: &[&str]) -> Result<ImportedHash, InvalidPasswordHash> {
    let [cost, salt, separator, signer_key, output] = parts else {
        return Err(Malformed);
    };
    let salt = [decode(salt)?, decode(separator)?].concat();
    let compared = |text| {
        let bytes = decode(text)?;
        bytes.get(FIREBASE_SKIPPED..).map(<[u8]>::to_vec).ok_or(Malformed)
    };
    let (signer_key, output) = (compared(signer_key)?, compared(output)?);
    check(&salt, &output)?;
    if signer_key.len() != output.len() {
        return Err(Malformed);
    }
    Ok(ImportedHash::Firebase {
        cost: scrypt_cost(cost)?,
        salt,
        signer_key,
        output,
    })
}

/// The cost of scrypt (RFC 7914 section 2), if it is within the limits.
fn scrypt_cost(text: &str) -> Result<::scrypt::Params, InvalidPasswordHash> {
    let part = |name| number(value(text, name).ok_or(Malformed)?);
    let (log_n, r, p) = (part("ln")?, part("r")?, part("p")?);
    let memory = 1_u64
        .checked_shl(log_n)
        .and_then(|n| n.checked_mul(128)?.checked_mul(u64::from(r)))
        .filter(|bytes| *bytes <= MAX_SCRYPT_MEMORY)
        .ok_or(TooCostly("scrypt with too much memory"))?;
    if memory.saturating_mul(u64::from(p)) > MAX_SCRYPT_WORK {
        return Err(TooCostly("scrypt with too much work"));
    }
    match u8::try_from(log_n) {
        Ok(log_n @ 1..) => ::scrypt::Params::new(log_n, r, p).map_err(|_| Malformed),
        _ => Err(Malformed),
    }
}

/// The value of `name` in `name=value,other=value`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

fn number(text: &str) -> Result<u32, InvalidPasswordHash> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Malformed);
    }
    text.parse().map_err(|_| TooCostly("a number out of all bounds"))
}
