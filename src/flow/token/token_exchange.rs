//! A client exchanges a token of a user for one with less power: RFC 8693.
//!
//! The new token is for the same user. Its scope, its audience and its lifetime are at most those of the exchanged token.
//! With an actor token, it also names the party that acts for the user. If an access token of this service was exchanged,
//! the new token belongs to the same grant and ends with it, unless a refresh token is issued. An ID token of a provider
//! begins a grant of its own.
//!
//! The new token names the family of the exchanged one in `grant_id`, so [`super::introspect`] finds it inactive as soon as that
//! family ends. [`Actor`] bounds `act`. An ID token goes the way of [`super::jwt_bearer`].

use super::exchange_policy::{VerifiedActor, check_level, check_policy};
use super::introspect::{live_access_token, live_grant, signed_access_token};
use super::issue::{ApprovedGrant, ExchangedToken, Granted, issue_tokens};
use super::jwt_bearer::{self, AssertionGrant, REPLAYED, exchange_assertion, verify_assertion};
use super::start_family::NewFamily;
use crate::clock::Timestamp;
use crate::flow::{Catalog, Core, FlowError, replay};
use crate::jose::claims::Audience;
use crate::oauth::access_token::PresentedAccessToken;
use crate::oauth::client::{Client, GrantType};
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::code::Authorization;
use crate::oauth::confirmation::{Confirmation, Possession};
use crate::oauth::error::{Cause, ErrorCode, Refusal};
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::refresh::{RefreshFamily, narrowed_scope};
use crate::oauth::resource::{Apis, Resources, TokenTarget, not_granted, unknown};
use crate::oauth::scope::Scope;
use crate::oauth::token::TokenResponse;
use crate::oauth::token_exchange::{Actor, PresentedToken, TokenExchange};
use crate::store::TxError;

/// The refusal of a subject token that is not valid.
pub const SUBJECT_REFUSED: Refusal =
    Refusal::invalid_request("subject_token is unknown, expired or revoked, or has no user");
/// The refusal of an actor token that is not valid.
pub const ACTOR_REFUSED: Refusal =
    Refusal::invalid_request("actor_token is unknown, expired or revoked, or of another client");

/// Exchanges an access token of this service, or an ID token of a provider.
///
/// A token that is not valid, or not acceptable by policy, is `invalid_request` (RFC 8693 section 2.2.2). A user
/// in no group of the client is refused with another code, because the token is valid.
pub async fn exchange_token(
    core: &Core,
    client: &AuthenticatedClient,
    request: TokenExchange,
    resources: Resources,
    possession: Option<Possession>,
    now: Timestamp,
) -> Result<TokenResponse, FlowError> {
    let exchanged = exchange(core, client, request, resources, possession, now).await;
    let is_of_token = |refusal: &Refusal| {
        refusal.code == ErrorCode::InvalidGrant && refusal.cause != Some(Cause::NotInGroup)
    };
    exchanged.map_err(|error| match error {
        FlowError::Refused(refusal) if is_of_token(&refusal) => Refusal {
            code: ErrorCode::InvalidRequest,
            ..refusal
        }
        .into(),
        error => error,
    })
}

async fn exchange(
    core: &Core,
    client: &AuthenticatedClient,
    request: TokenExchange,
    resources: Resources,
    possession: Option<Possession>,
    now: Timestamp,
) -> Result<TokenResponse, FlowError> {
    jwt_bearer::check_client(&core.grant_policy(), client, GrantType::TokenExchange)?;
    if request.wants_refresh_token && !client.may_use(GrantType::RefreshToken) {
        return Err(Refusal::invalid_request("this client may not use refresh tokens").into());
    }
    let catalog = core.catalog();
    let named = named_apis(catalog.apis(), &request.audience, resources)?;
    let shown = possession.as_ref().map(Possession::confirmation);
    let actor = match &request.actor {
        Some(token) => Some(verify_actor(core, client, token, shown.as_ref(), now).await?),
        None => None,
    };
    let PresentedToken { token, token_type } = request.subject;
    let claims = signed_access_token(core, &catalog, &token).filter(|_| token_type.may_be_access_token());
    if let Some(claims) = claims {
        let exchange = AccessTokenExchange {
            claims,
            scope: request.scope,
            named,
            actor,
            wants_refresh_token: request.wants_refresh_token,
        };
        return exchange_access_token(core, client, exchange, possession, now).await;
    }
    if !token_type.may_be_id_token() {
        return Err(SUBJECT_REFUSED.into());
    }
    let grant = AssertionGrant {
        grant_type: GrantType::TokenExchange,
        assertion: token,
        scope: request.scope,
        resources: named,
        actor,
        wants_refresh_token: request.wants_refresh_token,
    };
    exchange_assertion(core, client, grant, possession, now).await
}

