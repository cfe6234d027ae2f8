//! A client redeems an authorization code: RFC 6749 section 4.1.3.

use std::sync::Arc;

use uuid::Uuid;

use super::mint::{Order, mint};
use super::{Answer, Core, Failure, gate, sessions};
use crate::audit::{self, Event};
use crate::clock::Timestamp;
use crate::oauth::client::GrantType;
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::code::{self, Authorization, CodeExchange, Redemption};
use crate::oauth::error::Refusal;
use crate::oauth::refresh::{Entropy, RefreshFamily};
use crate::oauth::token::TokenResponse;
use crate::store::StoreError;
use crate::store::backend::Tx;
use crate::store::tables::{CODES, FAMILIES, FAMILIES_BY_OWNER, SESSIONS};

enum Outcome {
    Granted(Box<Order>),
    Replayed(Uuid),
    Refused(Refusal),
}

/// Consumes the code, starts a refresh family, and issues tokens.
pub async fn redeem_code(
    core: &Core,
    client: &AuthenticatedClient,
    exchange: CodeExchange,
    now: Timestamp,
) -> Result<Answer<TokenResponse>, Failure> {
    if let Err(refusal) = gate::check_grant(client, GrantType::AuthorizationCode) {
        return Ok(Err(refusal));
    }
    let family_id = core.random.uuid_v7(core.clock.unix_millis());
    let entropy = Entropy {
        token: core.random.bytes(),
        lineage: core.random.bytes(),
    };
    let (policy, redeemer) = (Arc::clone(&core.policy), client.clone());
    let outcome = core
        .store
        .write("redeem_code", move |tx| {
            let Some(code) = CODES.get(&*tx, &exchange.id)? else {
                return Ok(Outcome::Refused(code::UNKNOWN));
            };
            let code = match code.redeem(&exchange, &redeemer.client_id, family_id, now) {
                Redemption::Granted(code) => code,
                Redemption::Replayed { family } => {
                    sessions::end_family(tx, family, now)?;
                    return Ok(Outcome::Replayed(family));
                }
                Redemption::Refused(refusal) => return Ok(Outcome::Refused(refusal)),
            };
            let user = match gate::admit(&*tx, &redeemer, &code.authorization)? {
                Ok(user) => user,
                Err(refusal) => return Ok(Outcome::Refused(refusal)),
            };
            let authorization = code.authorization.clone();
            let (family, token) =
                RefreshFamily::start(family_id, authorization, &policy.lifetimes, &entropy, now);
            let session = match code.authorization.session {
                Some(id) => SESSIONS.get(&*tx, &id)?,
                None => None,
            };
            if session.is_none_or(|session| session.user != code.authorization.user) {
                return Ok(Outcome::Refused(Refusal::invalid_grant(
                    "the user has signed out",
                )));
            }
            CODES.put(tx, &exchange.id, &code)?;
            keep(tx, family_id, &family, now)?;
            Ok(Outcome::Granted(Box::new(Order {
                grant_type: GrantType::AuthorizationCode,
                user,
                scope: code.authorization.scope.clone(),
                authorization: code.authorization,
                family: family_id,
                nonce: code.nonce,
                refresh_token: redeemer
                    .grant_types
                    .contains(&GrantType::RefreshToken)
                    .then_some(token),
            })))
        })
        .await?;
    match outcome {
        Outcome::Granted(order) => mint(core, client, *order, now).map(Ok),
        Outcome::Replayed(family) => {
            audit::record(&Event::CodeReplayed {
                client_id: &client.client_id,
                family,
            });
            Ok(Err(Refusal::invalid_grant(
                "code was used before; what it brought has been revoked",
            )))
        }
        Outcome::Refused(refusal) => Ok(Err(refusal)),
    }
}

/// The most refresh families of one user at one client.
const MOST_AT_ONE_CLIENT: usize = 50;

/// Writes a new family down, and whose it is.
pub(super) fn keep(
    tx: &mut dyn Tx,
    id: Uuid,
    family: &RefreshFamily,
    now: Timestamp,
) -> Result<(), StoreError> {
    make_room(tx, &family.authorization, now)?;
    FAMILIES.put(tx, &id, family)?;
    FAMILIES_BY_OWNER.put(tx, &(family.authorization.user, id), &())?;
    if let Some(session) = family.binding() {
        FAMILIES_BY_OWNER.put(tx, &(session, id), &())?;
    }
    Ok(())
}

/// Makes room for one more family of this user at this client: beyond the bound those that have ended are
/// forgotten first, then those that were left unused the longest.
///
/// Without a bound, a client that signs its user in over and over, or a user with a session and patience, would
/// make every later sign-out slower. An access token of a family that is forgotten is worth nothing.
fn make_room(tx: &mut dyn Tx, authorization: &Authorization, now: Timestamp) -> Result<(), StoreError> {
    let ids = FAMILIES_BY_OWNER.scan_prefix(&*tx, &authorization.user, usize::MAX)?;
    if ids.len() < MOST_AT_ONE_CLIENT {
        return Ok(());
    }
    let mut kept = Vec::new();
    for ((_, id), ()) in ids {
        if let Some(family) = FAMILIES.get(&*tx, &id)?
            && family.authorization.client_id == authorization.client_id
        {
            kept.push((family.is_live(now), family.expires_at, id, family));
        }
    }
    kept.sort_by_key(|(is_live, expires_at, id, _)| (*is_live, *expires_at, *id));
    let surplus = (kept.len() + 1).saturating_sub(MOST_AT_ONE_CLIENT);
    for (_, _, id, family) in kept.into_iter().take(surplus) {
        sessions::forget_family(tx, id, &family)?;
    }
    Ok(())
}
