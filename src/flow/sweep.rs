//! Removes what has expired, a bounded number of rows at a time.
//!
//! Identifiers are time-ordered, so what may be removed lies at the old end of each table. Some old rows are still
//! alive, as a family that is refreshed or a session that was renewed. Such tables are walked one after the other, up
//! to where they ended when the walk began. So a round ends however many rows are added, and the next round reads
//! everything again. There is no index of expiry times, which every refresh would have to write.
//!
//! The same walks remove what has ended with its client or provider. Such rows count for nothing since the removal
//! ([`super::grant_policy`]).
//!
//! Reading a million families takes some seconds and fills the cache. So a round pauses between its pages
//! ([`Swept::pause`]): it takes a moment if there are few rows, and minutes if there are a million.

use std::collections::HashMap;
use std::ops::Bound;
use std::time::Duration;

use uuid::Uuid;

use super::dry_run::DryRunTx;
use super::grant_policy::{has_ended, has_lost_provider};
use super::login::session::{self, forget_code, forget_family};
use super::logout_notice::{SessionClientKey, is_outdated};
use super::one_time_link::invitations;
use super::unused_clients::remove_unused_clients;
use super::users::remove_user;
use super::{Core, Failure, device, passkey_index};
use crate::clock::Timestamp;
use crate::identity::one_time_link::LinkKey;
use crate::identity::{AuthenticationMethod, User};
use crate::oauth::Client;
use crate::oauth::access_token::hour_of;
use crate::oauth::policy::Policy;
use crate::oauth::refresh::RefreshFamily;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::record::Record;
use crate::store::table::{Key, Table};
use crate::store::tables::{
    CLIENTS, CODES, CONSENTS, FAMILIES, FAMILIES_BY_OWNER, LOGIN_RECORDS, ONE_TIME_LINKS, REVOKED_TOKENS,
    SESSION_CLIENTS, SESSIONS, USED_ASSERTIONS, USER_ACTIVITY, USERS,
};

/// The most rows of a table that are read in one page.
const PAGE_ROWS: usize = 500;
/// The same for a shared store. A page locks its rows, and the whole tables that it reads, until it is committed.
const SHARED_PAGE_ROWS: usize = 200;

/// A page of live rows is followed by a pause of this many times its duration.
const PAUSE_FACTOR: u32 = 99;

/// How long a redeemed code is kept after it expired, if its family can still be revoked. So a replay is recognised,
/// and revokes the family. The families of one user at one client are bounded, and so are these codes.
const REDEEMED_CODE_RETENTION: Duration = Duration::from_hours(24);

/// How far a table with time-ordered ids has been walked.
#[derive(Clone, Copy, Debug)]
pub struct WalkPosition {
    /// The row that was read last.
    last: Uuid,
    /// The walk ends before this row.
    end: Uuid,
}

/// How far a round has come: the table that is walked, and the row of it that was read last.
#[derive(Clone, Debug)]
pub enum Cursor {
    /// Authorization codes.
    Codes(Option<WalkPosition>),
    /// Refresh families.
    Families(Option<WalkPosition>),
    Sessions(Option<WalkPosition>),
    /// Consents, by user and client.
    Consents(Option<(Uuid, String)>),
    /// Clients that sessions have signed in, by user, session and client.
    SessionClients(Option<SessionClientKey>),
    /// The days of the last sign-in and use, by user.
    UserActivity(Option<Uuid>),
}

impl Default for Cursor {
    /// The start of a round.
    fn default() -> Self {
        Self::Codes(None)
    }
}

/// The result of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Rows removed.
    pub removed: usize,
    /// Rows that are still alive.
    pub kept: usize,
    /// Whether the round is not over yet.
    pub more: bool,
}

impl Swept {
    /// How long to wait before the next page, after a page that took so long. `None` if the round is over. If most
    /// rows had expired there is no pause, so that a flood of requests cannot outgrow the sweep.
    pub fn pause(&self, took: Duration) -> Option<Duration> {
        if !self.more {
            return None;
        }
        Some(if self.kept > self.removed {
            took.saturating_mul(PAUSE_FACTOR)
        } else {
            Duration::ZERO
        })
    }
}

