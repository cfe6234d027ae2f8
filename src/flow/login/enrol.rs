//! A user without a second factor sets one up in the sign-in, because the operator requires it.

use super::pending_sign_in::{PendingSignIn, event_after};
use super::record_sign_in::record_sign_in;
use super::second_factor::SecondStep;
use super::second_factor_rule::can_use_two_factors;
use super::start_session::{Identified, Identify, SessionStart, start_session};
use super::transaction::{BrowserLogin, LoginContext};
use crate::clock::Timestamp;
use crate::flow::totp_setup::TotpSetup;
use crate::flow::{Core, Failure, failed_passwords};
use crate::identity::SecondFactor;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::USERS;

/// Draws a seed and recovery codes. Nothing is stored.
pub fn draw(core: &Core, login: &LoginContext, pending: &PendingSignIn, now: Timestamp) -> Option<TotpSetup> {
    TotpSetup::draw(core, &context(login, pending), &pending.user, now)
}

/// Opens what [`draw`] sealed for this sign-in and user, if it is recent.
pub fn open(
    core: &Core,
    login: &LoginContext,
    pending: &PendingSignIn,
    sealed: &str,
    now: Timestamp,
) -> Option<TotpSetup> {
    TotpSetup::open(core, &context(login, pending), &pending.user, sealed, now)
}

fn context(login: &LoginContext, pending: &PendingSignIn) -> String {
    format!(
        "login_transaction/{}/enrolment/{}",
        login.transaction.id, pending.user.uuid
    )
}

/// Checks a code of the new authenticator app. If it is right, the factors are stored and the session begins, in one
/// transaction.
pub async fn enrol(
    at: BrowserLogin<'_>,
    pending: &PendingSignIn,
    setup: &TotpSetup,
    typed: &str,
) -> Result<SecondStep, Failure> {
    let BrowserLogin {
        core,
        browser,
        login,
        now,
    } = at;
    let (first, user) = (pending.first.clone(), pending.user.uuid);
    let Some(new) = setup.confirm(core, user, typed, now) else {
        return Ok(SecondStep::Wrong);
    };
    let notice = new.notice(core, &pending.user, browser, &pending.factors, now)?;
    let event = event_after(core, browser, pending, SecondFactor::Totp, now)?;
    let accepts_passkeys = login.purpose.accepts_passkeys();
    let identify: Identify = Box::new(move |tx| {
        let Some(user) = USERS.get(&*tx, &user)?.filter(|user| first.is_valid(user, now)) else {
            return Ok(None);
        };
        if can_use_two_factors(&*tx, &user, accepts_passkeys)? || new.add(tx, user.uuid)?.is_none() {
            return Ok(None);
        }
        failed_passwords::reset_second_step(tx, user.uuid)?;
        Ok(Some(Identified {
            notice: notice.clone().map(Box::new),
            ..user.into()
        }))
    });
    let record_added = || {
        core.outbox_filled.notify_one();
        audit::record(&Event::FactorAdded { user, factor: "totp" });
    };
    let started = match start_session(at, event, Some(user), identify).await? {
        SessionStart::Started(started) => started,
        SessionStart::Redirected { redirect, user } => {
            if user.is_some() {
                record_added();
            }
            return Ok(SecondStep::Redirected(redirect));
        }
        SessionStart::NoUser | SessionStart::TransactionError(_) => return Ok(SecondStep::Expired),
    };
    record_added();
    record_sign_in(&started, &pending.first.factor, login.purpose.audit_name());
    Ok(SecondStep::Done(started.redirect))
}
