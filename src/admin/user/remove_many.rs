use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{RemoveUser, UserFilter};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::flow::users::remove_user;
use crate::store::tables::USERS;

/// Some of the users that a list had, to be removed with everything that belongs to them. A user who no longer matches the
/// filter stays: they may have signed in since.
///
/// The caller sends a hundred at a time, so that each transaction is short and sign-ins do not wait. If the caller is
/// interrupted, the users of the batches so far are removed, and a new list has the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveUsers {
    pub users: Vec<Uuid>,
    pub filter: UserFilter,
    /// How many users the earlier batches have removed.
    pub removed_before: u64,
    /// Whether this is the last batch: then an event says how many users were removed.
    pub is_last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedUsers {
    /// How many users this batch has removed.
    pub removed: u64,
}

impl RemoveUsers {
    /// The most users of a batch.
    pub const BATCH: usize = 100;
}

impl Operation for RemoveUsers {
    const NAME: &'static str = RemoveUser::NAME;
    const EFFECT: Effect = Effect::Destructive;
    type Output = RemovedUsers;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<RemovedUsers>> {
        let now = admin.core.clock.now();
        let groups = Arc::clone(admin.core.catalog().groups());
        let Self {
            users,
            filter,
            removed_before,
            is_last,
        } = self;
        let write = admin.write(Self::NAME, move |tx| {
            let matcher = filter.matcher(&groups, now);
            let mut removed = Vec::new();
            for uuid in &users {
                if let Some(user) = USERS.get(&*tx, uuid)?
                    && matcher.activity_if_matching(&*tx, &user)?.is_some()
                {
                    remove_user(tx, &user, now)?;
                    removed.push(*uuid);
                }
            }
            Ok(removed)
        });
        let removed = write.await?;
        for uuid in &removed {
            admin.record(Self::NAME, Done::about(*uuid, ()));
        }
        let count = u64::try_from(removed.len()).unwrap_or(u64::MAX);
        let output = RemovedUsers { removed: count };
        Ok(if is_last {
            Done::about(format!("{} users", removed_before + count), output)
        } else {
            Done::unrecorded(output)
        })
    }
}
