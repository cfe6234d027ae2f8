//! A user revokes an application's access.

use super::{ActionResult, act};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::session;
use crate::flow::{Core, Failure};
use crate::oauth::code::Authorization;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::{CONSENTS, FAMILIES, FAMILIES_BY_OWNER};

/// Forgets the consent that was given to a client and its codes, and ends its refresh families, in one transaction.
///
/// The user is asked for consent the next time. A client that skips consent gets new tokens when the user goes there
/// again.
pub async fn disconnect(
    core: &Core,
    browser: &Browser,
    client_id: String,
    now: Timestamp,
) -> Result<ActionResult<()>, Failure> {
    let asked = client_id.clone();
    let outcome = act(core, browser, "disconnect_application", now, move |tx, live| {
        let user = live.user.uuid;
        let mut is_any = CONSENTS.remove(tx, &(user, asked.clone()))?;
        for ((_, (client_id, id)), ()) in FAMILIES_BY_OWNER.scan_prefix(&*tx, &user, usize::MAX)? {
            let is_its = client_id == asked;
            if is_its
                && FAMILIES
                    .get(&*tx, &id)?
                    .is_some_and(|family| family.revoked_at.is_none())
            {
                session::end_family(tx, id, now)?;
                is_any = true;
            }
        }
        let is_its = |granted: &Authorization| granted.user == user && granted.client_id == asked;
        is_any |= session::forget_codes(tx, now, is_its)?;
        Ok((user, is_any))
    })
    .await?;
    Ok(match outcome {
        ActionResult::SignInRequired => ActionResult::SignInRequired,
        ActionResult::Done((user, is_any)) => {
            if is_any {
                let client_id = &client_id;
                audit::record(&Event::ApplicationDisconnected { user, client_id });
            }
            ActionResult::Done(())
        }
    })
}
