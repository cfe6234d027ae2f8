//! The second step of a sign-in: a user who has a second factor shows it before the session begins.

use std::net::IpAddr;

use super::remembered_device::RememberedUsers;
use super::session::{AuthenticationEvent, LiveSession};
use super::start_session::{Identify, SessionStart, start_session};
use super::transaction::{BrowserRedirect, Destination, LoginContext};
use super::{sealed, session};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::factors::{Answer, answer_second_step, matching};
use crate::flow::notice::DrawnNotice;
use crate::flow::{Core, Failure, factors, failed_passwords};
use crate::identity::{
    AuthenticationMethod, Factor, FactorKind, FirstFactor, LoginName, SecondFactor, SecondFactorRule, User,
};
use crate::oauth::login::{LoginStep, ResolvedPurpose};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::password::PasswordHash;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{FACTORS, USERS};
use uuid::Uuid;

/// Whether the user has to answer a second step after this event, or has to set one up.
///
/// A provider decides about the users who came from it, unless the operator or the sign-in requires a second factor. If two
/// factors are required, a passkey answers the second step too. A remembered browser skips it, unless the sign-in requires
/// a second factor.
pub(super) fn is_required(
    snapshot: &dyn Snapshot,
    user: &User,
    purpose: &ResolvedPurpose,
    (rule, remembered): (SecondFactorRule, &RememberedUsers),
    event: &AuthenticationEvent,
) -> Result<bool, StoreError> {
    let (is_asked, is_ruled) = match &event.factor {
        AuthenticationMethod::Password | AuthenticationMethod::Email => (true, rule != SecondFactorRule::Off),
        AuthenticationMethod::Federated { .. } => (
            purpose.requires_second_factor() || !user.comes_from_provider(),
            rule == SecondFactorRule::All,
        ),
        AuthenticationMethod::Passkey { .. } | AuthenticationMethod::Anonymous => return Ok(false),
    };
    if event.second_factor.is_some() {
        return Ok(false);
    }
    let factors = factors::of_user(snapshot, user.uuid)?;
    let is_demanded = purpose.requires_second_factor();
    let is_required = is_ruled
        || purpose.lets_user_enrol()
        || is_asked && answer_second_step(&factors)
        || is_demanded && can_use_passkey(&factors, user, purpose.accepts_passkeys());
    Ok(is_required && (is_demanded || !remembered.includes(snapshot, user)?))
}

/// Whether the user can sign in with a passkey.
fn can_use_passkey(factors: &[(Uuid, Factor)], user: &User, accepts_passkeys: bool) -> bool {
    let mut factors = factors.iter();
    let has_passkey = factors.any(|(_, factor)| matches!(factor.kind, FactorKind::Passkey(_)));
    has_passkey && accepts_passkeys && !user.comes_from_provider()
}

/// Whether the user can sign in with two factors where passkeys are accepted or not. A user who cannot has to set up a
/// factor first.
pub(super) fn can_use_two_factors(
    snapshot: &dyn Snapshot,
    user: &User,
    accepts_passkeys: bool,
) -> Result<bool, StoreError> {
    let factors = factors::of_user(snapshot, user.uuid)?;
    Ok(answer_second_step(&factors) || can_use_passkey(&factors, user, accepts_passkeys))
}

/// Sends the browser to the page for the second step, with what was proven.
pub(super) fn ask(
    core: &Core,
    login: &LoginContext,
    proven: &AuthenticationEvent,
    user: &User,
    now: Timestamp,
) -> Result<BrowserRedirect, StoreError> {
    let proof = FirstFactor {
        user: user.uuid,
        name: proven.name.as_ref().map(|name| name.as_str().to_owned()),
        factor: proven.factor.clone(),
        auth_time: proven.auth_time,
        was_asked_anew: proven.was_asked_anew,
        upstream_token: proven.upstream_token.clone(),
        password: user.password.as_ref().map(PasswordHash::fingerprint),
        links: user.identities.len(),
        proven_at: now,
        sends_notice: proven.notice.is_some(),
        takes_passkey_offer: proven.takes_passkey_offer,
    };
    let context = FirstFactor::sealing_context(login.transaction.id);
    let proof = sealed::seal(core, &context, &proof, now)?;
    let destination = Destination::SecondFactor(login.sealed.clone(), proof);
    Ok(BrowserRedirect::to(destination))
}

