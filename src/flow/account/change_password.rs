//! A user changes the password.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::present_password::PresentPassword;
use super::{ActionResult, present_password};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::session;
use crate::flow::login::session::{AuthenticationEvent, DrawnSession, NewSession};
use crate::flow::notice::DrawnNotice;
use crate::flow::{Core, Failure, failed_passwords};
use crate::identity::{SecondFactor, User};
use crate::limit::password_attempt::PasswordAttempt;
use crate::mail::Content;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::password::PasswordProblem;
use crate::secret::{Secret, SessionCookie};
use crate::store::StoreError;
use crate::store::tables::USERS;

/// What a user types to change the password.
pub struct NewPassword {
    pub current: PresentPassword,
    pub chosen: Zeroizing<String>,
}

/// The result of a change of the password.
#[derive(Debug)]
pub enum PasswordChange {
    /// The password has changed, and this browser has a new session.
    Changed {
        session: Secret<SessionCookie>,
        user: Box<User>,
    },
    /// The present password is wrong; nothing changed.
    WrongPassword,
    /// The policy forbids the new one; nothing changed.
    Rejected(PasswordProblem),
    /// The new one is the present one; nothing changed.
    Unchanged,
}

/// Verifies the present password, then sets the new one and ends everything that was granted before, in one
/// transaction. This browser stays signed in, in a session with a new id. An old password, a copied cookie or a code
/// that is not redeemed yet is worth nothing afterwards.
///
/// The present password is asked for even if the session is recent, and counts as authentication. If the record has
/// changed since the password was verified, it is verified again, once: a sign-in elsewhere may have renewed the
/// hash.
pub async fn change_password(
    core: &Core,
    browser: &Browser,
    typed: NewPassword,
    attempt: PasswordAttempt,
    now: Timestamp,
) -> Result<ActionResult<PasswordChange>, Failure> {
    for _ in 0..2 {
        if let Some(result) = try_change(core, browser, &typed, &attempt, now).await? {
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
    attempt: &PasswordAttempt,
    now: Timestamp,
) -> Result<Option<ActionResult<PasswordChange>>, Failure> {
    let Some(live) = session::signed_in(core, browser, now).await? else {
        return Ok(Some(ActionResult::SignInRequired));
    };
    let done = |change| Ok::<_, Failure>(Some(ActionResult::Done(change)));
    if let Err(problem) = core.policy.check_password(&live.user, &typed.chosen) {
        return done(PasswordChange::Rejected(problem));
    }
    let user = live.user.uuid;
    let checked = live.user.password.clone();
    if !present_password::verify(core, &live.user, &typed.current, attempt, now).await? {
        return done(PasswordChange::WrongPassword);
    }
    if typed.chosen == typed.current.typed {
        return done(PasswordChange::Unchanged);
    }
    let hash = core
        .passwords
        .hash(typed.chosen.clone(), core.random.bytes())
        .await?;
    let changed = |link| Content::PasswordChanged { at: now, link };
    let notice = DrawnNotice::draw(core, &live.user, changed, now)?;
    let drawn = DrawnSession::draw(core, browser);
    let slot = drawn.slot();
    let policy = Arc::clone(&core.policy);
    let here = browser.clone();
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
                event: AuthenticationEvent {
                    // Neither an old second step nor that of a provider counts for the new session.
                    second_factor: live
                        .session
                        .second_factor
                        .filter(|factor| live.session.is_fresh(now) && *factor != SecondFactor::Provider),
                    ..AuthenticationEvent::by_password(now)
                },
                device: here.device.clone(),
            };
            let started = session::start(tx, None, slot, new, lifetimes, now)?;
            Ok(Some((started.id, user, ended)))
        })
        .await?;
    let Some((id, changed, ended)) = started else {
        return Ok(None);
    };
    core.outbox_filled.notify_one();
    audit::record(&Event::PasswordChanged { user, session: id });
    session::record_ended(core, ended, now);
    done(PasswordChange::Changed {
        session: drawn.cookie(id),
        user: Box::new(changed),
    })
}
