use std::io::Write;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::SessionView;
use crate::admin::Admin;
use crate::admin::operation::Done;
use crate::admin::stream::{RecordStream, StreamError, StreamOperation, write_pages};
use crate::flow::grant_policy::has_lost_provider;
use crate::store::StoreError;
use crate::store::page::Page;
use crate::store::tables::{SESSIONS, USERS};

/// A request for the live sessions of all users, in the order in which they began.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListAllSessions {
    /// The session after which the list begins.
    pub after: Option<Uuid>,
    /// The most sessions of the list.
    pub limit: Option<u64>,
}

impl StreamOperation for ListAllSessions {
    const NAME: &'static str = "session list";

    /// Reads all sessions in pages of a hundred, and the user of each live one. Each page is a short read, so no sign-in
    /// waits.
    fn write(self, admin: Admin<'_>, sink: &mut dyn Write) -> Result<Done<()>, StreamError> {
        let limit = self.limit.unwrap_or(u64::MAX);
        write_pages(self.after, limit, sink, |after| page(admin, after))
    }
}

impl RecordStream for ListAllSessions {
    type Record = SessionView;
}

fn page(admin: Admin<'_>, after: Option<Uuid>) -> Result<Page<SessionView, Uuid>, StoreError> {
    let (now, lifetimes) = (admin.core.clock.now(), admin.core.policy.lifetimes.session);
    Page::read(&admin.core.store, SESSIONS, after, |snapshot, id, session| {
        let is_live = session.is_live(lifetimes, now) && !has_lost_provider(snapshot, &session.factor)?;
        let user = if is_live {
            USERS.get(snapshot, &session.user)?
        } else {
            None
        };
        Ok(user.map(|user| SessionView::of(*id, &session, user.account_id)))
    })
}
