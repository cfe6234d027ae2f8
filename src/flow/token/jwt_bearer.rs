//! A client exchanges a token of a provider for tokens of this service: an ID token (RFC 7523 section 2.1, RFC 8693), or an
//! identity assertion that the provider made for this service and this client (ID-JAG).

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;
use zeroize::Zeroizing;

use super::exchange_policy::{VerifiedActor, check_level, check_policy};
use super::issue::{ApprovedGrant, ExchangedToken, Granted, issue_tokens};
use super::start_family::NewFamily;
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::id_token::{self, AssertionBounds, IdTokenUse, VerifiedIdToken};
use crate::federation::profile::Profile;
use crate::flow::grant_policy::GrantPolicy;
use crate::flow::login::federated_user;
use crate::flow::login::federated_user::{ProviderAccount, UserMatch};
use crate::flow::users::EndedByProof;
use crate::flow::{Catalog, Core, FlowError, replay};
use crate::identity::{AuthenticationMethod, SecondFactor};
use crate::jose::jwt;
use crate::oauth::client::{Client, GrantType};
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::code::Authorization;
use crate::oauth::confirmation::Possession;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::resource::{Apis, Resources, not_granted};
use crate::oauth::scope::Scope;
use crate::oauth::token::{TokenResponse, user_scope};
use crate::oauth::token_exchange::Actor;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::TxError;

/// The one answer for a provider that is unknown, disabled, not for token exchange, or not among the client's.
pub const NOT_ACCEPTED: Refusal =
    Refusal::invalid_grant("tokens of this issuer are not accepted from this client");
const KEYS_UNAVAILABLE: Refusal = Refusal::new(
    ErrorCode::TemporarilyUnavailable,
    "the keys of the provider cannot be fetched at the moment",
);
/// The assertion has a `jti` that was used before.
pub const REPLAYED: Refusal = Refusal::invalid_grant("assertion was used before");

/// What the transaction did with an assertion that was not refused.
enum AssertionExchangeResult {
    Granted {
        approved: Box<ApprovedGrant>,
        matched: UserMatch,
        proof: EndedByProof,
    },
    Replayed,
}

/// An assertion that was checked, with the records that it was checked against.
pub(super) struct VerifiedAssertion {
    client: AuthenticatedClient,
    pub(super) provider: Arc<Provider>,
    pub(super) subject: VerifiedIdToken,
    is_id_jag: bool,
}

/// A request to exchange a token of a provider.
pub struct AssertionGrant {
    /// The grant: `jwt-bearer` or `token-exchange`.
    pub grant_type: GrantType,
    /// The token.
    pub assertion: Zeroizing<String>,
    /// The requested scope.
    pub scope: Option<Scope>,
    /// The APIs that the request names.
    pub resources: Resources,
    /// The party that acts for the user.
    pub actor: Option<VerifiedActor>,
    /// Whether a refresh token is issued, if the client may use one.
    pub wants_refresh_token: bool,
}

