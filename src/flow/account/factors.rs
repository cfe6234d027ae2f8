//! A user adds and removes factors.
//!
//! Both need a proof ([`super::present_proof`]). If the user had a factor before this sign-in, the password alone is not
//! enough: a thief of it could replace the factors. Then the recent sign-in must have used two factors, or the proof is a
//! code or a passkey.

use uuid::Uuid;
use zeroize::Zeroizing;

use super::present_proof::{PresentProof, Proven};
use super::{ActionResult, act_with_proof};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::factors;
use crate::flow::login::session;
use crate::flow::login::session::LiveSession;
use crate::flow::notice::DrawnNotice;
use crate::flow::totp_setup::{CodeTexts, TotpSetup, new_factor};
use crate::flow::{Core, Failure, failed_passwords};
use crate::identity::{
    AuthenticationLevel, Factor, FactorKind, GeneratedCodes, RecoveryCodes, SecondFactor, Session,
};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{FACTORS, SESSIONS};

/// The result of a code that confirms a seed.
pub enum TotpConfirmation {
    /// The factor was added. New recovery codes, if the user had none.
    Added(CodeTexts),
    /// The code is wrong; the setup goes on.
    Wrong(Box<TotpSetup>),
    /// The code is right and the proof is not; the setup goes on.
    Unproven(Box<TotpSetup>),
    /// The user has too many factors.
    Full,
    /// The setup is too old, or was begun in another session.
    Expired,
}

/// What the form that confirms a seed brings.
pub struct TotpConfirmationForm {
    /// The seed, as the page had it.
    pub sealed: String,
    /// The code of the app.
    pub code: String,
}

/// Whether a session may change the factors of its user without a factor as proof.
pub fn may_change(snapshot: &dyn Snapshot, live: &LiveSession, now: Timestamp) -> Result<bool, StoreError> {
    Ok(live.session.is_fresh(now) && used_all_factors(snapshot, live)?)
}

/// Whether the sign-in used two factors, or the user had no second one.
fn used_all_factors(snapshot: &dyn Snapshot, live: &LiveSession) -> Result<bool, StoreError> {
    if live.session.level() >= Some(AuthenticationLevel::TwoFactors) {
        return Ok(true);
    }
    let factors = factors::of_user(snapshot, live.user.uuid)?;
    let had_passkey = factors
        .iter()
        .any(|(_, factor)| factor.added_at < live.session.created_at);
    Ok(!had_passkey && !factors::answer_second_step(&factors))
}

/// Whether the user may change the factors in this session with this proof. The proof is of this moment, so the sign-in
/// need not be.
pub(super) fn is_enough(
    snapshot: &dyn Snapshot,
    live: &LiveSession,
    proven: &Proven,
) -> Result<bool, StoreError> {
    Ok(proven.shows_factor() || used_all_factors(snapshot, live)?)
}

/// Draws a seed for the signed-in user. Nothing is stored.
pub async fn begin_totp(
    core: &Core,
    browser: &Browser,
    now: Timestamp,
) -> Result<ActionResult<TotpSetup>, Failure> {
    let lifetimes = core.policy.lifetimes.session;
    let find = |snapshot: &dyn Snapshot| -> Result<_, Failure> {
        match session::find(snapshot, browser.session.as_ref(), lifetimes, now)? {
            Some(live) if may_change(snapshot, &live, now)? => Ok(Some(live)),
            _ => Ok(None),
        }
    };
    let Some(live) = core.store.read(find).await? else {
        return Ok(ActionResult::SignInRequired);
    };
    let setup = TotpSetup::draw(core, &setup_context(&live), &live.user, now);
    Ok(setup.map_or(ActionResult::SignInRequired, ActionResult::Done))
}

fn setup_context(live: &LiveSession) -> String {
    format!("factors/{}/totp_setup/{}", live.user.uuid, live.id)
}

