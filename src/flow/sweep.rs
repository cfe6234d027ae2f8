//! What has expired is removed, a bounded number of rows at a time.
//!
//! Identifiers are time-ordered, so what may be removed lies at the old end of each table. What may still live there (a
//! family that is refreshed, a session that was renewed) is walked, one table after the other, from the old end to
//! where it ended when the walk began: however many rows come meanwhile, a round has an end, and the next one looks at
//! everything again. There is no index of expiry times, which every refresh would have to write.
//!
//! A million families take some seconds to look at, and leave nothing else in the cache. So a round takes its time
//! ([`Swept::pause`]): it goes by in a moment where there is little, and takes minutes where there are a million rows.

use std::ops::Bound;
use std::time::Duration;

use uuid::Uuid;

use super::login::session::forget_family;
use super::{Core, Failure};
use crate::admin::user::remove_in;
use crate::clock::Timestamp;
use crate::identity::{AuthenticationMethod, User};
use crate::oauth::access_token::hour_of;
use crate::oauth::policy::Policy;
use crate::oauth::refresh::RefreshFamily;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, TableId, Tx, Visit};
use crate::store::record::Record;
use crate::store::table::{Key, Table};
use crate::store::tables::{
    CODES, FAMILIES, FAMILIES_BY_OWNER, LOGIN_TRANSACTIONS, REVOKED_TOKENS, SESSIONS, SESSIONS_BY_USER,
    USED_ASSERTIONS, USERS,
};

/// The most rows of a table that are looked at together.
const PAGE: usize = 500;

/// One part in so many of the time is spent on looking at what lives.
const SHARE: u32 = 100;

/// A redeemed code is kept this long after it expired, so that its replay is recognised and revokes: unless there is
/// nothing left to revoke. The families of one user at one client are bounded, and so are the codes.
const CODE_MEMORY: Duration = Duration::from_hours(24);

/// The tables whose old rows may still live.
#[derive(Clone, Copy, Debug, Default)]
enum Walked {
    #[default]
    Codes,
    Families,
    Sessions,
}

/// How far a table has been walked: the row that was looked at last, and what is before which the walk ends.
type Place = Option<(Uuid, Uuid)>;

/// How far a round has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    table: Walked,
    place: Place,
}

impl Cursor {
    /// Where the round goes on after a page; none when it is over.
    fn after(self, place: Place) -> Option<Self> {
        let table = match (place, self.table) {
            (Some(_), table) => table,
            (None, Walked::Codes) => Walked::Families,
            (None, Walked::Families) => Walked::Sessions,
            (None, Walked::Sessions) => return None,
        };
        Some(Self { table, place })
    }
}

/// What came of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Rows removed.
    pub removed: usize,
    /// Rows looked at that live.
    pub kept: usize,
    /// Whether the round is not over yet.
    pub more: bool,
}

impl Swept {
    /// How long to wait before the round goes on, after a page that took so long; none when the round is over. What has
    /// mostly expired is removed as fast as it can be, so that no flood of requests outgrows it.
    pub fn pause(&self, took: Duration) -> Option<Duration> {
        self.more.then(|| {
            if self.kept > self.removed {
                took.saturating_mul(SHARE - 1)
            } else {
                Duration::ZERO
            }
        })
    }
}

/// Sweeps a page; the round goes on with the next one. The cursor is only in memory: after a restart a round begins.
///
/// Nothing is written, and no write waits, where there is nothing to remove.
pub async fn sweep(core: &Core, cursor: &mut Cursor, now: Timestamp) -> Result<Swept, Failure> {
    let (policy, from) = (core.policy.clone(), *cursor);
    let work = move |tx: &mut dyn Tx| page(tx, from, &policy, now);
    let (store, look) = (core.store.clone(), work.clone());
    let looked = tokio::task::spawn_blocking(move || {
        store.read(|snapshot| {
            let mut trial = Trial {
                snapshot,
                writes: false,
            };
            let seen = look(&mut trial)?;
            Ok((!trial.writes).then_some(seen))
        })
    });
    let (swept, next, users) = match looked.await.unwrap_or(Err(StoreError::Panicked("sweep")))? {
        Some(seen) => seen,
        None => core.store.make_room("sweep", work).await?,
    };
    for user in users {
        audit::record(&Event::AnonymousUserRemoved { user });
    }
    *cursor = next;
    Ok(swept)
}

