//! The actions of a signed-in user on the account page: one verb per file, one transaction each.
//!
//! A person who finds a browser left open must neither take the account over nor lock its owner out. So an action
//! that ends something needs a sign-in of the last minutes, and a new password or address needs the present password.

pub mod begin;
pub mod change_password;
pub mod delete_account;
pub mod disconnect;
pub mod edit_profile;
pub mod end_sessions;
pub mod export_data;
pub mod factors;
pub mod passkeys;
pub mod present_password;
pub mod request_email;
pub mod view;

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
}

impl<T> ActionResult<T> {
    /// Passes the result of an action that was done to `then`.
    pub fn map<U>(self, then: impl FnOnce(T) -> U) -> ActionResult<U> {
        match self {
            Self::Done(result) => ActionResult::Done(then(result)),
            Self::SignInRequired => ActionResult::SignInRequired,
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
