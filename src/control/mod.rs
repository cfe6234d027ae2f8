//! Administration: one command in, one reply out, whether a server runs or not.
//!
//! A running server holds the store, so a command reaches it over `control.sock` in the data directory; otherwise
//! the command line opens the store and calls [`execute`] itself. Either way the same function answers.

pub mod client;
pub mod server;
mod wire;

use std::io::{self, Write};
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::apply;
use crate::admin::apply::{Applied, Apply, Exported, LeftOut};
use crate::admin::backup;
use crate::admin::backup::BackUp;
use crate::admin::client::api_key;
use crate::admin::client::api_key::{ApiKeyView, WhichApiKey};
use crate::admin::client::{AddClient, ClientView, RotateSecret, UpdateClient};
use crate::admin::compact::{Compacted, Room};
use crate::admin::import;
use crate::admin::import::{ImportUsers, Imported};
use crate::admin::installation::{IssuerView, SetUp};
use crate::admin::key::{ImportKey, KeyView, RotateKey};
use crate::admin::provider::examine::ProviderReport;
use crate::admin::provider::{AddProvider, ProviderView, UpdateProvider};
use crate::admin::session::{RevokeSessions, Revoked, SessionView};
use crate::admin::user::{AddUser, SetPassword, Unlink, UpdateUser, UserView};
use crate::admin::{
    Admin, AdminError, AdminRefusal, Done, client as clients, compact, installation, key, provider, session,
    user,
};
use crate::flow::Core;
use crate::store::StoreError;
use crate::store::backup::BackupError;

/// The socket's name in the data directory.
pub const SOCKET: &str = "control.sock";

/// What an administrator asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// `client add`.
    ClientAdd(Box<AddClient>),
    /// `client list`.
    ClientList,
    /// `client show`.
    ClientShow(String),
    /// `client update`.
    ClientUpdate(Box<UpdateClient>),
    /// `client remove`.
    ClientRemove(String),
    /// `client rotate-secret`.
    ClientRotateSecret(RotateSecret),
    /// `client enable`.
    ClientEnable(String),
    /// `client disable`.
    ClientDisable(String),
    /// `client api-key add`.
    ApiKeyAdd(String),
    /// `client api-key list`.
    ApiKeyList(String),
    /// `client api-key revoke`.
    ApiKeyRevoke(WhichApiKey),
    /// `user add`.
    UserAdd(Box<AddUser>),
    /// `user list`, at most so many.
    UserList(usize),
    /// `user show`.
    UserShow(String),
    /// `user update`.
    UserUpdate(Box<UpdateUser>),
    /// `user remove`.
    UserRemove(String),
    /// `user set-password`.
    UserSetPassword(SetPassword),
    /// `user import`, some lines of it.
    UserImport(ImportUsers),
    /// `user enable`.
    UserEnable(String),
    /// `user disable`.
    UserDisable(String),
    /// `user unlink`.
    UserUnlink(Unlink),
    /// `provider add`.
    ProviderAdd(Box<AddProvider>),
    /// `provider list`.
    ProviderList,
    /// `provider show`.
    ProviderShow(String),
    /// `provider update`.
    ProviderUpdate(Box<UpdateProvider>),
    /// `provider remove`.
    ProviderRemove(String),
    /// `provider test`.
    ProviderTest(String),
    /// `key list`.
    KeyList,
    /// `key rotate`.
    KeyRotate(RotateKey),
    /// `key retire`.
    KeyRetire(String),
    /// `key import`.
    KeyImport(ImportKey),
    /// `session list`.
    SessionList(String),
    /// `session revoke`.
    SessionRevoke(RevokeSessions),
    /// What the service was set up for, for `doctor`.
    SetUp,
    /// How much room the database takes, for `doctor`.
    Room,
    /// `compact`.
    Compact,
    /// `config set-issuer`.
    SetIssuer(String),
    /// `apply`.
    Apply(Box<Apply>),
    /// `export`, with hashes or without. The reply is followed by one [`ExportLine`] for each record, and the last.
    Export(bool),
    /// `backup`. The reply is followed by the backup's bytes.
    BackUp(BackUp),
}

impl Command {
    /// Whether it only looks, so that nothing is made for its sake.
    pub fn is_reading(&self) -> bool {
        match self {
            Self::ClientList
            | Self::ClientShow(_)
            | Self::ApiKeyList(_)
            | Self::UserList(_)
            | Self::UserShow(_)
            | Self::ProviderList
            | Self::ProviderShow(_)
            | Self::ProviderTest(_)
            | Self::KeyList
            | Self::SessionList(_)
            | Self::SetUp
            | Self::Room
            | Self::Export(_)
            | Self::BackUp(_) => true,
            Self::Apply(request) => request.dry_run,
            Self::UserImport(request) => !request.write,
            _ => false,
        }
    }

