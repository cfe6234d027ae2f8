//! Passwords: argon2id hashes as PHC strings, hashes of other systems, the limits of their cost, and the pool that
//! computes them.
//!
//! A password is hashed in its one form ([`crate::text::opaque_string`]), so two keyboards that compose an accented
//! letter differently give the same password. A hash of an earlier release, or of another system, may be one of the
//! bytes as typed.

mod blocklist;
mod common;
mod export_formats;
mod foreign_hash;
mod guess;
mod memory;
pub mod pool;
mod pool_size;
mod queue;
pub mod strength;

use std::fmt;

use argon2::password_hash::phc;
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::digest;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use self::foreign_hash::ImportedHash;

pub use self::blocklist::Blocklist;
pub use self::export_formats::embedded_object;
pub use self::memory::{Memory, OutOfMemory};
pub use self::pool::{NotComputed, PasswordCheck, PasswordPool, PoolLoad};
pub use self::pool_size::PoolSize;
pub use self::strength::{PasswordPolicy, PasswordProblem};

/// The most memory of a hash, in KiB: 256 MiB.
pub const MAX_MEMORY_KIB: u32 = 256 * 1024;
/// The most passes of a hash.
pub const MAX_ITERATIONS: u32 = 16;
/// The most lanes of a hash.
pub const MAX_PARALLELISM: u32 = 16;

/// The length of new salts, in bytes (RFC 9106 section 3.1).
pub const SALT_LEN: usize = 16;

const OUTPUT_LEN: usize = 32;

/// The cost of an argon2id hash (RFC 9106 section 3.1), within the limits of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordParams {
    memory_kib: u32,
    iterations: u32,
    parallelism: u32,
}

/// A cost that is not valid for argon2id, or is over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsProblem {
    /// The memory is too little for the number of lanes, or over the limit.
    #[error("password memory must be at least 8 KiB for each lane and at most {MAX_MEMORY_KIB} KiB")]
    Memory,
    /// There is no pass, or there are too many.
    #[error("password iterations must be 1 to {MAX_ITERATIONS}")]
    Iterations,
    /// There is no lane, or there are too many.
    #[error("password parallelism must be 1 to {MAX_PARALLELISM}")]
    Parallelism,
}

impl PasswordParams {
    /// 19 MiB, two passes, one lane: about 13 ms on a core of 2026.
    pub const DEFAULT: Self = Self {
        memory_kib: 19_456,
        iterations: 2,
        parallelism: 1,
    };

    /// Checks a cost: memory in KiB, passes and lanes.
    pub const fn new(memory_kib: u32, iterations: u32, parallelism: u32) -> Result<Self, ParamsProblem> {
        if parallelism < 1 || parallelism > MAX_PARALLELISM {
            return Err(ParamsProblem::Parallelism);
        }
        if iterations < 1 || iterations > MAX_ITERATIONS {
            return Err(ParamsProblem::Iterations);
        }
        if memory_kib < 8 * parallelism || memory_kib > MAX_MEMORY_KIB {
            return Err(ParamsProblem::Memory);
        }
        Ok(Self {
            memory_kib,
            iterations,
            parallelism,
        })
    }

    pub const fn memory_kib(&self) -> u32 {
        self.memory_kib
    }

    /// Passes over the memory.
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Lanes.
    pub const fn parallelism(&self) -> u32 {
        self.parallelism
    }
}

