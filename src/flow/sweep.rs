//! What has expired is removed, a bounded number of rows at a time.
//!
//! Identifiers are time-ordered, so what may be removed lies at the old end of each table. A row there
//! that still lives (a family that is refreshed, a session that was renewed) is passed over; the next
//! round goes on behind it and begins anew at the end.

use std::ops::Bound;
use std::time::Duration;

use uuid::Uuid;

use super::admin::user::remove_in;
use super::sessions::forget_family;
use super::{Core, Failure};
use crate::audit::{self, Event};
use crate::clock::Timestamp;
use crate::identity::{Factor, User};
use crate::oauth::access_token::hour_of;
use crate::oauth::policy::Policy;
use crate::oauth::refresh::RefreshFamily;
use crate::store::StoreError;
use crate::store::backend::Tx;
use crate::store::record::Record;
use crate::store::table::{Key, Table};
use crate::store::tables::{
    CODES, FAMILIES, FAMILIES_BY_OWNER, LOGIN_TRANSACTIONS, REVOKED_TOKENS, SESSIONS, SESSIONS_BY_USER,
    USED_ASSERTIONS, USERS,
};

/// The most rows of one table that one round looks at.
const ROUND: usize = 500;

/// A redeemed code is kept this long after it expired, so that its replay is recognised and revokes: unless there is
/// nothing left to revoke. The families of one user at one client are bounded, and so are the codes.
const CODE_MEMORY: Duration = Duration::from_hours(24);

/// Where the next round begins, in the tables whose old rows may still live.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    codes: Option<Uuid>,
    families: Option<Uuid>,
    sessions: Option<Uuid>,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Rows removed.
    pub removed: usize,
    /// Whether some table may have more to look at.
    pub more: bool,
}

/// Sweeps one round. The cursor is only in memory: after a restart the first round begins at the old end.
pub async fn sweep(core: &Core, cursor: &mut Cursor, now: Timestamp) -> Result<Swept, Failure> {
    let policy = core.policy.clone();
    let begin = *cursor;
    let (swept, next, users) = core
        .store
        .make_room("sweep", move |tx| {
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
            let next = Cursor {
                codes: codes(tx, begin.codes, &policy, now, &mut swept)?,
                families: families(tx, begin.families, &policy, now, (&mut swept, &mut users))?,
                sessions: sessions(tx, begin.sessions, &policy, now, &mut swept)?,
            };
            Ok((swept, next, users))
        })
        .await?;
    for user in users {
        audit::record(&Event::AnonymousUserRemoved { user });
    }
    *cursor = next;
    Ok(swept)
}

fn drop_older<R: Record>(
    tx: &mut dyn Tx,
    table: Table<Uuid, R>,
    before: Timestamp,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let old = table.scan(&*tx, ..before.first_id(), ROUND)?;
    swept.more |= old.len() == ROUND;
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
    let old = table.scan(&*tx, ..first_kept, ROUND)?;
    swept.more |= old.len() == ROUND;
    for (key, ()) in old {
        table.remove(tx, &key)?;
        swept.removed += 1;
    }
    Ok(())
}

/// Some rows of a table, and where to go on after them.
type Page<R> = (Vec<(Uuid, R)>, Option<Uuid>);

/// The rows of a table that are old enough to be looked at, from `begin` on, and where to go on.
fn candidates<R: Record>(
    tx: &dyn Tx,
    table: Table<Uuid, R>,
    begin: Option<Uuid>,
    before: Timestamp,
    swept: &mut Swept,
) -> Result<Page<R>, StoreError> {
    let end = before.first_id();
    let from = match begin {
        Some(id) if id < end => Bound::Excluded(id),
        _ => Bound::Unbounded,
    };
    let rows = table.scan(tx, (from, Bound::Excluded(end)), ROUND)?;
    let is_full = rows.len() == ROUND;
    swept.more |= is_full;
    let next = if is_full {
        rows.last().map(|(id, _)| *id)
    } else {
        None
    };
    Ok((rows, next))
}

/// A code that was never redeemed has nothing to remember.
fn codes(
    tx: &mut dyn Tx,
    begin: Option<Uuid>,
    policy: &Policy,
    now: Timestamp,
    swept: &mut Swept,
) -> Result<Option<Uuid>, StoreError> {
    let (rows, next) = candidates(&*tx, CODES, begin, now - policy.lifetimes.code, swept)?;
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
        }
    }
    Ok(next)
}

/// How long the row of a family that has ended is kept: until its access tokens have expired too, since one of a family
/// that nobody revoked is good to its own end, and as long as the anonymous user who lives by it.
fn memory(family: &RefreshFamily, policy: &Policy) -> Duration {
    let access_token = policy.lifetimes.access_token;
    match family.authorization.factor {
        Factor::Password | Factor::Federated { .. } => access_token,
        Factor::Anonymous => access_token.max(policy.anonymous_retention),
    }
}

/// Removes families, and with the last one the anonymous user who has no other way in. Their ids go to
/// `users`.
fn families(
    tx: &mut dyn Tx,
    begin: Option<Uuid>,
    policy: &Policy,
    now: Timestamp,
    (swept, users): (&mut Swept, &mut Vec<Uuid>),
) -> Result<Option<Uuid>, StoreError> {
    let before = now - policy.lifetimes.access_token;
    let (rows, next) = candidates(&*tx, FAMILIES, begin, before, swept)?;
    for (id, family) in rows {
        let ends = family
            .revoked_at
            .map_or(family.expires_at, |at| at.min(family.expires_at));
        if now >= ends + memory(&family, policy) {
            let user = family.authorization.user;
            forget_family(tx, id, &family)?;
            swept.removed += 1;
            if family.authorization.factor == Factor::Anonymous && remove_abandoned(tx, user, now)? {
                swept.removed += 1;
                users.push(user);
            }
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
    begin: Option<Uuid>,
    policy: &Policy,
    now: Timestamp,
    swept: &mut Swept,
) -> Result<Option<Uuid>, StoreError> {
    let lifetimes = policy.lifetimes.session;
    let shortest = lifetimes.idle.min(lifetimes.absolute);
    let (rows, next) = candidates(&*tx, SESSIONS, begin, now - shortest, swept)?;
    for (id, session) in rows {
        // Signing out has to find it as long as there is a grant that ends with it.
        let is_bound = || Ok(!FAMILIES_BY_OWNER.scan_prefix(&*tx, &id, 1)?.is_empty());
        if session.is_over(lifetimes, now) && !is_bound()? {
            SESSIONS.remove(tx, &id)?;
            SESSIONS_BY_USER.remove(tx, &(session.user, id))?;
            swept.removed += 1;
        }
    }
    Ok(next)
}
