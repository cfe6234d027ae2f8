//! Browser sessions: list, revoke.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::user::find;
use super::{Admin, AdminResult, TxResult, not_found};
use crate::clock::Timestamp;
use crate::flow::login::session;
use crate::flow::or_refuse;
use crate::flow::users::end_sessions_and_families;
use crate::identity::Session;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::records::LogoutStatus;
use crate::store::tables::{FAMILIES, FAMILIES_BY_OWNER, SESSION_CLIENTS, SESSIONS};

/// A session as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// The session's id (`sid` in ID tokens).
    pub session: Uuid,
    /// The user who is signed in.
    pub user: Uuid,
    /// When the user last authenticated. `None` if the provider did not say.
    pub auth_time: Option<Timestamp>,
    /// The method: `credential`, or the provider. `None` after the end of the session.
    pub authority: Option<String>,
    /// When the session began.
    pub created_at: Timestamp,
    /// When the session was last used, to within some minutes. `None` after its end.
    pub last_used_at: Option<Timestamp>,
    /// The browser and its operating system, if known.
    pub device: Option<String>,
    /// The address of the last sign-in.
    pub address: Option<IpAddr>,
    /// The applications that are told of the end of the session.
    pub applications: Vec<SessionApplication>,
}

/// An application that a session has signed in, and that has a back-channel logout URI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionApplication {
    /// The client.
    pub client_id: String,
    /// When the session signed the user in first.
    pub signed_in_at: Timestamp,
    /// Whether the application was told. `None` before the end of the session.
    #[serde(flatten)]
    pub logout: Option<LogoutStatus>,
}

/// Which sessions are listed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListSessions {
    /// The user.
    pub who: String,
    /// Whether sessions that ended within the last days are listed as well, if they have applications.
    pub ended: bool,
}

/// Which sessions end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevokeSessions {
    /// One, with the refresh tokens bound to it.
    One(Uuid),
    /// All of a user, with all refresh tokens.
    AllOf(String),
}

/// How many sessions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// Sessions that ended.
    pub revoked_sessions: usize,
}

/// The live sessions of a user, and before them those that have ended, if they are asked for.
pub async fn list(admin: Admin<'_>, request: &ListSessions) -> AdminResult<Vec<SessionView>> {
    let (now, lifetimes) = (admin.core.clock.now(), admin.core.policy.lifetimes.session);
    let views = admin
        .core
        .store
        .read(|snapshot| -> Result<_, StoreError> {
            let user = or_refuse!(find(snapshot, &request.who)?);
            let mut applications = applications(snapshot, user.uuid)?;
            let live = session::live_of(snapshot, user.uuid, lifetimes, now)?;
            let live: Vec<_> = live
                .into_iter()
                .map(|(id, session)| SessionView {
                    session: id,
                    user: session.user,
                    auth_time: session.auth_time,
                    authority: Some(session.factor.authority().to_owned()),
                    created_at: session.created_at,
                    last_used_at: Some(session.last_used_at),
                    device: session.device.name(),
                    address: session.device.address,
                    applications: applications.remove(&id).unwrap_or_default(),
                })
                .collect();
            let ended = applications.into_iter().filter(|_| request.ended);
            let ended = ended.map(|(id, applications)| SessionView {
                session: id,
                user: user.uuid,
                auth_time: None,
                authority: None,
                created_at: Timestamp::of_id(id),
                last_used_at: None,
                device: None,
                address: None,
                applications,
            });
            Ok(Ok(ended.chain(live).collect()))
        })
        .await??;
    Ok(views)
}

/// The applications of the sessions of a user.
fn applications(
    snapshot: &dyn Snapshot,
    user: Uuid,
) -> Result<BTreeMap<Uuid, Vec<SessionApplication>>, StoreError> {
    let mut sessions = BTreeMap::<_, Vec<_>>::new();
    for ((_, (session, client_id)), row) in SESSION_CLIENTS.scan_prefix(snapshot, &user, usize::MAX)? {
        sessions.entry(session).or_default().push(SessionApplication {
            client_id,
            signed_in_at: row.signed_in_at,
            logout: row.logout,
        });
    }
    Ok(sessions)
}

/// Ends the refresh families bound to a session whose row was removed. Returns whether there were any.
fn end_families_of_removed(tx: &mut dyn Tx, session: Uuid, now: Timestamp) -> Result<bool, StoreError> {
    let mut is_any = false;
    for ((_, (_, id)), ()) in FAMILIES_BY_OWNER.scan_prefix(&*tx, &session, usize::MAX)? {
        is_any |= FAMILIES.get(&*tx, &id)?.is_some_and(|family| {
            family.authorization.session == Some(session) && family.revoked_at.is_none()
        });
    }
    if is_any {
        session::end_families(tx, session, now)?;
    }
    Ok(is_any)
}

