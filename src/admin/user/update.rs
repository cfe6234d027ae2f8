use serde::{Deserialize, Serialize};

use super::{KIND, UserFields, UserView, apply_fields, change};
use crate::admin::groups::groups;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::updated::Updated;
use crate::admin::{Admin, AdminResult, about, all_or_none, check_account_id, claim};
use crate::flow::factor_wait::end_wait;
use crate::identity::User;
use crate::oauth::FaultCode;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::FAILED_PASSWORDS;
use crate::text;

/// A change of a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateUser {
    /// E-mail address, account identifier or UUID.
    pub who: String,
    /// A new e-mail address; the account identifier stays.
    pub email: Option<String>,
    /// A new account identifier.
    pub account_id: Option<String>,
    /// Whether the count of wrong passwords starts again at zero.
    pub reset_failed_passwords: bool,
    /// Whether a wait ends after which the password removes the factors.
    #[serde(default)]
    pub keep_factors: bool,
    /// What else changes.
    pub fields: UserFields,
}

impl Operation for UpdateUser {
    const NAME: &'static str = "user update";
    const EFFECT: Effect = Effect::Write;
    type Output = Updated<UserView>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Updated<UserView>>> {
        let who = self.who.clone();
        let change_user = move |snapshot: &dyn Snapshot, user: &mut User| {
            let groups = groups(snapshot)?;
            let mut faults = Vec::new();
            if let Some(email) = &self.email
                && let Err(fault) = claim::set(user, "email", email)
            {
                faults.push(fault);
            }
            if let Some(account_id) = &self.account_id {
                check_account_id(&mut faults, account_id);
                user.account_id = text::map_width(account_id);
            }
            if self.keep_factors {
                end_wait(user);
            }
            apply_fields(user, &self.fields, &groups, &mut faults);
            if self.fields.must_change_password == Some(true) && user.password.is_none() {
                let detail = "the user has no password that must be changed: set one with user set-password";
                faults.push(FaultCode::NotAllowed.at(["must_change_password"], detail));
            }
            Ok(all_or_none(about(KIND, &self.who, faults).collect())?)
        };
        let reset = move |tx: &mut dyn Tx, user| {
            if self.reset_failed_passwords {
                FAILED_PASSWORDS.remove(tx, &user)?;
            }
            Ok(())
        };
        change::<Self>(admin, who, change_user, reset).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::{admin, assert_faults, core, refusal};
    use crate::admin::user::{AddUser, NewPassword};

    #[tokio::test]
    async fn a_user_without_a_password_must_change_none() {
        let core = core();
        let update = |who: &str, must_change: bool| UpdateUser {
            who: who.to_owned(),
            email: None,
            account_id: None,
            reset_failed_passwords: false,
            keep_factors: false,
            fields: UserFields {
                must_change_password: Some(must_change),
                ..UserFields::default()
            },
        };
        for (email, password) in [
            ("alice@example.com", NewPassword::None),
            ("bob@example.com", NewPassword::Generated),
        ] {
            let add = AddUser {
                email: email.to_owned(),
                password,
                fields: UserFields::default(),
            };
            admin(&core).call(add).await.unwrap();
        }
        let refused = refusal(admin(&core).call(update("alice@example.com", true)).await);
        assert_faults(&refused, &[(FaultCode::NotAllowed, &["must_change_password"])]);
        admin(&core)
            .call(update("alice@example.com", false))
            .await
            .unwrap();
        let changed = admin(&core).call(update("bob@example.com", true)).await.unwrap();
        assert!(changed.must_change_password);
    }
}
