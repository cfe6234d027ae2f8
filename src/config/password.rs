//! What a password must be, and what a hash of it costs.

use std::path::Path;

use super::form::{File, Number};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::password::{
    Blocklist, MAX_ITERATIONS, MAX_MEMORY_KIB, MAX_PARALLELISM, PasswordParams, PasswordPolicy,
};

pub(super) const SETTINGS: &[&Setting] = &[
    &MEMORY_KIB,
    &ITERATIONS,
    &PARALLELISM,
    &MIN_LENGTH,
    &MAX_BYTES,
    &WORKERS,
    &BLOCKLIST_FILE,
];

/// The most bytes of the file of [`BLOCKLIST_FILE`].
const MAX_BLOCKLIST_BYTES: u64 = 16 << 20;

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

pub(super) static BLOCKLIST_FILE: Setting<File> = Setting {
    key: "password.blocklist_file",
    doc: "A text file with new passwords to refuse, one on each line, at most 16 MiB. Upper case and lower case are alike.\n\
     It is read at the start. The most common passwords are refused without it.",
    default: None,
    example: Literal::Text("/etc/idsvc/refused-passwords.txt"),
    value_name: "FILE",
    help: Some("Passwords to refuse, one on each line"),
    form: File,
};

#[derive(Clone)]
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
    let blocklist = match reader.read_if_set(&BLOCKLIST_FILE)? {
        Some(file) => match read_blocklist(&file) {
            Ok(blocklist) => Some(blocklist),
            Err(problem) => {
                let message = format!("password.blocklist_file: {}: {problem}", file.display());
                return Err(reader.fault(&BLOCKLIST_FILE, message));
            }
        },
        None => None,
    };
    Ok(PasswordSettings {
        params: params?,
        policy: PasswordPolicy {
            min_length: reader.read(&MIN_LENGTH)?,
            max_bytes: reader.read(&MAX_BYTES)?,
            blocklist,
        },
        workers: reader.read(&WORKERS)?,
    })
}

fn read_blocklist(file: &Path) -> Result<Blocklist, String> {
    let size = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > MAX_BLOCKLIST_BYTES {
        return Err("it has more than 16 MiB".to_owned());
    }
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    Ok(Blocklist::of(&text))
}
