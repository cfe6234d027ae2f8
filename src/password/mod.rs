//! Passwords: argon2id hashes as PHC strings, those that other systems made, what a stored hash may cost, and the
//! pool that computes them.
//!
//! A password is compared byte for byte as it was typed, in UTF-8. It is not normalised: two keyboards that
//! compose an accented letter differently give two passwords.

mod guess;
mod import_formats;
mod imported;
pub mod pool;
pub mod strength;

use std::fmt;

use argon2::password_hash::phc;
use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use self::imported::Foreign;

pub use self::pool::{Busy, PasswordPool, PoolSize, Verdict};
pub use self::strength::{PasswordPolicy, PasswordProblem};

/// The most memory that any hash may ask for, in KiB: 256 MiB.
pub const MAX_MEMORY_KIB: u32 = 256 * 1024;
/// The most passes that any hash may ask for.
pub const MAX_ITERATIONS: u32 = 16;
/// The most lanes that any hash may ask for.
pub const MAX_PARALLELISM: u32 = 16;

/// The length of the salts that this service makes, in bytes (RFC 9106 section 3.1).
pub const SALT_LEN: usize = 16;

const OUTPUT_LEN: usize = 32;

/// What an argon2id hash costs (RFC 9106 section 3.1). Never beyond the limits of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordParams {
    memory_kib: u32,
    iterations: u32,
    parallelism: u32,
}

/// A cost that argon2id cannot have, or that this service refuses to pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsProblem {
    /// Too little or too much memory for the number of lanes.
    #[error("password memory must be at least 8 KiB for each lane and at most {MAX_MEMORY_KIB} KiB")]
    Memory,
    /// No pass at all, or too many.
    #[error("password iterations must be 1 to {MAX_ITERATIONS}")]
    Iterations,
    /// No lane at all, or too many.
    #[error("password parallelism must be 1 to {MAX_PARALLELISM}")]
    Parallelism,
}

impl PasswordParams {
    /// A cost of that much memory in KiB, that many passes and that many lanes.
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

    /// Memory, in KiB.
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
    /// 19 MiB, two passes, one lane: about 13 ms on a core of 2026.
    fn default() -> Self {
        Self {
            memory_kib: 19_456,
            iterations: 2,
            parallelism: 1,
        }
    }
}

/// A password's hash as a PHC string, `$argon2id$v=19$m=…,t=…,p=…$salt$hash`, or one that another system made and that
/// is replaced at the first sign-in. Cannot be printed by accident.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PasswordHash(String);