/// A sign-in that waits for the second step.
pub struct PendingSignIn {
    /// What was proven.
    pub first: FirstFactor,
    /// The user.
    pub user: User,
    factors: Vec<(Uuid, Factor)>,
    can_use_passkey: bool,
    /// The session that is raised, if the user is signed in.
    raised: Option<Uuid>,
}

impl PendingSignIn {
    /// The name that the user typed, or else the account identifier.
    pub fn name(&self) -> LoginName {
        LoginName::new(self.first.name.as_deref().unwrap_or(&self.user.account_id))
    }

    /// Whether the user has to set up a second factor. A user who has a passkey does not: a thief of the password could
    /// set up an app instead.
    pub fn needs_enrolment(&self) -> bool {
        self.raised.is_none() && !self.can_use_passkey && !answer_second_step(&self.factors)
    }

    /// Whether the user can answer with a passkey.
    pub fn has_passkey(&self) -> bool {
        self.can_use_passkey
    }

    /// The factors of the user.
    pub(super) fn factors(&self) -> &[(Uuid, Factor)] {
        &self.factors
    }

    /// Whether the user has an application that makes codes.
    pub fn has_totp(&self) -> bool {
        let mut factors = self.factors.iter();
        factors.any(|(_, factor)| matches!(factor.kind, FactorKind::Totp(_)))
    }

    /// The credential ids of the user's passkeys.
    pub fn credential_ids(&self) -> impl Iterator<Item = &[u8]> {
        self.factors.iter().filter_map(|(_, factor)| match &factor.kind {
            FactorKind::Passkey(passkey) => Some(passkey.credential_id.as_slice()),
            _ => None,
        })
    }

    /// Whether the user has recovery codes, which may be used up.
    pub fn has_recovery_codes(&self) -> bool {
        let mut factors = self.factors.iter();
        factors.any(|(_, factor)| matches!(factor.kind, FactorKind::RecoveryCodes(_)))
    }
}

/// Opens what was proven in this sign-in. `None` if that is another sign-in, or it no longer counts, or the user has no
/// factor any more and needs none.
pub async fn find(
    core: &Core,
    login: &LoginContext,
    proof: &str,
    now: Timestamp,
) -> Result<Option<PendingSignIn>, Failure> {
    let (first, raised) = if let (LoginStep::SecondStep, Some(live)) = (&login.step, &login.session) {
        (of_session(live, now), Some(live.id))
    } else {
        let context = FirstFactor::sealing_context(login.transaction.id);
        let Some(first) = sealed::open::<FirstFactor>(core, &context, proof) else {
            return Ok(None);
        };
        (first, None)
    };
    let read = |snapshot: &dyn Snapshot| {
        let user = USERS.get(snapshot, &first.user)?;
        let Some(user) = user.filter(|user| first.is_valid(user, now)) else {
            return Ok(None);
        };
        let factors = factors::of_user(snapshot, user.uuid)?;
        Ok(Some((user, factors)))
    };
    let Some((user, factors)) = core.store.read(read).await? else {
        return Ok(None);
    };
    let pending = PendingSignIn {
        can_use_passkey: can_use_passkey(&factors, &user, login.purpose.accepts_passkeys()),
        first,
        user,
        factors,
        raised,
    };
    let is_ruled = core.policy.accounts.second_factor != SecondFactorRule::Off;
    let is_over = pending.needs_enrolment() && !is_ruled && !login.purpose.lets_user_enrol();
    Ok((!is_over).then_some(pending))
}

/// A live session as the first step.
fn of_session(live: &LiveSession, now: Timestamp) -> FirstFactor {
    let session = &live.session;
    FirstFactor {
        user: live.user.uuid,
        name: None,
        factor: session.factor.clone(),
        auth_time: session.auth_time,
        was_asked_anew: session.was_asked_anew,
        upstream_token: None,
        password: live.user.password.as_ref().map(PasswordHash::fingerprint),
        links: live.user.identities.len(),
        proven_at: now,
        sends_notice: false,
        takes_passkey_offer: false,
    }
}

/// The result of the second step.
#[derive(Debug)]
pub enum SecondStep {
    /// The user is signed in, or the client gets a refusal. The browser goes here.
    Done(BrowserRedirect),
    /// The client gets a refusal. The browser goes here.
    Refused(BrowserRedirect),
    /// The code is wrong or was used.
    Wrong,
    /// Too many codes in a row were wrong. Only a recovery code is accepted.
    AtLimit,
    /// The sign-in has ended.
    Expired,
}