/// The identifiers of the APIs that a request names in `resource` and `audience`.
fn named_apis(apis: &Apis, audience: &[String], resources: Resources) -> Result<Resources, Refusal> {
    audience.iter().try_fold(resources, |mut named, value| {
        let mut by_id = apis.iter().filter(|api| api.id == *value);
        let api = by_id.next().or_else(|| apis.named(value));
        named.insert(api.ok_or_else(|| unknown(value))?.identifier.clone());
        Ok(named)
    })
}

/// Verifies an actor token: an access token that was issued to this client, or an ID token of a provider whose tokens it
/// may exchange.
async fn verify_actor(
    core: &Core,
    client: &AuthenticatedClient,
    presented: &PresentedToken,
    shown: Option<&Confirmation>,
    now: Timestamp,
) -> Result<VerifiedActor, FlowError> {
    let PresentedToken { token, token_type } = presented;
    if token_type.may_be_access_token()
        && let Some(live) = live_access_token(core, token, now).await?
    {
        let claims = live.claims;
        if claims.client_id != client.client_id || !is_shown(&claims, shown) {
            return Err(ACTOR_REFUSED.into());
        }
        return Ok(VerifiedActor {
            party: Actor {
                iss: Some(claims.iss),
                sub: claims.sub.to_string(),
                client_id: live.grant.is_none().then_some(claims.client_id),
                act: None,
            },
            replay_key: None,
        });
    }
    if !token_type.may_be_id_token() {
        return Err(ACTOR_REFUSED.into());
    }
    let verified = verify_assertion(core, client, GrantType::TokenExchange, token, now).await;
    let verified = verified?;
    Ok(VerifiedActor {
        party: Actor {
            iss: Some(verified.provider.issuer.clone()),
            sub: verified.subject.subject,
            client_id: None,
            act: None,
        },
        replay_key: verified.subject.replay_key,
    })
}

/// Whether the request shows what the token is bound to.
fn is_shown(claims: &PresentedAccessToken, shown: Option<&Confirmation>) -> bool {
    claims.cnf.as_ref().is_none_or(|bound| shown == Some(bound))
}

/// A request to exchange an access token of this service.
struct AccessTokenExchange {
    claims: PresentedAccessToken,
    scope: Option<Scope>,
    named: Resources,
    actor: Option<VerifiedActor>,
    wants_refresh_token: bool,
}

impl AccessTokenExchange {
    /// The scope of the new token: the requested part of what the exchanged token has and this client may have. Without a
    /// refresh token it lacks `offline_access`.
    fn narrowed_scope(&self, catalog: &Catalog, client: &Client) -> Result<Scope, Refusal> {
        let holder = catalog.client(&self.claims.client_id).ok_or(SUBJECT_REFUSED)?;
        let scope = self.claims.scope.kept_within(&holder.scope);
        let most = scope.kept_within(&client.scope);
        if self.wants_refresh_token && !most.contains(Scope::OFFLINE_ACCESS) {
            return Err(Refusal::new(
                ErrorCode::InvalidScope,
                "a refresh token needs a subject_token with the scope offline_access, which this client must have too",
            ));
        }
        let scope = narrowed_scope(&most, self.scope.as_ref(), &client.scope)?;
        Ok(if self.wants_refresh_token {
            scope.with(Scope::OFFLINE_ACCESS)
        } else {
            scope.filter(|value| value != Scope::OFFLINE_ACCESS)
        })
    }

    /// The APIs and the scope of the new token, and its audience if it is for no API. The APIs are those of the exchanged
    /// token that the client may name.
    fn target(
        &self,
        apis: &Apis,
        client: &Client,
        scope: &Scope,
        issuer: &str,
    ) -> Result<(TokenTarget, Option<Audience>), Refusal> {
        let audience = &self.claims.aud;
        let granted = audience.values().iter().filter_map(|value| apis.named(value));
        let granted: Resources = granted.map(|api| api.identifier.clone()).collect();
        if granted.is_empty() {
            if let Some(named) = self.named.first() {
                return Err(not_granted(named));
            }
            if self.wants_refresh_token {
                return Err(Refusal::invalid_request(
                    "a refresh token needs a subject_token for an API",
                ));
            }
            let target = TokenTarget {
                scope: scope.filter(|value| apis.of_scope(value).is_none()),
                ..TokenTarget::default()
            };
            return Ok((target, Some(audience.clone())));
        }
        let mut target = apis.target(client, &granted, scope, &self.named)?;
        target.is_exact |= !audience.contains(issuer);
        Ok((target, None))
    }

