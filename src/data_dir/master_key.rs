//! The master key of a data directory. It seals the secrets in the database.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use zeroize::Zeroizing;

use super::atomic_file::{AtomicFile, IfExists};
use super::{DataDirError, io_error};
use crate::files::{self, Folder};
use crate::hex;
use crate::random::Random;
use crate::seal::Sealer;

/// The name of the file.
pub const MASTER_KEY: &str = "master.key";
const KEY_BYTES: usize = 32;

pub type MasterKey = Zeroizing<[u8; KEY_BYTES]>;

pub fn master_key(directory: &Path) -> Result<MasterKey, DataDirError> {
    let path = directory.join(MASTER_KEY);
    read_key(&path)?.ok_or(DataDirError::KeyMissing(path))
}

/// The sealer of a data directory. Fails unless its master key has this fingerprint.
pub(crate) fn sealer_of(directory: &Path, fingerprint: &str) -> Result<Sealer, DataDirError> {
    let sealer = Sealer::new(&*master_key(directory)?);
    if sealer.fingerprint() == fingerprint {
        Ok(sealer)
    } else {
        Err(DataDirError::KeyForeign(directory.join(MASTER_KEY)))
    }
}

pub(crate) fn read_or_create_key(directory: &Path, random: &Random) -> Result<MasterKey, DataDirError> {
    let path = directory.join(MASTER_KEY);
    if let Some(key) = read_key(&path)? {
        return Ok(key);
    }
    let key = Sealer::generate(random);
    write_key(directory, &key, random).map_err(io_error(&path))?;
    Ok(key)
}

/// Reads the key of a data directory; `None` if there is no file.
pub(crate) fn read_key(path: &Path) -> Result<Option<MasterKey>, DataDirError> {
    parse_key(path, files::open_to_read(path))
}

/// Reads a key from the opened file at a path; `None` if there is no file.
pub(crate) fn parse_key(path: &Path, file: io::Result<File>) -> Result<Option<MasterKey>, DataDirError> {
    let mut text = Zeroizing::new(String::new());
    match file.and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(DataDirError::KeyMalformed(path.to_owned()));
        }
        Err(error) => return Err(io_error(path)(error)),
    }
    from_hex(text.trim())
        .map(Some)
        .ok_or_else(|| DataDirError::KeyMalformed(path.to_owned()))
}

/// Parses 64 hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Option<MasterKey> {
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    for (index, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(key)
}

/// The key as 64 hexadecimal digits.
pub(crate) fn to_hex(key: &MasterKey) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(2 * KEY_BYTES + 1));
    hex::push(&mut text, key.iter());
    text
}

/// Writes the key of a data directory atomically, and never over another one.
pub(crate) fn write_key(directory: &Path, key: &MasterKey, random: &Random) -> io::Result<()> {
    let mut text = to_hex(key);
    text.push('\n');
    let folder = Folder::open(directory)?;
    let mut unfinished = AtomicFile::new(&folder, MASTER_KEY, random);
    let mut file = unfinished.create()?;
    folder.give_to_owner(&file)?;
    file.write_all(text.as_bytes())?;
    unfinished.place(MASTER_KEY, IfExists::Refuse)
}
