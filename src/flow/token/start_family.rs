//! Starts a refresh family, as the last step of every grant that concerns a user, inside its transaction.

use std::ops::RangeInclusive;
use std::sync::Arc;

use uuid::Uuid;

use super::access_token_settings::access_token_lifetime;
use super::check_length::ProposedGrant;
use super::issue::{ApprovedGrant, Granted, TokenIssuer};
use crate::clock::Timestamp;
use crate::flow::grant_policy::read_family;
use crate::flow::login::session;
use crate::flow::{Core, Failure, replay};
use crate::oauth::client::{Client, GrantType};
use crate::oauth::code::Authorization;
use crate::oauth::confirmation::{Confirmation, Possession};
use crate::oauth::error::Refusal;
use crate::oauth::policy::Policy;
use crate::oauth::refresh::RefreshFamily;
use crate::oauth::refresh_keys::RefreshTokenId;
use crate::oauth::resource::{Apis, Resources, TokenTarget};
use crate::secret::{RefreshToken, Secret};
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{CONSENTS, FAMILIES, FAMILIES_BY_OWNER, SESSION_CLIENTS};
use crate::store::{StoreError, TxError};

/// The most refresh families of one user at one client.
const MAX_PER_USER_AND_CLIENT: usize = 50;

/// A family before its transaction, with all that is random in it: the transaction may run twice.
pub(in crate::flow) struct NewFamily {
    pub(in crate::flow) id: Uuid,
    first: RefreshTokenId,
    token: Secret<RefreshToken>,
    possession: Option<Possession>,
    brings_refresh_token: bool,
    policy: Arc<Policy>,
    apis: Arc<Apis>,
    issuer: TokenIssuer,
}

impl NewFamily {
    pub(in crate::flow) fn draw(core: &Core, possession: Option<Possession>) -> Result<Self, Failure> {
        let id = core.random.uuid_v7(core.clock.since_epoch());
        let catalog = core.catalog();
        let keys = catalog.refresh_keys();
        let first = keys
            .first_token(id, core.random.bytes())
            .ok_or(Failure::NoRefreshKey)?;
        Ok(Self {
            id,
            token: keys.derive(&first).ok_or(Failure::NoRefreshKey)?,
            first,
            possession,
            brings_refresh_token: true,
            policy: Arc::clone(&core.policy),
            apis: Arc::clone(catalog.apis()),
            issuer: TokenIssuer::new(core),
        })
    }

    /// The same family, with a refresh token or without one.
    pub(in crate::flow) fn with_refresh_token(mut self, brings_refresh_token: bool) -> Self {
        self.brings_refresh_token = brings_refresh_token;
        self
    }

    /// What the request has shown to hold.
    pub(in crate::flow) fn confirmation(&self) -> Option<Confirmation> {
        self.possession.as_ref().map(Possession::confirmation)
    }

    /// Refuses a proof that was used before.
    pub(in crate::flow) fn check_proof(
        &self,
        snapshot: &dyn Snapshot,
        now: Timestamp,
    ) -> Result<(), TxError<Refusal>> {
        replay::check_proof(snapshot, self.possession.as_ref(), now)
    }

    /// Records the use of the proof, if no family begins.
    pub(in crate::flow) fn record_proof(&self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        replay::record_proof(tx, self.possession.as_ref())
    }

    /// The APIs and the scope of the first access token. `named` are the APIs of the token request.
    pub(in crate::flow) fn target(
        &self,
        client: &Client,
        authorization: &Authorization,
        named: &Resources,
    ) -> Result<TokenTarget, Refusal> {
        let scope = authorization.scope.kept_within(&client.scope);
        self.apis.target(client, &authorization.resources, &scope, named)
    }