/// How the user has authenticated after both steps. The time of a session that is raised stays.
pub(super) fn event_after(
    core: &Core,
    browser: &Browser,
    pending: &PendingSignIn,
    second_factor: SecondFactor,
    now: Timestamp,
) -> Result<AuthenticationEvent, StoreError> {
    let first = &pending.first;
    let notice = if first.sends_notice {
        DrawnNotice::of_new_device(core, &pending.user, browser, now)?
    } else {
        None
    };
    let is_own = matches!(
        first.factor,
        AuthenticationMethod::Password | AuthenticationMethod::Email
    );
    Ok(AuthenticationEvent {
        factor: first.factor.clone(),
        second_factor: Some(second_factor),
        auth_time: if is_own && pending.raised.is_none() {
            Some(now)
        } else {
            first.auth_time
        },
        was_asked_anew: first.was_asked_anew,
        upstream_token: first.upstream_token.clone(),
        name: None,
        notice,
        takes_passkey_offer: first.takes_passkey_offer,
    })
}

/// Checks a code of the second step. If it is right, the code is used up and the session begins, in one transaction. Of
/// two requests with the same code, one gets the session.
pub async fn answer(
    core: &Core,
    browser: &Browser,
    login: &LoginContext,
    pending: &PendingSignIn,
    (typed, from): (&str, IpAddr),
    now: Timestamp,
) -> Result<SecondStep, Failure> {
    let (first, user, raised) = (pending.first.clone(), pending.user.uuid, pending.raised);
    let (presented, lifetimes) = (browser.session.clone(), core.policy.lifetimes.session);
    let client_id = login.purpose.audit_name();
    let Some((id, answer)) = matching(core, user, &pending.factors, typed, now) else {
        count_wrong(core, user, now).await?;
        let user = Some(user);
        audit::record(&Event::SignInFailed {
            user,
            from,
            client_id,
        });
        return Ok(SecondStep::Wrong);
    };
    let is_totp = matches!(answer, Answer::Totp(_));
    let is_at_limit =
        move |snapshot: &dyn Snapshot| failed_passwords::is_second_step_at_limit(snapshot, user);
    if is_totp && core.store.read(is_at_limit).await? {
        return Ok(SecondStep::AtLimit);
    }
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
        let is_accepted = !(is_totp && is_at_limit(&*tx)?) && use_up(tx, (user.uuid, id), &answer, now)?;
        if !is_accepted {
            return Ok(None);
        }
        failed_passwords::reset_second_step(tx, user.uuid)?;
        Ok(Some(user.into()))
    });
    let started = match start_session(core, browser, login, event, now, identify).await? {
        SessionStart::Started(started) => started,
        SessionStart::NoUser => return Ok(SecondStep::Wrong),
        SessionStart::Redirected { redirect, .. } => return Ok(SecondStep::Refused(redirect)),
        SessionStart::TransactionError(_) => return Ok(SecondStep::Expired),
    };
    core.outbox_filled.notify_one();
    let factor = if is_totp { "totp" } else { "recovery_code" };
    audit::record(&Event::SecondStepDone { user, factor });
    audit::record(&Event::SignedIn {
        user,
        session: started.session,
        authority: pending.first.factor.authority(),
        client_id,
    });
    Ok(SecondStep::Done(started.redirect))
}

/// Uses a code up. Returns whether it was unused: a code of a time step, or of an earlier one, is accepted once (RFC 6238
/// section 5.2).
fn use_up(tx: &mut dyn Tx, key: (Uuid, Uuid), answer: &Answer, now: Timestamp) -> Result<bool, StoreError> {
    let Some(mut factor) = FACTORS.get(&*tx, &key)? else {
        return Ok(false);
    };
    let is_unused = match (&mut factor.kind, answer) {
        (FactorKind::Totp(totp), Answer::Totp(step)) => {
            let is_later = *step > totp.last_step;
            totp.last_step = totp.last_step.max(*step);
            is_later
        }
        (FactorKind::RecoveryCodes(codes), Answer::RecoveryCode(code)) => codes.use_up(code),
        _ => false,
    };
    if is_unused {
        factor.last_used_at = Some(now);
        FACTORS.put(tx, &key, &factor)?;
    }
    Ok(is_unused)
}

async fn count_wrong(core: &Core, user: Uuid, now: Timestamp) -> Result<(), Failure> {
    let count = move |tx: &mut dyn Tx| failed_passwords::add_second_step(tx, user, now);
    if core.store.write("failed_second_step", count).await? {
        audit::record(&Event::SecondStepLimitReached { user });
    }
    Ok(())
}