    /// Whether it may be the first thing that happens to a service, before it ever ran. Anything else in a directory
    /// without data is about another directory than the one that was named.
    pub fn may_begin(&self) -> bool {
        match self {
            Self::ClientAdd(_) | Self::UserAdd(_) | Self::ProviderAdd(_) | Self::KeyImport(_) => true,
            Self::Apply(_) | Self::UserImport(_) => !self.is_reading(),
            _ => false,
        }
    }
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// One client.
    Client(Box<ClientView>),
    /// Clients.
    Clients(Vec<ClientView>),
    /// The identifier of a client that is gone.
    ClientRemoved(String),
    /// One API key.
    ApiKey(ApiKeyView),
    /// API keys.
    ApiKeys(Vec<ApiKeyView>),
    /// The API key that is gone.
    ApiKeyRevoked(WhichApiKey),
    /// One user.
    User(Box<UserView>),
    /// Users.
    Users(Vec<UserView>),
    /// The user that is gone.
    UserRemoved(Uuid, String),
    /// One provider.
    Provider(Box<ProviderView>),
    /// Providers.
    Providers(Vec<ProviderView>),
    /// How a provider stands.
    ProviderReport(ProviderReport),
    /// The id of a provider that is gone.
    ProviderRemoved(String),
    /// What came of some lines of an import.
    Imported(Imported),
    /// One key.
    Key(KeyView),
    /// Keys.
    Keys(Vec<KeyView>),
    /// Sessions.
    Sessions(Vec<SessionView>),
    /// Sessions that ended.
    Revoked(Revoked),
    /// The issuer as it was and is to be.
    Issuer(IssuerView),
    /// What the service was set up for.
    SetUp(SetUp),
    /// How much room the database takes.
    Room(Room),
    /// What came of a compaction.
    Compacted(Compacted),
    /// What changed, or would.
    Applied(Applied),
    /// Bytes follow, to the end of the conversation.
    Bytes,
    /// The command was refused.
    Refused(AdminRefusal),
    /// The command could not be carried out.
    Failed(String),
}

/// Carries out a command.
pub async fn execute(admin: Admin<'_>, command: Command) -> Reply {
    dispatch(admin, command)
        .await
        .unwrap_or_else(|error| match error {
            AdminError::Refused(refusal) => Reply::Refused(refusal),
            AdminError::Store(_) | AdminError::Busy(_) | AdminError::Key(_) | AdminError::Reload(_) => {
                Reply::Failed(error.to_string())
            }
        })
}

async fn dispatch(admin: Admin<'_>, command: Command) -> Done<Reply> {
    let client = |view: ClientView| Reply::Client(Box::new(view));
    let person = |view: UserView| Reply::User(Box::new(view));
    Ok(match command {
        Command::ClientAdd(request) => client(clients::add(admin, *request).await?),
        Command::ClientList => Reply::Clients(clients::list(admin)?),
        Command::ClientShow(client_id) => client(clients::show(admin, &client_id)?),
        Command::ClientUpdate(request) => client(clients::update(admin, *request).await?),
        Command::ClientRemove(client_id) => Reply::ClientRemoved(clients::remove(admin, client_id).await?),
        Command::ClientRotateSecret(request) => client(clients::rotate_secret(admin, request).await?),
        Command::ClientEnable(client_id) => client(clients::set_enabled(admin, client_id, true).await?),
        Command::ClientDisable(client_id) => client(clients::set_enabled(admin, client_id, false).await?),
        Command::ApiKeyAdd(client_id) => Reply::ApiKey(api_key::add(admin, client_id).await?),
        Command::ApiKeyList(client_id) => Reply::ApiKeys(api_key::list(admin, &client_id)?),
        Command::ApiKeyRevoke(which) => Reply::ApiKeyRevoked(api_key::revoke(admin, which).await?),
        Command::UserAdd(request) => person(user::add(admin, *request).await?),
        Command::UserList(limit) => Reply::Users(user::list(admin, limit)?),
        Command::UserShow(who) => person(user::show(admin, &who)?),
        Command::UserUpdate(request) => person(user::update(admin, *request).await?),
        Command::UserRemove(who) => {
            let view = user::remove(admin, who).await?;
            Reply::UserRemoved(view.uuid, view.account_id)
        }
        Command::UserSetPassword(request) => person(user::set_password(admin, request).await?),
        Command::UserImport(request) => Reply::Imported(import::users(admin, request).await?),
        Command::UserEnable(who) => person(user::set_enabled(admin, who, true).await?),
        Command::UserDisable(who) => person(user::set_enabled(admin, who, false).await?),
        Command::UserUnlink(request) => person(user::unlink(admin, request).await?),
        Command::ProviderAdd(request) => Reply::Provider(Box::new(provider::add(admin, *request).await?)),
        Command::ProviderList => Reply::Providers(provider::list(admin)?),
        Command::ProviderShow(id) => Reply::Provider(Box::new(provider::show(admin, &id)?)),
        Command::ProviderUpdate(request) => {
            Reply::Provider(Box::new(provider::update(admin, *request).await?))
        }
        Command::ProviderTest(id) => Reply::ProviderReport(provider::examine::examine(admin, &id).await?),
        Command::ProviderRemove(id) => Reply::ProviderRemoved(provider::remove(admin, id).await?),
        Command::KeyList => Reply::Keys(key::list(admin)?),
        Command::KeyRotate(request) => Reply::Key(key::rotate(admin, request).await?),
        Command::KeyRetire(kid) => Reply::Key(key::retire(admin, kid).await?),
        Command::KeyImport(request) => Reply::Key(key::import(admin, request).await?),
        Command::SessionList(who) => Reply::Sessions(session::list(admin, &who)?),
        Command::SessionRevoke(request) => Reply::Revoked(session::revoke(admin, request).await?),
        Command::SetUp => Reply::SetUp(installation::set_up(admin)?),
        Command::Room => Reply::Room(compact::measure(admin).await?),
        Command::Compact => Reply::Compacted(compact::compact(admin).await?),
        Command::SetIssuer(issuer) => Reply::Issuer(installation::set_issuer(admin, issuer).await?),
        Command::Apply(request) => Reply::Applied(apply::apply(admin, *request).await?),
        // The conversation writes the bytes itself, after this reply.
        Command::Export(_) | Command::BackUp(_) => Reply::Bytes,
    })
}