/// Checks the token against the provider's record and keys, finds or makes its user, starts a refresh family, and
/// issues tokens.
pub async fn exchange_assertion(
    core: &Core,
    client: &AuthenticatedClient,
    grant: AssertionGrant,
    possession: Option<Possession>,
    now: Timestamp,
) -> Result<TokenResponse, FlowError> {
    let grant_policy = core.grant_policy();
    let AssertionGrant {
        grant_type,
        assertion,
        scope,
        resources,
        actor,
        wants_refresh_token,
    } = grant;
    let verified = verify_assertion(core, client, grant_type, &assertion, now).await?;
    let VerifiedAssertion {
        client,
        provider,
        subject,
        is_id_jag,
    } = verified;
    let scope = bounded_scope(scope.as_ref(), &subject.bounds, &client)?;
    let apis = Arc::clone(core.catalog().apis());
    let asked = bounded_resources(&apis, &resources, &subject.bounds)?;
    let asked = apis.resolve(asked, &client)?;
    let is_exchange = grant_type == GrantType::TokenExchange;
    let is_offline = is_exchange && wants_refresh_token;
    let scope = with_offline_access(apis.scope_within(&scope, &asked), is_offline, &client)?;
    let acting = acting_party(actor.as_ref(), subject.actor.as_ref())?;
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    // The provider decides by each identity assertion anew, so none brings a refresh token (ID-JAG section 4.4).
    let drawn = NewFamily::draw(core, possession)?.with_refresh_token(wants_refresh_token && !is_id_jag);
    let profile = Profile::read(&subject.claims, &provider);
    let (policy, bearer) = (Arc::clone(&core.policy), client.clone());
    let issuing = Arc::clone(&provider);
    let exchanged = core
        .store
        .write("exchange_assertion", move |tx| -> Result<_, TxError<Refusal>> {
            drawn.check_proof(&*tx, now)?;
            let single_use = [
                subject.replay_key,
                actor.as_ref().and_then(|actor| actor.replay_key),
            ];
            for used in single_use.into_iter().flatten() {
                if replay::was_used(&*tx, used, now)? {
                    return Ok(AssertionExchangeResult::Replayed);
                }
            }
            let account = ProviderAccount {
                provider: &issuing,
                subject: &subject.subject,
                profile: &profile,
                uuid,
                organization: &policy.organization,
            };
            let Some((user, matched)) = federated_user::find(&*tx, &account, now)? else {
                return Err(Refusal::invalid_grant(
                    "nobody here is linked to this subject, and it may become no user",
                )
                .into());
            };
            let authorization = Authorization {
                scope: scope.clone(),
                resources: asked.clone(),
                actor: acting.clone().map(Box::new),
                ..authorization(&bearer, &issuing, user.uuid, &subject)
            };
            let mut user = grant_policy.authorize_new_user(&*tx, &bearer, &authorization, user)?;
            let target = drawn.target(&bearer, &authorization, &resources)?;
            check_level(&bearer, &authorization)?;
            if is_exchange {
                check_policy(&bearer, &target, actor.is_some())?;
            }
            let proof = federated_user::prove_address(tx, &mut user, matched, now)?;
            let granted = Granted {
                user,
                authorization,
                target,
            };
            let mut approved = drawn.begin(tx, &bearer, grant_type, granted, now)?;
            for used in single_use.into_iter().flatten() {
                replay::record_use(tx, used)?;
            }
            federated_user::save(tx, &approved.user, matched)?;
            approved.exchanged = is_exchange.then_some(ExchangedToken {
                client_id: None,
                expires_at: subject.expires_at,
                audience: None,
            });
            Ok(AssertionExchangeResult::Granted {
                approved: Box::new(approved),
                matched,
                proof,
            })
        })
        .await?;
    complete(core, &client, &provider, exchanged, now)
}

/// What follows the commit.
fn complete(
    core: &Core,
    client: &AuthenticatedClient,
    provider: &Provider,
    exchanged: AssertionExchangeResult,
    now: Timestamp,
) -> Result<TokenResponse, FlowError> {
    match exchanged {
        AssertionExchangeResult::Granted {
            approved,
            matched,
            proof,
        } => {
            federated_user::record(approved.user.uuid, matched, &provider.id);
            proof.record(core, approved.user.uuid, now);
            issue_tokens(core, client, *approved, now)
        }
        AssertionExchangeResult::Replayed => {
            audit::record(&Event::ProviderTokenReplayed {
                provider: &provider.id,
                client_id: &client.client_id,
            });
            Err(REPLAYED.into())
        }
    }
}

/// The party that acts for the user: the presented one, after those that the provider's token names.
fn acting_party(
    presented: Option<&VerifiedActor>,
    earlier: Option<&Actor>,
) -> Result<Option<Actor>, Refusal> {
    match presented {
        Some(actor) => Ok(Some(actor.party.clone().after(earlier)?)),
        None => Ok(earlier.cloned()),
    }
}

/// A grant to this client by a provider's token. It has neither scope nor APIs.
fn authorization(
    client: &Client,
    provider: &Provider,
    user: Uuid,
    subject: &VerifiedIdToken,
) -> Authorization {
    Authorization {
        client_id: client.client_id.clone(),
        client_incarnation: client.incarnation,
        user,
        session: None,
        auth_time: subject.auth_time,
        second_factor: provider
            .has_two_factors(&subject.claims)
            .then_some(SecondFactor::Provider),
        factor: AuthenticationMethod::Federated {
            provider: provider.id.clone(),
            incarnation: provider.incarnation,
        },
        upstream_token: None,
        scope: Scope::empty(),
        resources: Resources::new(),
        claims: ClaimsRequest::default(),
        bound_to: None,
        actor: None,
    }
}

/// The scope of the grant: the requested one, within that of an identity assertion.
fn bounded_scope(asked: Option<&Scope>, bounds: &AssertionBounds, client: &Client) -> Result<Scope, Refusal> {
    let Some(most) = &bounds.scope else {
        return user_scope(asked, client, Scope::AUTHENTICATED);
    };
    let most = most.filter(|value| client.scope.contains(value));
    if asked.is_some_and(|asked| !asked.is_within(&most)) {
        return Err(Refusal::new(
            ErrorCode::InvalidScope,
            "scope exceeds what the assertion allows this client",
        ));
    }
    user_scope(Some(asked.unwrap_or(&most)), client, Scope::AUTHENTICATED)
}

