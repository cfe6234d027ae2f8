//! A client refreshes: RFC 6749 section 6, rotation by RFC 9700 section 4.14.2.

use std::sync::Arc;

use uuid::Uuid;

use super::check_length::ProposedGrant;
use super::issue::{ApprovedGrant, Granted, TokenIssuer, issue_tokens};
use crate::clock::Arrival;
use crate::flow::client_lookup::record_use;
use crate::flow::grant_policy::GrantPolicy;
use crate::flow::login::session::find_unended;
use crate::flow::{Core, Failure, FlowError, grant_policy, replay};
use crate::identity::User;
use crate::oauth::client::{Client, GrantType};
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::confirmation::Possession;
use crate::oauth::error::Refusal;
use crate::oauth::refresh::{self, BindingChange, Refresh, RefreshContext, RefreshFamily, narrowed_scope};
use crate::oauth::refresh_keys::{PresentedRefreshToken, RefreshTokenId};
use crate::oauth::resource::Resources;
use crate::oauth::scope::Scope;
use crate::oauth::token::TokenResponse;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{FAMILIES, FAMILIES_BY_OWNER};
use crate::store::{StoreError, TxError};

/// The answer if the client lost `offline_access` and the session that its tokens then belong to has ended.
const NO_LONGER_OFFLINE: Refusal =
    Refusal::invalid_grant("the session has ended, and this client may no longer have offline_access");

/// What the transaction did with a token that was not refused.
enum RefreshResult {
    Granted {
        approved: Box<ApprovedGrant>,
        newest: RefreshTokenId,
        is_retry: bool,
    },
    Replayed,
}

/// Checks that client, user and session of a family still allow tokens. Introspection asks the same question, so a
/// token that it calls active can be refreshed. Also returns how the binding of the family to its session has
/// changed.
pub(in crate::flow) fn admit(
    grant_policy: &GrantPolicy,
    snapshot: &dyn Snapshot,
    client: &Client,
    family: &mut RefreshFamily,
) -> Result<(User, Option<BindingChange>), TxError<Refusal>> {
    let user = grant_policy.admit(snapshot, client, &family.authorization)?;
    let bound = family.bind(&client.scope);
    match bound {
        Some(BindingChange::Bound(session)) if find_unended(snapshot, session)?.is_none() => {
            Err(NO_LONGER_OFFLINE.into())
        }
        _ => Ok((user, bound)),
    }
}

/// Stores a refreshed family, and changes its index row if its binding to the session has changed.
fn store(
    tx: &mut dyn Tx,
    id: Uuid,
    family: &RefreshFamily,
    bound: Option<BindingChange>,
) -> Result<(), StoreError> {
    let index_key = |session| (session, (family.authorization.client_id.clone(), id));
    match bound {
        Some(BindingChange::Bound(session)) => {
            FAMILIES_BY_OWNER.put(tx, &index_key(session), &())?;
        }
        Some(BindingChange::Released(session)) => {
            FAMILIES_BY_OWNER.remove(tx, &index_key(session))?;
        }
        None => {}
    }
    FAMILIES.put(tx, &id, family)
}

/// Checks the token and swaps it in one transaction, then issues tokens. The client may use the grant: its endpoint
/// has checked that.
///
/// A retry is decided by the same transaction, which writes nothing but the use of a proof. So it is answered after the
/// rotation that it repeats was committed, and not if the family has been revoked. The new token is derived after the
/// commit: the transaction decides which one it is.
pub async fn rotate_refresh_token(
    core: &Core,
    client: &AuthenticatedClient,
    token: PresentedRefreshToken,
    scope: Option<Scope>,
    resources: Resources,
    possession: Option<Possession>,
    arrival: Arrival,
) -> Result<TokenResponse, FlowError> {
    let now = arrival.now();
    let grant_policy = core.grant_policy();
    debug_assert!(
        client.may_use(GrantType::RefreshToken),
        "the endpoint checks the grant"
    );
    let (token, key) = {
        let catalog = core.catalog();
        let token = catalog.verify_refresh_token(&token).ok_or(refresh::UNKNOWN)?;
        let key = catalog.refresh_keys().newest();
        (token, key.ok_or(Failure::NoRefreshKey)?)
    };
    let (policy, bearer, id) = (Arc::clone(&core.policy), client.clone(), token.family);
    let (apis, issuer) = (Arc::clone(core.catalog().apis()), TokenIssuer::new(core));
    let clock = core.clock.clone();
    let refreshed = core
        .store
        .write("rotate_refresh_token", move |tx| -> Result<_, TxError<Refusal>> {
            replay::check_proof(&*tx, possession.as_ref(), now)?;
            let shown = possession.as_ref().map(Possession::confirmation);
            grant_policy::will_admit(&*tx, id, &bearer);
            let Some(family) = grant_policy::read_family(&*tx, id, &bearer, now)? else {
                return Err(refresh::UNKNOWN.into());
            };
            let context = RefreshContext {
                client: &bearer,
                lifetimes: &policy.lifetimes,
                retry_window: policy.refresh_retry_window,
                key,
                shown: shown.as_ref(),
                arrival,
                decided_at: clock.since_epoch(),
            };
            let (mut family, is_retry) = match family.refresh(&token, context) {
                Refresh::Granted(family) => (family, false),
                Refresh::Repeated(family) => (family, true),
                Refresh::Replayed(family) => {
                    FAMILIES.put(tx, &id, &family)?;
                    return Ok(RefreshResult::Replayed);
                }
                Refresh::Refused(refusal) => return Err(refusal.into()),
            };
            let granted = &family.authorization.scope;
            let scope = narrowed_scope(granted, scope.as_ref(), &bearer.scope)?;
            let target = apis.target(&bearer, &family.authorization.resources, &scope, &resources)?;
            let (user, bound) = admit(&grant_policy, &*tx, &bearer, &mut family)?;
            drop((family.authorization.upstream_token).take_if(|token| !token.is_current(now)));
            let proposed = ProposedGrant {
                client: &bearer,
                grant_type: GrantType::RefreshToken,
                user: &user,
                authorization: &family.authorization,
                target: &target,
                nonce: None,
            };
            issuer.check_length(&proposed, now)?;
            replay::record_proof(tx, possession.as_ref())?;
            if !is_retry {
                store(tx, id, &family, bound)?;
            }
            Ok(RefreshResult::Granted {
                newest: family.newest_token(&token),
                is_retry,
                approved: Box::new(ApprovedGrant::new(
                    GrantType::RefreshToken,
                    id,
                    Granted {
                        user,
                        authorization: family.authorization,
                        target,
                    },
                    shown,
                )),
            })
        })
        .await?;
    let (client_id, family) = (&*client.client_id, id);
    match refreshed {
        RefreshResult::Granted {
            mut approved,
            newest,
            is_retry,
        } => {
            if is_retry {
                audit::record(&Event::RefreshRepeated { client_id, family });
            }
            record_use(core, client, now).await?;
            // Read again: the keys may have rotated before this retry, after it was verified.
            let derived = core.catalog().refresh_keys().derive(&newest);
            approved.refresh_token = Some(derived.ok_or(Failure::NoRefreshKey)?);
            issue_tokens(core, client, *approved, now)
        }
        RefreshResult::Replayed => {
            audit::record(&Event::RefreshTokenReplayed { client_id, family });
            Err(refresh::REPLAYED.into())
        }
    }
}
