//! A client exchanges a provider's ID token for tokens of this service: RFC 7523 section 2.1.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::issue::{ApprovedGrant, issue_tokens};
use super::start_family::NewFamily;
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::id_token::{self, IdTokenUse, VerifiedIdToken};
use crate::federation::profile::Profile;
use crate::flow::grant_policy::GrantPolicy;
use crate::flow::login::federated_user;
use crate::flow::login::federated_user::{ProviderAccount, UserMatch};
use crate::flow::{Answer, Catalog, Core, Failure, replay};
use crate::identity::AuthenticationMethod;
use crate::jose::jwt;
use crate::oauth::client::{Client, GrantType};
use crate::oauth::client_auth::AuthenticatedClient;
use crate::oauth::code::Authorization;
use crate::oauth::confirmation::Possession;
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::resource::Resources;
use crate::oauth::scope::Scope;
use crate::oauth::token::{TokenResponse, user_scope};
use crate::observe::audit;
use crate::observe::audit::Event;

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
    Granted(Box<ApprovedGrant>, UserMatch),
    Replayed,
}

/// An assertion that was checked, with the records that it was checked against.
struct VerifiedAssertion {
    client: AuthenticatedClient,
    provider: Arc<Provider>,
    subject: VerifiedIdToken,
}

/// Checks the token against the provider's record and keys, finds or makes its user, starts a refresh family, and
/// issues tokens.
pub async fn exchange_assertion(
    core: &Core,
    client: &AuthenticatedClient,
    assertion: Zeroizing<String>,
    scope: Option<Scope>,
    resources: Resources,
    possession: Option<Possession>,
    now: Timestamp,
) -> Result<Answer<TokenResponse>, Failure> {
    let grant_policy = core.grant_policy();
    let verified = or_refuse!(verify_assertion(core, &grant_policy, client, &assertion, now).await);
    let VerifiedAssertion {
        client,
        provider,
        subject,
    } = verified;
    let scope = or_refuse!(user_scope(scope.as_ref(), &client, Scope::AUTHENTICATED));
    let apis = Arc::clone(core.catalog().apis());
    let asked = or_refuse!(apis.resolve(&resources, &client));
    let scope = apis.scope_within(&scope, &asked);
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let drawn = NewFamily::draw(core, possession)?;
    let profile = Profile::read(&subject.claims, &provider);
    let (policy, bearer) = (Arc::clone(&core.policy), client.clone());
    let issuing = Arc::clone(&provider);
    let exchanged = core
        .store
        .write("exchange_assertion", move |tx| {
            or_refuse!(drawn.check_proof(&*tx, now)?);
            if let Some(used) = subject.replay_key
                && replay::was_used(&*tx, used, now)?
            {
                return Ok(Ok(AssertionExchangeResult::Replayed));
            }
            let account = ProviderAccount {
                provider: &issuing,
                subject: &subject.subject,
                profile: &profile,
                uuid,
                organization: &policy.organization,
            };
            let Some((user, matched)) = federated_user::find(&*tx, &account, now)? else {
                return Ok(Err(Refusal::invalid_grant(
                    "nobody here is linked to this subject, and it may become no user",
                )));
            };
            let authorization = Authorization {
                client_id: bearer.client_id.clone(),
                client_incarnation: bearer.incarnation,
                user: user.uuid,
                session: None,
                auth_time: subject.auth_time,
                second_factor: None,
                factor: AuthenticationMethod::Federated {
                    provider: issuing.id.clone(),
                    incarnation: issuing.incarnation,
                },
                upstream_token: None,
                scope: scope.clone(),
                resources: asked.clone(),
                claims: ClaimsRequest::default(),
                bound_to: None,
            };
            let user = or_refuse!(grant_policy.authorize_new_user(&*tx, &bearer, &authorization, user)?);
            let target = or_refuse!(drawn.target(&bearer, &authorization, &resources));
            if let Some(used) = subject.replay_key {
                replay::record_use(tx, used)?;
            }
            federated_user::save(tx, &user, matched)?;
            let granted = (user, authorization, target);
            let approved = drawn.begin(tx, &bearer, GrantType::JwtBearer, granted, now)?;
            Ok(Ok(AssertionExchangeResult::Granted(Box::new(approved), matched)))
        })
        .await?;
    match or_refuse!(exchanged) {
        AssertionExchangeResult::Granted(approved, matched) => {
            federated_user::record(approved.user.uuid, matched, &provider.id);
            issue_tokens(core, &client, *approved, now).map(Ok)
        }
        AssertionExchangeResult::Replayed => {
            audit::record(&Event::ProviderTokenReplayed {
                provider: &provider.id,
                client_id: &client.client_id,
            });
            Ok(Err(REPLAYED))
        }
    }
}

/// Refuses a client that may not exchange tokens.
fn check_client(grant_policy: &GrantPolicy, client: &AuthenticatedClient) -> Answer<()> {
    grant_policy.check_grant(client, GrantType::JwtBearer)?;
    if client.is_public() {
        return Err(Refusal::new(
            ErrorCode::UnauthorizedClient,
            "token exchange is for clients that authenticate",
        ));
    }
    Ok(())
}

/// The provider with this issuer, if the client may exchange its tokens.
fn accepted_provider<'a>(catalog: &'a Catalog, client: &Client, issuer: &str) -> Answer<&'a Arc<Provider>> {
    catalog
        .provider_of(issuer)
        .filter(|provider| provider.enabled && provider.exchange && client.providers.contains(&provider.id))
        .ok_or(NOT_ACCEPTED)
}

/// Finds the provider that the token names and checks the token by its record.
///
/// A client that may not use the provider causes no request to it. Fetching the provider's keys may take long, so the
/// records of client and provider are read again after that.
async fn verify_assertion(
    core: &Core,
    grant_policy: &GrantPolicy,
    client: &AuthenticatedClient,
    assertion: &str,
    now: Timestamp,
) -> Answer<VerifiedAssertion> {
    check_client(grant_policy, client)?;
    let token = id_token::compact(assertion);
    let issuer = jwt::unverified_claim(&token, "iss").ok().flatten();
    let issuer = issuer.ok_or(Refusal::invalid_grant("assertion is no JWT with an iss"))?;
    let before = Arc::clone(accepted_provider(&core.catalog(), client, &issuer)?);
    let keys = core.upstreams.keys_of(&before, &token, now).await;
    let catalog = core.catalog();
    let client = client.as_now(catalog.client(&client.client_id))?;
    check_client(grant_policy, &client)?;
    let provider = Arc::clone(accepted_provider(&catalog, &client, &issuer)?);
    let has_same_keys = provider.keys == before.keys && provider.jwks_uri == before.jwks_uri;
    let keys = keys.ok().filter(|_| has_same_keys).ok_or(KEYS_UNAVAILABLE)?;
    let subject = id_token::check(&token, &provider, &keys, IdTokenUse::Exchange, now)
        .map_err(|problem| Refusal::naming(ErrorCode::InvalidGrant, &format!("assertion: {problem}")))?;
    Ok(VerifiedAssertion {
        client,
        provider,
        subject,
    })
}
