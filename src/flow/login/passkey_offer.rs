//! A passkey is offered once the user has signed in with a password, before the application opens.
//!
//! The sign-in waits as it does at the page for consent: the session has begun, and the application gets its answer when the
//! user has created a passkey or has declined. A user who leaves the page is signed in and may begin again.

use super::session::{AuthenticationEvent, LiveSession};
use super::transaction::{LoginContext, StepResult};
use crate::flow::factors::MAX_PER_USER;
use crate::flow::{Core, factors};
use crate::identity::{AuthenticationMethod, Factor, FactorKind, User};
use crate::oauth::Policy;
use crate::oauth::login::{LoginRecord, LoginStep};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::LOGIN_RECORDS;
use uuid::Uuid;

/// Whether the user is offered a passkey before this step. A user who was signed in already only confirms something, and is
/// not asked.
pub(super) fn comes_before(
    snapshot: &dyn Snapshot,
    policy: &Policy,
    (event, was_signed_in): (&AuthenticationEvent, bool),
    (user, step): (&User, &LoginStep),
) -> Result<bool, StoreError> {
    let is_asked = event.takes_passkey_offer && event.factor == AuthenticationMethod::Password;
    let opens_application = matches!(step, LoginStep::IssueCode(_) | LoginStep::AskConsent);
    if !is_asked || was_signed_in || !opens_application || !may_have(policy, user) {
        return Ok(false);
    }
    Ok(has_room(&factors::of_user(snapshot, user.uuid)?))
}

/// Lets the sign-in of a user who is signed in wait for the answer to the offer.
pub(super) fn make(
    tx: &mut dyn Tx,
    transaction: Uuid,
    record: &LoginRecord,
) -> Result<StepResult, StoreError> {
    LOGIN_RECORDS.put(tx, &transaction, record)?;
    Ok(StepResult::OfferPasskey)
}

/// The signed-in user of a sign-in that waits for the answer to the offer, with the factors. `None` if it does not wait, or
/// the user has got a passkey.
pub fn waiting(
    core: &Core,
    login: &LoginContext,
) -> Result<Option<(LiveSession, Vec<(Uuid, Factor)>)>, StoreError> {
    let is_settled = |live: &&LiveSession| login.progress.is_settled_in(live.id);
    let live = login.session.as_ref().filter(is_settled);
    let Some(live) = live.filter(|live| may_have(&core.policy, &live.user)) else {
        return Ok(None);
    };
    let factors = core
        .store
        .read(|snapshot| factors::of_user(snapshot, live.user.uuid))?;
    Ok(has_room(&factors).then(|| (live.clone(), factors)))
}

/// Whether the service offers passkeys, and this user may have one. A user who came from a provider signs in there.
fn may_have(policy: &Policy, user: &User) -> bool {
    policy.offers_passkeys() && !user.comes_from_provider()
}

/// Whether the user has no passkey, and room for one.
fn has_room(factors: &[(Uuid, Factor)]) -> bool {
    let is_passkey = |(_, factor): &(Uuid, Factor)| matches!(factor.kind, FactorKind::Passkey(_));
    factors.len() < MAX_PER_USER && !factors.iter().any(is_passkey)
}
