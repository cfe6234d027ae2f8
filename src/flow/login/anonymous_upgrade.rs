//! From anonymous to known. A client pushes the refresh token of an anonymous user with its authorization request. If the
//! sign-in creates an account, the anonymous user becomes that account. If the account exists already, the anonymous user
//! is linked to it: its grants end, and the first access token names it in `anonymous_sub`.
//!
//! The token is verified when the request is pushed, and the browser brings back which user and family it names. The
//! transaction that creates the account or issues the code reads both again. The store has one writer, so one of two
//! sign-ins comes first, and the other one is refused.
//!
//! An attacker could push the token of their own device, and send the link to a victim who creates an account. The
//! attacker's device would have tokens of that account. So the grants of the device are suspended when the account is
//! created, until the client redeems the code of this sign-in. That takes the code, which goes to the browser of the
//! victim, and `state` and the verifier, which the device of the attacker has. Neither has both.

use std::sync::Arc;

use crate::clock::{Arrival, Timestamp};
use crate::flow::grant_policy::{has_ended, read_family};
use crate::flow::token::refresh_token;
use crate::flow::users::end_sessions_and_families;
use crate::flow::{Core, Failure, FlowError, replay};
use crate::identity::User;
use crate::oauth::anonymous::{self, AnonymousProof};
use crate::oauth::authorize::RefusedRequest;
use crate::oauth::client::GrantType;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::confirmation::Possession;
use crate::oauth::error::Refusal;
use crate::oauth::login::{CodeGrant, LoginRecord, LoginStep, ResolvedPurpose};
use crate::oauth::refresh::{self, Refresh, RefreshContext, RefreshFamily};
use crate::oauth::refresh_keys::PresentedRefreshToken;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::engine::{Snapshot, Tx};
use crate::store::login_names;
use crate::store::tables::{CLIENTS, FAMILIES, FAMILIES_BY_OWNER, USERS};
use crate::store::{StoreError, TxError};
use uuid::Uuid;

/// What a pushed token is.
enum Presented {
    /// A token that could be refreshed now, of an anonymous user.
    Valid(AnonymousProof),
    /// A replaced token: the revoked family.
    Replayed(Box<RefreshFamily>),
}

/// Verifies the refresh token of a pushed request, as the token endpoint does. Nothing rotates.
///
/// A replaced token ends its family, as at the token endpoint. It was copied, and the service cannot tell who has the copy (RFC 9700
/// section 4.14.2). If this endpoint only refused it, a thief could try stolen tokens here without ending the family.
pub(super) async fn verify(
    core: &Core,
    client: &AuthenticatedClient,
    token: &str,
    possession: Option<Possession>,
    arrival: Arrival,
) -> Result<AnonymousProof, FlowError> {
    let now = arrival.now();
    let grant_policy = core.grant_policy();
    grant_policy.check_grant(client, GrantType::RefreshToken)?;
    let token = PresentedRefreshToken::parse(token).map_err(|_| refresh::UNKNOWN)?;
    let (token, key) = {
        let catalog = core.catalog();
        let token = catalog.verify_refresh_token(&token).ok_or(refresh::UNKNOWN)?;
        let key = catalog.refresh_keys().newest();
        (token, key.ok_or(Failure::NoRefreshKey)?)
    };
    let (policy, bearer, id) = (Arc::clone(&core.policy), client.clone(), token.family);
    let clock = core.clock.clone();
    let decide = move |snapshot: &dyn Snapshot| -> Result<_, TxError<Refusal>> {
        replay::check_proof(snapshot, possession.as_ref(), now)?;
        let Some(family) = read_family(snapshot, id, &bearer, now)? else {
            return Err(refresh::UNKNOWN.into());
        };
        let shown = possession.as_ref().map(Possession::confirmation);
        let context = RefreshContext {
            client: &bearer,
            lifetimes: &policy.lifetimes,
            retry_window: policy.refresh_retry_window,
            key,
            shown: shown.as_ref(),
            arrival,
            decided_at: clock.since_epoch(),
        };
        let mut family = match family.refresh(&token, context) {
            Refresh::Granted(family) | Refresh::Repeated(family) => family,
            Refresh::Replayed(family) => return Ok(Presented::Replayed(family)),
            Refresh::Refused(refusal) => return Err(refusal.into()),
        };
        let (user, _) = refresh_token::admit(&grant_policy, snapshot, &bearer, &mut family)?;
        let proof = AnonymousProof {
            user: user.uuid,
            family: id,
        };
        if user.is_anonymous() {
            Ok(Presented::Valid(proof))
        } else {
            Err(anonymous::KNOWN_USER.into())
        }
    };
    if let Presented::Valid(proof) = core.store.read(|snapshot| decide(snapshot)).await? {
        return Ok(proof);
    }
    let decided = core
        .store
        .write("end_replayed_family", move |tx| -> Result<_, TxError<Refusal>> {
            let decided = decide(&*tx)?;
            if let Presented::Replayed(family) = &decided {
                FAMILIES.put(tx, &id, family)?;
            }
            Ok(decided)
        })
        .await?;
    match decided {
        Presented::Valid(proof) => Ok(proof),
        Presented::Replayed(_) => {
            audit::record(&Event::RefreshTokenReplayed {
                client_id: &client.client_id,
                family: id,
            });
            Err(refresh::REPLAYED.into())
        }
    }
}