/// A transaction that writes nothing and notices whether it would.
struct Trial<'a> {
    snapshot: &'a dyn Snapshot,
    writes: bool,
}

impl Snapshot for Trial<'_> {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.snapshot.get(table, key)
    }

    fn range(
        &self,
        table: TableId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.snapshot.range(table, from, to, visit)
    }
}

impl Tx for Trial<'_> {
    fn put(&mut self, _: TableId, _: &[u8], _: &[u8]) -> Result<(), StoreError> {
        self.writes = true;
        Ok(())
    }

    fn remove(&mut self, _: TableId, _: &[u8]) -> Result<bool, StoreError> {
        self.writes = true;
        Ok(true)
    }
}

/// What came of a page, where the next one begins, and the users that were removed.
type Page = (Swept, Cursor, Vec<Uuid>);

fn page(tx: &mut dyn Tx, cursor: Cursor, policy: &Policy, now: Timestamp) -> Result<Page, StoreError> {
    let mut swept = Swept::default();
    let mut users = Vec::new();
    drop_older(
        tx,
        LOGIN_TRANSACTIONS,
        now - policy.lifetimes.login_transaction,
        &mut swept,
    )?;
    let hour = hour_of(now);
    drop_markers(tx, REVOKED_TOKENS, (hour, Uuid::nil()), &mut swept)?;
    drop_markers(tx, USED_ASSERTIONS, (hour, [0; 32]), &mut swept)?;
    // The walk waits for what goes as a whole: that may be a flood, and the pauses of the walk are too long for it.
    if swept.more {
        return Ok((swept, cursor, users));
    }
    let place = match cursor.table {
        Walked::Codes => codes(tx, cursor.place, policy, now, &mut swept)?,
        Walked::Families => families(tx, cursor.place, policy, now, (&mut swept, &mut users))?,
        Walked::Sessions => sessions(tx, cursor.place, policy, now, &mut swept)?,
    };
    let next = cursor.after(place);
    swept.more = next.is_some();
    Ok((swept, next.unwrap_or_default(), users))
}

fn drop_older<R: Record>(
    tx: &mut dyn Tx,
    table: Table<Uuid, R>,
    before: Timestamp,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let old = table.scan(&*tx, ..before.first_id(), PAGE)?;
    swept.more |= old.len() == PAGE;
    for (id, _) in old {
        table.remove(tx, &id)?;
        swept.removed += 1;
    }
    Ok(())
}

/// Drops what was only kept for an hour that is over.
fn drop_markers<K: Key>(
    tx: &mut dyn Tx,
    table: Table<K, ()>,
    first_kept: K,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let old = table.scan(&*tx, ..first_kept, PAGE)?;
    swept.more |= old.len() == PAGE;
    for (key, ()) in old {
        table.remove(tx, &key)?;
        swept.removed += 1;
    }
    Ok(())
}

/// Some rows of a table that are old enough to be looked at, and where to go on after them.
type Candidates<R> = (Vec<(Uuid, R)>, Place);

/// The rows of a table from `place` on; where the walk begins, those that were made before `before`.
fn candidates<R: Record>(
    tx: &dyn Tx,
    table: Table<Uuid, R>,
    place: Place,
    before: Timestamp,
) -> Result<Candidates<R>, StoreError> {
    let (from, end) = match place {
        Some((seen, end)) => (Bound::Excluded(seen), end),
        None => (Bound::Unbounded, before.first_id()),
    };
    let rows = table.scan(tx, (from, Bound::Excluded(end)), PAGE)?;
    let last = rows.last().filter(|_| rows.len() == PAGE);
    let next = last.map(|(id, _)| (*id, end));
    Ok((rows, next))
}

