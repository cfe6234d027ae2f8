//! Reads and writes the lines of the control socket: one JSON document a line, of bounded length.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncReadExt};
use zeroize::Zeroizing;

/// The longest command, in bytes: enough for the declared providers and clients of a large service.
pub(super) const COMMAND_LIMIT: usize = 32 << 20;
/// The longest reply, in bytes: enough for the changes that the longest command makes.
pub(super) const REPLY_LIMIT: u64 = 128 << 20;

/// The longest path that the address of a socket holds on all supported systems (`unix(7)`: 108 on Linux, less elsewhere).
const PATH_LIMIT: usize = 100;

/// Reads one line of at most `limit` bytes. A longer line is an error, and so is a line without an end.
pub(super) async fn read_line(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(Vec::new());
    let mut chunk = Zeroizing::new([0; 4096]);
    loop {
        let count = stream.read(chunk.as_mut_slice()).await?;
        let bytes = chunk.get(..count).unwrap_or_default();
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                line.extend_from_slice(bytes.get(..end).unwrap_or_default());
                return Ok(line);
            }
            None => line.extend_from_slice(bytes),
        }
        if line.len() > limit {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "message is too long"));
        }
    }
}

/// A path of the same socket within [`PATH_LIMIT`]. Keep the returned folder open while the path is in use.
pub(super) fn short_path(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if path.as_os_str().len() <= PATH_LIMIT {
        return Ok((path.to_owned(), None));
    }
    let folder = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    Ok((path, Some(folder)))
}
