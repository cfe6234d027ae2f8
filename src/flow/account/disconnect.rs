//! A user revokes an application's access.

use super::{ActionResult, act_in_recent_session};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::session;
use crate::flow::{Core, Failure};
use crate::oauth::code::Authorization;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::{CONSENTS, FAMILIES, FAMILIES_BY_OWNER};

/// Removes the user's consent to a client and the codes of the client, and ends its refresh families, in one
/// transaction.
///
/// The user is asked for consent the next time. A client that skips consent gets new tokens when the user goes there
/// again.
pub async fn disconnect(
    core: &Core,
    browser: &Browser,
    client_id: String,
    now: Timestamp,
) -> Result<ActionResult<()>, Failure> {
    let named = client_id.clone();
    let result = act_in_recent_session(core, browser, "disconnect_application", now, move |tx, live| {
        let user = live.user.uuid;
        let mut had_access = CONSENTS.remove(tx, &(user, named.clone()))?;
        for ((_, (client_id, id)), ()) in FAMILIES_BY_OWNER.scan_prefix(&*tx, &user, usize::MAX)? {
            if client_id != named {
                continue;
            }
            let family = FAMILIES.get(&*tx, &id)?;
            if family.is_some_and(|family| family.revoked_at.is_none()) {
                session::end_family(tx, id, now)?;
                had_access = true;
            }
        }
        let is_granted = |code: &Authorization| code.user == user && code.client_id == named;
        had_access |= session::forget_codes(tx, now, is_granted)?;
        Ok((user, had_access))
    })
    .await?;
    Ok(result.map(|(user, had_access)| {
        if had_access {
            let client_id = &client_id;
            audit::record(&Event::ApplicationDisconnected { user, client_id });
        }
    }))
}