/// Sweeps a page and moves the cursor to the next one. The cursor is only in memory: after a restart a round begins.
///
/// If there is nothing to remove, nothing is written and no write waits.
pub async fn sweep(core: &Core, cursor: &mut Cursor, now: Timestamp) -> Result<Swept, Failure> {
    if matches!(cursor, Cursor::Codes(None)) {
        passkey_index::build(core).await?;
        invitations::build_index(core).await?;
        remove_unused_clients(core, now).await?;
    }
    let (policy, from) = (core.policy.clone(), cursor.clone());
    let page_rows = if core.store.is_shared() {
        SHARED_PAGE_ROWS
    } else {
        PAGE_ROWS
    };
    let work = move |tx: &mut dyn Tx| sweep_page(tx, &from, page_rows, &policy, now);
    let (store, dry_run) = (core.store.clone(), work.clone());
    let rehearsed = tokio::task::spawn_blocking(move || {
        store.read_blocking(|snapshot| {
            let mut tx = DryRunTx::new(snapshot);
            let page = dry_run(&mut tx)?;
            Ok((!tx.would_write()).then_some(page))
        })
    });
    let page = match rehearsed.await.unwrap_or(Err(StoreError::Panicked("sweep")))? {
        Some(page) => page,
        None => core.store.make_room("sweep", work).await?,
    };
    for user in page.removed_users {
        audit::record(&Event::AnonymousUserRemoved { user });
    }
    *cursor = page.next;
    Ok(page.swept)
}

#[derive(Default)]
struct Page {
    swept: Swept,
    next: Cursor,
    removed_users: Vec<Uuid>,
}

fn sweep_page(
    tx: &mut dyn Tx,
    cursor: &Cursor,
    page_rows: usize,
    policy: &Policy,
    now: Timestamp,
) -> Result<Page, StoreError> {
    let mut sweeper = Sweeper {
        tx,
        page_rows,
        policy,
        now,
        swept: Swept::default(),
        removed_users: Vec::new(),
    };
    sweeper.remove_expired()?;
    // These rows may be a flood, and the pauses of the walk are too long for one. So the walk waits until they are
    // gone.
    let next = if sweeper.swept.more {
        Some(cursor.clone())
    } else {
        sweeper.walk(cursor)?
    };
    sweeper.swept.more = next.is_some();
    Ok(Page {
        swept: sweeper.swept,
        next: next.unwrap_or_default(),
        removed_users: sweeper.removed_users,
    })
}

/// Rows that are old enough to be read, and where the walk continues after them.
struct Candidates<R> {
    rows: Vec<(Uuid, R)>,
    next: Option<WalkPosition>,
}

/// The sweep of one page.
struct Sweeper<'a> {
    tx: &'a mut dyn Tx,
    page_rows: usize,
    policy: &'a Policy,
    now: Timestamp,
    swept: Swept,
    removed_users: Vec<Uuid>,
}

