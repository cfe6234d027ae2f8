//! A user changes the password.

use std::sync::Arc;

use uuid::Uuid;
use zeroize::Zeroizing;

use super::factors::{is_enough, record_removed};
use super::present_proof::{PresentProof, Proven, SpentProof};
use super::{ActionResult, present_proof};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::check_password::is_present_password;
use crate::flow::login::session;
use crate::flow::login::session::{
    AuthenticationEvent, DrawnSession, EndedSessions, LiveSession, NewSession,
};
use crate::flow::notice::DrawnNotice;
use crate::flow::{Core, Failure, factors, failed_passwords};
use crate::identity::{Factor, SecondFactor, User};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::password::PasswordProblem;
use crate::secret::{Secret, SessionCookie};
use crate::store::StoreError;
use crate::store::tables::USERS;

/// What a user types to change the password.
pub struct NewPassword {
    pub chosen: Zeroizing<String>,
    /// The factors to remove. Only those that were added since the last change are.
    pub removed: Vec<Uuid>,
}

/// The result of a change of the password.
#[derive(Debug)]
pub enum PasswordChange {
    /// The password has changed, and this browser has a new session.
    Changed {
        session: Secret<SessionCookie>,
        user: Box<User>,
    },
    /// The policy forbids the new one; nothing changed.
    Rejected(PasswordProblem),
    /// The new one is the present one; nothing changed.
    Unchanged,
}

/// Verifies the proof, then sets the new password and ends everything that was granted before, in one
/// transaction. This browser stays signed in, in a session with a new id. An old password, a copied cookie or a code
/// that is not redeemed yet is worth nothing afterwards.
///
/// The proof is asked for even if the session is recent. The present password counts as authentication. If the record has
/// changed since the password was verified, it is verified again, once: a sign-in elsewhere may have renewed the
/// hash.
pub async fn change_password(
    core: &Core,
    browser: &Browser,
    typed: NewPassword,
    proof: &PresentProof,
    now: Timestamp,
) -> Result<ActionResult<PasswordChange>, Failure> {
    for _ in 0..2 {
        if let Some(result) = try_change(core, browser, &typed, proof, now).await? {
            return Ok(result);
        }
    }
    Ok(ActionResult::SignInRequired)
}

