use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::find;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::clock::Timestamp;
use crate::flow::login::session::record_ended;
use crate::flow::users::end_sessions_and_families;
use crate::store::tables::USERS;

/// A user to be disabled, with the end of all sessions and refresh tokens in the same transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LockUser {
    /// E-mail address, account identifier or UUID.
    pub who: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockedUser {
    pub uuid: Uuid,
    /// The account identifier.
    pub account_id: String,
    /// How many sessions ended.
    pub sessions_ended: usize,
    /// Until when APIs that do not ask this service may accept access tokens that were issued before.
    pub access_tokens_expire_at: Timestamp,
}

impl Operation for LockUser {
    const NAME: &'static str = "user lock";
    const EFFECT: Effect = Effect::Destructive;
    type Output = LockedUser;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<LockedUser>> {
        let core = admin.core;
        let now = core.clock.now();
        let write = admin.write(Self::NAME, move |tx| {
            let mut user = find(&*tx, &self.who)?;
            user.enabled = false;
            user.updated_at = now;
            USERS.put(tx, &user.uuid, &user)?;
            let ended = end_sessions_and_families(tx, user.uuid, now)?;
            Ok((user, ended))
        });
        let (user, ended) = write.await?;
        let lifetimes = core.policy.lifetimes.session;
        let live = ended
            .iter()
            .filter(|(_, session)| session.is_live(lifetimes, now));
        let sessions_ended = live.count();
        record_ended(core, ended, now);
        let longest = core
            .catalog()
            .longest_access_token(core.policy.lifetimes.access_token);
        let locked = LockedUser {
            uuid: user.uuid,
            account_id: user.account_id,
            sessions_ended,
            access_tokens_expire_at: now + longest,
        };
        Ok(Done::about(user.uuid, locked))
    }
}