/// The scope, with `offline_access` in a token exchange that brings a refresh token.
fn with_offline_access(scope: Scope, is_offline: bool, client: &Client) -> Result<Scope, Refusal> {
    if !is_offline {
        return Ok(scope);
    }
    if client.scope.contains(Scope::OFFLINE_ACCESS) {
        return Ok(scope.with(Scope::OFFLINE_ACCESS));
    }
    Err(Refusal::new(
        ErrorCode::InvalidScope,
        "a refresh token needs the scope offline_access, which this client may not have",
    ))
}

/// The APIs of the grant: the requested ones, within those of an identity assertion.
fn bounded_resources<'a>(
    apis: &Apis,
    named: &'a Resources,
    bounds: &'a AssertionBounds,
) -> Result<&'a Resources, Refusal> {
    match &bounds.resources {
        Some(most) => {
            let most_named: BTreeSet<_> = most.iter().map(|value| apis.identifier_of(value)).collect();
            let is_outside = |value: &&String| !most_named.contains(&apis.identifier_of(value));
            match named.iter().find(is_outside) {
                Some(outside) => Err(not_granted(outside)),
                None if named.is_empty() => Ok(most),
                None => Ok(named),
            }
        }
        None => Ok(named),
    }
}

/// Refuses a client that may not exchange tokens.
pub(super) fn check_client(
    grant_policy: &GrantPolicy,
    client: &AuthenticatedClient,
    grant_type: GrantType,
) -> Result<(), Refusal> {
    grant_policy.check_grant(client, grant_type)?;
    if client.is_public() {
        return Err(Refusal::new(
            ErrorCode::UnauthorizedClient,
            "token exchange is for clients that authenticate",
        ));
    }
    Ok(())
}

/// The provider with this issuer, if the client may exchange its ID tokens, or present its identity assertions.
fn accepted_provider<'a>(
    catalog: &'a Catalog,
    client: &Client,
    issuer: &str,
    is_id_jag: bool,
) -> Result<&'a Arc<Provider>, Refusal> {
    let accepts = |provider: &Provider| {
        if is_id_jag {
            provider.id_jag
        } else {
            provider.exchange
        }
    };
    catalog
        .provider_of(issuer)
        .filter(|provider| provider.enabled && accepts(provider) && client.providers.contains(&provider.id))
        .ok_or(NOT_ACCEPTED)
}

/// Finds the provider that the token names and checks the token by its record.
///
/// A client that may not use the provider causes no request to it. Fetching the provider's keys may take long, so the
/// records of client and provider are read again after that.
///
/// The grant `jwt-bearer` also accepts identity assertions (ID-JAG).
pub(super) async fn verify_assertion(
    core: &Core,
    client: &AuthenticatedClient,
    grant_type: GrantType,
    assertion: &str,
    now: Timestamp,
) -> Result<VerifiedAssertion, Refusal> {
    let grant_policy = core.grant_policy();
    check_client(&grant_policy, client, grant_type)?;
    let token = id_token::compact(assertion);
    let is_id_jag = grant_type == GrantType::JwtBearer && id_token::is_id_jag(&token);
    let issuer = jwt::unverified_claim(&token, "iss").ok().flatten();
    let issuer = issuer.ok_or(Refusal::invalid_grant("assertion is no JWT with an iss"))?;
    let before = Arc::clone(accepted_provider(&core.catalog(), client, &issuer, is_id_jag)?);
    let keys = core.upstreams.keys_of(&before, &token, now).await;
    let catalog = core.catalog();
    let client = client.as_now(catalog.client(&client.client_id).as_ref())?;
    check_client(&grant_policy, &client, grant_type)?;
    let provider = Arc::clone(accepted_provider(&catalog, &client, &issuer, is_id_jag)?);
    let has_same_keys = provider.keys == before.keys && provider.jwks_uri == before.jwks_uri;
    let keys = keys.ok().filter(|_| has_same_keys).ok_or(KEYS_UNAVAILABLE)?;
    let purpose = if is_id_jag {
        IdTokenUse::IdJag {
            issuer: &core.policy.issuer,
            client_id: &client.client_id,
        }
    } else {
        IdTokenUse::Exchange
    };
    let subject = id_token::check(&token, &provider, &keys, purpose, now)
        .map_err(|problem| Refusal::naming(ErrorCode::InvalidGrant, &format!("assertion: {problem}")))?;
    Ok(VerifiedAssertion {
        client,
        provider,
        subject,
        is_id_jag,
    })
}
