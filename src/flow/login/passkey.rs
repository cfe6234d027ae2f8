//! A user signs in with a passkey (Web Authentication Level 3 section 7.2).
//!
//! The response comes back in a form of the sign-in page. The page has a challenge, which is sealed for the login transaction
//! ([`crate::flow::passkey_challenge`]). The user is found by the handle that the authenticator returns, and
//! [`crate::webauthn`] verifies the response. The transaction that starts the session marks the challenge as used. The page of
//! the second step has such a form too: there the user is known, and must be the same.

use std::net::IpAddr;

use uuid::Uuid;

use super::destination::BrowserRedirect;
use super::session::AuthenticationEvent;
use super::start_session::{Identify, SessionStart, start_session};
use super::transaction::BrowserLogin;
use crate::flow::factors;
use crate::flow::passkey_challenge::{self, ChallengePlace, OpenedChallenge};
use crate::flow::replay::{record_use, was_used};
use crate::flow::{Core, Failure};
use crate::identity::{AuthenticationMethod, Factor, FactorKind, FirstFactor, Passkey, User};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::{FACTORS, USERS};
use crate::webauthn::response::AuthenticationResponse;
use crate::webauthn::{RelyingParty, StoredCredential, WebAuthnError};

/// The result of a sign-in with a passkey.
#[derive(Debug)]
pub enum PasskeySignIn {
    /// The user is signed in, or the client gets a refusal. The browser goes here.
    Done(BrowserRedirect),
    /// No user has this passkey.
    Unknown,
    /// The response is not valid.
    Refused(WebAuthnError),
    /// The passkey was used at the same moment, or changed, or its user is disabled.
    Void,
    /// The challenge is too old, used, or of another sign-in.
    ChallengeOver,
    /// The transaction has ended, or its client does not accept passkeys.
    Expired,
}

/// What the browser sent.
pub struct PasskeyCredentials {
    /// The response of the authenticator.
    pub response: AuthenticationResponse,
    /// The challenge of the page, sealed.
    pub challenge: String,
    /// The first step, if the passkey answers the second one. Only its user may sign in.
    pub first: Option<FirstFactor>,
    /// The address it came from, for the audit.
    pub from: IpAddr,
}

/// A passkey that was found for a response.
struct FoundPasskey {
    user: Uuid,
    id: Uuid,
    passkey: Passkey,
}

/// Verifies the response and, if it is valid, takes the next step.
///
/// The user is found by the user handle, and the passkey among the user's own (step 6). On the page of the second step the
/// user is known, and the handle must name the same one. So a copy of a credential id in
/// another account is never looked at. The signature is verified before the transaction. The transaction compares the
/// passkey with the one that was verified, so that of two responses with one counter one is refused. A user who came from a
/// provider signs in there, so that the provider can stop it.
pub async fn sign_in(
    at: BrowserLogin<'_>,
    credentials: &PasskeyCredentials,
) -> Result<PasskeySignIn, Failure> {
    let BrowserLogin { core, login, now, .. } = at;
    let Some(relying_party) = core.policy.relying_party() else {
        return Ok(PasskeySignIn::Expired);
    };
    let place = ChallengePlace::SignIn(login.transaction.id);
    let Some(challenge) = passkey_challenge::open(core, place, &credentials.challenge, now) else {
        return Ok(PasskeySignIn::ChallengeOver);
    };
    let client_id = login.purpose.audit_name();
    let failed = |user| {
        let from = credentials.from;
        audit::record(&Event::SignInFailed {
            user,
            from,
            client_id,
        });
    };
    let Some(found) = find(core, credentials).await? else {
        failed(credentials.first.as_ref().map(|first| first.user));
        return Ok(PasskeySignIn::Unknown);
    };
    if !login.purpose.accepts(&method_of(&found.passkey)) {
        return Ok(PasskeySignIn::Expired);
    }
    let used = match verify(&relying_party, &challenge, &found, credentials) {
        Ok(used) => used,
        Err(error) => {
            failed(Some(found.user));
            return Ok(PasskeySignIn::Refused(error));
        }
    };
    let upstream_token = credentials
        .first
        .as_ref()
        .and_then(|first| first.upstream_token.clone());
    let event = AuthenticationEvent {
        factor: method_of(&found.passkey),
        upstream_token,
        ..AuthenticationEvent::by_password(now)
    };
    let result = start(at, event, &found, used, challenge).await?;
    if matches!(result, PasskeySignIn::Void | PasskeySignIn::ChallengeOver) {
        failed(Some(found.user));
    }
    Ok(result)
}

