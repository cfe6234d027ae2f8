//! Carries out one administrative command, whether a server runs or not.
//!
//! A running server holds the store, so a command reaches it over `control.sock` in the data directory. Otherwise
//! the command line opens the store and calls [`execute`] itself. The same function answers in both cases.

pub mod client;
pub mod protocol;
pub mod server;
mod wire;

use std::io::{self, Write};
use std::ops::ControlFlow;

use serde::Serialize;

use crate::admin::api;
use crate::admin::api::Api;
use crate::admin::apply;
use crate::admin::apply::{Exported, NotExported};
use crate::admin::backup;
use crate::admin::client::ClientView;
use crate::admin::client::{api_key, registration_token};
use crate::admin::import;
use crate::admin::named::{GroupMetadata, ScopeMetadata};
use crate::admin::page::Page;
use crate::admin::provider::ProviderView;
use crate::admin::user::UserView;
use crate::admin::{
    Admin, AdminError, AdminResult, client as clients, compact, installation, key, mail, named, provider,
    session, user,
};
use crate::control::protocol::{Command, Reply, ReplyLine, StreamError};
use crate::flow::Core;
use crate::store::StoreError;

/// The socket's name in the data directory.
pub const SOCKET: &str = "control.sock";

/// Carries out a command. A refusal or failure is a reply, too.
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

