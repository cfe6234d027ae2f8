use serde::{Deserialize, Serialize};

use super::{UserView, change};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::identity::User;
use crate::store::engine::Snapshot;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EnableUser {
    /// E-mail address, account identifier or UUID.
    pub who: String,
}

impl Operation for EnableUser {
    const NAME: &'static str = "user enable";
    const EFFECT: Effect = Effect::Write;
    type Output = UserView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<UserView>> {
        let enable = |_: &dyn Snapshot, user: &mut User| {
            user.enabled = true;
            Ok(())
        };
        let changed = change::<Self>(admin, self.who, enable, |_, _| Ok(())).await?;
        Ok(changed.without_changes())
    }
}