impl Sweeper<'_> {
    /// Removes rows whose keys say that they have expired.
    fn remove_expired(&mut self) -> Result<(), StoreError> {
        let first_login = (self.now - self.policy.lifetimes.login_transaction).first_id();
        let hour = hour_of(self.now);
        self.remove_before(LOGIN_RECORDS, first_login)?;
        self.remove_before(REVOKED_TOKENS, (hour, Uuid::nil()))?;
        self.remove_before(USED_ASSERTIONS, (hour, [0; 32]))?;
        self.remove_links((hour, Uuid::nil()))?;
        let removed = device::forget_expired(self.tx, self.page_rows, self.policy, self.now)?;
        self.swept.removed += removed;
        self.swept.more |= removed == self.page_rows;
        Ok(())
    }

    /// Removes the links before `first_kept`, with the index of those that are invitations.
    fn remove_links(&mut self, first_kept: LinkKey) -> Result<(), StoreError> {
        for (key, link) in ONE_TIME_LINKS.scan(&*self.tx, ..first_kept, self.page_rows)? {
            invitations::forget(self.tx, key, &link)?;
        }
        self.remove_before(ONE_TIME_LINKS, first_kept)
    }

    /// Removes the rows before `first_kept`.
    fn remove_before<K: Key, R: Record>(
        &mut self,
        table: Table<K, R>,
        first_kept: K,
    ) -> Result<(), StoreError> {
        let old = table.scan(&*self.tx, ..first_kept, self.page_rows)?;
        self.swept.more |= old.len() == self.page_rows;
        self.swept.removed += old.len();
        for (key, _) in old {
            table.remove(self.tx, &key)?;
        }
        Ok(())
    }

    /// Walks a page of a table. Returns where the round continues; `None` if it is over.
    fn walk(&mut self, cursor: &Cursor) -> Result<Option<Cursor>, StoreError> {
        Ok(match cursor {
            Cursor::Codes(position) => match self.codes(*position)? {
                Some(position) => Some(Cursor::Codes(Some(position))),
                None => Some(Cursor::Families(None)),
            },
            Cursor::Families(position) => match self.families(*position)? {
                Some(position) => Some(Cursor::Families(Some(position))),
                None => Some(Cursor::Sessions(None)),
            },
            Cursor::Sessions(position) => match self.sessions(*position)? {
                Some(position) => Some(Cursor::Sessions(Some(position))),
                None => Some(Cursor::Consents(None)),
            },
            Cursor::Consents(last) => match self.consents(last.clone())? {
                Some(last) => Some(Cursor::Consents(Some(last))),
                None => Some(Cursor::SessionClients(None)),
            },
            Cursor::SessionClients(last) => {
                let last = self.session_clients(last.clone())?;
                Some(match last {
                    Some(last) => Cursor::SessionClients(Some(last)),
                    None => Cursor::UserActivity(None),
                })
            }
            Cursor::UserActivity(last) => {
                let last = self.user_activity(*last)?;
                last.map(|last| Cursor::UserActivity(Some(last)))
            }
        })
    }

    /// The next rows of a walk. A walk that begins covers the rows that were made before `before`.
    fn candidates<R: Record>(
        &self,
        table: Table<Uuid, R>,
        position: Option<WalkPosition>,
        before: Timestamp,
    ) -> Result<Candidates<R>, StoreError> {
        let (from, end) = match position {
            Some(position) => (Bound::Excluded(position.last), position.end),
            None => (Bound::Unbounded, before.first_id()),
        };
        let rows = table.scan(&*self.tx, (from, Bound::Excluded(end)), self.page_rows)?;
        let last = rows.last().filter(|_| rows.len() == self.page_rows);
        let next = last.map(|(last, _)| WalkPosition { last: *last, end });
        Ok(Candidates { rows, next })
    }

    /// Counts a row that is removed or kept.
    fn count(&mut self, is_removed: bool) {
        if is_removed {
            self.swept.removed += 1;
        } else {
            self.swept.kept += 1;
        }
    }

    fn codes(&mut self, position: Option<WalkPosition>) -> Result<Option<WalkPosition>, StoreError> {
        let candidates = self.candidates(CODES, position, self.now - self.policy.lifetimes.code)?;
        let mut clients = Clients::default();
        for (id, code) in candidates.rows {
            let client = clients.find(&*self.tx, &code.authorization.client_id)?;
            let family = match code.redeemed {
                Some(family) if !has_ended(&*self.tx, client, &code.authorization)? => {
                    FAMILIES.get(&*self.tx, &family)?
                }
                Some(_) | None => None,
            };
            let retention = match family {
                Some(family) if family.revoked_at.is_none() => REDEEMED_CODE_RETENTION,
                Some(_) | None => Duration::ZERO,
            };
            let is_over = self.now >= code.expires_at + retention;
            if is_over {
                forget_code(self.tx, id, &code)?;
            }
            self.count(is_over);
        }
        Ok(candidates.next)
    }

    /// Removes families. An anonymous user without another way to sign in is removed with the last family.
    fn families(&mut self, position: Option<WalkPosition>) -> Result<Option<WalkPosition>, StoreError> {
        let now = self.now;
        let before = now - self.policy.lifetimes.access_token;
        let candidates = self.candidates(FAMILIES, position, before)?;
        let mut clients = Clients::default();
        for (id, mut family) in candidates.rows {
            let client = clients.find(&*self.tx, &family.authorization.client_id)?;
            let has_ended =
                family.revoked_at.is_none() && has_ended(&*self.tx, client, &family.authorization)?;
            let is_anonymous = family.authorization.factor == AuthenticationMethod::Anonymous;
            if has_ended && is_anonymous {
                // The user is kept for a while, from now on.
                family.revoke(now);
                FAMILIES.put(self.tx, &id, &family)?;
                self.count(false);
                continue;
            }
            let ended_at = family
                .revoked_at
                .map_or(family.expires_at, |at| at.min(family.expires_at));
            let is_over = has_ended || now >= ended_at + family_retention(&family, self.policy);
            self.count(is_over);
            if !is_over {
                continue;
            }
            let user = family.authorization.user;
            forget_family(self.tx, id, &family)?;
            if is_anonymous && remove_abandoned(self.tx, user, now)? {
                self.count(true);
                self.removed_users.push(user);
            }
        }
        Ok(candidates.next)
    }

    fn sessions(&mut self, position: Option<WalkPosition>) -> Result<Option<WalkPosition>, StoreError> {
        let lifetimes = self.policy.lifetimes.session;
        let shortest = lifetimes.idle.min(lifetimes.absolute);
        let candidates = self.candidates(SESSIONS, position, self.now - shortest)?;
        for (id, session) in candidates.rows {
            if has_lost_provider(&*self.tx, &session.factor)? {
                session::end(self.tx, id, &session, self.now)?;
                self.count(true);
                continue;
            }
            let is_over = session.is_over(lifetimes, self.now);
            if is_over && FAMILIES_BY_OWNER.scan_prefix(&*self.tx, &id, 1)?.is_empty() {
                session::forget(self.tx, id, &session)?;
                self.count(true);
                continue;
            }
            // A sign-out must find the session as long as a grant ends with it. What it tells of the browser is not
            // needed.
            if is_over && session.has_browser_data() {
                SESSIONS.put(self.tx, &id, &session.without_browser_data())?;
            }
            self.count(false);
        }
        Ok(candidates.next)
    }

    /// Removes the consents to clients that were removed.
    fn consents(&mut self, last: Option<(Uuid, String)>) -> Result<Option<(Uuid, String)>, StoreError> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = CONSENTS.scan(&*self.tx, (from, Bound::Unbounded), self.page_rows)?;
        let last = rows.last().filter(|_| rows.len() == self.page_rows);
        let next = last.map(|(key, _)| key.clone());
        let mut clients = Clients::default();
        for (key, consent) in rows {
            let client = clients.find(&*self.tx, &key.1)?;
            let is_owned = client.is_some_and(|client| client.owns_consent(&consent));
            if !is_owned {
                CONSENTS.remove(self.tx, &key)?;
            }
            self.count(!is_owned);
        }
        Ok(next)
    }

    /// Removes the clients of sessions that ended some days ago or expired long ago.
    fn session_clients(
        &mut self,
        last: Option<SessionClientKey>,
    ) -> Result<Option<SessionClientKey>, StoreError> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = SESSION_CLIENTS.scan(&*self.tx, (from, Bound::Unbounded), self.page_rows)?;
        let last = rows.last().filter(|_| rows.len() == self.page_rows);
        let next = last.map(|(key, _)| key.clone());
        let absolute = self.policy.lifetimes.session.absolute;
        for (key, row) in rows {
            let is_outdated = is_outdated(&*self.tx, &key, &row, absolute, self.now)?;
            if is_outdated {
                SESSION_CLIENTS.remove(self.tx, &key)?;
            }
            self.count(is_outdated);
        }
        Ok(next)
    }

    /// Removes the rows of users who were removed: what the sweep removes of a user later may have written one again.
    fn user_activity(&mut self, last: Option<Uuid>) -> Result<Option<Uuid>, StoreError> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = USER_ACTIVITY.scan(&*self.tx, (from, Bound::Unbounded), self.page_rows)?;
        let last = rows.last().filter(|_| rows.len() == self.page_rows);
        let next = last.map(|(user, _)| *user);
        for (user, _) in &rows {
            USERS.will_get(&*self.tx, user);
        }
        for (user, _) in rows {
            let is_left_over = !USERS.contains(&*self.tx, &user)?;
            if is_left_over {
                USER_ACTIVITY.remove(self.tx, &user)?;
            }
            self.count(is_left_over);
        }
        Ok(next)
    }
}

