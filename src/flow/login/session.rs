//! Finds, starts and ends browser sessions, for the flows of signing in and out.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::expected_rows::will_find_session;
use crate::clock::Timestamp;
use crate::flow::browser::{Browser, PresentedSession};
use crate::flow::grant_policy::has_lost_provider;
use crate::flow::notice::DrawnNotice;
use crate::flow::{Core, Failure, device, grant_policy, logout_notice, user_activity};
use crate::identity::{
    AuthenticationMethod, Device, LoginName, SecondFactor, Session, SessionLifetimes, UpstreamToken, User,
};
use crate::oauth::code::{self, Authorization, AuthorizationCode};
use crate::oauth::refresh::RefreshFamily;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{Digest, Secret, SessionCookie};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{
    CODES, CODES_BY_USER, FAMILIES, FAMILIES_BY_OWNER, SESSIONS, SESSIONS_BY_USER, USERS,
};

/// The most sessions of one user.
pub const MAX_PER_USER: usize = 50;

/// A live session and its user, who is enabled.
#[derive(Clone, Debug)]
pub struct LiveSession {
    /// The session's id.
    pub id: Uuid,
    pub session: Session,
    pub user: User,
}

/// The session that a browser presents, live or not.
pub fn presented(
    snapshot: &dyn Snapshot,
    cookie: Option<&PresentedSession>,
) -> Result<Option<(Uuid, Session)>, StoreError> {
    let Some(cookie) = cookie else {
        return Ok(None);
    };
    let session = SESSIONS.get(snapshot, &cookie.id)?;
    let session = session.filter(|session| session.digest == cookie.digest);
    Ok(session.map(|session| (cookie.id, session)))
}

/// A session that neither a sign-out nor its provider has ended, expired or not.
pub fn find_unended(snapshot: &dyn Snapshot, id: Uuid) -> Result<Option<Session>, StoreError> {
    match SESSIONS.get(snapshot, &id)? {
        Some(session) if has_lost_provider(snapshot, &session.factor)? => Ok(None),
        session => Ok(session),
    }
}

/// The live session that a browser presents. A session that began at a provider lives only while the provider is in
/// service.
pub fn find(
    snapshot: &dyn Snapshot,
    cookie: Option<&PresentedSession>,
    lifetimes: SessionLifetimes,
    now: Timestamp,
) -> Result<Option<LiveSession>, StoreError> {
    will_find_session(snapshot, cookie, None);
    let Some((id, session)) = presented(snapshot, cookie)? else {
        return Ok(None);
    };
    if !session.is_live(lifetimes, now) || !grant_policy::is_in_service(snapshot, &session.factor)? {
        return Ok(None);
    }
    let Some(user) = USERS.get(snapshot, &session.user)?.filter(|user| user.enabled) else {
        return Ok(None);
    };
    Ok(Some(LiveSession { id, session, user }))
}

/// The session of this browser, live or not. After a session has expired, grants that end with a sign-out may live
/// on.
pub async fn of_browser(core: &Core, browser: &Browser) -> Result<Option<(Uuid, Session)>, Failure> {
    Ok(core
        .store
        .read(|snapshot| presented(snapshot, browser.session.as_ref()))
        .await?)
}

/// The live session of this browser.
pub async fn signed_in(
    core: &Core,
    browser: &Browser,
    now: Timestamp,
) -> Result<Option<LiveSession>, Failure> {
    let lifetimes = core.policy.lifetimes.session;
    Ok(core
        .store
        .read(|snapshot| find(snapshot, browser.session.as_ref(), lifetimes, now))
        .await?)
}

/// Records that a session was used, if the last recorded use is old enough. The session must have been read in the
/// same transaction: an older copy could restore a session that has ended since.
pub fn touch(
    tx: &mut dyn Tx,
    live: &LiveSession,
    lifetimes: SessionLifetimes,
    now: Timestamp,
) -> Result<(), StoreError> {
    if !live.session.is_due_for_touch(lifetimes, now) {
        return Ok(());
    }
    let touched = Session {
        last_used_at: now,
        ..live.session.clone()
    };
    SESSIONS.put(tx, &live.id, &touched)
}

