//! A sign-in whose user has proven the first factor and has not answered the second step yet.

use uuid::Uuid;

use super::destination::{BrowserRedirect, Destination};
use super::second_factor_rule::can_use_passkey;
use super::session::{AuthenticationEvent, LiveSession};
use super::transaction::LoginContext;
use super::{remembered_device, sealed};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::factors;
use crate::flow::factors::answer_second_step;
use crate::flow::notice::DrawnNotice;
use crate::flow::{Core, Failure};
use crate::identity::{
    AuthenticationMethod, Factor, FactorKind, FirstFactor, LoginName, SecondFactor, SecondFactorRule, User,
};
use crate::oauth::login::LoginStep;
use crate::password::PasswordHash;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::USERS;

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
    let destination = Destination::SecondFactor {
        sealed: login.sealed.clone(),
        proof: Some(proof),
    };
    Ok(BrowserRedirect::to(destination))
}

/// A sign-in that waits for the second step.
pub struct PendingSignIn {
    /// What was proven.
    pub first: FirstFactor,
    pub user: User,
    /// The factors of the user.
    pub(super) factors: Vec<(Uuid, Factor)>,
    can_use_passkey: bool,
    /// The session that is raised, if the user is signed in.
    pub(super) raised: Option<Uuid>,
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

    /// The cookie of a browser in which this user has just answered the second step. `None` if the operator does not let
    /// browsers be remembered.
    pub fn remembered_in(&self, core: &Core, browser: &Browser, now: Timestamp) -> Option<String> {
        remembered_device::remember(core, browser, &self.user, &self.factors, now)
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
    let read = |snapshot: &dyn Snapshot| -> Result<_, Failure> {
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