/// How long a family is kept after it ended. Its access tokens may be valid that long, and an anonymous user is kept
/// as long as a family.
fn family_retention(family: &RefreshFamily, policy: &Policy) -> Duration {
    let access_token = policy.lifetimes.access_token;
    match family.authorization.factor {
        AuthenticationMethod::Password
        | AuthenticationMethod::Email
        | AuthenticationMethod::Passkey { .. }
        | AuthenticationMethod::Federated { .. } => access_token,
        AuthenticationMethod::Anonymous => access_token.max(policy.anonymous_retention),
    }
}

/// Removes the user if it is an anonymous one without a refresh family.
fn remove_abandoned(tx: &mut dyn Tx, user: Uuid, now: Timestamp) -> Result<bool, StoreError> {
    let Some(record) = USERS.get(&*tx, &user)?.filter(User::is_anonymous) else {
        return Ok(false);
    };
    if !FAMILIES_BY_OWNER.scan_prefix(&*tx, &user, 1)?.is_empty() {
        return Ok(false);
    }
    remove_user(tx, &record, now)?;
    Ok(true)
}

/// The clients that the rows of a page name. Each is read once.
#[derive(Default)]
struct Clients(HashMap<String, Option<Client>>);

impl Clients {
    fn find(&mut self, snapshot: &dyn Snapshot, client_id: &str) -> Result<Option<&Client>, StoreError> {
        if !self.0.contains_key(client_id) {
            let client = CLIENTS.get(snapshot, client_id)?;
            self.0.insert(client_id.to_owned(), client);
        }
        Ok(self.0.get(client_id).and_then(Option::as_ref))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lives_is_looked_at_slowly_and_what_has_expired_goes_at_once() {
        let paused = |removed, kept, more| {
            let swept = Swept { removed, kept, more };
            swept.pause(Duration::from_millis(10))
        };
        assert_eq!(paused(3, 497, true), Some(Duration::from_millis(990)));
        for (removed, kept) in [(500, 0), (250, 250), (0, 0)] {
            assert_eq!(paused(removed, kept, true), Some(Duration::ZERO));
        }
        assert_eq!(paused(250, 250, false), None);
        assert_eq!(paused(0, 500, false), None);
    }
}
