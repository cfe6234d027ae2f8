//! Introspection (RFC 7662), and the checks of every endpoint that takes an access token.

use super::issue::token_type;
use super::refresh_token;
use crate::clock::Timestamp;

use crate::flow::grant_policy::{GrantPolicy, read_family, revoke_ended, will_admit};
use crate::flow::{Catalog, Core, Failure};
use crate::identity::User;
use crate::jose::alg::Algorithm;
use crate::jose::jwt::{self, ExpectedTyp};
use crate::oauth::access_token::{AccessTokenTyp, PresentedAccessToken, hour_of};
use crate::oauth::client::{Client, GrantType};
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::introspection::{Active, Introspection, SIGNED_TYP, SignedIntrospection};
use crate::oauth::refresh::RefreshFamily;
use crate::oauth::refresh_keys::{PresentedRefreshToken, RefreshTokenId};
use crate::oauth::scope::Scope;
use crate::store::engine::Snapshot;
use crate::store::tables::{FAMILIES, REVOKED_TOKENS, USERS};
use crate::store::{StoreError, unless_refused};

/// An access token that is valid now.
#[derive(Clone, Debug)]
pub struct LiveAccessToken {
    pub claims: PresentedAccessToken,
    /// Its user and the grant behind it. `None` if the client got it for itself.
    pub grant: Option<(User, RefreshFamily)>,
}

/// Checks an access token of this service: its signature, its times, and that neither it nor its grant was revoked.
///
/// A grant counts as long as [`GrantPolicy::admit`] would issue more tokens for it. A token that a client got for itself
/// is valid as long as the client may get such tokens. Scope values that the client may no longer have are left out.
pub async fn live_access_token(
    core: &Core,
    token: &str,
    now: Timestamp,
) -> Result<Option<LiveAccessToken>, StoreError> {
    let catalog = core.catalog();
    let Some(mut claims) =
        signed_access_token(core, &catalog, token).filter(|token| token.is_current(&core.policy.issuer, now))
    else {
        return Ok(None);
    };
    let Some(client) = catalog.client(&claims.client_id).filter(|client| client.enabled) else {
        return Ok(None);
    };
    claims.scope = claims.scope.kept_within(&client.scope);
    let grant_policy = core.grant_policy();
    let read = |snapshot: &dyn Snapshot| -> Result<_, StoreError> {
        if claims.grant_id == client.own_grant {
            let is_revoked = is_revoked(snapshot, &claims)?;
            return Ok((!is_revoked && client.may_use(GrantType::ClientCredentials)).then_some(None));
        }
        let grant = live_grant(&catalog, &grant_policy, snapshot, &claims, now)?;
        Ok(grant.map(Some))
    };
    let Some(grant) = core.store.read(read).await? else {
        return Ok(None);
    };
    if let Some((_, family)) = &grant
        && let Some(client) = catalog.client(&family.authorization.client_id)
    {
        claims.scope = claims.scope.kept_within(&client.scope);
    }
    Ok(Some(LiveAccessToken { claims, grant }))
}

fn is_revoked(snapshot: &dyn Snapshot, claims: &PresentedAccessToken) -> Result<bool, StoreError> {
    REVOKED_TOKENS.contains(snapshot, &(hour_of(claims.exp), claims.jti))
}

/// The user and the grant of an access token, if neither the token nor the grant was revoked.
///
/// A token that was issued in a token exchange belongs to the grant of the exchanged token. It ends with that grant, and
/// when its own client is disabled or may no longer exchange tokens.
pub(in crate::flow) fn live_grant(
    catalog: &Catalog,
    grant_policy: &GrantPolicy,
    snapshot: &dyn Snapshot,
    claims: &PresentedAccessToken,
    now: Timestamp,
) -> Result<Option<(User, RefreshFamily)>, StoreError> {
    USERS.will_get(snapshot, &claims.sub);
    if is_revoked(snapshot, claims)? {
        return Ok(None);
    }
    let Some(mut family) = FAMILIES.get(snapshot, &claims.grant_id)? else {
        return Ok(None);
    };
    let granted_to = &family.authorization.client_id;
    let is_exchanged = *granted_to != claims.client_id;
    let clients = [&claims.client_id, granted_to].map(|id| catalog.client(id));
    let [Some(holder), Some(client)] = clients.map(|client| client.filter(|client| client.enabled)) else {
        return Ok(None);
    };
    // A later client of the same identifier did not get this token.
    let may_hold = holder.may_use(GrantType::TokenExchange) && holder.created_at <= claims.iat;
    if is_exchanged && !may_hold {
        return Ok(None);
    }
    revoke_ended(snapshot, &mut family, &client, now)?;
    if family.revoked_at.is_some() || family.awaits_code {
        return Ok(None);
    }
    let admitted = grant_policy.admit(snapshot, &client, &family.authorization);
    let admitted = unless_refused(admitted)?.filter(|user| holder.lets_in(user, catalog.groups()));
    Ok(admitted.map(|user| (user, family)))
}

/// The claims of a token that this service signed as an access token. Each `typ` that can be configured is accepted.
pub(in crate::flow) fn signed_access_token(
    core: &Core,
    catalog: &Catalog,
    token: &str,
) -> Option<PresentedAccessToken> {
    let verify = |typ| {
        let select = |kid: Option<&str>, _| catalog.verifier(kid?);
        jwt::verify_with(
            token,
            ExpectedTyp::Exactly(typ),
            &Algorithm::SIGNING,
            select,
            Some(&core.signature_cache),
        )
    };
    // A token has one type, so its signature is verified once at most.
    AccessTokenTyp::ALL
        .into_iter()
        .find_map(|typ| verify(typ.as_str()).ok())
}

