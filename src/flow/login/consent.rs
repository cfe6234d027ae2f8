//! A user answers the consent page (OpenID Connect Core 3.1.2.4).

use uuid::Uuid;

use super::session::LiveSession;
use super::transaction;
use super::transaction::{Browser, Next, Onward, Underway};
use crate::clock::Timestamp;
use crate::flow::{Answer, Core, Failure};
use crate::identity::Consent;
use crate::oauth::authorize::Progress;
use crate::oauth::consent;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::engine::Tx;
use crate::store::tables::CONSENTS;

/// Remembers the yes of the user, whose session the page was drawn for, and issues the code: the yes of one user never
/// counts for another.
pub async fn give_consent(
    core: &Core,
    browser: &Browser,
    underway: Underway,
    now: Timestamp,
) -> Result<Answer<Onward>, Failure> {
    let Some(live) = &underway.session else {
        return Ok(Err(Refusal::invalid_request("another user is signed in by now")));
    };
    let (user, session) = (live.user.uuid, live.id);
    let client_id = underway.client.client_id.clone();
    let progress = consented(&underway, live, now);
    let answer = allow(core, browser, underway, (session, progress), now).await?;
    if answer.is_ok() {
        answered(user, &client_id, true);
    }
    Ok(answer.map(Onward::to))
}

/// Takes the no of whoever sits there: the client is told `access_denied`.
pub async fn decline(core: &Core, underway: Underway, now: Timestamp) -> Result<Onward, Failure> {
    let refusal = Refusal::new(ErrorCode::AccessDenied, "the user declined");
    let next = transaction::refuse(core, &underway, refusal, now).await?;
    if let Some(live) = &underway.session {
        answered(live.user.uuid, &underway.client.client_id, false);
    }
    Ok(Onward::to(next))
}

fn answered(user: Uuid, client_id: &str, allowed: bool) {
    audit::record(&Event::ConsentAnswered {
        user,
        client_id,
        allowed,
    });
}

/// What has happened once this user says yes. The yes settles whose session it is, unless the sign-in has grown too old
/// for the request meanwhile.
fn consented(underway: &Underway, live: &LiveSession, now: Timestamp) -> Progress {
    let before = underway.transaction.progress();
    let is_too_old = underway.transaction.request.demands_sign_in(&live.session, now);
    let settled = if is_too_old {
        before
    } else {
        before.settled_in(live.id)
    };
    Progress {
        consented: true,
        ..settled
    }
}

async fn allow(
    core: &Core,
    browser: &Browser,
    underway: Underway,
    (session, progress): (Uuid, Progress),
    now: Timestamp,
) -> Result<Answer<Next>, Failure> {
    let asked = underway.transaction.request.scope_for_consent();
    let client_id = underway.client.client_id.clone();
    let remember = move |tx: &mut dyn Tx, live: &LiveSession| {
        let key = (live.user.uuid, client_id.clone());
        let before = CONSENTS.get(&*tx, &key)?;
        let allowed = consent::allowed(before.as_ref()).unwrap_or_default();
        let scope = allowed.union(&asked).to_string();
        CONSENTS.put(tx, &key, &Consent { scope, given_at: now })?;
        Ok(progress)
    };
    transaction::settle(core, browser, underway.id, now, remember, Some(session)).await
}
