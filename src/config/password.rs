//! What a password must be, and what a hash of it costs.

use super::form::Number;
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::password::{MAX_ITERATIONS, MAX_MEMORY_KIB, MAX_PARALLELISM, PasswordParams, PasswordPolicy};

pub(super) const SETTINGS: &[&Setting] = &[
    &MEMORY_KIB,
    &ITERATIONS,
    &PARALLELISM,
    &MIN_LENGTH,
    &MAX_BYTES,
    &WORKERS,
];

pub(super) static MEMORY_KIB: Setting<Number<u32>> = Setting {
    key: "password.memory_kib",
    doc: "Memory of one argon2id hash, in KiB. A change rehashes each password at its next sign-in.",
    default: Some(Literal::Number(PasswordParams::DEFAULT.memory_kib() as u64)),
    example: Literal::Number(47_104),
    value_name: "KIB",
    help: Some("Memory of a password hash"),
    form: Number::within(8, MAX_MEMORY_KIB as u64),
};

pub(super) static ITERATIONS: Setting<Number<u32>> = Setting {
    key: "password.iterations",
    doc: "Passes of argon2id over the memory.",
    default: Some(Literal::Number(PasswordParams::DEFAULT.iterations() as u64)),
    example: Literal::Number(1),
    value_name: "COUNT",
    help: Some("Passes of a password hash"),
    form: Number::within(1, MAX_ITERATIONS as u64),
};

pub(super) static PARALLELISM: Setting<Number<u32>> = Setting {
    key: "password.parallelism",
    doc: "Lanes of argon2id.",
    default: Some(Literal::Number(PasswordParams::DEFAULT.parallelism() as u64)),
    example: Literal::Number(1),
    value_name: "COUNT",
    help: Some("Lanes of a password hash"),
    form: Number::within(1, MAX_PARALLELISM as u64),
};

pub(super) static MIN_LENGTH: Setting<Number<usize>> = Setting {
    key: "password.min_length",
    doc: "The fewest characters of a new password.",
    default: Some(Literal::Number(PasswordPolicy::DEFAULT.min_length as u64)),
    example: Literal::Number(12),
    value_name: "COUNT",
    help: Some("The fewest characters of a password"),
    form: Number::within(1, 64),
};

pub(super) static MAX_BYTES: Setting<Number<usize>> = Setting {
    key: "password.max_bytes",
    doc: "The most bytes of a password; a longer one is refused unread.",
    default: Some(Literal::Number(PasswordPolicy::DEFAULT.max_bytes as u64)),
    example: Literal::Number(512),
    value_name: "COUNT",
    help: Some("The most bytes of a password"),
    form: Number::within(64, 4096),
};

pub(super) static WORKERS: Setting<Number<usize>> = Setting {
    key: "password.workers",
    doc: "Passwords hashed at once; 0 for one on each core, fewer where limits.memory is low.",
    default: Some(Literal::Number(0)),
    example: Literal::Number(2),
    value_name: "COUNT",
    help: Some("Passwords hashed at once"),
    form: Number::within(0, 1024),
};

#[derive(Clone, Copy)]
pub(super) struct PasswordSettings {
    pub(super) params: PasswordParams,
    pub(super) policy: PasswordPolicy,
    /// The number of threads; zero for one on each core.
    pub(super) workers: usize,
}

pub(super) fn password(reader: &mut Reader<'_>) -> Read<PasswordSettings> {
    reader.check(SETTINGS);
    let memory = reader.read(&MEMORY_KIB)?;
    let iterations = reader.read(&ITERATIONS)?;
    let parallelism = reader.read(&PARALLELISM)?;
    // Each number by itself is within its range.
    let params = PasswordParams::new(memory, iterations, parallelism).map_err(|_| {
        let message = "password.memory_kib must be at least 8 for each of password.parallelism";
        reader.fault(&PARALLELISM, message)
    });
    Ok(PasswordSettings {
        params: params?,
        policy: PasswordPolicy {
            min_length: reader.read(&MIN_LENGTH)?,
            max_bytes: reader.read(&MAX_BYTES)?,
        },
        workers: reader.read(&WORKERS)?,
    })
}
