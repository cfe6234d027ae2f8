//! A user revokes an application's access.

use uuid::Uuid;

use super::{ActionResult, act_in_recent_session};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::grant_policy::has_ended;
use crate::flow::login::session;
use crate::flow::{Core, Failure};
use crate::oauth::code::Authorization;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::{CLIENTS, CONSENTS, FAMILIES, FAMILIES_BY_OWNER};

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
        let client = CLIENTS.get(&*tx, &named)?;
        let key = (user, named.clone());
        let consent = CONSENTS.get(&*tx, &key)?;
        let counts = |consent| client.as_ref().is_some_and(|client| client.owns_consent(consent));
        let mut had_access = consent.as_ref().is_some_and(counts);
        CONSENTS.remove(tx, &key)?;
        let at_client = |id| (user, (named.clone(), id));
        let keys = at_client(Uuid::nil())..=at_client(Uuid::max());
        for ((_, (_, id)), ()) in FAMILIES_BY_OWNER.scan(&*tx, keys, usize::MAX)? {
            if let Some(family) = FAMILIES.get(&*tx, &id)?
                && family.revoked_at.is_none()
            {
                session::end_family(tx, id, now)?;
                had_access |= !has_ended(&*tx, client.as_ref(), &family.authorization)?;
            }
        }
        let is_granted = |code: &Authorization| code.client_id == named;
        had_access |= session::forget_codes(tx, user, now, is_granted)?;
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
