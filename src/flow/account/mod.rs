//! The actions of a signed-in user on the account page: one verb per file, one transaction each.
//!
//! A thief of a cookie, or a person who finds a browser left open, must neither take the account over nor lock its owner
//! out. So an action that ends something needs a sign-in of the last minutes. One that changes how the account is signed
//! in to needs a proof in the same form ([`present_proof`]).

pub mod begin;
pub mod change_password;
pub mod delete_account;
pub mod disconnect;
pub mod edit_profile;
pub mod end_sessions;
pub mod export_data;
pub mod factors;
pub mod launcher;
pub mod passkeys;
pub mod present_proof;
pub mod request_email;
pub mod view;

use self::present_proof::{PresentProof, Proven, SpentProof};
use super::browser::Browser;
use super::login::session;
use super::login::session::LiveSession;
use super::{Core, Failure};
use crate::clock::Timestamp;
use crate::store::StoreError;
use crate::store::engine::Tx;

/// The result of a request to the account page.
#[derive(Debug)]
pub enum ActionResult<T> {
    Done(T),
    /// Nothing was done: the user has to sign in first, or again.
    SignInRequired,
    /// Nothing was done: the form brought no proof, or a wrong one.
    Unproven,
}

impl<T> ActionResult<T> {
    /// Passes the result of an action that was done to `then`.
    pub fn map<U>(self, then: impl FnOnce(T) -> U) -> ActionResult<U> {
        match self {
            Self::Done(result) => ActionResult::Done(then(result)),
            Self::SignInRequired => ActionResult::SignInRequired,
            Self::Unproven => ActionResult::Unproven,
        }
    }
}

/// Runs `action` in one transaction, if a user signed in in this browser during the last minutes.
async fn act_in_recent_session<T, F>(
    core: &Core,
    browser: &Browser,
    name: &'static str,
    now: Timestamp,
    action: F,
) -> Result<ActionResult<T>, Failure>
where
    T: Send + 'static,
    F: Fn(&mut dyn Tx, LiveSession) -> Result<T, StoreError> + Send + 'static,
{
    let (presented, lifetimes) = (browser.session.clone(), core.policy.lifetimes.session);
    let result = core
        .store
        .write(name, move |tx| {
            match session::find(&*tx, presented.as_ref(), lifetimes, now)? {
                Some(live) if live.session.is_fresh(now) => {
                    session::touch(tx, &live, lifetimes, now)?;
                    action(tx, live).map(Some)
                }
                Some(_) | None => Ok(None),
            }
        })
        .await?;
    Ok(result.map_or(ActionResult::SignInRequired, ActionResult::Done))
}

/// Runs `action` in one transaction that uses the proof up, if the proof is good and enough in the session.
async fn act_with_proof<T, F>(
    core: &Core,
    browser: &Browser,
    proof: &PresentProof,
    name: &'static str,
    now: Timestamp,
    action: F,
) -> Result<ActionResult<T>, Failure>
where
    T: Send + 'static,
    F: Fn(&mut dyn Tx, LiveSession, &Proven) -> Result<ActionResult<T>, StoreError> + Send + 'static,
{
    let Some(live) = session::signed_in(core, browser, now).await? else {
        return Ok(ActionResult::SignInRequired);
    };
    let Some(proven) = present_proof::verify(core, &live, proof, now).await? else {
        return Ok(if live.session.is_fresh(now) {
            ActionResult::Unproven
        } else {
            ActionResult::SignInRequired
        });
    };
    let (presented, lifetimes) = (browser.session.clone(), core.policy.lifetimes.session);
    let user = live.user.uuid;
    let act = move |tx: &mut dyn Tx| -> Result<_, StoreError> {
        let live = session::find(&*tx, presented.as_ref(), lifetimes, now)?;
        let live = live.filter(|live| live.user.uuid == user && proven.suffices_in(live, now));
        let Some(mut live) = live else {
            return Ok((ActionResult::SignInRequired, None));
        };
        let Some(spent) = proven.spend(tx, &mut live.user, now)? else {
            return Ok((ActionResult::Unproven, None));
        };
        session::touch(tx, &live, lifetimes, now)?;
        Ok((action(tx, live, &proven)?, Some(spent)))
    };
    let (result, spent) = core.store.write(name, act).await?;
    spent.iter().for_each(SpentProof::record);
    Ok(result)
}
