//! The socket inside `idsvc serve`.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use super::{Command, PourError, Reply, wire};

/// How long a command may take to come in.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a reply may take to be taken.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one that takes the bytes after a reply may pause.
const STALL: Duration = Duration::from_mins(2);
/// Commands at once; more wait.
const AT_ONCE: usize = 16;
/// How long those that were begun may go on when the service stops; less than systemd waits for the service.
const FINISH: Duration = Duration::from_secs(20);
/// How long to wait when no connection can be accepted.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The bound socket. Its file goes when it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    owner: u32,
    finish: Duration,
}

impl ControlSocket {
    /// Binds the socket with mode 0600. Whoever calls holds the store, so a socket that lies there already
    /// belongs to nobody and is replaced. Needs a tokio runtime.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (short, _folder) = wire::short(path)?;
        let listener = UnixListener::bind(&short)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let owner = fs::metadata(path)?.uid();
        Ok(Self {
            listener,
            path: path.to_owned(),
            owner,
            finish: FINISH,
        })
    }

    /// Answers commands until `shutdown` is ready, then finishes those that were begun, within 20 seconds. A reply that bytes follow
    /// has them from `pour`, on a thread that may wait; where that fails before the first of them, this is the reply.
    pub async fn serve<F>(
        self,
        execute: impl Fn(Command) -> F + Clone + Send + Sync + 'static,
        pour: impl Fn(Command, &mut dyn Write) -> Result<(), PourError> + Clone + Send + Sync + 'static,
        shutdown: impl Future<Output = ()> + Send,
    ) where
        F: Future<Output = Reply> + Send + 'static,
    {
        let seats = Arc::new(Semaphore::new(AT_ONCE));
        let mut conversations = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(end) = conversations.join_next() => {
                    if let Err(error) = end {
                        tracing::error!(%error, "a command ended in a panic");
                    }
                }
                accepted = self.accept(&seats) => {
                    let (stream, seat) = accepted;
                    if !self.is_trusted(&stream) {
                        continue;
                    }
                    let (execute, pour) = (execute.clone(), pour.clone());
                    conversations.spawn(async move {
                        if let Err(error) = converse(stream, execute, pour).await {
                            tracing::debug!(%error, "a command was not answered");
                        }
                        drop(seat);
                    });
                }
            }
        }
        let finished = async { while conversations.join_next().await.is_some() {} };
        if tokio::time::timeout(self.finish, finished).await.is_err() {
            tracing::warn!("a command took too long to end with the service, and was broken off");
            conversations.shutdown().await;
        }
    }

    async fn accept(&self, seats: &Arc<Semaphore>) -> (UnixStream, tokio::sync::OwnedSemaphorePermit) {
        loop {
            let Ok(seat) = Arc::clone(seats).acquire_owned().await else {
                return std::future::pending().await;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => return (stream, seat),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept on the control socket, trying on");
                    tokio::time::sleep(BACK_OFF).await;
                }
            }
        }
    }

    /// Whether the peer runs as the user that the service runs as, or as root.
    fn is_trusted(&self, stream: &UnixStream) -> bool {
        let uid = stream.peer_cred().map(|peer| peer.uid());
        let is_trusted = uid.as_ref().is_ok_and(|uid| *uid == 0 || *uid == self.owner);
        if !is_trusted {
            tracing::warn!(?uid, "refused a command from another user");
        }
        is_trusted
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // A file that is gone already is as good; one that stays is replaced at the next start.
        let _ = fs::remove_file(&self.path);
    }
}

async fn converse<F>(
    mut stream: UnixStream,
    execute: impl Fn(Command) -> F,
    pour: impl Fn(Command, &mut dyn Write) -> Result<(), PourError> + Send + 'static,
) -> io::Result<()>
where
    F: Future<Output = Reply>,
{
    let line = tokio::time::timeout(READ_TIMEOUT, wire::read_line(&mut stream, wire::LIMIT)).await??;
    let mut poured = None;
    let reply = match serde_json::from_slice::<Command>(&line) {
        Ok(command) => {
            let reply = execute(command.clone()).await;
            poured = (reply == Reply::Bytes).then_some(command);
            reply
        }
        Err(_) => Reply::Failed(
            "the running service does not know this command: it is of another release, restart it".to_owned(),
        ),
    };
    let line = wire::to_line(&reply)?;
    let Some(command) = poured else {
        tokio::time::timeout(WRITE_TIMEOUT, stream.write_all(&line)).await??;
        return stream.shutdown().await;
    };
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(STALL))?;
    let _end = End(stream.try_clone()?);
    tokio::task::spawn_blocking(move || {
        let following = Following {
            reply: Some(line),
            stream: &stream,
        };
        let mut sink = BufWriter::new(following);
        let poured = pour(command, &mut sink);
        // What waits in memory is sent when it is the whole, and else may give way to the reason.
        let (mut following, waiting) = sink.into_parts();
        match poured {
            Ok(()) => following.write_all(&waiting.unwrap_or_default()),
            Err(error) if following.reply.is_some() => {
                (&stream).write_all(&wire::to_line(&Reply::Failed(error.to_string()))?)
            }
            Err(_) => Ok(()),
        }
    })
    .await
    .map_err(io::Error::other)?
}