/// Answers an authenticated client about a token (RFC 7662 section 2).
///
/// The client that a token was issued to may ask about it. Registered APIs say which other clients may ask about their
/// access tokens. Every client may ask about an access token for no registered API, because the client may be the
/// resource server.
pub async fn introspect(
    core: &Core,
    client: &AuthenticatedClient,
    token: &str,
    now: Timestamp,
) -> Result<Introspection, Failure> {
    if let Ok(token) = PresentedRefreshToken::parse(token) {
        let Some(token) = core.catalog().verify_refresh_token(&token) else {
            return Ok(Introspection::INACTIVE);
        };
        let grant_policy = core.grant_policy();
        let read =
            |snapshot: &dyn Snapshot| refresh_token(core, &grant_policy, snapshot, client, &token, now);
        return Ok(core.store.read(read).await?);
    }
    let Some(LiveAccessToken { claims, grant }) = live_access_token(core, token, now).await? else {
        return Ok(Introspection::INACTIVE);
    };
    let catalog = core.catalog();
    if !may_introspect(&catalog, client, &claims) {
        return Ok(Introspection::INACTIVE);
    }
    let username = match grant {
        Some((user, _)) => account_name(catalog.client(&claims.client_id).as_deref(), &claims.scope, &user),
        None => claims.client_id.clone(),
    };
    Ok(Introspection::Active(Box::new(Active {
        active: true,
        scope: claims.scope,
        username: Some(username),
        client_id: claims.client_id,
        token_type: Some(token_type(claims.cnf.as_ref())),
        exp: claims.exp,
        iat: claims.iat,
        sub: claims.sub,
        aud: Some(claims.aud),
        iss: claims.iss,
        jti: Some(claims.jti),
        auth_time: claims.auth_time,
        acr: claims.acr,
        cnf: claims.cnf,
        act: claims.act,
    })))
}

/// Signs the response for the client that asked (RFC 9701 section 5).
pub fn sign_introspection(
    core: &Core,
    client: &AuthenticatedClient,
    introspection: &Introspection,
    now: Timestamp,
) -> Result<String, Failure> {
    let catalog = core.catalog();
    let alg = client.allowed_algorithm(
        client
            .introspection_signed_response_alg
            .unwrap_or(Algorithm::Rs256),
    );
    let key = catalog
        .keyring()
        .signer(alg)
        .ok_or(Failure::NoKey(alg.as_str()))?;
    let claims = SignedIntrospection {
        iss: &core.policy.issuer,
        aud: &client.client_id,
        iat: now,
        token_introspection: introspection,
    };
    Ok(jwt::sign(key, SIGNED_TYP, &claims)?)
}

/// The account identifier, which can be an e-mail address. If the client of the token may not learn that, the UUID.
fn account_name(client: Option<&Client>, scope: &Scope, user: &User) -> String {
    if client.is_some_and(|client| client.may_learn("email", scope)) {
        user.account_id.clone()
    } else {
        user.uuid.to_string()
    }
}

/// Whether the client may ask about an access token. A client that registered itself may not ask about the tokens of other
/// clients, unless an API names it.
fn may_introspect(catalog: &Catalog, client: &Client, claims: &PresentedAccessToken) -> bool {
    let audience = claims.aud.values().iter();
    let mut apis = audience
        .filter_map(|identifier| catalog.apis().named(identifier))
        .peekable();
    claims.client_id == client.client_id
        || (apis.peek().is_none() && !client.registered_itself())
        || apis.any(|api| api.metadata.introspection_clients.contains(&client.client_id))
}

fn refresh_token(
    core: &Core,
    grant_policy: &GrantPolicy,
    snapshot: &dyn Snapshot,
    client: &AuthenticatedClient,
    token: &RefreshTokenId,
    now: Timestamp,
) -> Result<Introspection, StoreError> {
    will_admit(snapshot, token.family, client);
    let Some(mut family) = read_family(snapshot, token.family, client, now)? else {
        return Ok(Introspection::INACTIVE);
    };
    if !client.may_use(GrantType::RefreshToken)
        || family.authorization.client_id != client.client_id
        || !family.accepts(token, core.policy.refresh_retry_window, now)
    {
        return Ok(Introspection::INACTIVE);
    }
    let admitted = refresh_token::admit(grant_policy, snapshot, client, &mut family);
    let Some((user, _)) = unless_refused(admitted)? else {
        return Ok(Introspection::INACTIVE);
    };
    let authorization = family.authorization;
    let scope = client.token_scope(&authorization.scope.kept_within(&client.scope));
    Ok(Introspection::Active(Box::new(Active {
        active: true,
        client_id: authorization.client_id,
        username: Some(account_name(Some(client), &scope, &user)),
        scope,
        token_type: None,
        exp: family.expires_at,
        iat: family.created_at,
        sub: user.uuid,
        aud: None,
        iss: core.policy.issuer.clone(),
        jti: None,
        auth_time: None,
        acr: None,
        cnf: None,
        act: authorization.actor.map(|actor| *actor),
    })))
}