/// The text is no hash of a known form, or asks for more than this service is willing to pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPasswordHash {
    /// It begins as one, and goes on otherwise.
    #[error("the password hash is malformed")]
    Malformed,
    /// It has none of the forms that are known.
    #[error(
        "the password hash is none of argon2, bcrypt, PBKDF2, scrypt, ASP.NET Identity, Keycloak or Firebase"
    )]
    Unknown,
    /// The cost of another algorithm than argon2 is out of bounds.
    #[error("the password hash is too costly: {0}")]
    TooCostly(&'static str),
    /// The cost written in the hash is out of bounds.
    #[error("the password hash is too costly: {0}")]
    Cost(#[from] ParamsProblem),
}

impl PasswordHash {
    /// Reads a hash in the form in which it is stored.
    pub fn parse(text: &str) -> Result<Self, InvalidPasswordHash> {
        Stored::read(text)?;
        Ok(Self(text.to_owned()))
    }

    /// A hash of no password, for an unknown user: checking a password against it takes the usual time at this cost.
    fn dummy(params: PasswordParams) -> Self {
        Self::written(params, b"nobody's account", &[0; OUTPUT_LEN])
    }

    fn written(params: PasswordParams, salt: &[u8; SALT_LEN], output: &[u8; OUTPUT_LEN]) -> Self {
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

    /// The salt, if it is as long as the salts of this service. A password keeps its salt when it is hashed again at
    /// another cost, so an unchanged salt means an unchanged password.
    pub fn salt(&self) -> Option<[u8; SALT_LEN]> {
        match Stored::read(&self.0) {
            Ok(Stored::Argon2(hash)) => <&[u8]>::try_into(hash.salt.as_ref()).ok(),
            Ok(Stored::Foreign(_)) | Err(_) => None,
        }
    }

    /// Was the hash made with another cost, algorithm or version than today's?
    pub fn needs_rehash(&self, params: PasswordParams) -> bool {
        match Stored::read(&self.0) {
            Ok(Stored::Argon2(hash)) => hash.differs_from(params),
            Ok(Stored::Foreign(_)) | Err(_) => true,
        }
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash([redacted])")
    }
}

/// A stored hash, its cost within bounds.
enum Stored {
    Argon2(Argon2Hash),
    Foreign(Foreign),
}

impl Stored {
    fn read(text: &str) -> Result<Self, InvalidPasswordHash> {
        match Foreign::read(text) {
            Some(foreign) => Ok(Self::Foreign(foreign?)),
            None => Ok(Self::Argon2(Argon2Hash::read(text)?)),
        }
    }

    fn matches(self, password: &[u8], memory: &mut Memory) -> Result<bool, OutOfMemory> {
        match self {
            Self::Argon2(hash) => hash.matches(password, memory),
            Self::Foreign(hash) => Ok(hash.matches(password)),
        }
    }
}

/// The parts of an argon2 hash.
struct Argon2Hash {
    algorithm: Algorithm,
    version: Version,
    params: PasswordParams,
    recipe: Params,
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
        let recipe = Params::try_from(&hash).map_err(|_| Malformed)?;
        let params = PasswordParams::new(recipe.m_cost(), recipe.t_cost(), recipe.p_cost())?;
        let salt = hash.salt.ok_or(Malformed)?;
        let output = hash.hash.ok_or(Malformed)?;
        Ok(Self {
            algorithm,
            version,
            params,
            recipe,
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
        let argon2 = Argon2::new(self.algorithm, self.version, self.recipe);
        let mut output = Zeroizing::new(vec![0; self.output.len()]);
        memory.compute(&argon2, password, self.salt.as_ref(), output.as_mut_slice())?;
        Ok(output.as_slice().ct_eq(self.output.as_bytes()).into())
    }
}

/// The memory that one computation works in, kept between computations: clearing and mapping it anew would
/// cost as much as the hash.
#[derive(Default)]
pub struct Memory(Vec<Block>);

/// The machine has no memory left for a password hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not enough memory to hash a password")]
pub struct OutOfMemory;

impl Memory {
    /// Gives back to the system what lies beyond the need of `params`.
    pub fn shrink_to(&mut self, params: PasswordParams) {
        let blocks = usize::try_from(params.memory_kib).unwrap_or(usize::MAX);
        if self.0.len() > blocks {
            self.0.truncate(blocks);
            self.0.shrink_to_fit();
        }
    }

    fn blocks(&mut self, count: usize) -> Result<&mut [Block], OutOfMemory> {
        if let Some(missing) = count.checked_sub(self.0.len()) {
            self.0.try_reserve_exact(missing).map_err(|_| OutOfMemory)?;
            self.0.resize(count, Block::new());
        }
        self.0.get_mut(..count).ok_or(OutOfMemory)
    }

    fn compute(
        &mut self,
        argon2: &Argon2<'_>,
        password: &[u8],
        salt: &[u8],
        output: &mut [u8],
    ) -> Result<(), OutOfMemory> {
        let blocks = self.blocks(argon2.params().block_count())?;
        argon2
            .hash_password_into_with_memory(password, salt, output, blocks)
            .map_err(|_| OutOfMemory)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} KiB)", self.0.len())
    }
}

/// Hashes a password with argon2id version 19 (RFC 9106). `salt` is fresh and random.
pub fn hash(
    params: PasswordParams,
    password: &[u8],
    salt: [u8; SALT_LEN],
    memory: &mut Memory,
) -> Result<PasswordHash, OutOfMemory> {
    let PasswordParams {
        memory_kib,
        iterations,
        parallelism,
    } = params;
    let recipe =
        Params::new(memory_kib, iterations, parallelism, Some(OUTPUT_LEN)).map_err(|_| OutOfMemory)?;
    let mut output = Zeroizing::new([0; OUTPUT_LEN]);
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, recipe);
    memory.compute(&argon2, password, &salt, output.as_mut_slice())?;
    Ok(PasswordHash::written(params, &salt, &output))
}

/// Is this the password that the hash was made of? The comparison takes the same time wherever they differ.
///
/// A hash that is malformed or too costly matches nothing, and no memory is taken for it.
pub fn verify(hash: &PasswordHash, password: &[u8], memory: &mut Memory) -> Result<bool, OutOfMemory> {
    match Stored::read(&hash.0) {
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
        assert_eq!(memory.0.len(), 256);
        assert_eq!(verify(&small, b"correct horse", &mut memory), Ok(true));
        assert_eq!(verify(&large, b"correct horse", &mut memory), Ok(true));
        memory.shrink_to(CHEAP);
        assert_eq!((memory.0.len(), memory.0.capacity()), (32, 32));
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
            assert!(memory.0.is_empty());
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