/// How a user authenticates with a passkey. `amr` says whether the key can leave the device.
fn method_of(passkey: &Passkey) -> AuthenticationMethod {
    AuthenticationMethod::Passkey {
        is_synced: passkey.backup_eligible,
    }
}

async fn find(core: &Core, credentials: &PasskeyCredentials) -> Result<Option<FoundPasskey>, Failure> {
    let response = &credentials.response;
    let named = Uuid::from_slice(&response.user_handle).ok();
    let user = match &credentials.first {
        None => named,
        // An authenticator may leave the handle out if the page lists its credentials.
        Some(first) if response.user_handle.is_empty() => Some(first.user),
        Some(first) => named.filter(|named| *named == first.user),
    };
    let Some(user) = user else {
        return Ok(None);
    };
    let factors = core
        .store
        .read(|snapshot| factors::of_user(snapshot, user))
        .await?;
    Ok(factors.into_iter().find_map(|(id, factor)| match factor.kind {
        FactorKind::Passkey(passkey) if passkey.credential_id == response.credential_id => {
            Some(FoundPasskey { user, id, passkey })
        }
        _ => None,
    }))
}

/// The passkey as it is after this use.
fn verify(
    relying_party: &RelyingParty,
    challenge: &OpenedChallenge,
    found: &FoundPasskey,
    credentials: &PasskeyCredentials,
) -> Result<Passkey, WebAuthnError> {
    let stored = StoredCredential {
        public_key: &found.passkey.public_key,
        sign_count: found.passkey.sign_count,
        backup_eligible: found.passkey.backup_eligible,
    };
    let expected = relying_party.expects(&challenge.bytes);
    let state = credentials.response.assertion().verify(&expected, &stored)?;
    Ok(Passkey {
        sign_count: state.sign_count,
        backed_up: state.backed_up,
        ..found.passkey.clone()
    })
}

async fn start(
    at: BrowserLogin<'_>,
    event: AuthenticationEvent,
    found: &FoundPasskey,
    used: Passkey,
    challenge: OpenedChallenge,
) -> Result<PasskeySignIn, Failure> {
    let BrowserLogin { core, login, now, .. } = at;
    let authority = event.factor.authority().to_owned();
    let [verified, used] = [found.passkey.clone(), used].map(FactorKind::Passkey);
    let (key, replay_key) = ((found.user, found.id), challenge.replay_key);
    if core
        .store
        .read(|snapshot| was_used(snapshot, replay_key, now))
        .await?
    {
        return Ok(PasskeySignIn::ChallengeOver);
    }
    let identify: Identify = Box::new(move |tx| {
        let present = FACTORS.get(&*tx, &key)?.filter(|factor| factor.kind == verified);
        let (false, Some(factor)) = (was_used(&*tx, replay_key, now)?, present) else {
            return Ok(None);
        };
        let may_sign_in = |user: &User| user.enabled && !user.comes_from_provider();
        let Some(user) = USERS.get(&*tx, &key.0)?.filter(may_sign_in) else {
            return Ok(None);
        };
        record_use(tx, replay_key)?;
        let factor = Factor {
            last_used_at: Some(now),
            kind: used.clone(),
            ..factor
        };
        FACTORS.put(tx, &key, &factor)?;
        Ok(Some(user.into()))
    });
    let started = match start_session(at, event, identify).await? {
        SessionStart::Started(started) => started,
        SessionStart::Redirected { redirect, .. } => return Ok(PasskeySignIn::Done(redirect)),
        SessionStart::NoUser => return Ok(PasskeySignIn::Void),
        SessionStart::TransactionError(_) => return Ok(PasskeySignIn::Expired),
    };
    audit::record(&Event::SignedIn {
        user: started.user.uuid,
        session: started.session,
        authority: &authority,
        client_id: login.purpose.audit_name(),
    });
    Ok(PasskeySignIn::Done(started.redirect))
}
