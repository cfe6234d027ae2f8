//! A user signs in with a passkey (Web Authentication Level 3 section 7.2).
//!
//! The response comes back in a form of the sign-in page. The page has a challenge, which is sealed for the login transaction
//! ([`crate::flow::passkey_challenge`]). The user is found by the handle that the authenticator returns, or without one by the
//! credential id and the signature, and [`crate::webauthn`] verifies the response. The transaction that starts the session
//! marks the challenge as used. The page of the second step has such a form too: there the user is known, and must be the
//! same.

use std::net::IpAddr;

use uuid::Uuid;

use super::destination::BrowserRedirect;
use super::record_sign_in::record_sign_in;
use super::session::AuthenticationEvent;
use super::start_session::{Identify, SessionStart, start_session};
use super::transaction::BrowserLogin;
use crate::flow::factors::{self, StoredPasskey};
use crate::flow::passkey_challenge::{self, ChallengePlace, OpenedChallenge};
use crate::flow::replay::was_used;
use crate::flow::verified_passkey::VerifiedPasskey;
use crate::flow::{Core, Failure};
use crate::identity::{AuthenticationMethod, FirstFactor, Passkey, User};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::USERS;
use crate::webauthn::response::AuthenticationResponse;
use crate::webauthn::{RelyingParty, WebAuthnError};

/// The result of a sign-in with a passkey.
#[derive(Debug)]
pub enum PasskeySignIn {
    /// The user is signed in, or the client gets a refusal. The browser goes here.
    Done(BrowserRedirect),
    /// The authenticator names a user here, and no user has this passkey. The authenticator may delete it.
    Unknown,
    /// The passkey is not one of the user whom the response names, or no single user has it. It may be good at another
    /// service on this host, which has the same relying party identifier.
    Foreign,
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

/// Verifies the response and, if it is valid, takes the next step.
///
/// The user is found by the user handle, and the passkey among the user's own (step 6). On the page of the second step the
/// user is known, and the handle must name the same one. So a copy of a credential id in another account is never looked
/// at. Without a handle, the user is the one whose public key verifies the signature. If the keys of two users do, one of
/// them has copied the key too, and nobody is signed in.
///
/// A user who came from a provider signs in there, so that the provider can stop it.
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
    let candidates = match find(core, credentials).await? {
        Lookup::Found(candidates) => candidates,
        Lookup::None(result) => {
            failed(credentials.first.as_ref().map(|first| first.user));
            return Ok(result);
        }
    };
    let named = match candidates.as_slice() {
        [only] => Some(only.user),
        _ => None,
    };
    let matched = verify_one(&relying_party, &challenge, candidates, &credentials.response);
    let MatchedPasskey { found, verified } = match matched {
        Ok(Some(matched)) => matched,
        Ok(None) => {
            failed(None);
            return Ok(PasskeySignIn::Foreign);
        }
        Err(error) => {
            failed(named);
            return Ok(PasskeySignIn::Refused(error));
        }
    };
    if !login.purpose.accepts(&method_of(&found.passkey)) {
        return Ok(PasskeySignIn::Expired);
    }
    let upstream_token = credentials
        .first
        .as_ref()
        .and_then(|first| first.upstream_token.clone());
    let event = AuthenticationEvent {
        factor: method_of(&found.passkey),
        upstream_token,
        ..AuthenticationEvent::by_password(now)
    };
    let result = start(at, event, verified).await?;
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

enum Lookup {
    /// The passkeys that the response may be of, at least one.
    Found(Vec<StoredPasskey>),
    None(PasskeySignIn),
}

async fn find(core: &Core, credentials: &PasskeyCredentials) -> Result<Lookup, Failure> {
    let response = &credentials.response;
    let (handle, id) = (response.user_handle.clone(), response.credential_id.clone());
    let known = credentials.first.as_ref().map(|first| first.user);
    let read = move |snapshot: &dyn Snapshot| find_in(snapshot, &handle, &id, known);
    Ok(core.store.read(read).await?)
}

/// Finds the passkey with this id. `known` is the user on the page of the second step.
fn find_in(
    snapshot: &dyn Snapshot,
    handle: &[u8],
    id: &[u8],
    known: Option<Uuid>,
) -> Result<Lookup, StoreError> {
    let named = Uuid::from_slice(handle).ok();
    // An authenticator may leave the handle out if the page lists its credentials.
    let user = if handle.is_empty() { known } else { named };
    let mut found = match user {
        Some(user) => factors::passkey_of(snapshot, user, id)?.into_iter().collect(),
        None if handle.is_empty() => factors::passkeys_with(snapshot, id)?,
        None => Vec::new(),
    };
    found.retain(|found| known.is_none_or(|known| known == found.user));
    if !found.is_empty() {
        return Ok(Lookup::Found(found));
    }
    let names_user = named.map_or(Ok(false), |named| USERS.contains(snapshot, &named))?;
    let is_unknown = names_user && factors::passkeys_with(snapshot, id)?.is_empty();
    Ok(Lookup::None(if is_unknown {
        PasskeySignIn::Unknown
    } else {
        PasskeySignIn::Foreign
    }))
}

/// A passkey whose public key verifies the response.
struct MatchedPasskey {
    found: StoredPasskey,
    verified: VerifiedPasskey,
}

/// The one passkey whose public key verifies the response. `None` if the keys of two do.
fn verify_one(
    relying_party: &RelyingParty,
    challenge: &OpenedChallenge,
    candidates: Vec<StoredPasskey>,
    response: &AuthenticationResponse,
) -> Result<Option<MatchedPasskey>, WebAuthnError> {
    let mut matched = None;
    let mut refusal = WebAuthnError::Signature;
    for found in candidates {
        match VerifiedPasskey::verify(relying_party, challenge, &found, response) {
            Ok(_) if matched.is_some() => return Ok(None),
            Ok(verified) => matched = Some(MatchedPasskey { found, verified }),
            // A copy fails by its signature, so another fault says more.
            Err(error) if error != WebAuthnError::Signature => refusal = error,
            Err(_) => {}
        }
    }
    matched.map(Some).ok_or(refusal)
}

async fn start(
    at: BrowserLogin<'_>,
    event: AuthenticationEvent,
    verified: VerifiedPasskey,
) -> Result<PasskeySignIn, Failure> {
    let BrowserLogin { core, login, now, .. } = at;
    let factor = event.factor.clone();
    let replay_key = verified.replay_key;
    if core
        .store
        .read(|snapshot| was_used(snapshot, replay_key, now))
        .await?
    {
        return Ok(PasskeySignIn::ChallengeOver);
    }
    let expected = Some(verified.user);
    let identify: Identify = Box::new(move |tx| {
        let may_sign_in = |user: &User| user.enabled && !user.comes_from_provider();
        let Some(user) = USERS.get(&*tx, &verified.user)?.filter(may_sign_in) else {
            return Ok(None);
        };
        Ok(verified.use_up(tx, now)?.then(|| user.into()))
    });
    let started = match start_session(at, event, expected, identify).await? {
        SessionStart::Started(started) => started,
        SessionStart::Redirected { redirect, .. } => return Ok(PasskeySignIn::Done(redirect)),
        SessionStart::NoUser => return Ok(PasskeySignIn::Void),
        SessionStart::TransactionError(_) => return Ok(PasskeySignIn::Expired),
    };
    record_sign_in(&started, &factor, login.purpose.audit_name());
    Ok(PasskeySignIn::Done(started.redirect))
}