/// How a user authenticated, as a session records it.
#[derive(Clone)]
pub(in crate::flow) struct AuthenticationEvent {
    pub(in crate::flow) factor: AuthenticationMethod,
    /// The second step, if there was one.
    pub(in crate::flow) second_factor: Option<SecondFactor>,
    /// When, if that is known.
    pub(in crate::flow) auth_time: Option<Timestamp>,
    /// Whether the user was asked to authenticate again: see [`Session::was_asked_anew`].
    pub(in crate::flow) was_asked_anew: bool,
    /// The access token of the provider that vouched for the user.
    pub(in crate::flow) upstream_token: Option<UpstreamToken>,
    /// The name that the user typed; none if the user typed none.
    pub(in crate::flow) name: Option<LoginName>,
    /// A notice that is sent when the session begins.
    pub(in crate::flow) notice: Option<DrawnNotice>,
    /// Whether the user may be offered a passkey: the browser can keep one.
    pub(in crate::flow) takes_passkey_offer: bool,
}

impl AuthenticationEvent {
    pub(in crate::flow) fn by_password(now: Timestamp) -> Self {
        Self {
            factor: AuthenticationMethod::Password,
            second_factor: None,
            auth_time: Some(now),
            was_asked_anew: false,
            upstream_token: None,
            name: None,
            notice: None,
            takes_passkey_offer: false,
        }
    }

    /// Whether the user has to choose another password before the session begins.
    pub(super) fn must_change_password(&self, user: &User) -> bool {
        user.must_change_password && self.factor == AuthenticationMethod::Password
    }
}

/// The identifier and the cookies of a session. They are drawn before the transaction, which decides whether a
/// session starts or is renewed.
pub struct DrawnSession {
    id: Uuid,
    fresh: Secret<SessionCookie>,
    renewed: Secret<SessionCookie>,
}

impl DrawnSession {
    pub fn draw(core: &Core, browser: &Browser) -> Self {
        let id = core.random.uuid_v7(core.clock.since_epoch());
        let present = browser.session.as_ref().map_or(id, |presented| presented.id);
        Self {
            id,
            fresh: Secret::generate(id.as_bytes(), &core.random),
            renewed: Secret::generate(present.as_bytes(), &core.random),
        }
    }

    /// The part that [`start`] needs.
    pub(in crate::flow) fn slot(&self) -> SessionSlot {
        SessionSlot {
            id: self.id,
            fresh: self.fresh.digest(),
            renewed: self.renewed.digest(),
        }
    }

    pub fn cookie(self, started: Uuid) -> Secret<SessionCookie> {
        if started == self.id {
            self.fresh
        } else {
            self.renewed
        }
    }
}

/// The part of a [`DrawnSession`] that a transaction needs.
#[derive(Clone, Copy)]
pub(in crate::flow) struct SessionSlot {
    id: Uuid,
    fresh: Digest<SessionCookie>,
    renewed: Digest<SessionCookie>,
}

/// A session to start: the user, the sign-in and the browser.
pub(in crate::flow) struct NewSession {
    pub(in crate::flow) user: Uuid,
    pub(in crate::flow) event: AuthenticationEvent,
    pub(in crate::flow) device: Device,
}

/// A session that was started or renewed, and the sessions that ended because of it.
pub(in crate::flow) struct SessionChange {
    pub(in crate::flow) id: Uuid,
    pub(in crate::flow) session: Session,
    pub(in crate::flow) ended: EndedSessions,
}

/// Starts a session, or renews the one that the same user has in this browser. A renewed session keeps its id, which
/// clients know as `sid`, and gets a new cookie. A session of another user ends. `previous` is the session that the
/// browser presents, live or not, read in the same transaction.
pub(in crate::flow) fn start(
    tx: &mut dyn Tx,
    previous: Option<(Uuid, Session)>,
    slot: SessionSlot,
    new: NewSession,
    lifetimes: SessionLifetimes,
    now: Timestamp,
) -> Result<SessionChange, StoreError> {
    let NewSession { user, event, device } = new;
    let mut ended = Vec::new();
    let (id, digest) = match previous {
        Some((id, previous)) if previous.user == user && !has_lost_provider(&*tx, &previous.factor)? => {
            (id, slot.renewed)
        }
        previous => {
            if let Some((id, previous)) = previous {
                end_live(tx, id, previous, now, &mut ended)?;
            }
            ended.extend(make_room(tx, user, lifetimes, now)?);
            (slot.id, slot.fresh)
        }
    };
    let session = Session {
        digest,
        user,
        auth_time: event.auth_time,
        was_asked_anew: event.was_asked_anew,
        factor: event.factor,
        second_factor: event.second_factor,
        created_at: now,
        last_used_at: now,
        device,
    };
    SESSIONS.put(tx, &id, &session)?;
    SESSIONS_BY_USER.put(tx, &(user, id), &())?;
    user_activity::record_sign_in(tx, user, now)?;
    Ok(SessionChange { id, session, ended })
}