async fn dispatch(admin: Admin<'_>, command: Command) -> AdminResult<Reply> {
    let client_reply = |view: ClientView| Reply::Client(Box::new(view));
    let user_reply = |view: UserView| Reply::User(Box::new(view));
    let api_reply = |view: Api| Reply::Api(Box::new(view));
    let provider_reply = |view: ProviderView| Reply::Provider(Box::new(view));
    Ok(match command {
        Command::ScopeAdd(request) => Reply::Scope(Box::new(named::add(admin, request).await?)),
        Command::ScopeList => Reply::Scopes(named::list(admin).await?),
        Command::ScopeShow(name) => Reply::Scope(Box::new(named::show(admin, &name).await?)),
        Command::ScopeUpdate(request) => Reply::Scope(Box::new(named::update(admin, request).await?)),
        Command::ScopeRemove(name) => Reply::ScopeRemoved(named::remove::<ScopeMetadata>(admin, name).await?),
        Command::GroupAdd(request) => Reply::Group(Box::new(named::add(admin, request).await?)),
        Command::GroupList => Reply::Groups(named::list(admin).await?),
        Command::GroupShow(name) => Reply::Group(Box::new(named::show(admin, &name).await?)),
        Command::GroupUpdate(request) => Reply::Group(Box::new(named::update(admin, request).await?)),
        Command::GroupRemove(name) => Reply::GroupRemoved(named::remove::<GroupMetadata>(admin, name).await?),
        Command::ClientAdd(request) => client_reply(clients::add(admin, *request).await?),
        Command::ClientShow(client_id) => client_reply(clients::show(admin, &client_id).await?),
        Command::ClientUpdate(request) => client_reply(clients::update(admin, *request).await?),
        Command::ClientRemove(client_id) => Reply::ClientRemoved(clients::remove(admin, client_id).await?),
        Command::ClientRotateSecret(request) => client_reply(clients::rotate_secret(admin, request).await?),
        Command::ClientEnable(client_id) => client_reply(clients::set_enabled(admin, client_id, true).await?),
        Command::ClientDisable(client_id) => {
            client_reply(clients::set_enabled(admin, client_id, false).await?)
        }
        Command::ApiKeyAdd(client_id) => Reply::ApiKey(api_key::add(admin, client_id).await?),
        Command::ApiKeyList(client_id) => Reply::ApiKeys(api_key::list(admin, &client_id).await?),
        Command::ApiKeyRevoke(which) => Reply::ApiKeyRevoked(api_key::revoke(admin, which).await?),
        Command::RegistrationTokenAdd(request) => {
            Reply::RegistrationToken(registration_token::add(admin, request).await?)
        }
        Command::RegistrationTokenList => Reply::RegistrationTokens(registration_token::list(admin).await?),
        Command::RegistrationTokenRemove(id) => {
            Reply::RegistrationTokenRemoved(registration_token::remove(admin, id).await?)
        }
        Command::UserAdd(request) => user_reply(user::add(admin, *request).await?),
        Command::UserShow(who) => user_reply(user::show(admin, &who).await?),
        Command::UserUpdate(request) => user_reply(user::update(admin, *request).await?),
        Command::UserRemove(who) => {
            let view = user::remove(admin, who).await?;
            Reply::UserRemoved(view.uuid, view.account_id)
        }
        Command::UserSetPassword(request) => user_reply(user::set_password(admin, request).await?),
        Command::UserImport(request) => Reply::Imported(import::users(admin, request).await?),
        Command::UserEnable(who) => user_reply(user::set_enabled(admin, who, true).await?),
        Command::UserDisable(who) => user_reply(user::set_enabled(admin, who, false).await?),
        Command::UserUnlink(request) => user_reply(user::unlink(admin, request).await?),
        Command::UserInvite(request) => Reply::UserLink(user::invite(admin, request).await?),
        Command::UserReset(request) => Reply::UserLink(user::reset(admin, request).await?),
        Command::UserFactors(who) => Reply::UserFactors(user::factors(admin, &who).await?),
        Command::UserResetFactors(who) => Reply::UserFactors(user::reset_factors(admin, who).await?),
        Command::UserLock(who) => Reply::UserLocked(user::lock(admin, who).await?),
        Command::ProviderAdd(request) => provider_reply(provider::add(admin, *request).await?),
        Command::ProviderList => Reply::Providers(provider::list(admin).await?),
        Command::ProviderShow(id) => provider_reply(provider::show(admin, &id).await?),
        Command::ProviderUpdate(request) => provider_reply(provider::update(admin, *request).await?),
        Command::ProviderTest(id) => Reply::ProviderReport(provider::examine::examine(admin, &id).await?),
        Command::ProviderRemove(id) => Reply::ProviderRemoved(provider::remove(admin, id).await?),
        Command::ApiAdd(request) => api_reply(api::add(admin, *request).await?),
        Command::ApiList => Reply::Apis(api::list(admin).await?),
        Command::ApiShow(id) => api_reply(api::show(admin, &id).await?),
        Command::ApiUpdate(request) => api_reply(api::update(admin, *request).await?),
        Command::ApiRemove(id) => Reply::ApiRemoved(api::remove(admin, id).await?),
        Command::KeyList => Reply::Keys(key::list(admin).await?),
        Command::KeyRotate(request) => Reply::Key(key::rotate(admin, request).await?),
        Command::KeyRetire(kid) => Reply::Key(key::retire(admin, kid).await?),
        Command::KeyImport(request) => Reply::Key(key::import(admin, request).await?),
        Command::SessionList(request) => Reply::Sessions(session::list(admin, &request).await?),
        Command::SessionRevoke(request) => Reply::Revoked(session::revoke(admin, request).await?),
        Command::MailTest(to) => Reply::MailTested(mail::test(admin, to).await?),
        Command::InstallationState => {
            Reply::InstallationState(installation::installation_state(admin).await?)
        }
        Command::DatabaseSize => Reply::DatabaseSize(compact::measure(admin)),
        Command::Compact => Reply::Compacted(compact::compact(admin).await?),
        Command::SetIssuer(issuer) => Reply::Issuer(installation::set_issuer(admin, issuer).await?),
        Command::Apply(request) => Reply::Applied(apply::apply(admin, *request).await?),
        // The caller sends the bytes after this reply, with `stream_reply`.
        Command::ClientList
        | Command::UserList(_)
        | Command::MailList
        | Command::Export(_)
        | Command::BackUp(_) => Reply::Bytes,
    })
}