/// Tries once. `None` if the user's record has changed since the password was verified, or the session has ended.
async fn try_change(
    core: &Core,
    browser: &Browser,
    typed: &NewPassword,
    proof: &PresentProof,
    now: Timestamp,
) -> Result<Option<ActionResult<PasswordChange>>, Failure> {
    let Some(live) = session::signed_in(core, browser, now).await? else {
        return Ok(Some(ActionResult::SignInRequired));
    };
    let done = |change| Ok::<_, Failure>(Some(ActionResult::Done(change)));
    if let Err(problem) = core.policy.check_password(&live.user, &typed.chosen) {
        return done(PasswordChange::Rejected(problem));
    }
    let checked = live.user.password.clone();
    let proven = present_proof::verify(core, &live, proof, now).await?;
    let Some(proven) = proven.filter(|_| checked.is_some()) else {
        return Ok(Some(ActionResult::Unproven));
    };
    let is_present = match (&proven, proof) {
        (Proven::Password(_), PresentProof::Typed(present)) => present.text == typed.chosen,
        _ => is_present_password(core, &live.user, &typed.chosen).await?,
    };
    if is_present {
        return done(PasswordChange::Unchanged);
    }
    let hash = core
        .passwords
        .hash(typed.chosen.clone(), core.random.bytes())
        .await?;
    let notice = DrawnNotice::of_new_password(core, &live.user, browser, now)?;
    let removal = if typed.removed.is_empty() {
        None
    } else {
        let uuid = live.user.uuid;
        let present = core
            .store
            .read(|snapshot| factors::of_user(snapshot, uuid))
            .await?;
        let last_set_at = live.user.password_set_at();
        let removed = factors::chosen_of(present, |id, factor| {
            factor.added_at > last_set_at && typed.removed.contains(&id)
        });
        let removed = removed.iter().map(|(_, factor)| factor);
        DrawnNotice::of_removed(core, &live.user, Some(browser), removed, now)?
    };
    let drawn = DrawnSession::draw(core, browser);
    let slot = drawn.slot();
    let policy = Arc::clone(&core.policy);
    let here = browser.clone();
    let chosen = typed.removed.clone();
    let started = core
        .store
        .write("change_password", move |tx| -> Result<_, StoreError> {
            let lifetimes = policy.lifetimes.session;
            let Some(live) = session::find(&*tx, here.session.as_ref(), lifetimes, now)? else {
                return Ok(None);
            };
            let mut user = live.user.clone();
            if user.password != checked {
                return Ok(None);
            }
            let Some(spent) = proven.spend(tx, &mut user, now)? else {
                return Ok(Some(ActionResult::Unproven));
            };
            if !chosen.is_empty() && !is_enough(&*tx, &live, &proven)? {
                return Ok(Some(ActionResult::SignInRequired));
            }
            let last_set_at = user.password_set_at();
            let removed = factors::remove_these(tx, user.uuid, |id, factor| {
                factor.added_at > last_set_at && chosen.contains(&id)
            })?;
            if !removed.is_empty() {
                removal.iter().try_for_each(|notice| notice.put(tx))?;
            }
            user.password_changed_at = Some(now);
            user.password = Some(hash.clone());
            user.must_change_password = false;
            user.updated_at = now;
            USERS.put(tx, &user.uuid, &user)?;
            failed_passwords::reset_passwords(tx, user.uuid)?;
            notice.iter().try_for_each(|notice| notice.put(tx))?;
            let ended = session::end_all(tx, user.uuid, None, now)?;
            session::end_families(tx, user.uuid, now)?;
            let new = NewSession {
                user: user.uuid,
                event: event_after(&live, &proven, now),
                device: here.device.clone(),
            };
            let started = session::start(tx, None, slot, new, lifetimes, now)?;
            Ok(Some(ActionResult::Done(Changed {
                session: started.id,
                user,
                ended,
                removed,
                spent,
            })))
        })
        .await?;
    let Some(result) = started else {
        return Ok(None);
    };
    Ok(Some(result.map(|changed| complete(core, changed, drawn, now))))
}

/// What the transaction did.
struct Changed {
    session: Uuid,
    user: User,
    ended: EndedSessions,
    removed: Vec<Factor>,
    spent: SpentProof,
}

/// What follows the commit.
fn complete(core: &Core, changed: Changed, drawn: DrawnSession, now: Timestamp) -> PasswordChange {
    let Changed {
        session: id,
        user: changed,
        ended,
        removed,
        spent,
    } = changed;
    let user = changed.uuid;
    core.outbox_filled.notify_one();
    audit::record(&Event::PasswordChanged { user, session: id });
    record_removed(core, user, &removed);
    spent.record();
    session::record_ended(core, ended, now);
    PasswordChange::Changed {
        session: drawn.cookie(id),
        user: Box::new(changed),
    }
}

/// How the user has authenticated for the new session. A code or a passkey renews nothing: the session stays what it was.
fn event_after(live: &LiveSession, proven: &Proven, now: Timestamp) -> AuthenticationEvent {
    let session = &live.session;
    if proven.shows_factor() {
        return AuthenticationEvent {
            factor: session.factor.clone(),
            second_factor: session.second_factor,
            auth_time: session.auth_time,
            was_asked_anew: session.was_asked_anew,
            ..AuthenticationEvent::by_password(now)
        };
    }
    AuthenticationEvent {
        // Neither an old second step nor that of a provider counts for the new session.
        second_factor: session
            .second_factor
            .filter(|factor| session.is_fresh(now) && *factor != SecondFactor::Provider),
        ..AuthenticationEvent::by_password(now)
    }
}