/// Makes room for one more session of this user. At the limit, the sessions that were unused the longest end.
///
/// Without a limit, a user could have so many sessions that listing or ending them in one transaction delays other
/// requests.
fn make_room(
    tx: &mut dyn Tx,
    user: Uuid,
    lifetimes: SessionLifetimes,
    now: Timestamp,
) -> Result<EndedSessions, StoreError> {
    let ids = SESSIONS_BY_USER.scan_prefix(&*tx, &user, MAX_PER_USER)?;
    if ids.len() < MAX_PER_USER {
        return Ok(Vec::new());
    }
    // A session that is over stays for the grants bound to it, whose number is limited as well.
    let mut live = live_of(&*tx, user, lifetimes, now)?;
    live.sort_by_key(|(id, session)| (session.last_used_at, *id));
    let surplus = (live.len() + 1).saturating_sub(MAX_PER_USER);
    live.truncate(surplus);
    for (id, session) in &live {
        end(tx, *id, session, now)?;
    }
    Ok(live)
}

/// Sessions that ended in a transaction.
pub type EndedSessions = Vec<(Uuid, Session)>;

/// Records in the audit log which live sessions ended, after the commit. Wakes the sender of logout notices.
pub fn record_ended(core: &Core, ended: EndedSessions, now: Timestamp) {
    core.logout_queued.notify_one();
    let lifetimes = core.policy.lifetimes.session;
    for (id, session) in ended {
        if session.is_live(lifetimes, now) {
            audit::record(&Event::SignedOut {
                user: session.user,
                session: id,
            });
        }
    }
}

/// Ends a session and the refresh families bound to it, and queues notices to its clients.
pub fn end(tx: &mut dyn Tx, id: Uuid, session: &Session, now: Timestamp) -> Result<(), StoreError> {
    forget(tx, id, session)?;
    logout_notice::queue_of_session(tx, session.user, id, now)?;
    end_families(tx, id, now)
}

/// Removes a session and its index row.
pub fn forget(tx: &mut dyn Tx, id: Uuid, session: &Session) -> Result<(), StoreError> {
    SESSIONS.remove(tx, &id)?;
    SESSIONS_BY_USER.remove(tx, &(session.user, id))?;
    user_activity::carry_over_session(tx, session)
}

/// The same as [`end`] for a session that is added to `ended`, unless it had ended with its provider.
pub fn end_live(
    tx: &mut dyn Tx,
    id: Uuid,
    session: Session,
    now: Timestamp,
    ended: &mut EndedSessions,
) -> Result<(), StoreError> {
    end(tx, id, &session, now)?;
    if !has_lost_provider(&*tx, &session.factor)? {
        ended.push((id, session));
    }
    Ok(())
}

/// The live sessions of a user, in the order in which they began.
pub fn live_of(
    snapshot: &dyn Snapshot,
    user: Uuid,
    lifetimes: SessionLifetimes,
    now: Timestamp,
) -> Result<Vec<(Uuid, Session)>, StoreError> {
    let mut found = Vec::new();
    for ((_, id), ()) in SESSIONS_BY_USER.scan_prefix(snapshot, &user, usize::MAX)? {
        if let Some(session) = find_unended(snapshot, id)?
            && session.is_live(lifetimes, now)
        {
            found.push((id, session));
        }
    }
    Ok(found)
}

/// Ends all sessions of a user but one, live or not, with the refresh families bound to them. Clients of sessions that
/// have expired are told too.
pub fn end_all(
    tx: &mut dyn Tx,
    user: Uuid,
    except: Option<Uuid>,
    now: Timestamp,
) -> Result<EndedSessions, StoreError> {
    let mut ended = Vec::new();
    for ((_, id), ()) in SESSIONS_BY_USER.scan_prefix(&*tx, &user, usize::MAX)? {
        if Some(id) == except {
            continue;
        }
        match SESSIONS.get(&*tx, &id)? {
            Some(session) => end_live(tx, id, session, now, &mut ended)?,
            None => {
                SESSIONS_BY_USER.remove(tx, &(user, id))?;
            }
        }
    }
    logout_notice::queue_of_user(tx, user, except, now)?;
    Ok(ended)
}

/// Ends the refresh families bound to a session, or all of a user with the device codes that the user has allowed. The session may have been removed long ago.
pub fn end_families(tx: &mut dyn Tx, owner: Uuid, now: Timestamp) -> Result<(), StoreError> {
    for ((_, (_, id)), ()) in FAMILIES_BY_OWNER.scan_prefix(&*tx, &owner, usize::MAX)? {
        end_family(tx, id, now)?;
    }
    device::forget_allowed(tx, owner, |_| true).map(|_| ())
}

