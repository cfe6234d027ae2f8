//! A passkey is offered once the user has signed in with a password, before the application opens.
//!
//! The sign-in waits as it does at the page for consent: the session has begun, and the application gets its answer when the
//! user has created a passkey or has declined. A user who leaves the page is signed in and may begin again.

use uuid::Uuid;

use super::drawn_code::CodeSlot;
use super::session::{AuthenticationEvent, LiveSession};
use super::step_result::StepResult;
use super::transaction::{LoginContext, next_step, take_step};
use crate::clock::Timestamp;
use crate::flow::account::factors::may_change;
use crate::flow::client_lookup::ClientLookup;
use crate::flow::factors::MAX_PER_USER;
use crate::flow::token::issue::TokenIssuer;
use crate::flow::{Core, factors};
use crate::identity::{AuthenticationMethod, Factor, FactorKind, User};
use crate::oauth::Policy;
use crate::oauth::login::{LoginRecord, LoginStep, LoginTransaction, ResolvedPurpose};
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::LOGIN_RECORDS;

/// A sign-in whose user has just authenticated, inside the transaction that starts the session.
pub(super) struct AuthenticatedSignIn<'a> {
    pub(super) purpose: &'a ResolvedPurpose,
    pub(super) live: &'a LiveSession,
    pub(super) event: &'a AuthenticationEvent,
    pub(super) was_signed_in: bool,
    pub(super) transaction: &'a LoginTransaction,
    pub(super) record: LoginRecord,
    /// The code that the client may get.
    pub(super) slot: CodeSlot,
    pub(super) client_lookup: &'a ClientLookup,
    pub(super) issuer: &'a TokenIssuer,
}

pub type UserWithFactors = (LiveSession, Vec<(Uuid, Factor)>);

/// Takes the next step of a user who has just authenticated, or lets the sign-in wait for the answer to the offer. A user who
/// was signed in already only confirms something, and is not asked.
pub(super) fn or_next_step(
    tx: &mut dyn Tx,
    policy: &Policy,
    sign_in: AuthenticatedSignIn<'_>,
    now: Timestamp,
) -> Result<StepResult, StoreError> {
    let AuthenticatedSignIn {
        live,
        event,
        transaction,
        mut record,
        ..
    } = sign_in;
    let step = next_step(&*tx, sign_in.purpose, Some(live), &record, sign_in.issuer, now)?;
    let is_asked = event.takes_passkey_offer && event.factor == AuthenticationMethod::Password;
    let opens_application = matches!(step, LoginStep::IssueCode(_) | LoginStep::AskConsent);
    let may_be_made = is_asked && !sign_in.was_signed_in && opens_application && may_have(policy, &live.user);
    let has_room = may_be_made && has_room(&factors::of_user(&*tx, live.user.uuid)?);
    if has_room && may_change(&*tx, live, now)? {
        record.progress.offers_passkey = true;
        LOGIN_RECORDS.put(tx, &transaction.id, &record)?;
        return Ok(StepResult::OfferPasskey);
    }
    let (slot, client_lookup) = (sign_in.slot, sign_in.client_lookup);
    take_step(tx, step, transaction, record, slot, client_lookup, now)
}

/// The signed-in user of a sign-in that waits for the answer to the offer, with the factors. `None` if it does not wait, or
/// the user has got a passkey. Nothing is offered if the user has only chosen to continue in a session: its cookie may be
/// stolen.
pub async fn waiting(core: &Core, login: &LoginContext) -> Result<Option<UserWithFactors>, StoreError> {
    let progress = login.progress;
    let is_settled = |live: &&LiveSession| progress.offers_passkey && progress.is_settled_in(live.id);
    let live = login.session.as_ref().filter(is_settled);
    let Some(live) = live.filter(|live| may_have(&core.policy, &live.user)) else {
        return Ok(None);
    };
    let factors = core
        .store
        .read(|snapshot| factors::of_user(snapshot, live.user.uuid))
        .await?;
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
