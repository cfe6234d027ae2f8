//! The proof that a signed-in user gives in the form of an action that could take the account over.
//!
//! The cookie of a session may be stolen, or its browser left open. So such an action takes the password, a code or a
//! passkey, however fresh the session is. A user who has none of them signs in at a provider or by mail, and must have
//! done so recently.

use std::net::IpAddr;

use uuid::Uuid;
use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::flow::check_password::check_password;
use crate::flow::factor_wait::{end_wait, record_end};
use crate::flow::factors::{self, Answer, answer_second_step, matching, passkey_of, use_up};
use crate::flow::login::session::LiveSession;
use crate::flow::passkey_challenge::{self, ChallengePlace};
use crate::flow::verified_passkey::VerifiedPasskey;
use crate::flow::{Core, Failure, failed_passwords};
use crate::identity::{Factor, User};
use crate::limit::password_attempt::PasswordAttempt;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::password::PasswordHash;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::USERS;
use crate::text;
use crate::webauthn::response::AuthenticationResponse;

/// What a form brings as proof.
pub enum PresentProof {
    /// The password or a code, as the user types it.
    Typed(TypedProof),
    /// The response of a passkey.
    Passkey(Box<PasskeyProof>),
    /// The user has just signed in with the password, and the form is part of that sign-in.
    SignIn,
}

pub struct TypedProof {
    pub text: Zeroizing<String>,
    pub attempt: PasswordAttempt,
    /// The address it came from, for the audit.
    pub from: IpAddr,
}

pub struct PasskeyProof {
    pub response: AuthenticationResponse,
    /// The challenge of the page, sealed.
    pub challenge: String,
    /// The address it came from, for the audit.
    pub from: IpAddr,
}

/// A proof that was verified. It is used up in the transaction of the action.
#[derive(Clone)]
pub(super) enum Proven {
    /// The password with this hash.
    Password(PasswordHash),
    Code {
        factor: Uuid,
        answer: Answer,
    },
    Passkey(Box<VerifiedPasskey>),
    /// The user has neither a password nor a factor.
    Nothing,
    SignIn,
}

impl Proven {
    /// Whether the user has shown a factor beside the password.
    pub(super) fn shows_factor(&self) -> bool {
        matches!(self, Self::Code { .. } | Self::Passkey(_))
    }

    /// Whether it is enough in this session. A user who shows a factor needs no recent sign-in.
    pub(super) fn suffices_in(&self, live: &LiveSession, now: Timestamp) -> bool {
        self.shows_factor() || live.session.is_fresh(now)
    }

    /// Uses the proof up. `None` if it is no longer good: a code or a response is good for one action. A factor ends the
    /// wait of a user who said that none is left.
    pub(super) fn spend(
        &self,
        tx: &mut dyn Tx,
        user: &mut User,
        now: Timestamp,
    ) -> Result<Option<SpentProof>, StoreError> {
        if !self.is_used_up(tx, user, now)? {
            return Ok(None);
        }
        let may_wait = user.factors_end_at.is_some() || user.secured_at.is_some();
        let mut ends_wait = false;
        if may_wait && self.shows_factor() {
            ends_wait = end_wait(user);
            USERS.put(tx, &user.uuid, user)?;
        }
        Ok(Some(SpentProof {
            user: user.uuid,
            ends_wait,
        }))
    }

    fn is_used_up(&self, tx: &mut dyn Tx, user: &User, now: Timestamp) -> Result<bool, StoreError> {
        match self {
            Self::Password(hash) => Ok(user.password.as_ref() == Some(hash)),
            Self::Code { factor, answer } => {
                let is_at_limit = matches!(answer, Answer::Totp(_))
                    && failed_passwords::is_second_step_at_limit(&*tx, user.uuid)?;
                Ok(!is_at_limit && use_up(tx, user.uuid, *factor, answer, now)?)
            }
            Self::Passkey(verified) => Ok(verified.user == user.uuid && verified.use_up(tx, now)?),
            Self::Nothing => Ok(has_nothing(user, &factors::of_user(&*tx, user.uuid)?, now)),
            Self::SignIn => Ok(true),
        }
    }
}

/// What ended because a proof was used.
pub(super) struct SpentProof {
    user: Uuid,
    ends_wait: bool,
}

