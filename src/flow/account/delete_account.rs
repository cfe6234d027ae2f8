//! A user deletes the account.

use super::present_proof::PresentProof;
use super::{ActionResult, act_with_proof};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::session;
use crate::flow::users::remove_user;
use crate::flow::{Core, Failure};
use crate::identity::{LoginName, User};
use crate::observe::audit;
use crate::observe::audit::Event;

/// Removes the signed-in user with everything that belongs to them, if the operator allows it and the user typed a name
/// to sign in with. Returns whether the user was removed. A slip in the name uses no proof up.
pub async fn delete_account(
    core: &Core,
    browser: &Browser,
    typed: &str,
    proof: &PresentProof,
    now: Timestamp,
) -> Result<ActionResult<bool>, Failure> {
    let is_allowed = core.policy.accounts.self_service.deletion;
    let name = LoginName::new(typed.trim());
    let is_named = |user: &User| is_allowed && user.login_names().contains(&name);
    let live = session::signed_in(core, browser, now).await?;
    let Some(live) = live.filter(|live| live.session.is_fresh(now)) else {
        return Ok(ActionResult::SignInRequired);
    };
    if !is_named(&live.user) {
        return Ok(ActionResult::Done(false));
    }
    let result = act_with_proof(core, browser, proof, "delete_account", now, move |tx, live, _| {
        remove_user(tx, &live.user, now)?;
        Ok(ActionResult::Done(live.user.uuid))
    })
    .await?;
    Ok(result.map(|user| {
        audit::record(&Event::AccountDeleted { user });
        core.logout_queued.notify_one();
        true
    }))
}
