//! Input that is read more than once: a file, or a copy of what comes out of a pipe.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::output::CliError;
use super::value_parsers;
use crate::random::Random;

/// The most bytes of a pipe that are kept in memory. More are copied to a file.
const MEMORY_LIMIT: u64 = 1 << 20;
/// The most bytes of a pipe.
const INPUT_LIMIT: u64 = 2 << 30;

/// A source that can be read again from its beginning.
pub(super) trait Rewind: Read + Seek {}
impl<T: Read + Seek> Rewind for T {}

/// Opens a file, - for standard input.
pub(super) fn open(path: &Path) -> Result<Box<dyn Rewind>, CliError> {
    let mut stream: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let mut file = File::open(path).map_err(|error| value_parsers::unreadable(path, &error))?;
        // A pipe has no position and can be read only once.
        if file.stream_position().is_ok() {
            return Ok(Box::new(file));
        }
        Box::new(file)
    };
    copy_of(stream.as_mut(), INPUT_LIMIT)
}

/// The error about input that cannot be read.
#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
pub(super) fn unreadable(error: io::Error) -> CliError {
    CliError::refused(format!("the input cannot be read: {error}"))
}

/// Reads the stream to its end. More than `limit` bytes are an error, so that no part is taken for all of it.
fn copy_of(stream: &mut dyn Read, limit: u64) -> Result<Box<dyn Rewind>, CliError> {
    let mut stream = stream.take(limit + 1);
    let mut head = Vec::new();
    let read = (&mut stream).take(MEMORY_LIMIT).read_to_end(&mut head);
    let mut length = read.map_err(unreadable)? as u64;
    let copy: Box<dyn Rewind> = if length < MEMORY_LIMIT {
        Box::new(Cursor::new(head))
    } else {
        let mut file = unnamed_file().map_err(|error| CliError::Refused {
            message: format!(
                "standard input is longer than {MEMORY_LIMIT} bytes, and {} cannot take a copy: {error}",
                std::env::temp_dir().display()
            ),
            hint: Some("put it into a file and name that, or set TMPDIR to another directory".to_owned()),
        })?;
        let copied = file
            .write_all(&head)
            .and_then(|()| io::copy(&mut stream, &mut file));
        length +=
            copied.map_err(|error| CliError::refused(format!("the input cannot be copied: {error}")))?;
        Box::new(file)
    };
    if length > limit {
        return Err(CliError::refused(format!(
            "more than {} MiB come in: put them into a file and name that",
            limit >> 20
        )));
    }
    Ok(copy)
}

/// Goes back to the beginning.
pub(super) fn rewind(source: &mut dyn Rewind) -> Result<(), CliError> {
    source.seek(SeekFrom::Start(0)).map(drop).map_err(unreadable)
}

/// A file for this process alone, which is gone with it.
fn unnamed_file() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("idsvc-{}", Random::system().uuid_v4()));
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_input_is_refused_and_not_cut_off() {
        for length in [8, MEMORY_LIMIT - 1, MEMORY_LIMIT, 3 * MEMORY_LIMIT] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            for _ in 0..2 {
                let mut copy = copy_of(&mut bytes.as_slice(), length).unwrap();
                for _ in 0..2 {
                    rewind(copy.as_mut()).unwrap();
                    let mut read = Vec::new();
                    copy.read_to_end(&mut read).unwrap();
                    assert!(read == bytes, "{length}");
                }
            }
            let refused = copy_of(&mut bytes.as_slice(), length - 1).err().unwrap();
            assert!(refused.to_string().contains("put them into a file"), "{refused}");
        }
    }
}
