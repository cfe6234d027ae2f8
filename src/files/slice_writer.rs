//! Large files that are written beside others.

use std::fs::File;
use std::io::{self, Write};

/// The bytes of a slice.
const SLICE: usize = 1 << 20;

/// Writes a file in slices. Each is on the disk before the next is written: a sync of another file waits for one slice,
/// and not for all that the system has put off.
pub struct SliceWriter<C> {
    file: File,
    /// Is called before each slice, and can refuse it.
    check: C,
    /// The bytes of the current slice; a whole one before the first.
    written: usize,
}

impl<C: FnMut() -> io::Result<()>> SliceWriter<C> {
    /// Writes to this file, while `check` accepts each slice.
    pub fn new(file: File, check: C) -> Self {
        Self {
            file,
            check,
            written: SLICE,
        }
    }
}

impl<C: FnMut() -> io::Result<()>> Write for SliceWriter<C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written >= SLICE {
            self.file.sync_data()?;
            (self.check)()?;
            self.written = 0;
        }
        let written = self.file.write(bytes)?;
        self.written += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slice_is_checked_and_one_that_is_refused_is_not_written() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("file");
        let mut checks = 0;
        let mut writer = SliceWriter::new(File::create(&path).unwrap(), || {
            checks += 1;
            if checks > 3 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        });
        let bytes = vec![7; SLICE / 2];
        let error = std::iter::repeat_with(|| writer.write_all(&bytes)).find_map(Result::err);
        assert_eq!(error.unwrap().kind(), io::ErrorKind::StorageFull);
        assert_eq!(path.metadata().unwrap().len(), 3 * SLICE as u64);
    }
}
