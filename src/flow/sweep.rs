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
use super::logout_notice::is_outdated;
use super::unused_clients::remove_unused_clients;
use super::users::remove_user;
use super::{Core, Failure, device};
use crate::clock::Timestamp;
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
    SESSION_CLIENTS, SESSIONS, SESSIONS_BY_USER, USED_ASSERTIONS, USERS,
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

/// The tables whose old rows may still be alive.
#[derive(Clone, Copy, Debug, Default)]
enum WalkedTable {
    #[default]
    Codes,
    Families,
    Sessions,
    Consents,
    SessionClients,
}

/// How far a table has been walked.
#[derive(Clone, Debug)]
struct WalkPosition {
    /// The row that was read last. Of a consent or a client of a session, its user.
    last: Uuid,
    /// The session of a client of a session; otherwise nil.
    session: Uuid,
    /// The client of a consent or of a session; otherwise empty.
    client_id: String,
    /// The walk ends before this row.
    end: Uuid,
}

/// How far a round has come.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    table: WalkedTable,
    position: Option<WalkPosition>,
}

impl Cursor {
    fn is_at_start(&self) -> bool {
        matches!(self.table, WalkedTable::Codes) && self.position.is_none()
    }

    /// Where the round continues after a page that ended at `position`. `None` if it is over.
    fn after(&self, position: Option<WalkPosition>) -> Option<Self> {
        let table = match (&position, self.table) {
            (Some(_), table) => table,
            (None, WalkedTable::Codes) => WalkedTable::Families,
            (None, WalkedTable::Families) => WalkedTable::Sessions,
            (None, WalkedTable::Sessions) => WalkedTable::Consents,
            (None, WalkedTable::Consents) => WalkedTable::SessionClients,
            (None, WalkedTable::SessionClients) => return None,
        };
        Some(Self { table, position })
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
    if cursor.is_at_start() {
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

/// A page that was swept.
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
    let mut page = Page {
        next: cursor.clone(),
        ..Page::default()
    };
    let first_login = (now - policy.lifetimes.login_transaction).first_id();
    remove_before(tx, LOGIN_RECORDS, first_login, page_rows, &mut page.swept)?;
    let hour = hour_of(now);
    remove_before(
        tx,
        REVOKED_TOKENS,
        (hour, Uuid::nil()),
        page_rows,
        &mut page.swept,
    )?;
    remove_before(tx, USED_ASSERTIONS, (hour, [0; 32]), page_rows, &mut page.swept)?;
    remove_before(
        tx,
        ONE_TIME_LINKS,
        (hour, Uuid::nil()),
        page_rows,
        &mut page.swept,
    )?;
    let removed = device::forget_expired(tx, page_rows, policy, now)?;
    page.swept.removed += removed;
    page.swept.more |= removed == page_rows;
    // These rows may be a flood, and the pauses of the walk are too long for one. So the walk waits until they are
    // gone.
    if page.swept.more {
        return Ok(page);
    }
    let from = cursor.position.as_ref();
    let position = match cursor.table {
        WalkedTable::Codes => sweep_codes(tx, from, page_rows, policy, now, &mut page.swept)?,
        WalkedTable::Families => sweep_families(tx, from, page_rows, policy, now, &mut page)?,
        WalkedTable::Sessions => sweep_sessions(tx, from, page_rows, policy, now, &mut page.swept)?,
        WalkedTable::Consents => sweep_consents(tx, from, page_rows, &mut page.swept)?,
        WalkedTable::SessionClients => {
            sweep_session_clients(tx, from, page_rows, policy, now, &mut page.swept)?
        }
    };
    let next = cursor.after(position);
    page.swept.more = next.is_some();
    page.next = next.unwrap_or_default();
    Ok(page)
}

/// Removes the rows before `first_kept`, all of which have expired.
fn remove_before<K: Key, R: Record>(
    tx: &mut dyn Tx,
    table: Table<K, R>,
    first_kept: K,
    page_rows: usize,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let old = table.scan(&*tx, ..first_kept, page_rows)?;
    swept.more |= old.len() == page_rows;
    swept.removed += old.len();
    for (key, _) in old {
        table.remove(tx, &key)?;
    }
    Ok(())
}

/// Rows that are old enough to be read, and where the walk continues after them.
struct Candidates<R> {
    rows: Vec<(Uuid, R)>,
    next: Option<WalkPosition>,
}

/// The next rows of a walk. A walk that begins covers the rows that were made before `before`.
fn candidates<R: Record>(
    tx: &dyn Tx,
    table: Table<Uuid, R>,
    position: Option<&WalkPosition>,
    page_rows: usize,
    before: Timestamp,
) -> Result<Candidates<R>, StoreError> {
    let (from, end) = match position {
        Some(position) => (Bound::Excluded(position.last), position.end),
        None => (Bound::Unbounded, before.first_id()),
    };
    let rows = table.scan(tx, (from, Bound::Excluded(end)), page_rows)?;
    let last = rows.last().filter(|_| rows.len() == page_rows);
    let next = last.map(|(last, _)| WalkPosition {
        last: *last,
        session: Uuid::nil(),
        client_id: String::new(),
        end,
    });
    Ok(Candidates { rows, next })
}

fn sweep_codes(
    tx: &mut dyn Tx,
    position: Option<&WalkPosition>,
    page_rows: usize,
    policy: &Policy,
    now: Timestamp,
    swept: &mut Swept,
) -> Result<Option<WalkPosition>, StoreError> {
    let candidates = candidates(&*tx, CODES, position, page_rows, now - policy.lifetimes.code)?;
    let mut clients = Clients::default();
    for (id, code) in candidates.rows {
        let client = clients.find(&*tx, &code.authorization.client_id)?;
        let family = match code.redeemed {
            Some(family) if !has_ended(&*tx, client, &code.authorization)? => FAMILIES.get(&*tx, &family)?,
            Some(_) | None => None,
        };
        let retention = match family {
            Some(family) if family.revoked_at.is_none() => REDEEMED_CODE_RETENTION,
            Some(_) | None => Duration::ZERO,
        };
        if now >= code.expires_at + retention {
            forget_code(tx, id, &code)?;
            swept.removed += 1;
        } else {
            swept.kept += 1;
        }
    }
    Ok(candidates.next)
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

/// Removes families. An anonymous user without another way to sign in is removed with the last family.
fn sweep_families(
    tx: &mut dyn Tx,
    position: Option<&WalkPosition>,
    page_rows: usize,
    policy: &Policy,
    now: Timestamp,
    page: &mut Page,
) -> Result<Option<WalkPosition>, StoreError> {
    let before = now - policy.lifetimes.access_token;
    let candidates = candidates(&*tx, FAMILIES, position, page_rows, before)?;
    let mut clients = Clients::default();
    for (id, mut family) in candidates.rows {
        let client = clients.find(&*tx, &family.authorization.client_id)?;
        let has_ended = family.revoked_at.is_none() && has_ended(&*tx, client, &family.authorization)?;
        let is_anonymous = family.authorization.factor == AuthenticationMethod::Anonymous;
        if has_ended && is_anonymous {
            // The user is kept for a while, from now on.
            family.revoke(now);
            FAMILIES.put(tx, &id, &family)?;
            page.swept.kept += 1;
            continue;
        }
        let ended_at = family
            .revoked_at
            .map_or(family.expires_at, |at| at.min(family.expires_at));
        if !has_ended && now < ended_at + family_retention(&family, policy) {
            page.swept.kept += 1;
            continue;
        }
        let user = family.authorization.user;
        forget_family(tx, id, &family)?;
        page.swept.removed += 1;
        if is_anonymous && remove_abandoned(tx, user, now)? {
            page.swept.removed += 1;
            page.removed_users.push(user);
        }
    }
    Ok(candidates.next)
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

fn sweep_sessions(
    tx: &mut dyn Tx,
    position: Option<&WalkPosition>,
    page_rows: usize,
    policy: &Policy,
    now: Timestamp,
    swept: &mut Swept,
) -> Result<Option<WalkPosition>, StoreError> {
    let lifetimes = policy.lifetimes.session;
    let shortest = lifetimes.idle.min(lifetimes.absolute);
    let candidates = candidates(&*tx, SESSIONS, position, page_rows, now - shortest)?;
    for (id, session) in candidates.rows {
        if has_lost_provider(&*tx, &session.factor)? {
            session::end(tx, id, &session, now)?;
            swept.removed += 1;
            continue;
        }
        let is_over = session.is_over(lifetimes, now);
        if is_over && FAMILIES_BY_OWNER.scan_prefix(&*tx, &id, 1)?.is_empty() {
            SESSIONS.remove(tx, &id)?;
            SESSIONS_BY_USER.remove(tx, &(session.user, id))?;
            swept.removed += 1;
            continue;
        }
        // A sign-out must find the session as long as a grant ends with it. What it tells of the browser is not
        // needed.
        if is_over && session.has_browser_data() {
            SESSIONS.put(tx, &id, &session.without_browser_data())?;
        }
        swept.kept += 1;
    }
    Ok(candidates.next)
}

/// Removes the consents to clients that were removed.
fn sweep_consents(
    tx: &mut dyn Tx,
    position: Option<&WalkPosition>,
    page_rows: usize,
    swept: &mut Swept,
) -> Result<Option<WalkPosition>, StoreError> {
    let from = position.map_or(Bound::Unbounded, |position| {
        Bound::Excluded((position.last, position.client_id.clone()))
    });
    let rows = CONSENTS.scan(&*tx, (from, Bound::Unbounded), page_rows)?;
    let last = rows.last().filter(|_| rows.len() == page_rows);
    let next = last.map(|((user, client_id), _)| WalkPosition {
        last: *user,
        session: Uuid::nil(),
        client_id: client_id.clone(),
        end: Uuid::max(),
    });
    let mut clients = Clients::default();
    for (key, consent) in rows {
        let client = clients.find(&*tx, &key.1)?;
        if client.is_some_and(|client| client.owns_consent(&consent)) {
            swept.kept += 1;
        } else {
            CONSENTS.remove(tx, &key)?;
            swept.removed += 1;
        }
    }
    Ok(next)
}

/// Removes the clients of sessions that ended some days ago or expired long ago.
fn sweep_session_clients(
    tx: &mut dyn Tx,
    position: Option<&WalkPosition>,
    page_rows: usize,
    policy: &Policy,
    now: Timestamp,
    swept: &mut Swept,
) -> Result<Option<WalkPosition>, StoreError> {
    let from = position.map_or(Bound::Unbounded, |position| {
        Bound::Excluded((position.last, (position.session, position.client_id.clone())))
    });
    let rows = SESSION_CLIENTS.scan(&*tx, (from, Bound::Unbounded), page_rows)?;
    let last = rows.last().filter(|_| rows.len() == page_rows);
    let next = last.map(|((user, (session, client_id)), _)| WalkPosition {
        last: *user,
        session: *session,
        client_id: client_id.clone(),
        end: Uuid::max(),
    });
    for (key, row) in rows {
        if is_outdated(&*tx, &key, &row, policy.lifetimes.session.absolute, now)? {
            SESSION_CLIENTS.remove(tx, &key)?;
            swept.removed += 1;
        } else {
            swept.kept += 1;
        }
    }
    Ok(next)
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