/// A line of an export.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportLine {
    /// A record.
    Record(Exported),
    /// What is in none of the lines, if there is something.
    LeftOut(LeftOut),
    /// The last line: what ends without it was broken off.
    End,
}

/// Why not all of the bytes were written that follow a reply.
#[derive(Debug, thiserror::Error)]
pub enum PourError {
    /// The backup is not whole.
    #[error("the backup was not finished: {0}")]
    Backup(BackupError),
    /// The store cannot be read.
    #[error("the export was not finished: {0}")]
    Store(#[from] StoreError),
    /// Nobody takes them any more.
    #[error("nobody reads what was asked for: {0}")]
    Unwritable(io::Error),
}

impl From<BackupError> for PourError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Unwritable(error) => Self::Unwritable(error),
            error => Self::Backup(error),
        }
    }
}

/// Writes the bytes that follow the reply to a command.
pub fn pour(core: &Core, command: Command, sink: &mut dyn Write) -> Result<(), PourError> {
    match command {
        Command::BackUp(request) => {
            backup::write(core, request, sink)?;
        }
        Command::Export(with_hashes) => pour_export(core, with_hashes, sink)?,
        _ => {}
    }
    Ok(())
}

/// Writes record by record, so that the service never holds all of them.
fn pour_export(core: &Core, with_hashes: bool, sink: &mut dyn Write) -> Result<(), PourError> {
    let mut write = |line: &ExportLine| sink.write_all(&wire::to_line(line)?);
    let mut written = Ok(());
    let left_out = apply::export(core, with_hashes, &mut |record| {
        written = write(&ExportLine::Record(record));
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    if written.is_ok() && left_out != LeftOut::default() {
        written = write(&ExportLine::LeftOut(left_out));
    }
    written
        .and_then(|()| write(&ExportLine::End))
        .and_then(|()| sink.flush())
        .map_err(PourError::Unwritable)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use tempfile::TempDir;

    use super::*;
    use crate::admin::tests::core;
    use crate::identity::{LinkedIdentity, User};
    use crate::store::tables::USERS;

    #[tokio::test]
    async fn a_command_crosses_the_socket_and_its_reply_comes_back() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(SOCKET);
        let core = Arc::new(core());
        let socket = server::ControlSocket::bind(&path).unwrap();
        let serving = Arc::clone(&core);
        let server = tokio::spawn(socket.serve(
            move |command| {
                let core = Arc::clone(&serving);
                async move { execute(Admin { core: &core }, command).await }
            },
            |_, _| Ok(()),
            std::future::pending(),
        ));
        let add: Command = serde_json::from_str(
            r#"{"user_add":{"email":"alice@example.com","password":"generated","fields":{}}}"#,
        )
        .unwrap();
        let Some(Reply::User(alice)) = client::ask(&path, &add).await.unwrap() else {
            panic!("no user")
        };
        assert!(alice.password.is_some());
        let Some(Reply::Refused(refusal)) = client::ask(&path, &add).await.unwrap() else {
            panic!("added twice")
        };
        assert!(refusal.message.contains("already"));
        let rotate = Command::KeyRotate(RotateKey {
            alg: crate::jose::alg::Algorithm::EdDsa,
            at_once: false,
        });
        let Some(Reply::Key(key)) = client::ask(&path, &rotate).await.unwrap() else {
            panic!("no key")
        };
        let Some(Reply::Keys(keys)) = client::ask(&path, &Command::KeyList).await.unwrap() else {
            panic!("no keys")
        };
        assert_eq!(keys, [key]);
        server.abort();
        let _ = server.await;
        assert!(client::ask(&path, &Command::KeyList).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn an_export_has_a_line_for_each_record_and_one_that_says_that_it_is_whole() {
        let core = core();
        for name in ["a", "b", "c"] {
            let add =
                format!(r#"{{"user_add":{{"email":"{name}@example.com","password":"none","fields":{{}}}}}}"#);
            let add = serde_json::from_str(&add).unwrap();
            let reply = execute(Admin { core: &core }, add).await;
            assert!(matches!(reply, Reply::User(_)), "{reply:?}");
        }
        assert_eq!(
            execute(Admin { core: &core }, Command::Export(false)).await,
            Reply::Bytes
        );
        let mut poured = Vec::new();
        pour(&core, Command::Export(false), &mut poured).unwrap();
        let lines: Vec<ExportLine> = poured
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        let is_user = |line: &ExportLine| matches!(line, ExportLine::Record(Exported::User(_)));
        assert_eq!(
            (lines.len(), lines.iter().filter(|line| is_user(line)).count()),
            (4, 3)
        );
        assert_eq!(lines[3], ExportLine::End, "nothing is left out");
        for room in [0, 10, poured.len() - 1] {
            let mut short = vec![0; room];
            let cut = pour(&core, Command::Export(false), &mut short.as_mut_slice());
            assert!(matches!(cut, Err(PourError::Unwritable(_))), "{room}: {cut:?}");
        }
    }

    #[tokio::test]
    async fn an_export_counts_what_no_file_can_declare() {
        let core = core();
        let now = core.clock.now();
        let fresh = || core.random.uuid_v4();
        let link = LinkedIdentity {
            issuer: "https://corp.example".to_owned(),
            subject: "u-1".to_owned(),
            provider: "corp".to_owned(),
            linked_at: now,
        };
        let mut linked = User::local(fresh(), "a@example.com", "org", now);
        linked.identities = vec![link.clone(), link.clone()];
        let mut brought = User::federated(fresh(), "corp:u-2".to_owned(), "corp", "org", now);
        brought.identities.push(link);
        let device = User::anonymous(fresh(), "org", now);
        let mut signs_in = User::anonymous(fresh(), "org", now);
        signs_in.email = Some("b@example.com".to_owned());
        let rows = [linked, brought, device, signs_in];
        let written = core.store.write("test_users", move |tx| {
            rows.iter().try_for_each(|row| USERS.put(tx, &row.uuid, row))
        });
        written.await.unwrap();
        let mut poured = Vec::new();
        pour(&core, Command::Export(true), &mut poured).unwrap();
        let left_out = LeftOut {
            brought: 1,
            links: 2,
            from_devices: 1,
        };
        let lines: Vec<ExportLine> = poured
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert!(matches!(lines[0], ExportLine::Record(Exported::User(_))));
        assert_eq!(lines[1..], [ExportLine::LeftOut(left_out), ExportLine::End]);
    }

    #[tokio::test]
    async fn a_line_that_is_no_command_is_answered_and_an_endless_one_is_cut() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(SOCKET);
        let socket = server::ControlSocket::bind(&path).unwrap();
        let server = tokio::spawn(socket.serve(
            |_| async { Reply::Failed("not reached".to_owned()) },
            |_, _| Ok(()),
            std::future::pending(),
        ));
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        stream.write_all(b"{\"from_the_future\":{}}\n").await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        assert!(reply.contains("another release"), "{reply}");
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let flood = vec![b'x'; wire::LIMIT + 1];
        let _ = stream.write_all(&flood).await;
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply).await;
        assert!(reply.is_empty());
        server.abort();
        let _ = server.await;
    }

    #[tokio::test]
    async fn nobody_there_is_no_error() {
        let directory = TempDir::new().unwrap();
        assert!(
            client::ask(&directory.path().join(SOCKET), &Command::KeyList)
                .await
                .unwrap()
                .is_none()
        );
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_for_a_socket_works_all_the_same() {
        let directory = TempDir::new().unwrap();
        let deep = directory.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join(SOCKET);
        let socket = server::ControlSocket::bind(&path).unwrap();
        let server = tokio::spawn(socket.serve(
            |_| async { Reply::Failed("reached".to_owned()) },
            |_, _| Ok(()),
            std::future::pending(),
        ));
        let reply = client::ask(&path, &Command::KeyList).await.unwrap();
        assert_eq!(reply, Some(Reply::Failed("reached".to_owned())));
        server.abort();
        let _ = server.await;
    }
}
