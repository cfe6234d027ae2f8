//! Answers commands on the control socket of `idsvc serve`.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use super::protocol::{Command, Reply};
use super::wire;
use crate::admin::operations::{Call, StreamCall};
use crate::admin::stream::{StreamError, to_line};
use crate::admin::{Actor, AdminResult};
use crate::background;
use crate::files;

/// The most time for the first byte of a command. The command line sends it at once, and a silent peer keeps others
/// waiting.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(1);
/// The most time for the rest of a command.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The most time for writing a reply.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the reader of the bytes after a reply may pause.
const STREAM_STALL_TIMEOUT: Duration = Duration::from_mins(2);
/// The most time for an export. It reads one snapshot, and the database file grows while that is open.
const EXPORT_TIMEOUT: Duration = Duration::from_mins(10);
/// The most commands at the same time. Further ones wait.
const MAX_CONCURRENT: usize = 16;
/// How long running commands may go on when the service stops. systemd waits longer for the service.
const FINISH_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause after a connection could not be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The bound socket. Dropping it removes its file.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    owner: u32,
    export_timeout: Duration,
    finish_timeout: Duration,
}

impl ControlSocket {
    /// Binds the socket with mode 0600. The caller holds the store, so an existing socket file is stale and is
    /// replaced. Needs a tokio runtime.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (short, _folder) = wire::short_path(path)?;
        let listener = UnixListener::bind(&short)?;
        let bound = files::locate(path)?;
        fs::set_permissions(files::path_of(&bound, path), fs::Permissions::from_mode(0o600))?;
        let owner = rustix::fs::fstat(&bound)?.st_uid;
        Ok(Self {
            listener,
            path: path.to_owned(),
            owner,
            export_timeout: EXPORT_TIMEOUT,
            finish_timeout: FINISH_TIMEOUT,
        })
    }

    /// Answers commands until `shutdown` is ready. Then it finishes running commands, within 20 seconds.
    ///
    /// `execute` returns the output of an operation as a line. `write_stream` writes a stream, on a thread that may block.
    /// If it fails before the first byte, the error is the reply.
    pub async fn serve<F>(
        self,
        execute: impl Fn(Actor, Call) -> F + Clone + Send + Sync + 'static,
        write_stream: impl Fn(Actor, StreamCall, &mut dyn Write) -> Result<(), StreamError>
        + Clone
        + Send
        + Sync
        + 'static,
        shutdown: impl Future<Output = ()> + Send,
    ) where
        F: Future<Output = Output> + Send + 'static,
    {
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT));
        let mut conversations = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(ended) = conversations.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a command ended in a panic");
                    }
                }
                accepted = self.accept(&permits) => {
                    let (stream, permit) = accepted;
                    let Some(actor) = self.trusted_peer(&stream) else {
                        continue;
                    };
                    let (execute, write_stream) = (execute.clone(), write_stream.clone());
                    let export_timeout = self.export_timeout;
                    conversations.spawn(async move {
                        if let Err(error) = converse(stream, actor, export_timeout, execute, write_stream).await {
                            tracing::debug!(%error, "a command was not answered");
                        }
                        drop(permit);
                    });
                }
            }
        }
        let finished = async { while conversations.join_next().await.is_some() {} };
        if tokio::time::timeout(self.finish_timeout, finished).await.is_err() {
            tracing::warn!("a command was stopped because it took too long to finish");
            conversations.shutdown().await;
        }
    }

    async fn accept(&self, permits: &Arc<Semaphore>) -> (UnixStream, tokio::sync::OwnedSemaphorePermit) {
        loop {
            let Ok(permit) = Arc::clone(permits).acquire_owned().await else {
                return std::future::pending().await;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => return (stream, permit),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept on the control socket, trying on");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    /// The peer, if it runs as the user that the service runs as, or as root.
    fn trusted_peer(&self, stream: &UnixStream) -> Option<Actor> {
        match stream.peer_cred().map(|peer| peer.uid()) {
            Ok(uid) if uid == 0 || uid == self.owner => Some(Actor::Uid(uid)),
            uid => {
                tracing::warn!(?uid, "refused a command from another user");
                None
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // An error needs no handling: the next start replaces a file that is left.
        let _ = fs::remove_file(&self.path);
    }
}

/// The output of an operation, as a line.
type Output = AdminResult<Zeroizing<Vec<u8>>>;

async fn converse<F>(
    mut stream: UnixStream,
    actor: Actor,
    export_timeout: Duration,
    execute: impl Fn(Actor, Call) -> F,
    write_stream: impl Fn(Actor, StreamCall, &mut dyn Write) -> Result<(), StreamError> + Send + 'static,
) -> io::Result<()>
where
    F: Future<Output = Output> + Send + 'static,
{
    tokio::time::timeout(FIRST_BYTE_TIMEOUT, stream.readable()).await??;
    let line =
        tokio::time::timeout(READ_TIMEOUT, wire::read_line(&mut stream, wire::COMMAND_LIMIT)).await??;
    match serde_json::from_slice(&line) {
        Ok(Command::Call(call)) => match on_blocking_thread(execute(actor, call)).await? {
            Ok(output) => reply(stream, &Reply::Done, &output).await,
            Err(error) => reply(stream, &error.into(), &[]).await,
        },
        Ok(Command::Stream(call)) => {
            let deadline = call.has_deadline().then(|| Instant::now() + export_timeout);
            let write = move |sink: &mut dyn Write| write_stream(actor, call, sink);
            reply_with_stream(stream.into_std()?, deadline, write).await
        }
        Err(_) => {
            let unknown =
                "the running service does not know this command: it is of another release, restart it";
            reply(stream, &Reply::Failed(unknown.to_owned()), &[]).await
        }
    }
}

/// Writes a reply, and the output if there is one.
async fn reply(mut stream: UnixStream, reply: &Reply, output: &[u8]) -> io::Result<()> {
    let mut line = to_line(reply)?;
    line.extend_from_slice(output);
    tokio::time::timeout(WRITE_TIMEOUT, stream.write_all(&line)).await??;
    stream.shutdown().await
}

/// Writes a reply and a stream.
async fn reply_with_stream(
    stream: net::UnixStream,
    deadline: Option<Instant>,
    write: impl FnOnce(&mut dyn Write) -> Result<(), StreamError> + Send + 'static,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(STREAM_STALL_TIMEOUT))?;
    let line = to_line(&Reply::Done)?;
    let _shutdown = ShutdownOnDrop(stream.try_clone()?);
    background::run(move || {
        let mut sink = BufWriter::new(ReplyWriter {
            unsent_reply: Some(line),
            stream: &stream,
            deadline,
        });
        let written = write(&mut sink);
        // On an error the buffered bytes are dropped, so that an error before the first sent byte can be the reply.
        let (mut writer, buffered) = sink.into_parts();
        match written {
            Ok(()) => writer.write_all(&buffered.unwrap_or_default()),
            Err(error) if writer.unsent_reply.is_some() => {
                (&stream).write_all(&to_line(&Reply::Failed(error.to_string()))?)
            }
            Err(_) => Ok(()),
        }
    })
    .await?
}

/// Carries out a command on a thread that may block: it reads and compares many rows without a pause, and requests would
/// wait for that. If the returned future is dropped, the command ends at its next pause.
async fn on_blocking_thread<F>(command: F) -> io::Result<Output>
where
    F: Future<Output = Output> + Send + 'static,
{
    let (waiting, stopped) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let thread = tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            tokio::select! {
                output = command => Ok(output),
                _ = stopped => Err(io::ErrorKind::Interrupted.into()),
            }
        })
    });
    let output = thread.await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => Err(io::Error::other(error)),
    });
    drop(waiting);
    output
}