/// Adds the authenticator app whose code was typed. The session counts as one with two factors from then on.
pub async fn confirm_totp(
    core: &Core,
    browser: &Browser,
    form: &TotpConfirmationForm,
    proof: &PresentProof,
    now: Timestamp,
) -> Result<ActionResult<TotpConfirmation>, Failure> {
    let Some(live) = session::signed_in(core, browser, now).await? else {
        return Ok(ActionResult::SignInRequired);
    };
    let Some(setup) = TotpSetup::open(core, &setup_context(&live), &live.user, &form.sealed, now) else {
        return Ok(ActionResult::Done(TotpConfirmation::Expired));
    };
    let user = live.user.uuid;
    let Some(new) = setup.confirm(core, user, &form.code, now) else {
        return Ok(ActionResult::Done(TotpConfirmation::Wrong(Box::new(setup))));
    };
    let present = core
        .store
        .read(|snapshot| factors::of_user(snapshot, user))
        .await?;
    let notice = new.notice(core, &live.user, browser, &present, now)?;
    let notice = notice.map(|notice| notice.in_session(live.id));
    if present.iter().any(|(id, _)| *id == new.id) {
        return Ok(ActionResult::Done(TotpConfirmation::Added(Vec::new())));
    }
    let added = act_with_proof(
        core,
        browser,
        proof,
        "add_factor",
        now,
        move |tx, live, proven| {
            if live.user.uuid != user || !is_enough(&*tx, &live, proven)? {
                return Ok(ActionResult::SignInRequired);
            }
            if FACTORS.contains(&*tx, &(user, new.id))? {
                return Ok(ActionResult::Done(Some((false, false))));
            }
            let Some(needs_codes) = new.add(tx, user)? else {
                return Ok(ActionResult::Done(None));
            };
            failed_passwords::reset_second_step(tx, user)?;
            raise(tx, &live, now)?;
            put_added(tx, notice.as_ref(), &live)?;
            Ok(ActionResult::Done(Some((true, needs_codes))))
        },
    )
    .await?;
    let added = match added {
        ActionResult::Done(added) => added,
        ActionResult::SignInRequired => return Ok(ActionResult::SignInRequired),
        ActionResult::Unproven => {
            let setup = Box::new(setup);
            return Ok(ActionResult::Done(TotpConfirmation::Unproven(setup)));
        }
    };
    let Some((is_new, has_new_codes)) = added else {
        return Ok(ActionResult::Done(TotpConfirmation::Full));
    };
    if is_new {
        core.outbox_filled.notify_one();
        audit::record(&Event::FactorAdded { user, factor: "totp" });
    }
    let texts = if has_new_codes { setup.codes } else { Vec::new() };
    Ok(ActionResult::Done(TotpConfirmation::Added(texts)))
}

/// The session in which a factor was added counts as one that used it, if it has a lower level.
fn raise(tx: &mut dyn Tx, live: &LiveSession, now: Timestamp) -> Result<(), StoreError> {
    if live.session.level() >= Some(AuthenticationLevel::TwoFactors) {
        return Ok(());
    }
    let raised = Session {
        second_factor: Some(live.session.second_factor.unwrap_or(SecondFactor::Totp)),
        last_used_at: now,
        ..live.session.clone()
    };
    SESSIONS.put(tx, &live.id, &raised)
}

fn draw_codes(core: &Core, now: Timestamp) -> (Uuid, CodeTexts, Factor) {
    let id = core.random.uuid_v7(core.clock.since_epoch());
    let random = Zeroizing::new(core.random.bytes::<{ RecoveryCodes::RANDOM }>());
    let GeneratedCodes { texts, codes } = RecoveryCodes::generate(id, &random);
    (id, texts, new_factor(FactorKind::RecoveryCodes(codes), now))
}

/// The notice that these factors were added in a session.
pub(super) fn added_notice(
    core: &Core,
    live: &LiveSession,
    browser: &Browser,
    added: &[(Uuid, &Factor)],
    now: Timestamp,
) -> Result<Option<DrawnNotice>, StoreError> {
    let notice = DrawnNotice::of_added(core, &live.user, browser, added, now)?;
    Ok(notice.map(|notice| notice.in_session(live.id)))
}

