use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::password::hash;
use super::{NewPassword, UserFields, UserView, apply_fields, put};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, checked_email};
use crate::identity::User;
use crate::oauth::FaultCode;
use crate::store::records::UserActivity;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddUser {
    /// The e-mail address. It is also the account identifier.
    pub email: String,
    pub password: NewPassword,
    /// Everything else.
    pub fields: UserFields,
}

impl Operation for AddUser {
    const NAME: &'static str = "user add";
    const EFFECT: Effect = Effect::Write;
    const MAY_CREATE_DATA_DIR: bool = true;
    type Output = UserView;

    /// Only this answer shows a generated password.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<UserView>> {
        let core = admin.core;
        let mut faults = Vec::new();
        let email = checked_email(&mut faults, None, &self.email);
        if self.fields.claims.iter().any(|(name, _)| name == "email") {
            let detail = "claim email is the first argument already: leave it out";
            faults.push(FaultCode::Invalid.at(["claims"], detail));
        }
        let now = core.clock.now();
        let uuid = core.random.uuid_v7(core.clock.since_epoch());
        let mut user = User::local(uuid, &email, &core.policy.organization, now);
        let groups = Arc::clone(core.catalog().groups());
        apply_fields(&mut user, &self.fields, &groups, &mut faults);
        let (hash, shown) = hash(admin, &user, self.password, faults).await?;
        user.password = hash;
        let view = UserView::of(&user, &groups, shown, UserActivity::default());
        admin.write(Self::NAME, move |tx| put(tx, None, &user)).await?;
        Ok(Done::about(uuid, view))
    }
}
