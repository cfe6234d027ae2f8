use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::user::find;
use crate::admin::{Admin, AdminResult};
use crate::clock::Timestamp;
use crate::flow::login::session;
use crate::identity::Session;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::records::LogoutStatus;
use crate::store::tables::SESSION_CLIENTS;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListSessions {
    /// The user.
    pub who: String,
    /// Whether sessions that ended within the last days are listed as well, if they have applications.
    pub ended: bool,
}

/// A session as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// The session's id (`sid` in ID tokens).
    pub session: Uuid,
    /// The user who is signed in.
    pub user: Uuid,
    /// The account identifier of the user.
    pub account_id: String,
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
    /// The applications that are told of the end of the session. Left out in the list of all sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applications: Option<Vec<SessionApplication>>,
}

impl SessionView {
    /// A live session of this user.
    pub(super) fn of(id: Uuid, session: &Session, account_id: String) -> Self {
        Self {
            session: id,
            user: session.user,
            account_id,
            auth_time: session.auth_time,
            authority: Some(session.factor.authority().to_owned()),
            created_at: session.created_at,
            last_used_at: Some(session.last_used_at),
            device: session.device.name(),
            address: session.device.address,
            applications: None,
        }
    }
}

/// An application that a session has signed in, and that has a back-channel logout URI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionApplication {
    pub client_id: String,
    /// When the session signed the user in first.
    pub signed_in_at: Timestamp,
    /// Whether the application was told. `None` before the end of the session.
    #[serde(flatten)]
    pub logout: Option<LogoutStatus>,
}

impl Operation for ListSessions {
    const NAME: &'static str = "session list";
    const EFFECT: Effect = Effect::Read;
    type Output = Vec<SessionView>;

    /// The live sessions of a user, and before them those that have ended, if they are asked for.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Vec<SessionView>>> {
        let (now, lifetimes) = (admin.core.clock.now(), admin.core.policy.lifetimes.session);
        let read = admin.read(|snapshot| {
            let user = find(snapshot, &self.who)?;
            let mut applications = applications(snapshot, user.uuid)?;
            let live = session::live_of(snapshot, user.uuid, lifetimes, now)?;
            let live: Vec<_> = live
                .into_iter()
                .map(|(id, session)| SessionView {
                    applications: Some(applications.remove(&id).unwrap_or_default()),
                    ..SessionView::of(id, &session, user.account_id.clone())
                })
                .collect();
            let ended = applications.into_iter().filter(|_| self.ended);
            let ended = ended.map(|(id, applications)| SessionView {
                session: id,
                user: user.uuid,
                account_id: user.account_id.clone(),
                auth_time: None,
                authority: None,
                created_at: Timestamp::of_id(id),
                last_used_at: None,
                device: None,
                address: None,
                applications: Some(applications),
            });
            Ok(ended.chain(live).collect())
        });
        Ok(Done::unrecorded(read.await?))
    }
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