/// Stores this notice, in place of that of the sign-in if it waits.
pub(super) fn put_added(
    tx: &mut dyn Tx,
    notice: Option<&DrawnNotice>,
    live: &LiveSession,
) -> Result<(), StoreError> {
    match notice {
        Some(notice) => notice.put_in_place_of_waiting(tx, live.id, live.session.created_at),
        None => Ok(()),
    }
}

/// Replaces the recovery codes of a user who has another factor. Returns the new ones; none if the user has no other
/// factor.
pub async fn renew_recovery_codes(
    core: &Core,
    browser: &Browser,
    proof: &PresentProof,
    now: Timestamp,
) -> Result<ActionResult<CodeTexts>, Failure> {
    let Some(live) = session::signed_in(core, browser, now).await? else {
        return Ok(ActionResult::SignInRequired);
    };
    let user = live.user.uuid;
    let (id, texts, codes) = draw_codes(core, now);
    let notice = added_notice(core, &live, browser, &[(id, &codes)], now)?;
    let name = "renew_recovery_codes";
    let renewed = act_with_proof(core, browser, proof, name, now, move |tx, live, proven| {
        if live.user.uuid != user || !is_enough(&*tx, &live, proven)? {
            return Ok(ActionResult::SignInRequired);
        }
        let present = factors::of_user(&*tx, user)?;
        let is_codes = |factor: &Factor| matches!(factor.kind, FactorKind::RecoveryCodes(_));
        if present.iter().all(|(_, factor)| is_codes(factor)) {
            return Ok(ActionResult::Done(false));
        }
        for (old, factor) in present.iter().filter(|(_, factor)| is_codes(factor)) {
            factors::remove(tx, user, *old, factor)?;
        }
        factors::put(tx, user, id, &codes)?;
        put_added(tx, notice.as_ref(), &live)?;
        Ok(ActionResult::Done(true))
    })
    .await?;
    Ok(renewed.map(|is_renewed| {
        if !is_renewed {
            return Vec::new();
        }
        core.outbox_filled.notify_one();
        let factor = "recovery_codes";
        audit::record(&Event::FactorAdded { user, factor });
        texts
    }))
}

/// Removes a factor of the signed-in user. With the last other factor, the recovery codes are removed too. The id of
/// another user's factor, or of none, removes nothing and gets the same answer.
pub async fn remove_factor(
    core: &Core,
    browser: &Browser,
    id: Uuid,
    proof: &PresentProof,
    now: Timestamp,
) -> Result<ActionResult<()>, Failure> {
    let Some(live) = session::signed_in(core, browser, now).await? else {
        return Ok(ActionResult::SignInRequired);
    };
    let user = live.user.uuid;
    let present = core
        .store
        .read(|snapshot| factors::of_user(snapshot, user))
        .await?;
    let removed = factors::chosen_of(present, |found, _| found == id);
    let removed = removed.iter().map(|(_, factor)| factor);
    let notice = DrawnNotice::of_removed(core, &live.user, Some(browser), removed, now)?;
    let notice = notice.map(|notice| notice.in_session(live.id));
    let removed = act_with_proof(
        core,
        browser,
        proof,
        "remove_factor",
        now,
        move |tx, live, proven| {
            if live.user.uuid != user || !is_enough(&*tx, &live, proven)? {
                return Ok(ActionResult::SignInRequired);
            }
            let removed = factors::remove_these(tx, user, |found, _| found == id)?;
            if !removed.is_empty() {
                notice.iter().try_for_each(|notice| notice.put(tx))?;
            }
            Ok(ActionResult::Done(removed))
        },
    )
    .await?;
    Ok(removed.map(|removed| record_removed(core, user, &removed)))
}

/// Records the removal of these factors, after the commit.
pub(super) fn record_removed(core: &Core, user: Uuid, removed: &[Factor]) {
    for factor in removed {
        core.outbox_filled.notify_one();
        let factor = factor.kind.name();
        audit::record(&Event::FactorRemoved { user, factor });
    }
}
