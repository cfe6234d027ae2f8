//! When users signed in last and were active last, by day.
//!
//! A refresh writes nothing for this. What a user did last is in the user's sessions and refresh families, which are
//! written anyway. If one of them is removed, its day is stored in the row of the user. A sign-in writes that row,
//! once a day. The record of the user is longer, and other changes write it too, so the row is not a part of it.

use uuid::Uuid;

use crate::clock::Timestamp;
use crate::identity::Session;
use crate::oauth::refresh::RefreshFamily;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::records::UserActivity;
use crate::store::tables::{FAMILIES, FAMILIES_BY_OWNER, SESSIONS, SESSIONS_BY_USER, USER_ACTIVITY};

/// When the user was last seen. Reads the sessions and refresh families of the user.
pub fn of_user(snapshot: &dyn Snapshot, user: Uuid) -> Result<UserActivity, StoreError> {
    let mut activity = USER_ACTIVITY.get(snapshot, &user)?.unwrap_or_default();
    for ((_, id), ()) in SESSIONS_BY_USER.scan_prefix(snapshot, &user, usize::MAX)? {
        if let Some(session) = SESSIONS.get(snapshot, &id)? {
            activity = activity.or_later(of_session(&session));
        }
    }
    for ((_, (_, id)), ()) in FAMILIES_BY_OWNER.scan_prefix(snapshot, &user, usize::MAX)? {
        if let Some(family) = FAMILIES.get(snapshot, &id)? {
            activity = activity.or_later(of_family(&family));
        }
    }
    Ok(activity)
}

fn of_session(session: &Session) -> UserActivity {
    UserActivity {
        last_sign_in: Some(session.created_at.day()),
        last_used: Some(session.last_used_at.day()),
    }
}

/// A family without a session did not begin with a sign-in: the client exchanged a token, or the user is anonymous.
fn of_family(family: &RefreshFamily) -> UserActivity {
    let authorization = &family.authorization;
    let signed_in_at = authorization.auth_time.unwrap_or(family.created_at);
    UserActivity {
        last_sign_in: authorization.session.map(|_| signed_in_at.day()),
        last_used: Some(family.last_used_at.day()),
    }
}

/// Records a sign-in. A day that is stored may lie ahead, if the clock was wrong.
pub(super) fn record_sign_in(tx: &mut dyn Tx, user: Uuid, now: Timestamp) -> Result<(), StoreError> {
    let today = UserActivity {
        last_sign_in: Some(now.day()),
        last_used: Some(now.day()),
    };
    if USER_ACTIVITY.get(&*tx, &user)? == Some(today) {
        return Ok(());
    }
    USER_ACTIVITY.put(tx, &user, &today)
}

/// Keeps what a session says that is removed.
pub(super) fn carry_over_session(tx: &mut dyn Tx, session: &Session) -> Result<(), StoreError> {
    carry_over(tx, session.user, of_session(session))
}

/// Keeps what a refresh family says that is removed.
pub(super) fn carry_over_family(tx: &mut dyn Tx, family: &RefreshFamily) -> Result<(), StoreError> {
    carry_over(tx, family.authorization.user, of_family(family))
}

fn carry_over(tx: &mut dyn Tx, user: Uuid, seen: UserActivity) -> Result<(), StoreError> {
    let before = USER_ACTIVITY.get(&*tx, &user)?.unwrap_or_default();
    let after = before.or_later(seen);
    if after == before {
        return Ok(());
    }
    USER_ACTIVITY.put(tx, &user, &after)
}
