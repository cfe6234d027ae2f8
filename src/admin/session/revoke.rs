use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::user::find;
use crate::admin::{Admin, AdminResult, AdminTxError, not_found};
use crate::clock::Timestamp;
use crate::flow::login::session;
use crate::flow::users::end_sessions_and_families;
use crate::identity::Session;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::{FAMILIES, FAMILIES_BY_OWNER, SESSIONS};

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

impl Operation for RevokeSessions {
    const NAME: &'static str = "session revoke";
    const EFFECT: Effect = Effect::Destructive;
    type Output = Revoked;

    /// Ends sessions and what is bound to them. Sessions that had expired are not counted.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Revoked>> {
        let (now, lifetimes) = (admin.core.clock.now(), admin.core.policy.lifetimes.session);
        let write = admin.write(Self::NAME, move |tx| {
            let (subject, ended) = match &self {
                Self::One(id) => (*id, end_one(tx, *id, now)?),
                Self::AllOf(who) => {
                    let user = find(&*tx, who)?;
                    (user.uuid, end_sessions_and_families(tx, user.uuid, now)?)
                }
            };
            let live = ended
                .iter()
                .filter(|(_, session)| session.is_live(lifetimes, now));
            let revoked_sessions = live.count();
            Ok(Done::about(subject, Revoked { revoked_sessions }))
        });
        write.await
    }
}

/// Ends a session. Returns its row, if it was not removed before.
fn end_one(tx: &mut dyn Tx, id: Uuid, now: Timestamp) -> Result<Vec<(Uuid, Session)>, AdminTxError> {
    let mut ended = Vec::new();
    if let Some(session) = SESSIONS.get(&*tx, &id)? {
        session::end_live(tx, id, session, now, &mut ended)?;
    } else if !end_families_of_removed(tx, id, now)? {
        return Err(not_found("session", &id.to_string()).into());
    }
    Ok(ended)
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