/// Writes the bytes that follow a reply. The reply is sent before the first of them.
struct ReplyWriter<'a> {
    unsent_reply: Option<Zeroizing<Vec<u8>>>,
    stream: &'a net::UnixStream,
    /// When the export has to be finished: its snapshot makes the database file grow.
    deadline: Option<Instant>,
}

impl Write for ReplyWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(reply) = self.unsent_reply.take() {
            self.stream.write_all(&reply)?;
        }
        if self.deadline.is_some_and(|deadline| deadline < Instant::now()) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the export took longer than it may",
            ));
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Shuts a stream down when it is dropped, which also stops the thread that writes to it.
struct ShutdownOnDrop(net::UnixStream);

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        // An error means that the peer has closed the stream already.
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
    use super::super::client::ControlError;
    use super::*;
    use crate::admin::apply::Export;
    use crate::admin::key::ListKeys;
    use crate::store::StoreError;

    fn list_keys() -> Command {
        Command::Call(ListKeys.into())
    }

    fn export(with_hashes: bool) -> Command {
        Command::Stream(Export { with_hashes }.into())
    }

    fn heard() -> Output {
        Ok(to_line("heard")?)
    }

    fn output_of(answer: Result<Option<client::Answer>, ControlError>) -> String {
        client::parse_output(&client::read_line(&mut answer.unwrap().unwrap().bytes).unwrap()).unwrap()
    }

    /// The mode of the socket keeps other users out. The test opens it, so that only the check of the peer is left.
    #[tokio::test]
    async fn only_the_owner_and_root_are_trusted() {
        const OTHER_USER: u32 = 64_242;
        let folder = TempDir::new().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("control.sock");
        let mut socket = ControlSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let is_root = geteuid().is_root();
        if !is_root {
            socket.owner = OTHER_USER;
        }
        let serving = tokio::spawn(socket.serve(
            |_, _| std::future::ready(heard()),
            |_, _, _| Ok(()),
            std::future::pending(),
        ));
        let asking = std::thread::spawn(move || {
            if is_root {
                set_thread_res_uid(None, Uid::from_raw(OTHER_USER), None).unwrap();
            }
            let mut stream = net::UnixStream::connect(&path).unwrap();
            // The service may have closed the connection already.
            let _ = stream.write_all(&to_line(&list_keys()).unwrap());
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
    async fn a_reader_that_stalls_does_not_keep_the_service_from_stopping() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let mut socket = ControlSocket::bind(&path).unwrap();
        socket.finish_timeout = Duration::from_millis(50);
        let (ended, end) = mpsc::channel();
        let write_stream = move |_, _: StreamCall, to: &mut dyn Write| {
            while to.write_all(&[0; 4096]).is_ok() {}
            let _ = ended.send(());
            Ok(())
        };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving =
            tokio::spawn(
                socket.serve(|_, _| std::future::ready(heard()), write_stream, async move {
                    drop(stopped.await);
                }),
            );
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(&to_line(&export(false)).unwrap()).await.unwrap();
        stream.read_u8().await.unwrap();
        stop.send(()).unwrap();
        serving.await.unwrap();
        let ended = tokio::task::spawn_blocking(move || end.recv_timeout(Duration::from_mins(1)));
        ended.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn silent_connections_keep_a_command_waiting_for_a_second_at_most() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let serving = tokio::spawn(ControlSocket::bind(&path).unwrap().serve(
            |_, _| std::future::ready(heard()),
            |_, _, _| Ok(()),
            std::future::pending(),
        ));
        let mut silent = Vec::new();
        for _ in 0..MAX_CONCURRENT {
            silent.push(UnixStream::connect(&path).await.unwrap());
        }
        let asked = tokio::task::spawn_blocking(move || client::ask(&path, &list_keys()));
        let reply = tokio::time::timeout(READ_TIMEOUT / 2, asked)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(output_of(reply), "heard");
        for mut stream in silent {
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        }
        serving.abort();
    }

    #[tokio::test]
    async fn an_error_before_the_first_byte_is_the_reply() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let write_stream = |_, call: StreamCall, to: &mut dyn Write| {
            to.write_all(b"{}").unwrap();
            match call {
                StreamCall::Export(export) if export.with_hashes => {
                    Err(StreamError::Store(StoreError::Interrupted))
                }
                _ => Ok(()),
            }
        };
        let socket = ControlSocket::bind(&path).unwrap();
        let serving = tokio::spawn(socket.serve(
            |_, _| std::future::ready(heard()),
            write_stream,
            std::future::pending(),
        ));
        for (fails, expected) in [(true, false), (false, true)] {
            let asked_at = path.clone();
            let ask = move || {
                let asked = client::ask(&asked_at, &export(fails)).unwrap();
                let client::Answer { reply, mut bytes } = asked.unwrap();
                let mut rest = String::new();
                std::io::Read::read_to_string(&mut bytes, &mut rest).unwrap();
                (reply, rest)
            };
            let (reply, rest) = tokio::task::spawn_blocking(ask).await.unwrap();
            assert_eq!((reply == Reply::Done, rest == "{}"), (expected, expected));
            let is_told = matches!(reply, Reply::Failed(why) if why.contains("interrupted"));
            assert_eq!(is_told, fails);
        }
        serving.abort();
        let _ = serving.await;
    }

    #[tokio::test]
    async fn an_export_that_takes_too_long_is_interrupted() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let mut socket = ControlSocket::bind(&path).unwrap();
        socket.export_timeout = Duration::from_millis(50);
        let write_stream = |_, _: StreamCall, to: &mut dyn Write| loop {
            to.write_all(&[0; 4096]).map_err(StreamError::Unwritable)?;
        };
        let serving = tokio::spawn(socket.serve(
            |_, _| std::future::ready(heard()),
            write_stream,
            std::future::pending(),
        ));
        // This reader never pauses.
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = client::ask(&path, &export(false)).unwrap().unwrap().bytes;
            io::copy(&mut bytes, &mut io::sink()).unwrap()
        });
        assert!(read.await.unwrap() > 0);
        serving.abort();
    }

    /// The runtime of this test has one thread.
    #[tokio::test]
    async fn a_command_that_blocks_keeps_no_request_waiting() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("control.sock");
        let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
        let (proceed, blocked) = mpsc::channel();
        let blocked = Arc::new(std::sync::Mutex::new(blocked));
        let serving = tokio::spawn(ControlSocket::bind(&path).unwrap().serve(
            move |_, _| {
                let (begun, blocked) = (begun.clone(), Arc::clone(&blocked));
                async move {
                    begun.send(()).await.unwrap();
                    blocked.lock().unwrap().recv().unwrap();
                    heard()
                }
            },
            |_, _, _| Ok(()),
            std::future::pending(),
        ));
        let asked = tokio::task::spawn_blocking(move || client::ask(&path, &list_keys()));
        has_begun.recv().await.unwrap();
        proceed.send(()).unwrap();
        assert_eq!(output_of(asked.await.unwrap()), "heard");
        serving.abort();
    }
}
