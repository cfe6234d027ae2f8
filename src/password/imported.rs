//! Password hashes that other systems made: bcrypt, PBKDF2, scrypt, and Firebase's form of scrypt.
//!
//! They are only ever verified. The first sign-in that succeeds replaces them by argon2id. What a hash costs is
//! written in the hash, so every cost has a bound here, and none is computed beyond it.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::pbkdf2;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::InvalidPasswordHash;

/// The most doublings of bcrypt's work: about two seconds on a core of 2026.
pub(in crate::password) const MAX_BCRYPT_COST: u32 = 15;
/// The most iterations of PBKDF2, counted for each block of its output.
pub(in crate::password) const MAX_PBKDF2_ITERATIONS: u32 = 4_000_000;
/// The most memory of scrypt, in bytes: 256 MiB.
pub(in crate::password) const MAX_SCRYPT_MEMORY: u64 = 256 << 20;
/// The most work of scrypt: its memory, times its parallelism.
pub(in crate::password) const MAX_SCRYPT_WORK: u64 = 1 << 30;

/// Shorter outputs would match too many passwords.
const MIN_OUTPUT: usize = 16;
const MAX_OUTPUT: usize = 128;
const MAX_SALT: usize = 256;
const BLOCK: usize = 16;

use InvalidPasswordHash::{Malformed, TooCostly};

/// The pseudo-random function of PBKDF2 (RFC 8018 section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::password) enum Prf {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Prf {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Sha1, "pbkdf2-sha1"),
        (Self::Sha256, "pbkdf2-sha256"),
        (Self::Sha384, "pbkdf2-sha384"),
        (Self::Sha512, "pbkdf2-sha512"),
    ];

    /// The function of that name; `pbkdf2` alone means the one with SHA-1.
    pub(in crate::password) fn named(name: &str) -> Option<Self> {
        let name = if name == "pbkdf2" { "pbkdf2-sha1" } else { name };
        Self::ALL
            .into_iter()
            .find(|(_, known)| *known == name)
            .map(|(prf, _)| prf)
    }

    fn name(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(prf, _)| *prf == self)
            .map_or("", |(_, name)| name)
    }

    fn output_len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    fn algorithm(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha384 => pbkdf2::PBKDF2_HMAC_SHA384,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// The cost of scrypt (RFC 7914 section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::password) struct ScryptCost {
    pub(in crate::password) log_n: u8,
    pub(in crate::password) r: u32,
    pub(in crate::password) p: u32,
}

/// A hash that another system made, its cost within bounds.
pub(in crate::password) enum Foreign {
    Bcrypt(String),
    Pbkdf2 {
        prf: Prf,
        iterations: NonZeroU32,
        salt: Vec<u8>,
        output: Vec<u8>,
    },
    Scrypt {
        cost: ScryptCost,
        salt: Vec<u8>,
        output: Vec<u8>,
    },
    /// The key that scrypt makes encrypts the project's signer key.
    Firebase {
        cost: ScryptCost,
        salt: Vec<u8>,
        separator: Vec<u8>,
        signer_key: Vec<u8>,
        output: Vec<u8>,
    },
}

impl Foreign {
    /// Reads a stored hash; none when it begins as none of these does.
    pub(in crate::password) fn read(text: &str) -> Option<Result<Self, InvalidPasswordHash>> {
        let name = text.strip_prefix('$')?.split('$').next()?;
        let parts: Vec<&str> = text.split('$').skip(2).collect();
        match name {
            "2a" | "2b" | "2y" => Some(bcrypt(text)),
            "scrypt" => Some(scrypt(&parts)),
            "firebase-scrypt" => Some(firebase(&parts)),
            _ => Prf::named(name).map(|prf| pbkdf2_of(prf, &parts)),
        }
    }