impl SpentProof {
    /// Records it, after the commit.
    pub(super) fn record(&self) {
        if self.ends_wait {
            record_end(self.user, "factor");
        }
    }
}

/// Verifies the proof of a signed-in user. A wrong password or code counts as in a sign-in; an empty field does not.
pub(super) async fn verify(
    core: &Core,
    live: &LiveSession,
    proof: &PresentProof,
    now: Timestamp,
) -> Result<Option<Proven>, Failure> {
    let user = live.user.uuid;
    let read = |snapshot: &dyn Snapshot| factors::of_user(snapshot, user);
    let factors = core.store.read(read).await?;
    let (proven, from) = match proof {
        PresentProof::SignIn => return Ok(Some(Proven::SignIn)),
        _ if has_nothing(&live.user, &factors, now) => return Ok(Some(Proven::Nothing)),
        PresentProof::Typed(typed) if typed.text.is_empty() => return Ok(None),
        PresentProof::Typed(typed) => (verify_typed(core, live, &factors, typed, now).await?, typed.from),
        PresentProof::Passkey(passkey) => (verify_passkey(core, live, passkey, now).await?, passkey.from),
    };
    if proven.is_none() {
        audit::record(&Event::PasswordChangeFailed { user, from });
    }
    Ok(proven)
}

/// Whether the user signs in at a provider or by mail only. Who has just secured the account has no password for the moment,
/// and a thief may have a session that goes on.
fn has_nothing(user: &User, factors: &[(Uuid, Factor)], now: Timestamp) -> bool {
    user.password.is_none() && factors.is_empty() && !user.is_secured(now)
}

async fn verify_typed(
    core: &Core,
    live: &LiveSession,
    factors: &[(Uuid, Factor)],
    typed: &TypedProof,
    now: Timestamp,
) -> Result<Option<Proven>, Failure> {
    let (user, attempt) = (&live.user, &typed.attempt);
    if let Some((factor, answer)) = matching(core, user.uuid, factors, &typed.text, now) {
        let is_recovery = !matches!(answer, Answer::Totp(_));
        let counts = is_recovery || failed_passwords::settle_code(core, user.uuid, true, now).await?;
        return Ok(counts.then_some(Proven::Code { factor, answer }));
    }
    let checked = if let Some(hash) = user.password.clone() {
        let attempt = failed_passwords::counted(core, attempt, Some(user), Some(hash.clone()), now);
        let check = check_password(core, Some(hash.clone()), typed.text.clone(), attempt).await;
        check.map(|check| check.matches.then_some(Proven::Password(hash)))
    } else {
        attempt.count_failure();
        Ok(None)
    };
    // Also if the password was not checked for lack of room: the code was compared.
    let is_wrong = !matches!(checked, Ok(Some(_)));
    if is_wrong && answer_second_step(factors) && is_code(&typed.text) {
        failed_passwords::settle_code(core, user.uuid, false, now).await?;
    }
    Ok(checked?)
}

/// Whether it is read as the code of an app. A wrong one may be a guess.
fn is_code(typed: &str) -> bool {
    text::code(typed).chars().all(char::is_numeric)
}

async fn verify_passkey(
    core: &Core,
    live: &LiveSession,
    passkey: &PasskeyProof,
    now: Timestamp,
) -> Result<Option<Proven>, Failure> {
    let (user, response) = (live.user.uuid, &passkey.response);
    let place = ChallengePlace::Proof(live.id);
    let challenge = passkey_challenge::open(core, place, &passkey.challenge, now);
    let names_user = response.user_handle.is_empty() || response.user_handle == user.as_bytes();
    let (Some(relying_party), Some(challenge), true) = (core.policy.relying_party(), challenge, names_user)
    else {
        return Ok(None);
    };
    let id = response.credential_id.clone();
    let find = move |snapshot: &dyn Snapshot| passkey_of(snapshot, user, &id);
    let Some(found) = core.store.read(find).await? else {
        return Ok(None);
    };
    let verified = VerifiedPasskey::verify(&relying_party, &challenge, &found, response).ok();
    Ok(verified.map(|verified| Proven::Passkey(Box::new(verified))))
}
