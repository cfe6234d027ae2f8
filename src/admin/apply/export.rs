//! The stored records as entries of a file.

use std::io::Write;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{entry, users};
use crate::admin::Admin;
use crate::admin::operation::Done;
use crate::admin::stream::{RecordStream, StreamError, StreamLine, StreamOperation, write_end, write_line};
use crate::flow::Core;
use crate::flow::factors::users_with_factors;
use crate::oauth::group::Groups;
use crate::store::StoreError;
use crate::store::tables::{APIS, CLIENTS, GROUPS, PROVIDERS, SCOPES, USERS};

/// A request for the stored records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Export {
    /// Whether the hashes of passwords and secrets are included.
    pub with_hashes: bool,
}

/// A record of an export, as an entry of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exported {
    /// A scope value, in the order of their names.
    Scope(Map<String, Value>),
    /// A group, in the order of their names.
    Group(Map<String, Value>),
    /// An upstream provider, in the order of their ids.
    Provider(Map<String, Value>),
    /// An API, in the order of their ids.
    Api(Map<String, Value>),
    /// A client, in the order of their identifiers.
    Client(Map<String, Value>),
    /// A user, in the order in which they were added.
    User(Map<String, Value>),
    /// Counts the records that the export leaves out. It comes last. An export without such records has none.
    NotExported(NotExported),
}

/// What an export leaves out, because a file cannot declare it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotExported {
    /// Clients that registered themselves.
    #[serde(default)]
    pub registered: u64,
    /// Users who were created by a provider.
    pub brought: u64,
    /// Links of other users to providers.
    pub links: u64,
    /// Formerly anonymous users who can sign in.
    pub from_devices: u64,
    /// Users with an authenticator app, a passkey or recovery codes.
    #[serde(default)]
    pub with_factors: u64,
}

impl StreamOperation for Export {
    const NAME: &'static str = "export";
    const HAS_DEADLINE: bool = true;

    /// Writes one record at a time, all from one snapshot. Records of different moments may contradict each other: a name
    /// that moves to another user could be in the file twice, and `apply` would refuse it.
    fn write(self, admin: Admin<'_>, sink: &mut dyn Write) -> Result<Done<()>, StreamError> {
        let mut written = Ok(());
        let not_exported = export(admin.core, self.with_hashes, &mut |record| {
            written = write_line(sink, &StreamLine::Record(record));
            match written {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        written?;
        if not_exported != NotExported::default() {
            write_line(sink, &StreamLine::Record(Exported::NotExported(not_exported)))?;
        }
        write_end(sink)?;
        Ok(Done::unrecorded(()))
    }
}

impl RecordStream for Export {
    type Record = Exported;
}

/// Passes the stored records that a file can declare to `pass`, until it returns `Break`. Hashes are included if
/// requested, secrets never. One user at a time is in memory. Returns what was left out.
pub fn export(
    core: &Core,
    with_hashes: bool,
    pass: &mut dyn FnMut(Exported) -> ControlFlow<()>,
) -> Result<NotExported, StoreError> {
    let mut not_exported = NotExported::default();
    let mut flow = ControlFlow::Continue(());
    // After a `Break`, `pass` must not be called again.
    let mut take = |record: Exported| {
        if flow.is_continue() {
            flow = pass(record);
        }
        Ok(flow)
    };
    core.store.stream(|snapshot| {
        SCOPES.visit(snapshot, .., |_, scope| {
            take(Exported::Scope(entry::named(&scope)))
        })?;
        let mut groups = Vec::new();
        GROUPS.visit(snapshot, .., |name, group| {
            groups.push((name, group.uuid));
            take(Exported::Group(entry::named(&group)))
        })?;
        let groups = Groups::new(groups);
        PROVIDERS.visit(snapshot, .., |_, provider| {
            take(Exported::Provider(entry::provider(&provider)))
        })?;
        APIS.visit(snapshot, .., |_, api| take(Exported::Api(entry::api(&api))))?;
        CLIENTS.visit(snapshot, .., |_, client| {
            if client.registered_itself() {
                not_exported.registered += 1;
                return Ok(ControlFlow::Continue(()));
            }
            take(Exported::Client(entry::client(&client, with_hashes)))
        })?;
        USERS.visit(snapshot, .., |_, user| {
            if users::is_declarable(&user) {
                not_exported.links += user.identities.len() as u64;
                return take(Exported::User(entry::user(&user, &groups, with_hashes)));
            }
            if user.comes_from_provider() {
                not_exported.brought += 1;
            } else if !user.is_anonymous() {
                not_exported.from_devices += 1;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        not_exported.with_factors = users_with_factors(snapshot)?;
        Ok(())
    })?;
    Ok(not_exported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::{admin, core};
    use crate::admin::user::{AddUser, NewPassword, UserFields};
    use crate::identity::{LinkedIdentity, User};
    use crate::oauth::client::{Client, ClientOrigin};

    #[tokio::test]
    async fn an_export_has_a_line_for_each_record_and_an_end_line() {
        let core = core();
        for name in ["a", "b", "c"] {
            let add = AddUser {
                email: format!("{name}@example.com"),
                password: NewPassword::None,
                fields: UserFields::default(),
            };
            admin(&core).call(add).await.unwrap();
        }
        let mut streamed = Vec::new();
        admin(&core)
            .stream(Export { with_hashes: false }, &mut streamed)
            .unwrap();
        let lines: Vec<StreamLine<Exported>> = streamed
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        let is_user = |line: &StreamLine<Exported>| matches!(line, StreamLine::Record(Exported::User(_)));
        assert_eq!(
            (lines.len(), lines.iter().filter(|line| is_user(line)).count()),
            (4, 3)
        );
        assert_eq!(lines[3], StreamLine::End, "nothing is left out");
        for room in [0, 10, streamed.len() - 1] {
            let mut short = vec![0; room];
            let cut = admin(&core).stream(Export { with_hashes: false }, &mut short.as_mut_slice());
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
        admin(&core)
            .stream(Export { with_hashes: true }, &mut streamed)
            .unwrap();
        let not_exported = NotExported {
            registered: 1,
            brought: 1,
            links: 2,
            from_devices: 1,
            with_factors: 0,
        };
        let lines: Vec<StreamLine<Exported>> = streamed
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert!(matches!(lines[0], StreamLine::Record(Exported::User(_))));
        assert_eq!(
            lines[1..],
            [
                StreamLine::Record(Exported::NotExported(not_exported)),
                StreamLine::End
            ]
        );
    }
}
