//! A user adds a passkey (Web Authentication Level 3 section 7.1), and names it.

use uuid::Uuid;

use super::factors::{added_notice, is_enough, may_change, put_added};
use super::present_proof::PresentProof;
use super::{ActionResult, act_with_proof};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::session;
use crate::flow::login::session::LiveSession;
use crate::flow::passkey_challenge::{self, ChallengePlace};
use crate::flow::replay::{record_use, was_used};
use crate::flow::{Core, Failure, factors, passkey_index};
use crate::identity::factor::factor_name;
use crate::identity::{Factor, FactorKind, Passkey};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::engine::Snapshot;
use crate::store::tables::FACTORS;
use crate::webauthn::response::RegistrationResponse;
use crate::webauthn::{NewCredential, WebAuthnError};

/// What the browser sent.
pub struct NewPasskey {
    /// The response of the authenticator.
    pub response: RegistrationResponse,
    /// The challenge of the page, sealed.
    pub challenge: String,
}

/// The result of adding a passkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasskeyAddition {
    Added,
    /// The response is not valid.
    Refused(WebAuthnError),
    /// The challenge is too old, used, or of another session.
    ChallengeOver,
    /// The user has this passkey already, or too many others say that they have it.
    Known,
    /// The user has too many factors.
    Full,
}

pub async fn may_add(core: &Core, live: &LiveSession, now: Timestamp) -> Result<bool, Failure> {
    Ok(core
        .store
        .read(|snapshot| may_change(snapshot, live, now))
        .await?)
}

/// Adds the passkey to the signed-in user.
///
/// The user must not have its credential id already. Other users may (step 26 advises against it): a sign-in looks for the
/// passkey among those of the user whom the authenticator names, so a copy in another account takes nothing over. If the
/// authenticator names nobody, the signature decides. Only so many users may have one id that a sign-in tries all of them.
pub async fn add_passkey(
    core: &Core,
    browser: &Browser,
    new: &NewPasskey,
    proof: &PresentProof,
    now: Timestamp,
) -> Result<ActionResult<PasskeyAddition>, Failure> {
    let Some(live) = session::signed_in(core, browser, now).await? else {
        return Ok(ActionResult::SignInRequired);
    };
    let place = ChallengePlace::Registration(live.id);
    let relying_party = core.policy.relying_party();
    let relying_party = relying_party.filter(|_| !live.user.comes_from_provider());
    let challenge = passkey_challenge::open(core, place, &new.challenge, now);
    let (Some(relying_party), Some(challenge)) = (relying_party, challenge) else {
        return Ok(ActionResult::Done(PasskeyAddition::ChallengeOver));
    };
    let expected = relying_party.expects(&challenge.bytes);
    let credential = match new.response.registration().verify(&expected) {
        Ok(credential) => credential,
        Err(error) => return Ok(ActionResult::Done(PasskeyAddition::Refused(error))),
    };
    let (user, replay_key) = (live.user.uuid, challenge.replay_key);
    let id = core.random.uuid_v7(core.clock.since_epoch());
    let credential_id = credential.id.clone();
    let factor = factor(credential, &new.response, &live, now);
    let notice = added_notice(core, &live, browser, &[(id, &factor)], now)?;
    let was_used_before = |snapshot: &dyn Snapshot| was_used(snapshot, replay_key, now);
    if core.store.read(was_used_before).await? {
        return Ok(ActionResult::Done(PasskeyAddition::ChallengeOver));
    }
    let added = act_with_proof(
        core,
        browser,
        proof,
        "add_passkey",
        now,
        move |tx, live, proven| {
            if live.user.uuid != user || !is_enough(&*tx, &live, proven)? {
                return Ok(ActionResult::SignInRequired);
            }
            if was_used(&*tx, replay_key, now)? {
                return Ok(ActionResult::Done(PasskeyAddition::ChallengeOver));
            }
            let is_own = factors::passkey_of(&*tx, user, &credential_id)?.is_some();
            if is_own || passkey_index::is_full(&*tx, &credential_id)? {
                return Ok(ActionResult::Done(PasskeyAddition::Known));
            }
            if !factors::add(tx, user, id, &factor)? {
                return Ok(ActionResult::Done(PasskeyAddition::Full));
            }
            record_use(tx, replay_key)?;
            put_added(tx, notice.as_ref(), &live)?;
            Ok(ActionResult::Done(PasskeyAddition::Added))
        },
    )
    .await?;
    Ok(added.map(|added| {
        if added == PasskeyAddition::Added {
            core.outbox_filled.notify_one();
            let factor = "passkey";
            audit::record(&Event::FactorAdded { user, factor });
        }
        added
    }))
}

/// The new passkey. One of this device gets the device's name.
fn factor(
    credential: NewCredential,
    response: &RegistrationResponse,
    live: &LiveSession,
    now: Timestamp,
) -> Factor {
    let device = live.session.device.name().filter(|_| response.is_platform);
    let aaguid = Uuid::from_bytes(credential.aaguid);
    Factor {
        name: device.unwrap_or_default(),
        added_at: now,
        last_used_at: None,
        kind: FactorKind::Passkey(Passkey {
            credential_id: credential.id,
            public_key: credential.public_key,
            sign_count: credential.sign_count,
            backup_eligible: credential.backup_eligible,
            backed_up: credential.backed_up,
            aaguid: (!aaguid.is_nil()).then_some(aaguid),
            transports: response.transports.clone(),
        }),
    }
}

/// Names a factor of the signed-in user. The id of another user's factor, or of none, names nothing and gets the same
/// answer.
pub async fn rename_factor(
    core: &Core,
    browser: &Browser,
    id: Uuid,
    name: &str,
    proof: &PresentProof,
    now: Timestamp,
) -> Result<ActionResult<()>, Failure> {
    let name = factor_name(name);
    act_with_proof(core, browser, proof, "rename_factor", now, move |tx, live, _| {
        let key = (live.user.uuid, id);
        if name.is_empty() {
            return Ok(ActionResult::Done(()));
        }
        if let Some(mut factor) = FACTORS.get(&*tx, &key)? {
            factor.name.clone_from(&name);
            factors::put(tx, key.0, key.1, &factor)?;
        }
        Ok(ActionResult::Done(()))
    })
    .await
}
