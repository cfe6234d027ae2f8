//! Says which rows a sign-in will read, so that a shared store is asked for them at once.

use uuid::Uuid;

use crate::flow::browser::PresentedSession;
use crate::store::engine::Snapshot;
use crate::store::tables::{
    CONSENTS, FACTORS, FAILED_PASSWORDS, SESSIONS, SESSIONS_BY_USER, USER_ACTIVITY, USERS,
};

/// Says that [`session::find`](super::session::find) will read this session and its user, and that the user's consent for
/// this client will be read.
pub(super) fn will_find_session(
    snapshot: &dyn Snapshot,
    cookie: Option<&PresentedSession>,
    client_id: Option<&str>,
) {
    let Some(cookie) = cookie else {
        return;
    };
    SESSIONS.will_get(snapshot, &cookie.id);
    SESSIONS.will_get_of_user(snapshot, &cookie.id, USERS.id(), "");
    if let Some(client_id) = client_id {
        SESSIONS.will_get_of_user(snapshot, &cookie.id, CONSENTS.id(), client_id);
    }
}

/// Says that a session of this user, if that is known, will be started in a sign-in at this client.
pub(super) fn will_start_session(snapshot: &dyn Snapshot, user: Option<Uuid>, client_id: Option<&str>) {
    let Some(user) = user else {
        return;
    };
    USERS.will_get(snapshot, &user);
    FAILED_PASSWORDS.will_get(snapshot, &user);
    USER_ACTIVITY.will_get(snapshot, &user);
    FACTORS.will_scan_prefix(snapshot, &user);
    SESSIONS_BY_USER.will_scan_prefix(snapshot, &user);
    if let Some(client_id) = client_id {
        CONSENTS.will_get(snapshot, &(user, client_id.to_owned()));
    }
}