/// Writes the bytes that follow the reply to a command.
pub fn stream_reply(admin: Admin<'_>, command: Command, sink: &mut dyn Write) -> Result<(), StreamError> {
    match command {
        Command::BackUp(request) => {
            backup::write(admin, request, sink)?;
            Ok(())
        }
        Command::Export(with_hashes) => stream_export(admin.core, with_hashes, sink),
        Command::UserList(mut request) => {
            let limit = request.limit.unwrap_or(u64::MAX);
            stream_pages(request.after, limit, sink, |after| {
                request.after = after;
                user::page(admin, &request)
            })
        }
        Command::ClientList => stream_pages(None, u64::MAX, sink, |after| clients::page(admin, after)),
        Command::MailList => stream_pages(None, u64::MAX, sink, |after| mail::page(admin, after)),
        _ => Ok(()),
    }
}

fn write_line<T: Serialize>(sink: &mut dyn Write, line: &ReplyLine<T>) -> Result<(), StreamError> {
    let line = wire::to_line(line).map_err(io::Error::from);
    line.and_then(|line| sink.write_all(&line))
        .map_err(StreamError::Unwritable)
}

fn write_end(sink: &mut dyn Write) -> Result<(), StreamError> {
    write_line(sink, &ReplyLine::<()>::End)?;
    sink.flush().map_err(StreamError::Unwritable)
}

/// Writes the records of a list, page by page. No snapshot is open while the reader is waited for.
fn stream_pages<T: Serialize, K>(
    mut after: Option<K>,
    limit: u64,
    sink: &mut dyn Write,
    mut read: impl FnMut(Option<K>) -> Result<Page<T, K>, StoreError>,
) -> Result<(), StreamError> {
    let mut remaining = limit;
    while remaining > 0 {
        let page = read(after)?;
        for record in page.records {
            if remaining == 0 {
                break;
            }
            write_line(sink, &ReplyLine::Record(record))?;
            remaining -= 1;
        }
        if page.next.is_none() {
            break;
        }
        after = page.next;
    }
    write_end(sink)
}

