use serde::{Deserialize, Serialize};

use super::{UserView, change};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::identity::User;
use crate::store::engine::Snapshot;

/// A user to be disabled. Tokens of a disabled user cannot be refreshed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DisableUser {
    /// E-mail address, account identifier or UUID.
    pub who: String,
}

impl Operation for DisableUser {
    const NAME: &'static str = "user disable";
    const EFFECT: Effect = Effect::Write;
    type Output = UserView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<UserView>> {
        let disable = |_: &dyn Snapshot, user: &mut User| {
            user.enabled = false;
            Ok(())
        };
        let changed = change::<Self>(admin, self.who, disable, |_, _| Ok(())).await?;
        Ok(changed.without_changes())
    }
}
