//! A user signs other browsers out.

use uuid::Uuid;

use super::{ActionResult, act_in_recent_session};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::remembered_device;
use crate::flow::login::session;
use crate::flow::{Core, Failure};
use crate::store::tables::SESSIONS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionsToEnd {
    One(Uuid),
    /// All but the one in this browser.
    Others,
}

/// Ends sessions of the signed-in user, with the refresh families bound to them.
///
/// The id of another user's session, or of none, ends nothing and gets the same answer.
pub async fn end_sessions(
    core: &Core,
    browser: &Browser,
    which: SessionsToEnd,
    now: Timestamp,
) -> Result<ActionResult<()>, Failure> {
    let result = act_in_recent_session(core, browser, "end_own_sessions", now, move |tx, live| {
        let user = live.user.uuid;
        Ok(match which {
            SessionsToEnd::Others => {
                remembered_device::forget(tx, user, now)?;
                session::end_all(tx, user, Some(live.id), now)?
            }
            SessionsToEnd::One(id) => match SESSIONS.get(&*tx, &id)? {
                Some(session) if session.user == user => {
                    remembered_device::forget(tx, user, now)?;
                    let mut ended = Vec::new();
                    session::end_live(tx, id, session, now, &mut ended)?;
                    ended
                }
                Some(_) | None => Vec::new(),
            },
        })
    })
    .await?;
    Ok(result.map(|ended| session::record_ended(core, ended, now)))
}