/// Whether the anonymous user can still be upgraded.
fn is_usable(snapshot: &dyn Snapshot, proof: AnonymousProof, now: Timestamp) -> Result<bool, StoreError> {
    let user = USERS.get(snapshot, &proof.user)?;
    let Some(family) = FAMILIES.get(snapshot, &proof.family)? else {
        return Ok(false);
    };
    let client = CLIENTS.get(snapshot, &family.authorization.client_id)?;
    Ok(!has_ended(snapshot, client.as_ref(), &family.authorization)?
        && AnonymousProof::is_usable(user.as_ref(), Some(&family), now))
}

/// The user that a sign-in creates: `account`, or the anonymous user of the request as this account. `None` if the
/// anonymous user can no longer be upgraded. The caller stores the user and its index rows, in the same transaction.
///
/// Every sign-in that creates an account calls this, after every check that may refuse: it suspends the grants of the
/// device.
pub(in crate::flow) fn become_account(
    tx: &mut dyn Tx,
    proof: Option<AnonymousProof>,
    account: User,
    now: Timestamp,
) -> Result<Option<User>, StoreError> {
    let Some(proof) = proof else {
        return Ok(Some(account));
    };
    if !is_usable(&*tx, proof, now)? {
        return Ok(None);
    }
    let Some(anonymous) = USERS.get(&*tx, &proof.user)? else {
        return Ok(None);
    };
    // The operator may have given the user a name.
    login_names::remove(tx, &anonymous)?;
    set_awaiting(tx, proof.user, true)?;
    Ok(Some(anonymous::become_account(anonymous, account, now)))
}

/// Ends the suspension of the grants of an account that was an anonymous user: its device has redeemed the code.
pub(in crate::flow) fn resume_grants(tx: &mut dyn Tx, account: Uuid) -> Result<(), StoreError> {
    set_awaiting(tx, account, false)
}

fn set_awaiting(tx: &mut dyn Tx, user: Uuid, awaits_code: bool) -> Result<(), StoreError> {
    for ((_, (_, id)), ()) in FAMILIES_BY_OWNER.scan_prefix(&*tx, &user, usize::MAX)? {
        if let Some(mut family) = FAMILIES.get(&*tx, &id)?
            && family.awaits_code != awaits_code
        {
            family.awaits_code = awaits_code;
            FAMILIES.put(tx, &id, &family)?;
        }
    }
    Ok(())
}

/// The refusal for the client, if the request has an anonymous user that can no longer be upgraded. After this sign-in
/// has upgraded it, there is none.
pub(super) fn refusal(
    snapshot: &dyn Snapshot,
    purpose: &ResolvedPurpose,
    record: &LoginRecord,
    now: Timestamp,
) -> Result<Option<Box<RefusedRequest>>, StoreError> {
    let Some(request) = purpose.code_request() else {
        return Ok(None);
    };
    let is_refused = match request.anonymous {
        Some(proof) if record.upgraded_to.is_none() => !is_usable(snapshot, proof, now)?,
        Some(_) | None => false,
    };
    Ok(is_refused.then(|| {
        Box::new(RefusedRequest {
            target: request.target.clone(),
            refusal: anonymous::USED,
        })
    }))
}

/// The step, or the refusal if the anonymous user of the request can no longer be upgraded, or if this sign-in has
/// upgraded it to another account.
pub(super) fn checked(
    snapshot: &dyn Snapshot,
    purpose: &ResolvedPurpose,
    record: &LoginRecord,
    step: LoginStep,
    now: Timestamp,
) -> Result<LoginStep, StoreError> {
    if let Some(refused) = refusal(snapshot, purpose, record, now)? {
        return Ok(LoginStep::Refuse(refused));
    }
    Ok(match step {
        LoginStep::IssueCode(grant)
            if record
                .upgraded_to
                .is_some_and(|account| account != grant.authorization.user) =>
        {
            LoginStep::Refuse(Box::new(RefusedRequest {
                target: grant.target,
                refusal: anonymous::USED,
            }))
        }
        step => step,
    })
}

/// An anonymous user who was linked to an account, for the audit log.
pub(in crate::flow) struct LinkedUser {
    anonymous: Uuid,
    account: Uuid,
    client_id: String,
}

/// Links the anonymous user of the request to the account that the code is for: its sessions and grants end. `None` if
/// there is nothing to link, or if it was linked before in the same sign-in.
pub(super) fn link(
    tx: &mut dyn Tx,
    grant: &CodeGrant,
    now: Timestamp,
) -> Result<Option<LinkedUser>, StoreError> {
    let authorization = &grant.authorization;
    let Some(proof) = grant.anonymous.filter(|proof| proof.user != authorization.user) else {
        return Ok(None);
    };
    let was_live = is_usable(&*tx, proof, now)?;
    end_sessions_and_families(tx, proof.user, now)?;
    Ok(was_live.then(|| LinkedUser {
        anonymous: proof.user,
        account: authorization.user,
        client_id: authorization.client_id.clone(),
    }))
}

/// Records in the audit log that a step linked an anonymous user, after the commit.
pub(in crate::flow) fn record(linked: Option<&LinkedUser>) {
    if let Some(linked) = linked {
        audit::record(&Event::AnonymousUserLinked {
            user: linked.account,
            anonymous: linked.anonymous,
            client_id: &linked.client_id,
        });
    }
}