impl Default for PasswordParams {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The hash of a password. It is a PHC string, `$argon2id$v=19$m=…,t=…,p=…$salt$hash`, or an imported hash, which is
/// replaced at the first sign-in. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PasswordHash(String);

/// The text is not a hash of a known form, or its cost is over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPasswordHash {
    /// It begins like a known form, but is malformed.
    #[error("the password hash is malformed")]
    Malformed,
    /// It has no known form.
    #[error(
        "the password hash is none of argon2, bcrypt, PBKDF2, scrypt, ASP.NET Identity, Keycloak or Firebase"
    )]
    Unknown,
    /// The cost of an imported hash is over a limit.
    #[error("the password hash is too costly: {0}")]
    TooCostly(&'static str),
    /// The argon2 cost in the hash is not within the limits.
    #[error("the password hash is too costly: {0}")]
    Cost(#[from] ParamsProblem),
}

impl PasswordHash {
    /// Identifies the password. A hash that is renewed at another cost keeps its salt, so it keeps its fingerprint.
    pub fn fingerprint(&self) -> [u8; 32] {
        let text = self.0.as_bytes();
        let digest = match self.salt() {
            Some(salt) => digest::digest(&digest::SHA256, &salt),
            None => digest::digest(&digest::SHA256, text),
        };
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest.as_ref());
        fingerprint
    }

    /// Reads a hash in its stored form.
    pub fn parse(text: &str) -> Result<Self, InvalidPasswordHash> {
        ParsedHash::read(text)?;
        Ok(Self(text.to_owned()))
    }

    /// A hash for an unknown user. No password matches it, and checking one takes as long as for a known user.
    fn dummy(params: PasswordParams) -> Self {
        Self::format(params, b"unknown account.", &[0; OUTPUT_LEN])
    }

    fn format(params: PasswordParams, salt: &[u8; SALT_LEN], output: &[u8; OUTPUT_LEN]) -> Self {
        Self(format!(
            "$argon2id$v=19$m={},t={},p={}${}${}",
            params.memory_kib,
            params.iterations,
            params.parallelism,
            STANDARD_NO_PAD.encode(salt),
            STANDARD_NO_PAD.encode(output),
        ))
    }

    /// The PHC string, for the store and for an export.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The salt, if it has the length of a new salt. A rehash at another cost keeps the salt, so an unchanged salt
    /// means an unchanged password.
    pub fn salt(&self) -> Option<[u8; SALT_LEN]> {
        match ParsedHash::read(&self.0) {
            Ok(ParsedHash::Argon2(hash)) => <&[u8]>::try_into(hash.salt.as_ref()).ok(),
            Ok(ParsedHash::Imported(_)) | Err(_) => None,
        }
    }

    /// Whether the hash has another cost, algorithm or version than new hashes.
    pub fn needs_rehash(&self, params: PasswordParams) -> bool {
        match ParsedHash::read(&self.0) {
            Ok(ParsedHash::Argon2(hash)) => hash.differs_from(params),
            Ok(ParsedHash::Imported(_)) | Err(_) => true,
        }
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash([redacted])")
    }
}

/// A parsed hash with a cost within the limits.
enum ParsedHash {
    Argon2(Argon2Hash),
    Imported(ImportedHash),
}

impl ParsedHash {
    fn read(text: &str) -> Result<Self, InvalidPasswordHash> {
        match ImportedHash::read(text) {
            Some(foreign) => Ok(Self::Imported(foreign?)),
            None => Ok(Self::Argon2(Argon2Hash::read(text)?)),
        }
    }

    fn matches(self, password: &[u8], memory: &mut Memory) -> Result<bool, OutOfMemory> {
        match self {
            Self::Argon2(hash) => hash.matches(password, memory),
            Self::Imported(hash) => {
                memory.check_room(hash.memory_bytes())?;
                Ok(hash.matches(password))
            }
        }
    }
}

/// The parts of an argon2 hash.
struct Argon2Hash {
    algorithm: Algorithm,
    version: Version,
    params: PasswordParams,
    argon2_params: Params,
    salt: phc::Salt,
    output: phc::Output,
}

impl Argon2Hash {
    fn read(text: &str) -> Result<Self, InvalidPasswordHash> {
        use InvalidPasswordHash::{Malformed, Unknown};
        if !text.starts_with("$argon2") {
            return Err(Unknown);
        }
        let hash = phc::PasswordHash::new(text).map_err(|_| Malformed)?;
        let algorithm = Algorithm::try_from(hash.algorithm.as_str()).map_err(|_| Malformed)?;
        let version = match hash.version {
            Some(version) => Version::try_from(version).map_err(|_| Malformed)?,
            None => Version::V0x10,
        };
        let argon2_params = Params::try_from(&hash).map_err(|_| Malformed)?;
        let params = PasswordParams::new(
            argon2_params.m_cost(),
            argon2_params.t_cost(),
            argon2_params.p_cost(),
        )?;
        let salt = hash.salt.ok_or(Malformed)?;
        let output = hash.hash.ok_or(Malformed)?;
        Ok(Self {
            algorithm,
            version,
            params,
            argon2_params,
            salt,
            output,
        })
    }

