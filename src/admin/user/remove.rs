use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::find;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::flow::users::remove_user;

/// A user to be removed, with everything that belongs to them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveUser {
    /// E-mail address, account identifier or UUID.
    pub who: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedUser {
    pub uuid: Uuid,
    /// The account identifier.
    pub account_id: String,
}

impl Operation for RemoveUser {
    const NAME: &'static str = "user remove";
    const EFFECT: Effect = Effect::Destructive;
    type Output = RemovedUser;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<RemovedUser>> {
        let now = admin.core.clock.now();
        let write = admin.write(Self::NAME, move |tx| {
            let user = find(&*tx, &self.who)?;
            remove_user(tx, &user, now)?;
            Ok(RemovedUser {
                uuid: user.uuid,
                account_id: user.account_id,
            })
        });
        let removed = write.await?;
        Ok(Done::about(removed.uuid, removed))
    }
}
