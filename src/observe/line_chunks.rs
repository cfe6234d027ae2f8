//! Whole lines: how many there are, and which of them were written.

use std::io::{self, ErrorKind, Write};

/// How many of these bytes are whole lines that fit into `size`, or the first line where that is longer.
pub(crate) fn whole(text: &[u8], size: usize) -> usize {
    let is_end = |byte: &u8| *byte == b'\n';
    let fits = text.get(..size).unwrap_or(text);
    let end = fits
        .iter()
        .rposition(is_end)
        .or_else(|| text.iter().position(is_end));
    end.map_or(text.len(), |end| end + 1)
}

/// How many lines these are.
pub(crate) fn count(text: &[u8]) -> u64 {
    let ends = text.split_inclusive(|byte| *byte == b'\n').count();
    u64::try_from(ends).unwrap_or(u64::MAX)
}

/// Lines that could not be written.
#[derive(Debug)]
pub(crate) struct Unwritten<'a> {
    /// Those of which nothing, or only a part, was written.
    pub lines: &'a [u8],
    /// Whether a part of the first was.
    pub is_cut: bool,
    /// Why not.
    pub error: io::Error,
}

impl<'a> Unwritten<'a> {
    /// Nothing of these lines was written.
    pub(crate) fn all(lines: &'a [u8], error: io::Error) -> Self {
        let is_cut = false;
        Self { lines, is_cut, error }
    }
}

/// Writes lines, as many whole ones at once as fit into `size`.
pub(crate) fn write<'a>(to: &mut impl Write, text: &'a [u8], size: usize) -> Result<(), Unwritten<'a>> {
    let mut written = 0;
    while written < text.len() {
        let (before, rest) = text.split_at(written);
        let (lines, _) = rest.split_at(whole(rest, size));
        let error = match to.write(lines) {
            Ok(bytes) if bytes > 0 => {
                written += bytes;
                continue;
            }
            Ok(_) => ErrorKind::WriteZero.into(),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        let end = before.iter().rposition(|byte| *byte == b'\n');
        let (_, lines) = text.split_at(end.map_or(0, |end| end + 1));
        let is_cut = lines.len() > rest.len();
        return Err(Unwritten { lines, is_cut, error });
    }
    Ok(())
}