    /// Stores the family and its index rows, records the use of the proof, and returns what is to be issued. Writes nothing
    /// if the tokens would be too long. A client that may not refresh gets no refresh token. It still gets a family, by which its access token can be revoked.
    ///
    /// The refresh tokens of a public client are bound to the key of the proof (RFC 9449 section 5) or to the certificate
    /// (RFC 8705 section 4).
    pub(in crate::flow) fn begin(
        &self,
        tx: &mut dyn Tx,
        client: &Client,
        grant_type: GrantType,
        mut granted: Granted,
        now: Timestamp,
    ) -> Result<ApprovedGrant, TxError<Refusal>> {
        let proposed = ProposedGrant {
            client,
            grant_type,
            user: &granted.user,
            authorization: &granted.authorization,
            target: &granted.target,
            nonce: None,
        };
        self.issuer.check_length(&proposed, now)?;
        granted.authorization.bound_to = self.confirmation().filter(|_| client.is_public());
        self.record_proof(tx)?;
        let lifetimes = &self.policy.lifetimes;
        let may_refresh = self.brings_refresh_token && client.may_use(GrantType::RefreshToken);
        let family = RefreshFamily::start(&self.first, granted.authorization.clone(), client, lifetimes, now);
        let family = if may_refresh {
            family
        } else {
            family.access_only(access_token_lifetime(&self.policy, client, &granted.target))
        };
        // An anonymous user is new, and has no family yet.
        if grant_type != GrantType::Anonymous {
            make_room(tx, client, &family, now)?;
        }
        FAMILIES.put(tx, &self.id, &family)?;
        for key in session::owner_keys(self.id, &family) {
            FAMILIES_BY_OWNER.put(tx, &key, &())?;
        }
        Ok(ApprovedGrant {
            refresh_token: may_refresh.then(|| self.token.clone()),
            ..ApprovedGrant::new(grant_type, self.id, granted, self.confirmation())
        })
    }
}

/// Says that the user of this authorization will be read, the user's consent for the client, and what [`NewFamily::begin`]
/// reads.
pub(in crate::flow) fn will_begin(snapshot: &dyn Snapshot, client: &Client, authorization: &Authorization) {
    FAMILIES_BY_OWNER.will_scan(snapshot, &of_user_at_client(authorization));
    if client.requires_consent() {
        CONSENTS.will_get(snapshot, &(authorization.user, client.client_id.clone()));
    }
    if let (Some(session), Some(_)) = (authorization.session, &client.backchannel_logout_uri) {
        let key = (authorization.user, (session, client.client_id.clone()));
        SESSION_CLIENTS.will_get(snapshot, &key);
        SESSION_CLIENTS.will_scan_prefix(snapshot, &authorization.user);
    }
}

/// The keys of the families of the user of this authorization at its client.
fn of_user_at_client(authorization: &Authorization) -> RangeInclusive<(Uuid, (String, Uuid))> {
    let at_client = |id| (authorization.user, (authorization.client_id.clone(), id));
    at_client(Uuid::nil())..=at_client(Uuid::max())
}

/// Makes room for one more family of this user at this client. At the limit, one that has ended is removed, or else
/// the one that was unused the longest. A family without a refresh token takes the place of another such family, so that
/// many exchanges of tokens end no sign-in.
///
/// Without a limit, a client that signs its user in over and over would make every later sign-out slower. An access
/// token of a removed family is no longer accepted.
fn make_room(
    tx: &mut dyn Tx,
    client: &Client,
    new: &RefreshFamily,
    now: Timestamp,
) -> Result<(), StoreError> {
    let keys = of_user_at_client(&new.authorization);
    let held = FAMILIES_BY_OWNER.scan(&*tx, keys, MAX_PER_USER_AND_CLIENT)?;
    if held.len() < MAX_PER_USER_AND_CLIENT {
        return Ok(());
    }
    for ((_, (_, id)), ()) in held.iter().filter(|_| new.is_access_only) {
        if let Some(family) = read_family(&*tx, *id, client, now)?
            && (family.is_access_only || !family.is_live(now))
        {
            return session::forget_family(tx, *id, &family);
        }
    }
    let mut idlest: Option<(Timestamp, Uuid, RefreshFamily)> = None;
    for ((_, (_, id)), ()) in held {
        // The keys are in the order in which the families began. The ones that follow were used later.
        if matches!(&idlest, Some((used_at, ..)) if *used_at <= Timestamp::of_id(id)) {
            break;
        }
        if let Some(family) = read_family(&*tx, id, client, now)? {
            let used_at = if family.is_live(now) {
                family.last_used_at
            } else {
                Timestamp::from_seconds(0)
            };
            if idlest.as_ref().is_none_or(|(before, ..)| used_at < *before) {
                idlest = Some((used_at, id, family));
            }
        }
    }
    idlest.map_or(Ok(()), |(_, id, family)| session::forget_family(tx, id, &family))
}
