//! A refresh family begins: the end of every grant that speaks of a user, inside its transaction.

use std::sync::Arc;

use uuid::Uuid;

use super::issue::ApprovedGrant;
use crate::clock::Timestamp;
use crate::flow::Core;
use crate::flow::login::session;
use crate::identity::User;
use crate::oauth::client::{Client, GrantType};
use crate::oauth::code::Authorization;
use crate::oauth::policy::Policy;
use crate::oauth::refresh::{Entropy, RefreshFamily};
use crate::oauth::token::kept_scope;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::tables::{FAMILIES, FAMILIES_BY_OWNER};

/// The most refresh families of one user at one client.
const MOST_AT_ONE_CLIENT: usize = 50;

/// A family that may begin: all of it that is random, drawn before the transaction.
pub(in crate::flow) struct DrawnFamily {
    /// Its id.
    pub(in crate::flow) id: Uuid,
    entropy: Entropy,
    policy: Arc<Policy>,
}

impl DrawnFamily {
    pub(in crate::flow) fn draw(core: &Core) -> Self {
        Self {
            id: core.random.uuid_v7(core.clock.since_epoch()),
            entropy: Entropy {
                token: core.random.bytes(),
                lineage: core.random.bytes(),
            },
            policy: Arc::clone(&core.policy),
        }
    }

    /// Writes the family down, and whose it is; what is to be issued for it comes back. A client that may not refresh
    /// gets no refresh token, but the family all the same: it is what revokes the access token.
    pub(in crate::flow) fn begin(
        &self,
        tx: &mut dyn Tx,
        client: &Client,
        grant_type: GrantType,
        (user, authorization): (User, Authorization),
        now: Timestamp,
    ) -> Result<ApprovedGrant, StoreError> {
        let lifetimes = &self.policy.lifetimes;
        let (family, token) =
            RefreshFamily::start(self.id, authorization.clone(), lifetimes, &self.entropy, now);
        make_room(tx, &authorization, now)?;
        FAMILIES.put(tx, &self.id, &family)?;
        FAMILIES_BY_OWNER.put(tx, &(authorization.user, self.id), &())?;
        if let Some(session) = family.binding() {
            FAMILIES_BY_OWNER.put(tx, &(session, self.id), &())?;
        }
        let may_refresh = client.grant_types.contains(&GrantType::RefreshToken);
        Ok(ApprovedGrant {
            grant_type,
            user,
            scope: kept_scope(&authorization.scope, &client.scope),
            authorization,
            family: self.id,
            nonce: None,
            refresh_token: may_refresh.then_some(token),
        })
    }
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
            kept.push((family.is_live(now), family.last_used_at(), id, family));
        }
    }
    kept.sort_by_key(|(is_live, last_used_at, id, _)| (*is_live, *last_used_at, *id));
    let surplus = (kept.len() + 1).saturating_sub(MOST_AT_ONE_CLIENT);
    for (_, _, id, family) in kept.into_iter().take(surplus) {
        session::forget_family(tx, id, &family)?;
    }
    Ok(())
}