    /// The form in which it is stored.
    pub(in crate::password) fn to_text(&self) -> String {
        let b64 = |bytes: &[u8]| STANDARD_NO_PAD.encode(bytes);
        match self {
            Self::Bcrypt(text) => text.clone(),
            Self::Pbkdf2 {
                prf,
                iterations,
                salt,
                output,
            } => format!("${}$i={iterations}${}${}", prf.name(), b64(salt), b64(output)),
            Self::Scrypt { cost, salt, output } => format!(
                "$scrypt$ln={},r={},p={}${}${}",
                cost.log_n,
                cost.r,
                cost.p,
                b64(salt),
                b64(output)
            ),
            Self::Firebase {
                cost,
                salt,
                separator,
                signer_key,
                output,
            } => format!(
                "$firebase-scrypt$ln={},r={},p={}${}${}${}${}",
                cost.log_n,
                cost.r,
                cost.p,
                b64(salt),
                b64(separator),
                b64(signer_key),
                b64(output)
            ),
        }
    }

    /// PBKDF2 of these parts, if it can be paid for.
    pub(in crate::password) fn pbkdf2(
        prf: Prf,
        iterations: u32,
        salt: Vec<u8>,
        output: Vec<u8>,
    ) -> Result<Self, InvalidPasswordHash> {
        check(&salt, &output)?;
        let blocks = u32::try_from(output.len().div_ceil(prf.output_len())).unwrap_or(u32::MAX);
        if iterations.saturating_mul(blocks) > MAX_PBKDF2_ITERATIONS {
            return Err(TooCostly("PBKDF2 with too many iterations"));
        }
        Ok(Self::Pbkdf2 {
            prf,
            iterations: NonZeroU32::new(iterations).ok_or(Malformed)?,
            salt,
            output,
        })
    }

    /// Firebase's scrypt of these parts, if it can be paid for.
    pub(in crate::password) fn firebase(
        cost: ScryptCost,
        salt: Vec<u8>,
        separator: Vec<u8>,
        signer_key: Vec<u8>,
        output: Vec<u8>,
    ) -> Result<Self, InvalidPasswordHash> {
        check(&salt, &output)?;
        check_cost(cost)?;
        // The first block of the output cannot be checked (see `firebase_matches`); the others must be enough.
        if signer_key.len() != output.len() || output.len() < 3 * BLOCK || separator.len() > MAX_SALT {
            return Err(Malformed);
        }
        Ok(Self::Firebase {
            cost,
            salt,
            separator,
            signer_key,
            output,
        })
    }

    /// Is this the password that the hash was made of?
    pub(in crate::password) fn matches(&self, password: &[u8]) -> bool {
        match self {
            // Longer passwords count up to their 72nd byte, as they did where the hash was made.
            Self::Bcrypt(text) => ::bcrypt::verify(password, text).unwrap_or(false),
            Self::Pbkdf2 {
                prf,
                iterations,
                salt,
                output,
            } => pbkdf2::verify(prf.algorithm(), *iterations, salt, password, output).is_ok(),
            Self::Scrypt { cost, salt, output } => derived(*cost, password, salt, output.len())
                .is_some_and(|made| made.as_slice().ct_eq(output).into()),
            Self::Firebase {
                cost,
                salt,
                separator,
                signer_key,
                output,
            } => {
                let salt = [salt.as_slice(), separator].concat();
                derived(*cost, password, &salt, 64)
                    .and_then(|made| encrypt(made.get(..32)?, signer_key))
                    .is_some_and(|made| {
                        output
                            .get(BLOCK..)
                            .is_some_and(|output| made.ct_eq(output).into())
                    })
            }
        }
    }
}

fn check(salt: &[u8], output: &[u8]) -> Result<(), InvalidPasswordHash> {
    let fits = (1..=MAX_SALT).contains(&salt.len()) && (MIN_OUTPUT..=MAX_OUTPUT).contains(&output.len());
    fits.then_some(()).ok_or(Malformed)
}

fn check_cost(cost: ScryptCost) -> Result<(), InvalidPasswordHash> {
    if cost.log_n == 0 || cost.r == 0 || cost.p == 0 {
        return Err(Malformed);
    }
    let memory = 1_u64
        .checked_shl(u32::from(cost.log_n))
        .and_then(|n| n.checked_mul(128))
        .and_then(|bytes| bytes.checked_mul(u64::from(cost.r)))
        .filter(|bytes| *bytes <= MAX_SCRYPT_MEMORY)
        .ok_or(TooCostly("scrypt with too much memory"))?;
    memory
        .checked_mul(u64::from(cost.p))
        .filter(|work| *work <= MAX_SCRYPT_WORK)
        .map(|_| ())
        .ok_or(TooCostly("scrypt with too much work"))
}