    fn differs_from(&self, params: PasswordParams) -> bool {
        self.params != params
            || self.algorithm != Algorithm::Argon2id
            || self.version != Version::V0x13
            || self.salt.len() < SALT_LEN
            || self.output.len() < OUTPUT_LEN
    }

    fn matches(self, password: &[u8], memory: &mut Memory) -> Result<bool, OutOfMemory> {
        let argon2 = Argon2::new(self.algorithm, self.version, self.argon2_params);
        let mut output = Zeroizing::new(vec![0; self.output.len()]);
        memory.compute(&argon2, password, self.salt.as_ref(), output.as_mut_slice())?;
        Ok(output.as_slice().ct_eq(self.output.as_bytes()).into())
    }
}

/// Hashes a password with argon2id version 19 (RFC 9106). `salt` is fresh and random.
pub fn hash(
    params: PasswordParams,
    password: &[u8],
    salt: [u8; SALT_LEN],
    memory: &mut Memory,
) -> Result<PasswordHash, OutOfMemory> {
    let (memory_kib, passes, lanes) = (params.memory_kib, params.iterations, params.parallelism);
    let argon2_params = Params::new(memory_kib, passes, lanes, Some(OUTPUT_LEN)).map_err(|_| OutOfMemory)?;
    let mut output = Zeroizing::new([0; OUTPUT_LEN]);
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, argon2_params);
    memory.compute(&argon2, password, &salt, output.as_mut_slice())?;
    Ok(PasswordHash::format(params, &salt, &output))
}

