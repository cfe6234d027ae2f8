//! A user deletes the account.

use super::{ActionResult, act_in_recent_session};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::users::remove_user;
use crate::flow::{Core, Failure};
use crate::identity::LoginName;
use crate::observe::audit;
use crate::observe::audit::Event;

/// Removes the signed-in user with everything that belongs to them, if the operator allows it and the user typed a name
/// to sign in with. Returns whether the user was removed.
pub async fn delete_account(
    core: &Core,
    browser: &Browser,
    typed: String,
    now: Timestamp,
) -> Result<ActionResult<bool>, Failure> {
    let is_allowed = core.policy.accounts.self_service.deletion;
    let result = act_in_recent_session(core, browser, "delete_account", now, move |tx, live| {
        let user = live.user;
        let name = LoginName::new(typed.trim());
        if !is_allowed || !user.login_names().contains(&name) {
            return Ok(None);
        }
        remove_user(tx, &user, now)?;
        Ok(Some(user.uuid))
    })
    .await?;
    Ok(result.map(|removed| {
        if let Some(user) = removed {
            audit::record(&Event::AccountDeleted { user });
            core.logout_queued.notify_one();
        }
        removed.is_some()
    }))
}