/// What follows a reply, which is sent with the first of it.
struct Following<'a> {
    reply: Option<Zeroizing<Vec<u8>>>,
    stream: &'a net::UnixStream,
}

impl Write for Following<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(reply) = self.reply.take() {
            self.stream.write_all(&reply)?;
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Ends a stream for whoever still writes to it, which nothing else could stop.
struct End(net::UnixStream);

impl Drop for End {
    fn drop(&mut self) {
        // One that the peer has closed has ended already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::mpsc;

    use rustix::process::{Uid, geteuid};
    use rustix::thread::set_thread_res_uid;
    use tempfile::TempDir;
    use tokio::io::AsyncReadExt;

    use super::super::client;
    use super::*;
    use crate::store::StoreError;

    /// The mode of the socket keeps others out. Were it open, whoever is neither its owner nor root would not be heard.
    #[tokio::test]
    async fn nobody_but_the_owner_and_root_is_heard() {
        const STRANGER: u32 = 64_242;
        let folder = TempDir::new().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("control.sock");
        let mut socket = ControlSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let is_root = geteuid().is_root();
        if !is_root {
            socket.owner = STRANGER;
        }
        let serving = tokio::spawn(socket.serve(
            |_| std::future::ready(Reply::Failed("heard".to_owned())),
            |_, _| Ok(()),
            std::future::pending(),
        ));
        let asking = std::thread::spawn(move || {
            if is_root {
                set_thread_res_uid(None, Uid::from_raw(STRANGER), None).unwrap();
            }
            let mut stream = net::UnixStream::connect(&path).unwrap();
            // The service may have hung up by then.
            let _ = stream.write_all(&wire::to_line(&Command::KeyList).unwrap());
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard);
            heard
        });
        let heard = tokio::task::spawn_blocking(|| asking.join().unwrap())
            .await
            .unwrap();
        assert_eq!(heard, b"");
        serving.abort();
    }

    #[tokio::test]
    async fn whoever_stops_reading_does_not_keep_the_service_from_stopping() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let mut socket = ControlSocket::bind(&path).unwrap();
        socket.finish = Duration::from_millis(50);
        let (ended, end) = mpsc::channel();
        let pour = move |_: Command, to: &mut dyn Write| {
            while to.write_all(&[0; 4096]).is_ok() {}
            let _ = ended.send(());
            Ok(())
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(
            socket.serve(|_| std::future::ready(Reply::Bytes), pour, async move {
                drop(stopped.await);
            }),
        );
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream
            .write_all(&wire::to_line(&Command::Export(false)).unwrap())
            .await
            .unwrap();
        stream.read_u8().await.unwrap();
        stop.send(()).unwrap();
        serving.await.unwrap();
        let ended = tokio::task::spawn_blocking(move || end.recv_timeout(Duration::from_mins(1)));
        ended.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_fails_before_its_first_byte_is_told_and_nothing_else() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let pour = |command: Command, to: &mut dyn Write| {
            to.write_all(b"{}").unwrap();
            match command {
                Command::Export(true) => Err(PourError::Store(StoreError::Interrupted)),
                _ => Ok(()),
            }
        };
        let socket = ControlSocket::bind(&path).unwrap();
        let serving =
            tokio::spawn(socket.serve(|_| std::future::ready(Reply::Bytes), pour, std::future::pending()));
        for (fails, expected) in [(true, false), (false, true)] {
            let asked_at = path.clone();
            let ask = move || {
                let asked = client::ask_for_bytes(&asked_at, &Command::Export(fails)).unwrap();
                let (reply, mut bytes) = asked.unwrap();
                let mut rest = String::new();
                std::io::Read::read_to_string(&mut bytes, &mut rest).unwrap();
                (reply, rest)
            };
            let (reply, rest) = tokio::task::spawn_blocking(ask).await.unwrap();
            assert_eq!((reply == Reply::Bytes, rest == "{}"), (expected, expected));
            let told = matches!(reply, Reply::Failed(why) if why.contains("interrupted"));
            assert_eq!(told, fails);
        }
        serving.abort();
        let _ = serving.await;
    }
}