/// Checks a password against a hash, in constant time.
///
/// A malformed or too costly hash matches nothing and is not computed.
pub fn verify(hash: &PasswordHash, password: &[u8], memory: &mut Memory) -> Result<bool, OutOfMemory> {
    match ParsedHash::read(&hash.0) {
        Ok(stored) => stored.matches(password, memory),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: PasswordParams = PasswordParams {
        memory_kib: 32,
        iterations: 1,
        parallelism: 1,
    };
    const REFERENCE: &str =
        "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";

    fn made_of(password: &str) -> PasswordHash {
        hash(CHEAP, password.as_bytes(), [7; SALT_LEN], &mut Memory::default()).unwrap()
    }

    #[test]
    fn the_right_password_matches_and_another_does_not() {
        let mut memory = Memory::default();
        let hash = made_of("correct horse");
        assert_eq!(verify(&hash, b"correct horse", &mut memory), Ok(true));
        for wrong in ["correct hors", "correct horse ", "Correct horse", ""] {
            assert_eq!(verify(&hash, wrong.as_bytes(), &mut memory), Ok(false), "{wrong}");
        }
    }

    #[test]
    fn a_hash_is_a_phc_string_and_survives_json_and_import() {
        let hash = made_of("correct horse");
        assert!(
            hash.as_str()
                .starts_with("$argon2id$v=19$m=32,t=1,p=1$BwcHBwcHBwcHBwcHBwcHBw$")
        );
        let json = serde_json::to_string(&hash).unwrap();
        assert_eq!(json, format!("\"{}\"", hash.as_str()));
        assert_eq!(serde_json::from_str::<PasswordHash>(&json).unwrap(), hash);
        assert_eq!(PasswordHash::parse(hash.as_str()).unwrap(), hash);
        assert_eq!(
            phc::PasswordHash::new(hash.as_str()).unwrap().to_string(),
            hash.as_str()
        );
    }

    #[test]
    fn hashes_of_the_reference_implementation_verify() {
        let mut memory = Memory::default();
        let hash = PasswordHash::parse(REFERENCE).unwrap();
        assert_eq!(verify(&hash, b"password", &mut memory), Ok(true));
        assert_eq!(verify(&hash, b"differentpassword", &mut memory), Ok(false));
    }

    #[test]
    fn memory_is_reused_between_costs_and_given_back() {
        let mut memory = Memory::default();
        let small = made_of("correct horse");
        let costly = PasswordParams::new(256, 2, 4).unwrap();
        let large = hash(costly, b"correct horse", [9; SALT_LEN], &mut memory).unwrap();
        assert_eq!(format!("{memory:?}"), "Memory(256 KiB)");
        assert_eq!(verify(&small, b"correct horse", &mut memory), Ok(true));
        assert_eq!(verify(&large, b"correct horse", &mut memory), Ok(true));
        memory.shrink_to(CHEAP);
        assert_eq!(format!("{memory:?}"), "Memory(32 KiB)");
        assert_eq!(verify(&large, b"correct horse", &mut memory), Ok(true));
    }

    #[test]
    fn a_hostile_cost_is_refused_before_any_memory_is_taken() {
        let cost =
            |m: &str, t: &str, p: &str| REFERENCE.replace("m=65536,t=2,p=1", &format!("m={m},t={t},p={p}"));
        let refused = [
            (cost("262145", "2", "1"), ParamsProblem::Memory),
            (cost("4294967295", "2", "1"), ParamsProblem::Memory),
            (cost("65536", "17", "1"), ParamsProblem::Iterations),
            (cost("65536", "4294967295", "1"), ParamsProblem::Iterations),
            (cost("65536", "2", "17"), ParamsProblem::Parallelism),
        ];
        for (text, problem) in refused {
            assert_eq!(
                PasswordHash::parse(&text),
                Err(InvalidPasswordHash::Cost(problem)),
                "{text}"
            );
            let mut memory = Memory::default();
            let stored: PasswordHash = serde_json::from_str(&format!("\"{text}\"")).unwrap();
            assert_eq!(verify(&stored, b"password", &mut memory), Ok(false));
            assert_eq!(format!("{memory:?}"), "Memory(0 KiB)");
            assert!(stored.needs_rehash(PasswordParams::default()));
        }
    }

    #[test]
    fn what_is_no_hash_is_unknown() {
        for text in ["", "$", "password"] {
            assert_eq!(
                PasswordHash::parse(text),
                Err(InvalidPasswordHash::Unknown),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_argon2_hash_is_malformed() {
        let broken = [
            "$argon2id$v=19$m=65536,t=2,p=1",
            "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ",
            "$argon2id$v=18$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
            "$argon2id$v=19$m=0,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
            "$argon2id$v=19$m=65536,t=2,p=99999999$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
            "$argon2id$v=19$m=65536,t=2,p=1,x=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
            "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFh",
            "$argon2id$v=19$m=65536,t=2,p=1$c2Fs$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
        ];
        for text in broken {
            assert_eq!(
                PasswordHash::parse(text),
                Err(InvalidPasswordHash::Malformed),
                "{text}"
            );
        }
    }

    #[test]
    fn a_changed_cost_calls_for_a_new_hash() {
        let hash = made_of("correct horse");
        assert!(!hash.needs_rehash(CHEAP));
        for other in [(64, 1, 1), (16, 1, 1), (32, 2, 1), (32, 1, 2)] {
            assert!(
                hash.needs_rehash(PasswordParams::new(other.0, other.1, other.2).unwrap()),
                "{other:?}"
            );
        }
        let short_salt = PasswordHash::parse(REFERENCE).unwrap();
        assert!(short_salt.needs_rehash(PasswordParams::new(65_536, 2, 1).unwrap()));
        let argon2i = PasswordHash(hash.as_str().replace("argon2id", "argon2i"));
        assert!(argon2i.needs_rehash(CHEAP));
    }

    #[test]
    fn costs_have_bounds() {
        assert_eq!(PasswordParams::new(19_456, 2, 1), Ok(PasswordParams::default()));
        assert_eq!(PasswordParams::new(7, 1, 1), Err(ParamsProblem::Memory));
        assert_eq!(PasswordParams::new(31, 1, 4), Err(ParamsProblem::Memory));
        assert_eq!(
            PasswordParams::new(MAX_MEMORY_KIB + 1, 1, 1),
            Err(ParamsProblem::Memory)
        );
        assert_eq!(PasswordParams::new(64, 0, 1), Err(ParamsProblem::Iterations));
        assert_eq!(PasswordParams::new(64, 1, 0), Err(ParamsProblem::Parallelism));
        assert_eq!(
            PasswordParams::new(64, 1, u32::MAX),
            Err(ParamsProblem::Parallelism)
        );
    }

    #[test]
    fn nothing_printed_holds_the_hash() {
        assert_eq!(
            format!("{:?}", made_of("correct horse")),
            "PasswordHash([redacted])"
        );
    }
}
