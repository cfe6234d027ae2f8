use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Bound;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::Admin;
use crate::admin::operation::Done;
use crate::admin::stream::{RecordStream, StreamError, StreamLine, StreamOperation, write_end, write_line};
use crate::clock::Timestamp;
use crate::flow::one_time_link::invitations;
use crate::identity::one_time_link::InvitationKey;
use crate::identity::{LoginName, OneTimeLink};
use crate::oauth::group::Groups;
use crate::store::page::Page;
use crate::store::tables::{INVITATIONS, ONE_TIME_LINKS};
use crate::store::{StoreError, login_names};

/// The most invitations that are read at once.
const PAGE_ROWS: usize = 500;

/// A request for the open invitations, the oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListInvitations;

/// An open invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitationView {
    /// Its id, by which events name it.
    pub id: Uuid,
    /// The address of the person.
    pub email: String,
    /// The groups that the user will be in. Those that were removed are left out.
    pub groups: BTreeSet<String>,
    /// The client that the person is invited to.
    pub client_id: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// Whether its link was sent by mail. Otherwise the command printed the link.
    pub sent: bool,
    /// Who invited the person, as in `uid 0`. `None` if an earlier release made it.
    pub invited_by: Option<String>,
}

impl StreamOperation for ListInvitations {
    const NAME: &'static str = "user invitations";

    fn write(self, admin: Admin<'_>, sink: &mut dyn Write) -> Result<Done<()>, StreamError> {
        invitations::build_index_blocking(&admin.core.store)?;
        let mut records = Vec::new();
        let mut after = None;
        loop {
            let page = page(admin, after)?;
            records.extend(page.records);
            if page.next.is_none() {
                break;
            }
            after = page.next;
        }
        // The rows are in the order of digests. Ids are in that of time.
        records.sort_by_key(|invitation| invitation.id);
        for record in records {
            write_line(sink, &StreamLine::Record(record))?;
        }
        write_end(sink)?;
        Ok(Done::unrecorded(()))
    }
}

impl RecordStream for ListInvitations {
    type Record = InvitationView;
}

/// A page of invitations. One whose address belongs to a user by now cannot be used, and is left out.
fn page(
    admin: Admin<'_>,
    after: Option<InvitationKey>,
) -> Result<Page<InvitationView, InvitationKey>, StoreError> {
    let (now, catalog) = (admin.core.clock.now(), admin.core.catalog());
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    admin.core.store.read_blocking(|snapshot| {
        let rows = INVITATIONS.scan(snapshot, (from, Bound::Unbounded), PAGE_ROWS)?;
        for ((_, key), ()) in &rows {
            ONE_TIME_LINKS.will_get(snapshot, key);
        }
        let mut records = Vec::new();
        for ((_, key), ()) in &rows {
            let link = ONE_TIME_LINKS.get(snapshot, key)?;
            let Some(link) = link.filter(|link| invitations::is_open(link, now)) else {
                continue;
            };
            let Some(view) = view(key.1, &link, catalog.groups()) else {
                continue;
            };
            if login_names::owner(snapshot, &LoginName::new(&view.email))?.is_none() {
                records.push(view);
            }
        }
        let next = rows.last().filter(|_| rows.len() == PAGE_ROWS);
        Ok(Page {
            records,
            next: next.map(|(key, ())| *key),
        })
    })
}

fn view(id: Uuid, link: &OneTimeLink, groups: &Groups) -> Option<InvitationView> {
    let new = link.invitation()?;
    let groups = groups.names(&new.groups);
    Some(InvitationView {
        id,
        email: new.email.clone(),
        groups: groups.into_iter().map(ToOwned::to_owned).collect(),
        client_id: new.client_id.clone(),
        created_at: Timestamp::of_id(id),
        expires_at: link.expires_at,
        sent: new.is_verified,
        invited_by: new.invited_by.clone(),
    })
}
