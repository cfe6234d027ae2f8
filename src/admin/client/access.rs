//! Who may use a client, and who does.

use std::io::Write;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::operation::Done;
use crate::admin::stream::{RecordStream, StreamError, StreamOperation, write_pages};
use crate::admin::{Admin, last_use};
use crate::clock::Timestamp;
use crate::flow::Catalog;
use crate::flow::grant_policy::Denial;
use crate::identity::User;
use crate::oauth::Client;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::page::Page;
use crate::store::tables::USERS;

/// A request for the users who may use a client or have used it, in the order in which they were added. There are none if
/// there is no such client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListAccess {
    pub client_id: String,
    /// The user after whom the list begins.
    pub after: Option<Uuid>,
    /// The most users of the list.
    pub limit: Option<u64>,
}

/// A user of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientAccess {
    pub uuid: Uuid,
    pub account_id: String,
    /// Whether the user gets tokens of the client.
    pub allowed: bool,
    /// The groups of the client that the user is in.
    pub through: Vec<String>,
    /// The day on which the client last got tokens for the user, in UTC, as in `2026-11-21`. `None` if no grant tells.
    pub last_used: Option<String>,
}

impl StreamOperation for ListAccess {
    const NAME: &'static str = "client access";

    fn write(mut self, admin: Admin<'_>, sink: &mut dyn Write) -> Result<Done<()>, StreamError> {
        let limit = self.limit.unwrap_or(u64::MAX);
        write_pages(self.after, limit, sink, |after| {
            self.after = after;
            page(admin, &self)
        })
    }
}

impl RecordStream for ListAccess {
    type Record = ClientAccess;
}

/// The first page of the list.
///
/// The list reads every user once, and for each user the part of the index of grants that is about this client, with these
/// grants. A page is a hundred users, in a short snapshot of its own, so neither the length of the list nor a slow reader
/// holds a snapshot, and no sign-in waits for it.
fn page(admin: Admin<'_>, request: &ListAccess) -> Result<Page<ClientAccess, Uuid>, StoreError> {
    let catalog = admin.core.catalog();
    let Some(client) = catalog.client(&request.client_id) else {
        return Ok(Page::last(Vec::new()));
    };
    Page::read(&admin.core.store, USERS, request.after, |snapshot, _, user| {
        access(snapshot, &catalog, &client, user)
    })
}

/// What the list says of a user. `None` if it leaves the user out.
fn access(
    snapshot: &dyn Snapshot,
    catalog: &Catalog,
    client: &Client,
    user: User,
) -> Result<Option<ClientAccess>, StoreError> {
    let groups = catalog.groups();
    let through = groups.among(&client.allowed_groups, &user);
    let is_for_user = client.allowed_groups.is_empty() && !user.is_anonymous();
    let last_used = last_use::of_client(snapshot, user.uuid, client)?;
    if !is_for_user && through.is_empty() && last_used.is_none() {
        return Ok(None);
    }
    Ok(Some(ClientAccess {
        uuid: user.uuid,
        allowed: Denial::all_of(client, &user, groups).is_empty(),
        through: through.into_iter().map(ToOwned::to_owned).collect(),
        account_id: user.account_id,
        last_used: last_used.map(Timestamp::date),
    }))
}
