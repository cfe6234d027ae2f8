//! The command line's end of the socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::{Command, Reply, wire};

/// How long a command may take; a large RSA key takes some seconds.
const TIMEOUT: Duration = Duration::from_mins(2);

/// What follows a reply.
pub type BytesOf = BufReader<std::os::unix::net::UnixStream>;

/// Why a running server did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket belongs to another user.
    #[error("{} is closed to this user: run the command as the user that the service runs as, or as root", .0.display())]
    Denied(PathBuf),
    /// The server hung up, which it also does to users it does not trust.
    #[error("the running service did not answer ({0}): see its log")]
    HungUp(io::Error),
    /// The server takes too long.
    #[error("the running service did not answer in time")]
    TimedOut,
    /// The reply is no reply.
    #[error("the running service is of another release: restart it")]
    OtherRelease,
}

/// Sends a command to the server behind the socket; nothing when no server is there.
///
/// When this fails after the command was sent, the command may have been carried out.
pub async fn ask(path: &Path, command: &Command) -> Result<Option<Reply>, ControlError> {
    let Some(mut stream) = connect(path).await? else {
        return Ok(None);
    };
    let line = wire::to_line(command).map_err(|error| ControlError::HungUp(error.into()))?;
    let conversation = async {
        stream.write_all(&line).await?;
        wire::read_line(&mut stream, wire::REPLY_LIMIT).await
    };
    let line = tokio::time::timeout(TIMEOUT, conversation)
        .await
        .map_err(|_| ControlError::TimedOut)?
        .map_err(ControlError::HungUp)?;
    serde_json::from_slice(&line)
        .map(Some)
        .map_err(|_| ControlError::OtherRelease)
}

/// Whether a server listens behind the socket.
pub fn is_there(path: &Path) -> Result<bool, ControlError> {
    Ok(blocking(path)?.is_some())
}

fn blocking(path: &Path) -> Result<Option<std::os::unix::net::UnixStream>, ControlError> {
    let connected = match wire::short(path) {
        Ok((short, _folder)) => std::os::unix::net::UnixStream::connect(short),
        Err(error) => Err(error),
    };
    reached(path, connected)
}

/// Sends a command whose reply bytes may follow. Blocks; what follows is read from the stream.
pub fn ask_for_bytes(path: &Path, command: &Command) -> Result<Option<(Reply, BytesOf)>, ControlError> {
    let Some(mut stream) = blocking(path)? else {
        return Ok(None);
    };
    let conversation = (|| {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(&wire::to_line(command)?)?;
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        let limit = u64::try_from(wire::REPLY_LIMIT).unwrap_or(u64::MAX);
        (&mut stream).take(limit).read_until(b'\n', &mut line)?;
        Ok((line, stream))
    })();
    let (line, stream) = conversation.map_err(ControlError::HungUp)?;
    let reply = serde_json::from_slice(&line).map_err(|_| ControlError::OtherRelease)?;
    Ok(Some((reply, stream)))
}

async fn connect(path: &Path) -> Result<Option<UnixStream>, ControlError> {
    let connected = match wire::short(path) {
        Ok((short, _folder)) => UnixStream::connect(short).await,
        Err(error) => Err(error),
    };
    reached(path, connected)
}

/// The stream; nothing when no server is there.
fn reached<S>(path: &Path, connected: io::Result<S>) -> Result<Option<S>, ControlError> {
    match connected {
        Ok(stream) => Ok(Some(stream)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory => {
                Ok(None)
            }
            io::ErrorKind::PermissionDenied => Err(ControlError::Denied(path.to_owned())),
            _ => Err(ControlError::HungUp(error)),
        },
    }
}
