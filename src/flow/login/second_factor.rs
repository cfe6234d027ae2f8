//! The second step of a sign-in: a user who has a second factor shows it before the session begins.

use std::net::IpAddr;

use super::destination::BrowserRedirect;
use super::pending_sign_in::{PendingSignIn, event_after};
use super::record_sign_in::record_sign_in;
use super::session;
use super::start_session::{Identify, SessionStart, start_session};
use super::transaction::BrowserLogin;
use crate::flow::factors::{Answer, matching, use_up};
use crate::flow::{Failure, failed_passwords};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::engine::Snapshot;
use crate::store::tables::USERS;

/// The result of the second step.
#[derive(Debug)]
pub enum SecondStep {
    /// The user is signed in. The browser goes here.
    Done(BrowserRedirect),
    /// The user must choose another password, or the client gets a refusal. The browser goes here.
    Redirected(BrowserRedirect),
    /// The code is wrong or was used.
    Wrong,
    /// Too many codes in a row were wrong. Only a recovery code is accepted.
    AtLimit,
    /// The sign-in has ended.
    Expired,
}

/// Checks a code of the second step. If it is right, the code is used up and the session begins, in one transaction. Of
/// two requests with the same code, one gets the session.
pub async fn answer(
    at: BrowserLogin<'_>,
    pending: &PendingSignIn,
    typed: &str,
    from: IpAddr,
) -> Result<SecondStep, Failure> {
    let BrowserLogin {
        core,
        browser,
        login,
        now,
    } = at;
    let (first, user, raised) = (pending.first.clone(), pending.user.uuid, pending.raised);
    let (presented, lifetimes) = (browser.session.clone(), core.policy.lifetimes.session);
    let client_id = login.purpose.audit_name();
    let is_at_limit =
        move |snapshot: &dyn Snapshot| failed_passwords::is_second_step_at_limit(snapshot, user);
    let matched = matching(core, user, &pending.factors, typed, now);
    let is_recovery = matches!(&matched, Some((_, answer)) if !matches!(answer, Answer::Totp(_)));
    // Right or wrong: at the limit, a code of the app gets the same answer.
    if !is_recovery && !failed_passwords::settle_code(core, user, matched.is_some(), now).await? {
        return Ok(SecondStep::AtLimit);
    }
    let Some((id, answer)) = matched else {
        let user = Some(user);
        audit::record(&Event::SignInFailed {
            user,
            from,
            client_id,
        });
        return Ok(SecondStep::Wrong);
    };
    let is_totp = matches!(answer, Answer::Totp(_));
    let event = event_after(core, browser, pending, answer.second_factor(), now)?;
    let identify: Identify = Box::new(move |tx| {
        let Some(user) = USERS.get(&*tx, &user)?.filter(|user| first.is_valid(user, now)) else {
            return Ok(None);
        };
        if let Some(raised) = raised {
            let live = session::find(&*tx, presented.as_ref(), lifetimes, now)?;
            if live.is_none_or(|live| live.id != raised || live.user.uuid != user.uuid) {
                return Ok(None);
            }
        }
        let is_accepted = !(is_totp && is_at_limit(&*tx)?) && use_up(tx, user.uuid, id, &answer, now)?;
        if !is_accepted {
            return Ok(None);
        }
        failed_passwords::reset_second_step(tx, user.uuid)?;
        Ok(Some(user.into()))
    });
    let factor = if is_totp { "totp" } else { "recovery_code" };
    let done = Event::SecondStepDone { user, factor };
    let started = match start_session(at, event, Some(user), identify).await? {
        SessionStart::Started(started) => started,
        SessionStart::NoUser => return Ok(SecondStep::Wrong),
        SessionStart::Redirected { redirect, user } => {
            if user.is_some() {
                audit::record(&done);
            }
            return Ok(SecondStep::Redirected(redirect));
        }
        SessionStart::TransactionError(_) => return Ok(SecondStep::Expired),
    };
    core.outbox_filled.notify_one();
    audit::record(&done);
    record_sign_in(&started, &pending.first.factor, client_id);
    Ok(SecondStep::Done(started.redirect))
}