    /// The parties that act for the user: the new one, after those in the exchanged token.
    fn acting(&self) -> Result<Option<Box<Actor>>, Refusal> {
        let earlier = self.claims.act.as_ref();
        let acting = match &self.actor {
            Some(actor) => Some(actor.party.clone().after(earlier)?),
            None => earlier.cloned(),
        };
        Ok(acting.map(Box::new))
    }
}

/// The grant of the new token. It has no session: a sign-out ends it with the grant of the exchanged token. If the issuer
/// is not in the audience, it lacks `openid`, which would bring the issuer back at the next refresh.
fn authorization(
    client: &Client,
    family: RefreshFamily,
    target: &TokenTarget,
    actor: Option<Box<Actor>>,
) -> Authorization {
    let keeps = |value: &str| !target.is_exact || value != Scope::OPENID;
    Authorization {
        client_id: client.client_id.clone(),
        client_incarnation: client.incarnation,
        session: None,
        upstream_token: None,
        scope: target.scope.filter(keeps),
        resources: target.apis.iter().map(|api| api.identifier.clone()).collect(),
        claims: ClaimsRequest::default(),
        bound_to: None,
        actor,
        ..family.authorization
    }
}

/// Decides in one transaction, which writes only if a proof or an actor token may be used once, or a refresh token is
/// issued.
async fn exchange_access_token(
    core: &Core,
    client: &AuthenticatedClient,
    exchange: AccessTokenExchange,
    possession: Option<Possession>,
    now: Timestamp,
) -> Result<TokenResponse, FlowError> {
    let catalog = core.catalog();
    let AccessTokenExchange { claims, .. } = &exchange;
    let drawn = NewFamily::draw(core, possession)?;
    let is_api = |identifier: &String| {
        let api = catalog.apis().named(identifier);
        api.is_some_and(|api| api.introspection_clients.contains(&client.client_id))
    };
    let shown = drawn.confirmation();
    let is_from_api = shown.is_some() && claims.aud.values().iter().any(is_api);
    let may_present = is_shown(claims, shown.as_ref()) || is_from_api;
    if !claims.is_current(&core.policy.issuer, now) || !may_present {
        return Err(SUBJECT_REFUSED.into());
    }
    let scope = exchange.narrowed_scope(&catalog, client)?;
    let (target, audience) = exchange.target(catalog.apis(), client, &scope, &core.policy.issuer)?;
    check_policy(client, &target, exchange.actor.is_some())?;
    let actor = exchange.acting()?;
    let (grant_policy, bearer) = (core.grant_policy(), client.clone());
    let approved = core
        .store
        .write(
            "exchange_access_token",
            move |tx| -> Result<_, TxError<Refusal>> {
                drawn.check_proof(&*tx, now)?;
                let actor_use = exchange.actor.as_ref().and_then(|actor| actor.replay_key);
                if let Some(used) = actor_use
                    && replay::was_used(&*tx, used, now)?
                {
                    return Err(REPLAYED.into());
                }
                let subject = live_grant(&catalog, &grant_policy, &*tx, &exchange.claims, now)?;
                let (user, family) = subject.ok_or(SUBJECT_REFUSED)?;
                let authorization = authorization(&bearer, family, &target, actor.clone());
                check_level(&bearer, &authorization)?;
                let user = grant_policy.authorize_new_user(&*tx, &bearer, &authorization, user)?;
                if let Some(used) = actor_use {
                    replay::record_use(tx, used)?;
                }
                let granted = Granted {
                    user,
                    authorization,
                    target: target.clone(),
                };
                let mut approved = if exchange.wants_refresh_token {
                    drawn.begin(tx, &bearer, GrantType::TokenExchange, granted, now)?
                } else {
                    drawn.record_proof(tx)?;
                    let (family, bound_to) = (exchange.claims.grant_id, drawn.confirmation());
                    ApprovedGrant::new(GrantType::TokenExchange, family, granted, bound_to)
                };
                approved.exchanged = Some(ExchangedToken {
                    client_id: Some(exchange.claims.client_id.clone()),
                    expires_at: exchange.claims.exp,
                    audience: audience.clone(),
                });
                Ok(approved)
            },
        )
        .await?;
    issue_tokens(core, client, approved, now)
}