/// Ends sessions and what is bound to them. Sessions that had expired are not counted.
pub async fn revoke(admin: Admin<'_>, request: RevokeSessions) -> AdminResult<Revoked> {
    let (now, lifetimes) = (admin.core.clock.now(), admin.core.policy.lifetimes.session);
    let (subject, revoked_sessions) = admin
        .core
        .store
        .write("session revoke", move |tx| -> TxResult<(Uuid, usize)> {
            let is_live = |session: &Session| session.is_live(lifetimes, now);
            match &request {
                RevokeSessions::One(id) => {
                    let Some(session) = SESSIONS.get(&*tx, id)? else {
                        if end_families_of_removed(tx, *id, now)? {
                            return Ok(Ok((*id, 0)));
                        }
                        return Ok(Err(not_found("session", &id.to_string()).into()));
                    };
                    let mut ended = Vec::new();
                    session::end_live(tx, *id, session, now, &mut ended)?;
                    Ok(Ok((
                        *id,
                        ended.iter().filter(|(_, session)| is_live(session)).count(),
                    )))
                }
                RevokeSessions::AllOf(who) => {
                    let user = or_refuse!(find(&*tx, who)?);
                    let ended = end_sessions_and_families(tx, user.uuid, now)?;
                    let live = ended.iter().filter(|(_, session)| is_live(session)).count();
                    Ok(Ok((user.uuid, live)))
                }
            }
        })
        .await??;
    admin.record("session revoke", &subject.to_string());
    Ok(Revoked { revoked_sessions })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admin::tests::{admin, core, refusal};
    use crate::admin::user;
    use crate::admin::user::{AddUser, NewPassword, UserFields};
    use crate::identity::{AuthenticationMethod, Device};
    use crate::oauth::Scope;
    use crate::oauth::client::Client;
    use crate::oauth::code::Authorization;
    use crate::oauth::openid::claims::ClaimsRequest;
    use crate::oauth::refresh::RefreshFamily;
    use crate::oauth::refresh_keys::RefreshKeys;
    use crate::oauth::resource::Resources;
    use crate::secret::Digest;
    use crate::store::tables::SESSIONS_BY_USER;

    #[tokio::test]
    async fn sessions_of_a_user_are_listed_and_end_together() {
        let core = core();
        let alice = AddUser {
            email: "alice@example.com".to_owned(),
            password: NewPassword::None,
            fields: UserFields::default(),
        };
        let alice = user::add(admin(&core), alice).await.unwrap().uuid;
        let now = core.clock.now();
        core.store
            .write("test", move |tx| -> Result<_, StoreError> {
                for id in (1..=5).map(Uuid::from_u128) {
                    // The last two have expired, and stay for the families bound to them.
                    let age = Duration::from_hours(if id > Uuid::from_u128(3) { 48 } else { 0 });
                    let session = Session {
                        digest: Digest::of(b"x"),
                        user: alice,
                        auth_time: Some(now),
                        was_asked_anew: false,
                        factor: AuthenticationMethod::Password,
                        second_factor: None,
                        created_at: now - age,
                        last_used_at: now - age,
                        device: Device::default(),
                    };
                    SESSIONS.put(tx, &id, &session)?;
                    SESSIONS_BY_USER.put(tx, &(alice, id), &())?;
                }
                Ok(())
            })
            .await
            .unwrap();
        let live = ListSessions {
            who: alice.to_string(),
            ended: false,
        };
        assert_eq!(list(admin(&core), &live).await.unwrap().len(), 3);
        let one = RevokeSessions::One(Uuid::from_u128(2));
        assert_eq!(
            revoke(admin(&core), one.clone()).await.unwrap().revoked_sessions,
            1
        );
        refusal(revoke(admin(&core), one).await);
        let over = RevokeSessions::One(Uuid::from_u128(4));
        assert_eq!(revoke(admin(&core), over).await.unwrap().revoked_sessions, 0);
        let all = RevokeSessions::AllOf("alice@example.com".to_owned());
        assert_eq!(revoke(admin(&core), all).await.unwrap().revoked_sessions, 2);
        assert!(list(admin(&core), &live).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn families_of_a_removed_session_can_still_be_ended_by_its_id() {
        let core = core();
        let now = core.clock.now();
        let (user, session, id) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let authorization = Authorization {
            client_id: "web".to_owned(),
            client_incarnation: Uuid::nil(),
            user,
            session: Some(session),
            auth_time: Some(now),
            factor: AuthenticationMethod::Password,
            second_factor: None,
            upstream_token: None,
            scope: Scope::of(["openid"]).unwrap(),
            resources: Resources::new(),
            claims: ClaimsRequest::default(),
            bound_to: None,
            actor: None,
        };
        let keys = RefreshKeys::new([(1, vec![1; 32].into())]);
        let first = keys.first_token(id, [2; 16]).unwrap();
        let client = Client::new("web", Uuid::nil(), Uuid::nil(), false, now);
        let family = RefreshFamily::start(&first, authorization, &client, &core.policy.lifetimes, now);
        core.store
            .write("test", move |tx| {
                FAMILIES.put(tx, &id, &family)?;
                [user, session]
                    .into_iter()
                    .try_for_each(|owner| FAMILIES_BY_OWNER.put(tx, &(owner, ("web".to_owned(), id)), &()))
            })
            .await
            .unwrap();
        let is_revoked = || {
            let family = core
                .store
                .read_blocking(|snapshot| FAMILIES.get(snapshot, &id))
                .unwrap();
            family.unwrap().revoked_at.is_some()
        };
        refusal(revoke(admin(&core), RevokeSessions::One(user)).await);
        assert!(!is_revoked());
        let ended = revoke(admin(&core), RevokeSessions::One(session)).await.unwrap();
        assert_eq!(ended.revoked_sessions, 0);
        assert!(is_revoked());
        refusal(revoke(admin(&core), RevokeSessions::One(session)).await);
    }
}