/// What scrypt makes of a password.
fn derived(cost: ScryptCost, password: &[u8], salt: &[u8], length: usize) -> Option<Zeroizing<Vec<u8>>> {
    let params = ::scrypt::Params::new(cost.log_n, cost.r, cost.p).ok()?;
    let mut output = Zeroizing::new(vec![0; length]);
    ::scrypt::scrypt(password, salt, &params, &mut output).ok()?;
    Some(output)
}

/// AES-256 in counter mode from a counter of zero, without the first block of its output.
///
/// ring has no bare counter mode, but what it has is made of one: with a nonce of zeros, GCM (NIST SP 800-38D section
/// 7.1) encrypts from the counter 2 on, and the tag of an empty message is the block of the counter 1. The block
/// of the counter 0 is not to be had; of the 64 bytes that Firebase stores, 48 remain to be compared.
fn encrypt(key: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
    let nonce = || Nonce::assume_unique_for_key([0; NONCE_LEN]);
    let first = key
        .seal_in_place_separate_tag(nonce(), Aad::empty(), &mut [])
        .ok()?;
    let mut rest = plain.get(2 * BLOCK..)?.to_vec();
    let _ = key
        .seal_in_place_separate_tag(nonce(), Aad::empty(), &mut rest)
        .ok()?;
    let second = plain.get(BLOCK..2 * BLOCK)?;
    let mut made: Vec<u8> = second
        .iter()
        .zip(first.as_ref())
        .map(|(one, other)| one ^ other)
        .collect();
    made.append(&mut rest);
    Some(made)
}

/// Base64 in any of its alphabets (that of passlib has a dot for a plus), with padding or without.
pub(in crate::password) fn decode(text: &str) -> Result<Vec<u8>, InvalidPasswordHash> {
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

fn bcrypt(text: &str) -> Result<Foreign, InvalidPasswordHash> {
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
    Ok(Foreign::Bcrypt(text.to_owned()))
}

/// `i=600000,l=32` or, as passlib writes it, `600000`; then salt and hash.
fn pbkdf2_of(prf: Prf, parts: &[&str]) -> Result<Foreign, InvalidPasswordHash> {
    let [cost, salt, output] = parts else {
        return Err(Malformed);
    };
    let iterations = match value(cost, "i") {
        Some(iterations) => iterations,
        None => cost,
    };
    let output = decode(output)?;
    if value(cost, "l").is_some_and(|length| length.parse() != Ok(output.len())) {
        return Err(Malformed);
    }
    Foreign::pbkdf2(prf, number(iterations)?, decode(salt)?, output)
}

fn scrypt(parts: &[&str]) -> Result<Foreign, InvalidPasswordHash> {
    let [cost, salt, output] = parts else {
        return Err(Malformed);
    };
    let (cost, salt, output) = (scrypt_cost(cost)?, decode(salt)?, decode(output)?);
    check(&salt, &output)?;
    check_cost(cost)?;
    Ok(Foreign::Scrypt { cost, salt, output })
}

fn firebase(parts: &[&str]) -> Result<Foreign, InvalidPasswordHash> {
    let [cost, salt, separator, signer_key, output] = parts else {
        return Err(Malformed);
    };
    Foreign::firebase(
        scrypt_cost(cost)?,
        decode(salt)?,
        decode(separator)?,
        decode(signer_key)?,
        decode(output)?,
    )
}

fn scrypt_cost(text: &str) -> Result<ScryptCost, InvalidPasswordHash> {
    let part = |name| number(value(text, name).ok_or(Malformed)?);
    Ok(ScryptCost {
        log_n: u8::try_from(part("ln")?).map_err(|_| TooCostly("scrypt with too much memory"))?,
        r: part("r")?,
        p: part("p")?,
    })
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