/// Ends the refresh families of a user that began in this session, those with offline access too.
pub fn end_offline(tx: &mut dyn Tx, user: Uuid, session: Uuid, now: Timestamp) -> Result<(), StoreError> {
    for ((_, (_, id)), ()) in FAMILIES_BY_OWNER.scan_prefix(&*tx, &user, usize::MAX)? {
        let family = FAMILIES.get(&*tx, &id)?;
        if family.is_some_and(|family| family.authorization.session == Some(session)) {
            end_family(tx, id, now)?;
        }
    }
    Ok(())
}

/// Ends the sessions and refresh families of a user that began at one of these providers, and removes their codes. If
/// the user has since renewed the session with a password, such a code would otherwise remain.
pub fn end_federated(
    tx: &mut dyn Tx,
    user: Uuid,
    providers: &BTreeSet<String>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let is_from =
        |factor: &AuthenticationMethod| factor.provider().is_some_and(|from| providers.contains(from));
    for ((_, id), ()) in SESSIONS_BY_USER.scan_prefix(&*tx, &user, usize::MAX)? {
        if let Some(session) = SESSIONS.get(&*tx, &id)?
            && is_from(&session.factor)
        {
            end(tx, id, &session, now)?;
        }
    }
    for ((_, (_, id)), ()) in FAMILIES_BY_OWNER.scan_prefix(&*tx, &user, usize::MAX)? {
        let family = FAMILIES.get(&*tx, &id)?;
        if family.is_some_and(|family| is_from(&family.authorization.factor)) {
            end_family(tx, id, now)?;
        }
    }
    forget_codes(tx, user, now, |authorization| is_from(&authorization.factor)).map(|_| ())
}

/// Removes the codes of a user that match, and returns whether there were any. Reads the user's codes of the last
/// minutes.
///
/// A code of an older release has no index row, so it is not found. It expires [`code::LONGEST_LIFETIME`] after the
/// upgrade at the latest.
pub fn forget_codes(
    tx: &mut dyn Tx,
    user: Uuid,
    now: Timestamp,
    matches: impl Fn(&Authorization) -> bool,
) -> Result<bool, StoreError> {
    let oldest = (now - code::LONGEST_LIFETIME).first_id();
    let mut is_any = false;
    for ((_, id), ()) in CODES_BY_USER.scan(&*tx, (user, oldest)..=(user, Uuid::max()), usize::MAX)? {
        if let Some(code) = CODES.get(&*tx, &id)?
            && code.redeemed.is_none()
            && matches(&code.authorization)
        {
            forget_code(tx, id, &code)?;
            is_any = true;
        }
    }
    is_any |= device::forget_allowed(tx, user, matches)?;
    Ok(is_any)
}

/// Stores a new code and its index row.
pub(in crate::flow) fn put_code(
    tx: &mut dyn Tx,
    id: Uuid,
    code: &AuthorizationCode,
) -> Result<(), StoreError> {
    CODES_BY_USER.put(tx, &(code.authorization.user, id), &())?;
    CODES.put(tx, &id, code)
}

/// Removes a code and its index row.
pub(in crate::flow) fn forget_code(
    tx: &mut dyn Tx,
    id: Uuid,
    code: &AuthorizationCode,
) -> Result<(), StoreError> {
    CODES_BY_USER.remove(tx, &(code.authorization.user, id))?;
    CODES.remove(tx, &id).map(|_| ())
}

/// Removes a refresh family and its index rows.
pub fn forget_family(tx: &mut dyn Tx, id: Uuid, family: &RefreshFamily) -> Result<(), StoreError> {
    FAMILIES.remove(tx, &id)?;
    for key in owner_keys(id, family) {
        FAMILIES_BY_OWNER.remove(tx, &key)?;
    }
    user_activity::carry_over_family(tx, family)
}

/// The index keys of a refresh family: by its user, and by the session that it ends with.
pub(in crate::flow) fn owner_keys(
    id: Uuid,
    family: &RefreshFamily,
) -> impl Iterator<Item = (Uuid, (String, Uuid))> {
    let client_id = &family.authorization.client_id;
    [Some(family.authorization.user), family.binding()]
        .into_iter()
        .flatten()
        .map(move |owner| (owner, (client_id.clone(), id)))
}

/// Ends one refresh family, if it still exists.
pub fn end_family(tx: &mut dyn Tx, id: Uuid, now: Timestamp) -> Result<(), StoreError> {
    if let Some(mut family) = FAMILIES.get(&*tx, &id)?
        && family.revoked_at.is_none()
    {
        family.revoke(now);
        FAMILIES.put(tx, &id, &family)?;
    }
    Ok(())
}
