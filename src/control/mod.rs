//! Carries administrative commands to the running server.
//!
//! A running server holds the store, so a command reaches it over `control.sock` in the data directory. If no server runs,
//! the command line opens the store and calls the operation itself.

pub mod client;
pub mod protocol;
pub mod server;
mod wire;

/// The socket's name in the data directory.
pub const SOCKET: &str = "control.sock";

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use serde::de::DeserializeOwned;
    use tempfile::TempDir;

    use super::protocol::{Command, Reply};
    use super::*;
    use crate::admin::key::{KeyView, ListKeys, RotateKey};
    use crate::admin::operations::Call;
    use crate::admin::stream::to_line;
    use crate::admin::tests::core;
    use crate::admin::user::{ShowUser, UserView};
    use crate::admin::{Actor, Admin};
    use crate::jose::alg::Algorithm;
    use crate::oauth::FaultCode;

    fn list_keys() -> Command {
        Command::Call(ListKeys.into())
    }

    fn output_of<T: DeserializeOwned>(path: &Path, command: &Command) -> T {
        let mut answer = client::ask(path, command).unwrap().unwrap();
        assert_eq!(answer.reply, Reply::Done);
        client::parse_output(&client::read_line(&mut answer.bytes).unwrap()).unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_command_crosses_the_socket_and_its_output_comes_back() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(SOCKET);
        let core = Arc::new(core());
        let socket = server::ControlSocket::bind(&path).unwrap();
        let serving = Arc::clone(&core);
        let server = tokio::spawn(socket.serve(
            move |actor, call: Call| {
                let core = Arc::clone(&serving);
                async move {
                    assert_eq!(actor, Actor::of_process());
                    call.run(Admin { core: &core, actor }).await
                }
            },
            |_, _, _| Ok(()),
            std::future::pending(),
        ));
        let add: Command = serde_json::from_str(
            r#"{"call":{"add_user":{"email":"alice@example.com","password":"generated","fields":{}}}}"#,
        )
        .unwrap();
        let alice: UserView = output_of(&path, &add);
        assert!(alice.password.is_some());
        let Some(client::Answer {
            reply: Reply::Refused(refusal),
            ..
        }) = client::ask(&path, &add).unwrap()
        else {
            panic!("added twice")
        };
        assert_eq!(refusal.0[0].code, FaultCode::AlreadyExists);
        let rotate = RotateKey {
            alg: Algorithm::EdDsa,
            at_once: false,
        };
        let key: KeyView = output_of(&path, &Command::Call(rotate.into()));
        let keys: Vec<KeyView> = output_of(&path, &list_keys());
        assert_eq!(keys, [key]);
        server.abort();
        let _ = server.await;
        assert!(client::ask(&path, &list_keys()).unwrap().is_none());
    }

    #[tokio::test]
    async fn a_line_that_is_no_command_is_answered_and_an_endless_one_is_cut() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(SOCKET);
        let socket = server::ControlSocket::bind(&path).unwrap();
        let server = tokio::spawn(socket.serve(
            |_, _| async { panic!("reached") },
            |_, _, _| Ok(()),
            std::future::pending(),
        ));
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        stream.write_all(b"{\"from_the_future\":{}}\n").await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(reply.contains("another release"), "{reply}");
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let flood = vec![b'x'; wire::COMMAND_LIMIT + 1];
        let _ = stream.write_all(&flood).await;
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply).await;
        assert!(reply.is_empty());
        let too_long = Command::Call(
            ShowUser {
                who: "x".repeat(wire::COMMAND_LIMIT),
            }
            .into(),
        );
        let asked = tokio::task::spawn_blocking(move || client::ask(&path, &too_long));
        assert!(matches!(asked.await.unwrap(), Err(client::ControlError::TooLong)));
        server.abort();
        let _ = server.await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_missing_server_is_no_error() {
        let directory = TempDir::new().unwrap();
        assert!(
            client::ask(&directory.path().join(SOCKET), &list_keys())
                .unwrap()
                .is_none()
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_path_that_is_too_long_for_a_socket_works() {
        let directory = TempDir::new().unwrap();
        let deep = directory.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join(SOCKET);
        let socket = server::ControlSocket::bind(&path).unwrap();
        let server = tokio::spawn(socket.serve(
            |_, _| async { Ok(to_line("reached")?) },
            |_, _, _| Ok(()),
            std::future::pending(),
        ));
        assert_eq!(output_of::<String>(&path, &list_keys()), "reached");
        server.abort();
        let _ = server.await;
    }
}