/// A code that was never redeemed has nothing to remember.
fn codes(
    tx: &mut dyn Tx,
    place: Place,
    policy: &Policy,
    now: Timestamp,
    swept: &mut Swept,
) -> Result<Place, StoreError> {
    let (rows, next) = candidates(&*tx, CODES, place, now - policy.lifetimes.code)?;
    for (id, code) in rows {
        let brought = match code.redeemed {
            Some(family) => FAMILIES.get(&*tx, &family)?,
            None => None,
        };
        let kept_for = match brought {
            Some(family) if family.revoked_at.is_none() => CODE_MEMORY,
            Some(_) | None => Duration::ZERO,
        };
        if now >= code.expires_at + kept_for {
            CODES.remove(tx, &id)?;
            swept.removed += 1;
        } else {
            swept.kept += 1;
        }
    }
    Ok(next)
}

/// How long the row of a family that has ended is kept: until its access tokens have expired too, since one of a family
/// that nobody revoked is good to its own end, and as long as the anonymous user who lives by it.
fn memory(family: &RefreshFamily, policy: &Policy) -> Duration {
    let access_token = policy.lifetimes.access_token;
    match family.authorization.factor {
        AuthenticationMethod::Password | AuthenticationMethod::Federated { .. } => access_token,
        AuthenticationMethod::Anonymous => access_token.max(policy.anonymous_retention),
    }
}

/// Removes families, and with the last one the anonymous user who has no other way in. Their ids go to
/// `users`.
fn families(
    tx: &mut dyn Tx,
    place: Place,
    policy: &Policy,
    now: Timestamp,
    (swept, users): (&mut Swept, &mut Vec<Uuid>),
) -> Result<Place, StoreError> {
    let before = now - policy.lifetimes.access_token;
    let (rows, next) = candidates(&*tx, FAMILIES, place, before)?;
    for (id, family) in rows {
        let ends = family
            .revoked_at
            .map_or(family.expires_at, |at| at.min(family.expires_at));
        if now >= ends + memory(&family, policy) {
            let user = family.authorization.user;
            forget_family(tx, id, &family)?;
            swept.removed += 1;
            if family.authorization.factor == AuthenticationMethod::Anonymous
                && remove_abandoned(tx, user, now)?
            {
                swept.removed += 1;
                users.push(user);
            }
        } else {
            swept.kept += 1;
        }
    }
    Ok(next)
}

/// Removes the user if it is an anonymous one without a refresh family.
fn remove_abandoned(tx: &mut dyn Tx, user: Uuid, now: Timestamp) -> Result<bool, StoreError> {
    let Some(record) = USERS.get(&*tx, &user)?.filter(User::is_anonymous) else {
        return Ok(false);
    };
    if !FAMILIES_BY_OWNER.scan_prefix(&*tx, &user, 1)?.is_empty() {
        return Ok(false);
    }
    remove_in(tx, &record, now)?;
    Ok(true)
}

fn sessions(
    tx: &mut dyn Tx,
    place: Place,
    policy: &Policy,
    now: Timestamp,
    swept: &mut Swept,
) -> Result<Place, StoreError> {
    let lifetimes = policy.lifetimes.session;
    let shortest = lifetimes.idle.min(lifetimes.absolute);
    let (rows, next) = candidates(&*tx, SESSIONS, place, now - shortest)?;
    for (id, session) in rows {
        let is_over = session.is_over(lifetimes, now);
        if is_over && FAMILIES_BY_OWNER.scan_prefix(&*tx, &id, 1)?.is_empty() {
            SESSIONS.remove(tx, &id)?;
            SESSIONS_BY_USER.remove(tx, &(session.user, id))?;
            swept.removed += 1;
            continue;
        }
        // Signing out has to find it as long as there is a grant that ends with it, and needs no more of it.
        if is_over && session.has_browser_data() {
            SESSIONS.put(tx, &id, &session.without_browser_data())?;
        }
        swept.kept += 1;
    }
    Ok(next)
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
