//! Sends a command to the running server over the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::protocol::{Command, Reply};
use super::wire;
use crate::admin::stream::to_line;
use crate::files;

/// The most time for a reply. A large RSA key takes some seconds.
const REPLY_TIMEOUT: Duration = Duration::from_mins(2);

/// What follows a reply.
pub type ReplyBytes = BufReader<UnixStream>;

/// Why a running server did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket belongs to another user.
    #[error("{} is closed to this user: run the command as the user that the service runs as, or as root", .0.display())]
    Denied(PathBuf),
    /// The server closed the connection. It does so to untrusted users, too.
    #[error("the running service did not answer ({0}): see its log")]
    HungUp(io::Error),
    /// The reply took longer than two minutes.
    #[error("the running service did not answer in time")]
    TimedOut,
    /// The command is longer than a server reads. A stopped service has no such limit.
    #[error(
        "the command is longer than {} MiB, the most that a running service reads: stop the service and run the command again",
        wire::COMMAND_LIMIT >> 20
    )]
    TooLong,
    /// The reply cannot be parsed.
    #[error("the running service is of another release: restart it")]
    OtherRelease,
    /// The output cannot be parsed.
    #[error(
        "this was carried out, but what it answered cannot be read: a running service of another release has to be restarted"
    )]
    UnreadableOutput,
}

/// What the server answers.
pub struct Answer {
    pub reply: Reply,
    /// What follows it.
    pub bytes: ReplyBytes,
}

/// Sends a command to the server behind the socket, and blocks until the reply. Returns `None` if no server listens.
///
/// If this fails after the command was sent, the server may have carried it out.
pub fn ask(path: &Path, command: &Command) -> Result<Option<Answer>, ControlError> {
    let Some(stream) = connect(path)? else {
        return Ok(None);
    };
    let command = to_line(command).map_err(|error| ControlError::HungUp(error.into()))?;
    if command.len() > wire::COMMAND_LIMIT {
        return Err(ControlError::TooLong);
    }
    let mut stream = send(stream, &command).map_err(unanswered)?;
    let reply = serde_json::from_slice(&read_line(&mut stream)?).map_err(|_| ControlError::OtherRelease)?;
    Ok(Some(Answer { reply, bytes: stream }))
}

/// Whether a server listens behind the socket.
pub fn is_there(path: &Path) -> Result<bool, ControlError> {
    Ok(connect(path)?.is_some())
}

/// Connects to the server. Returns `None` if none listens.
fn connect(path: &Path) -> Result<Option<UnixStream>, ControlError> {
    let connected = files::locate(path).and_then(|socket| UnixStream::connect(files::path_of(&socket, path)));
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

fn send(mut stream: UnixStream, command: &[u8]) -> io::Result<ReplyBytes> {
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    stream.write_all(command)?;
    Ok(BufReader::new(stream))
}

/// Reads a reply, or the output that follows it.
pub fn read_line(stream: &mut ReplyBytes) -> Result<Zeroizing<Vec<u8>>, ControlError> {
    let mut line = Zeroizing::new(Vec::new());
    stream
        .take(wire::REPLY_LIMIT)
        .read_until(b'\n', &mut line)
        .map_err(unanswered)?;
    if line.last() != Some(&b'\n') {
        return Err(ControlError::HungUp(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(line)
}

/// The output in the line of an operation that was carried out.
pub fn parse_output<T: DeserializeOwned>(line: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(line).map_err(|_| ControlError::UnreadableOutput)
}

fn unanswered(error: io::Error) -> ControlError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::TimedOut,
        _ => ControlError::HungUp(error),
    }
}
