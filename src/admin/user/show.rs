use serde::{Deserialize, Serialize};

use super::{FactorView, UserView, find};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::flow::account::view::applications;
use crate::flow::factors::of_user;
use crate::flow::user_activity;
use crate::store::tables::FAILED_PASSWORDS;

/// A request for one user, with the applications that their account page shows, and the count of wrong passwords.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowUser {
    /// E-mail address, account identifier or UUID.
    pub who: String,
}

impl Operation for ShowUser {
    const NAME: &'static str = "user show";
    const EFFECT: Effect = Effect::Read;
    type Output = UserView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<UserView>> {
        let (catalog, now) = (admin.core.catalog(), admin.core.clock.now());
        let read = admin.read(|snapshot| {
            let user = find(snapshot, &self.who)?;
            let activity = user_activity::of_user(snapshot, user.uuid)?;
            Ok(UserView {
                applications: Some(applications(snapshot, &catalog, user.uuid, now)?),
                failed_passwords: FAILED_PASSWORDS.get(snapshot, &user.uuid)?,
                factors: FactorView::all(&of_user(snapshot, user.uuid)?),
                factors_end_at: user.factors_end(now),
                ..UserView::of(&user, catalog.groups(), None, activity)
            })
        });
        Ok(Done::unrecorded(read.await?))
    }
}
