use serde::{Deserialize, Serialize};

use super::password::hash;
use super::{NewPassword, UserView, change, find};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::flow::users::end_sessions_and_families;
use crate::identity::User;
use crate::store::engine::{Snapshot, Tx};

/// A new password for a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetPassword {
    /// E-mail address, account identifier or UUID.
    pub who: String,
    pub password: NewPassword,
    /// Whether the user's sessions and refresh tokens stay. Somebody else may have known the old password.
    pub keep_sessions: bool,
}

impl Operation for SetPassword {
    const NAME: &'static str = "user set-password";
    const EFFECT: Effect = Effect::Destructive;
    type Output = UserView;

    /// Only this answer shows a generated password.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<UserView>> {
        let user = admin.read(|snapshot| find(snapshot, &self.who)).await?;
        let (hash, shown) = hash(admin, &user, self.password, Vec::new()).await?;
        let now = admin.core.clock.now();
        let change_user = move |_: &dyn Snapshot, user: &mut User| {
            user.password.clone_from(&hash);
            user.password_changed_at = Some(now);
            Ok(())
        };
        let sign_out = move |tx: &mut dyn Tx, user| {
            if !self.keep_sessions {
                end_sessions_and_families(tx, user, now)?;
            }
            Ok(())
        };
        let mut done = change::<Self>(admin, self.who, change_user, sign_out)
            .await?
            .without_changes();
        done.output.password = shown;
        Ok(done)
    }
}