/// Writes the records of an export, one at a time and from one snapshot. Records of different moments may contradict each
/// other: a name that moves to another user could be in the file twice, and `apply` would refuse it.
fn stream_export(core: &Core, with_hashes: bool, sink: &mut dyn Write) -> Result<(), StreamError> {
    let mut written = Ok(());
    let not_exported = apply::export(core, with_hashes, &mut |record| {
        written = write_line(sink, &ReplyLine::Record(record));
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    written?;
    if not_exported != NotExported::default() {
        write_line(sink, &ReplyLine::Record(Exported::NotExported(not_exported)))?;
    }
    write_end(sink)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use tempfile::TempDir;

    use super::*;
    use crate::admin::Actor;
    use crate::admin::key::RotateKey;
    use crate::admin::tests::{admin, core};
    use crate::identity::{LinkedIdentity, User};
    use crate::oauth::FaultCode;
    use crate::oauth::client::{Client, ClientOrigin};
    use crate::store::tables::{CLIENTS, USERS};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_command_crosses_the_socket_and_its_reply_comes_back() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(SOCKET);
        let core = Arc::new(core());
        let socket = server::ControlSocket::bind(&path).unwrap();
        let serving = Arc::clone(&core);
        let server = tokio::spawn(socket.serve(
            move |actor, command| {
                let core = Arc::clone(&serving);
                async move {
                    assert_eq!(actor, Actor::of_process());
                    execute(Admin { core: &core, actor }, command).await
                }
            },
            |_, _, _| Ok(()),
            std::future::pending(),
        ));
        let add: Command = serde_json::from_str(
            r#"{"user_add":{"email":"alice@example.com","password":"generated","fields":{}}}"#,
        )
        .unwrap();
        let Some(Reply::User(alice)) = client::ask(&path, &add).unwrap() else {
            panic!("no user")
        };
        assert!(alice.password.is_some());
        let Some(Reply::Refused(refusal)) = client::ask(&path, &add).unwrap() else {
            panic!("added twice")
        };
        assert_eq!(refusal.0[0].code, FaultCode::AlreadyExists);
        let rotate = Command::KeyRotate(RotateKey {
            alg: crate::jose::alg::Algorithm::EdDsa,
            at_once: false,
        });
        let Some(Reply::Key(key)) = client::ask(&path, &rotate).unwrap() else {
            panic!("no key")
        };
        let Some(Reply::Keys(keys)) = client::ask(&path, &Command::KeyList).unwrap() else {
            panic!("no keys")
        };
        assert_eq!(keys, [key]);
        server.abort();
        let _ = server.await;
        assert!(client::ask(&path, &Command::KeyList).unwrap().is_none());
    }

    #[tokio::test]
    async fn an_export_has_a_line_for_each_record_and_an_end_line() {
        let core = core();
        for name in ["a", "b", "c"] {
            let add =
                format!(r#"{{"user_add":{{"email":"{name}@example.com","password":"none","fields":{{}}}}}}"#);
            let add = serde_json::from_str(&add).unwrap();
            let reply = execute(admin(&core), add).await;
            assert!(matches!(reply, Reply::User(_)), "{reply:?}");
        }
        assert_eq!(execute(admin(&core), Command::Export(false)).await, Reply::Bytes);
        let mut streamed = Vec::new();
        stream_reply(admin(&core), Command::Export(false), &mut streamed).unwrap();
        let lines: Vec<ReplyLine<Exported>> = streamed
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        let is_user = |line: &ReplyLine<Exported>| matches!(line, ReplyLine::Record(Exported::User(_)));
        assert_eq!(
            (lines.len(), lines.iter().filter(|line| is_user(line)).count()),
            (4, 3)
        );
        assert_eq!(lines[3], ReplyLine::End, "nothing is left out");
        for room in [0, 10, streamed.len() - 1] {
            let mut short = vec![0; room];
            let cut = stream_reply(admin(&core), Command::Export(false), &mut short.as_mut_slice());
            assert!(matches!(cut, Err(StreamError::Unwritable(_))), "{room}: {cut:?}");
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
        let mut client = Client::new("registrant", fresh(), fresh(), false, now);
        client.origin = ClientOrigin::DynamicRegistration;
        let written = core.store.write("test_records", move |tx| {
            CLIENTS.put(tx, &client.client_id, &client)?;
            rows.iter().try_for_each(|row| USERS.put(tx, &row.uuid, row))
        });
        written.await.unwrap();
        let mut streamed = Vec::new();
        stream_reply(admin(&core), Command::Export(true), &mut streamed).unwrap();
        let not_exported = NotExported {
            registered: 1,
            brought: 1,
            links: 2,
            from_devices: 1,
            with_factors: 0,
        };
        let lines: Vec<ReplyLine<Exported>> = streamed
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert!(matches!(lines[0], ReplyLine::Record(Exported::User(_))));
        assert_eq!(
            lines[1..],
            [
                ReplyLine::Record(Exported::NotExported(not_exported)),
                ReplyLine::End
            ]
        );
    }

    #[tokio::test]
    async fn a_line_that_is_no_command_is_answered_and_an_endless_one_is_cut() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(SOCKET);
        let socket = server::ControlSocket::bind(&path).unwrap();
        let server = tokio::spawn(socket.serve(
            |_, _| async { Reply::Failed("not reached".to_owned()) },
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
        let too_long = Command::UserShow("x".repeat(wire::COMMAND_LIMIT));
        let asked = tokio::task::spawn_blocking(move || client::ask(&path, &too_long));
        assert!(matches!(asked.await.unwrap(), Err(client::ControlError::TooLong)));
        server.abort();
        let _ = server.await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_missing_server_is_no_error() {
        let directory = TempDir::new().unwrap();
        assert!(
            client::ask(&directory.path().join(SOCKET), &Command::KeyList)
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
            |_, _| async { Reply::Failed("reached".to_owned()) },
            |_, _, _| Ok(()),
            std::future::pending(),
        ));
        let reply = client::ask(&path, &Command::KeyList).unwrap();
        assert_eq!(reply, Some(Reply::Failed("reached".to_owned())));
        server.abort();
        let _ = server.await;
    }
}
