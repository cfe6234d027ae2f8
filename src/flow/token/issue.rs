//! Signs tokens, after the commit that allows them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::clock::Timestamp;
use crate::flow::{Catalog, Core, Failure, FlowError, upstream_token};
use crate::identity::session::{level_of, methods_of};
use crate::identity::{AuthenticationLevel, AuthenticationMethod, SecondFactor, User};
use crate::jose::alg::Algorithm;
use crate::jose::claims::Audience;
use crate::oauth::access_token::{AccessTokenClaims, AccessTokenTyp, Authority, CommonClaims, EmbeddedToken};
use crate::oauth::client::{Client, GrantType, IdTokenContent};
use crate::oauth::code::Authorization;
use crate::oauth::confirmation::Confirmation;
use crate::oauth::dpop;
use crate::oauth::error::Refusal;
use crate::oauth::openid::id_token::{self, IdTokenClaims};
use crate::oauth::policy::Policy;
use crate::oauth::resource::TokenTarget;
use crate::oauth::scope::Scope;
use crate::oauth::token::TokenResponse;
use crate::oauth::token_exchange::{self, Actor};
use crate::oauth::token_length::{self, TooLong};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::secret::{RefreshToken, Secret};

/// What a grant gives to its client.
pub struct Granted {
    /// The user, as the record was inside the transaction.
    pub user: User,
    pub authorization: Authorization,
    /// The APIs and the scope of this access token. The scope is the granted scope or a part of it.
    pub target: TokenTarget,
}

/// What a committed transaction has decided to issue.
pub struct ApprovedGrant {
    /// The grant that was used.
    pub grant_type: GrantType,
    /// The user, as the record was inside the transaction.
    pub user: User,
    pub authorization: Authorization,
    /// The APIs and the scope of this access token. The scope is the granted scope or a part of it.
    pub target: TokenTarget,
    /// The family behind it.
    pub family: Uuid,
    /// `nonce` of the authorization request.
    pub nonce: Option<String>,
    /// The anonymous user who was linked to the user.
    pub anonymous_sub: Option<Uuid>,
    /// What the access token is bound to.
    pub bound_to: Option<Confirmation>,
    /// The refresh token, if the client may use one.
    pub refresh_token: Option<Secret<RefreshToken>>,
    /// What the exchanged token limits, after a token exchange.
    pub exchanged: Option<ExchangedToken>,
}

impl ApprovedGrant {
    /// The approval of a grant that has only an access token.
    pub fn new(
        grant_type: GrantType,
        family: Uuid,
        granted: Granted,
        bound_to: Option<Confirmation>,
    ) -> Self {
        Self {
            grant_type,
            user: granted.user,
            authorization: granted.authorization,
            target: granted.target,
            family,
            nonce: None,
            anonymous_sub: None,
            bound_to,
            refresh_token: None,
            exchanged: None,
        }
    }
}

/// What a token that was exchanged limits in the new one (RFC 8693).
#[derive(Clone, Debug)]
pub struct ExchangedToken {
    /// The client that it was issued to; none for a token of a provider.
    pub client_id: Option<String>,
    pub expires_at: Timestamp,
    /// The audience of the new token, if it is for no API.
    pub audience: Option<Audience>,
}

/// Signs the tokens of a grant.
pub fn issue_tokens(
    core: &Core,
    client: &Client,
    approved: ApprovedGrant,
    now: Timestamp,
) -> Result<TokenResponse, FlowError> {
    let catalog = core.catalog();
    let policy = &core.policy;
    let ApprovedGrant {
        grant_type,
        user,
        authorization,
        target,
        family,
        nonce,
        anonymous_sub,
        bound_to,
        refresh_token,
        exchanged,
    } = approved;
    let scope = &target.scope;
    let level = level_of(&authorization.factor, authorization.second_factor);
    let of_user = id_token_claims(&catalog, client, &user, &authorization, scope);
    let groups = catalog.groups().of(&user);
    // A role has a meaning in one API. In a token for several APIs, an API could not tell which roles are its own.
    let roles = match target.apis.as_slice() {
        [api] => api.roles_of(&groups),
        _ => None,
    };
    let common = common_claims(core, client, user, &authorization, scope, now);
    let mut form = AccessTokenSettings::of(policy, client, &target);
    if let Some(exchanged) = &exchanged {
        form.lifetime = form.lifetime.min(exchanged.expires_at.since(now));
        form.audience = exchanged.audience.clone().unwrap_or(form.audience);
    }
    let embedded = embedded_token(core, &catalog, client, &authorization, now);
    let token_type = token_type(bound_to.as_ref());
    let actor = authorization.actor.as_deref();
    let grant = Grant {
        cnf: bound_to,
        act: actor,
        auth_time: authorization.auth_time,
        acr: level,
        id: family,
        anonymous_sub,
        roles,
        groups: scope.contains(Scope::GROUPS).then_some(groups),
        upstream_token: embedded
            .as_ref()
            .and_then(|(claim, token)| EmbeddedToken::new(claim, token)),
    };
    let access_token = access_token(&catalog, client, &form, &common, grant)?;
    let id_token = if client.gets_id_token(grant_type, &common.scope) {
        let alg = client.allowed_algorithm(client.id_token_signed_response_alg.unwrap_or(Algorithm::Rs256));
        let claims = IdTokenClaims {
            iss: &policy.issuer,
            sub: common.uuid,
            aud: &client.client_id,
            azp: &client.client_id,
            exp: now + policy.lifetimes.id_token,
            iat: now,
            auth_time: authorization.auth_time,
            nonce: nonce.as_deref(),
            at_hash: id_token::at_hash(&access_token, alg),
            sid: authorization.session,
            amr: methods_of(&authorization.factor, authorization.second_factor),
            acr: authorization.claims.acr(level).map(AuthenticationLevel::as_str),
            requested: of_user,
        };
        Some(
            catalog
                .id_token_encoder(alg)?
                .encode(&claims)
                .map_err(Failure::from)?,
        )
    } else {
        None
    };
    check_length("access_token", &access_token, client, Some(common.uuid))?;
    if let Some(id_token) = &id_token {
        check_length("id_token", id_token, client, Some(common.uuid))?;
    }
    audit::record(&Event::TokensIssued {
        user: Some(common.uuid),
        client_id: &client.client_id,
        grant_type: grant_type.as_str(),
        audience: form.audience.values(),
        jti: common.jti,
        family: Some(family),
        actor: actor.map(|actor| actor.sub.as_str()),
        exchanged_of: exchanged.as_ref().and_then(|token| token.client_id.as_deref()),
    });
    Ok(TokenResponse {
        access_token,
        issued_token_type: exchanged.is_some().then_some(token_exchange::ACCESS_TOKEN),
        token_type,
        expires_in: form.lifetime.as_secs(),
        refresh_token: refresh_token.map(|token| token.reveal().to_owned()),
        id_token_alias: id_token.as_ref().filter(|_| policy.id_token_alias).cloned(),
        id_token,
        common,
    })
}

/// Refuses a token that the endpoints of the service could not take.
fn check_length(token: &'static str, text: &str, client: &Client, user: Option<Uuid>) -> Result<(), Refusal> {
    let Err(TooLong { length, claim }) = token_length::check(text) else {
        return Ok(());
    };
    audit::record(&Event::TokenTooLong {
        user,
        client_id: &client.client_id,
        token,
        claim: &claim,
        length,
    });
    let description = format!(
        "{token} would have {length} bytes, and {} are allowed; the longest claim is {claim}: request less scope, or have this claim shortened",
        token_length::LONGEST
    );
    Err(Refusal {
        description: description.into(),
        ..Refusal::invalid_request("")
    })
}

/// The members of the token response about the user, as far as the client may learn them.
fn common_claims(
    core: &Core,
    client: &Client,
    user: User,
    authorization: &Authorization,
    scope: &Scope,
    now: Timestamp,
) -> CommonClaims {
    let may_learn_email = client.may_learn("email", scope);
    let email = user.email.filter(|_| may_learn_email);
    CommonClaims {
        iss: core.policy.issuer.clone(),
        iat: now,
        jti: core.random.uuid_v4(),
        scope: client.token_scope(scope),
        account_id: if may_learn_email {
            user.account_id
        } else {
            user.uuid.to_string()
        },
        user_type: user.user_type,
        venue_id: user.venue_id,
        organization: user.organization,
        amr: authorities(authorization),
        phone_number: user.phone_number.filter(|_| client.may_learn("phone", scope)),
        source: user.source,
        email_verified: email.is_some() && user.email_verified,
        email: email.unwrap_or_default(),
        uuid: user.uuid,
    }
}

/// What authenticated the user, step by step.
fn authorities(authorization: &Authorization) -> Vec<Authority> {
    let second = authorization.second_factor.and_then(SecondFactor::authority);
    let authorities = [Some(authorization.factor.authority()), second];
    let authority = |name: &str| Authority {
        authority: name.to_owned(),
    };
    authorities.into_iter().flatten().map(authority).collect()
}

/// `token_type` of an access token (RFC 9449 section 5). One that is bound to a certificate is presented as any other.
pub(super) fn token_type(bound_to: Option<&Confirmation>) -> &'static str {
    match bound_to {
        Some(Confirmation::Key(_)) => dpop::SCHEME,
        Some(Confirmation::Certificate(_)) | None => "bearer",
    }
}

/// The claims of the user in the ID token of a grant. It has the claims that the parameter `claims` requests, and the
/// claim `groups` of the scope `groups`. It has all claims of the scope if there was no authorization request, or if
/// the client has `IdTokenContent::Userinfo`.
fn id_token_claims(
    catalog: &Catalog,
    client: &Client,
    user: &User,
    authorization: &Authorization,
    scope: &Scope,
) -> Map<String, Value> {
    let about = catalog.claims_of(user);
    let has_whole_scope =
        authorization.session.is_none() || client.id_token_claims == IdTokenContent::Userinfo;
    let released = scope.filter(|value| has_whole_scope || value == Scope::GROUPS);
    let mut claims = about.of_scope(&released);
    claims.extend(about.requested_in_id_token(&authorization.claims_within(scope, &client.scope)));
    claims
}

/// The name of the claim that holds the provider's access token, and that token.
fn embedded_token(
    core: &Core,
    catalog: &Catalog,
    client: &Client,
    authorization: &Authorization,
    now: Timestamp,
) -> Option<(String, Zeroizing<String>)> {
    let needs_setting = client.is_public() || client.registered_itself();
    if needs_setting && !client.embed_upstream_token {
        return None;
    }
    let token = authorization.upstream_token.as_deref()?;
    let AuthenticationMethod::Federated { provider, .. } = &authorization.factor else {
        return None;
    };
    let provider = catalog.provider(provider)?;
    let claim = provider.embed_token.clone()?;
    Some((claim, upstream_token::open(core, provider, token, now)?))
}

/// The claims of an access token about the grant behind it.
struct Grant<'a> {
    cnf: Option<Confirmation>,
    act: Option<&'a Actor>,
    auth_time: Option<Timestamp>,
    acr: Option<AuthenticationLevel>,
    id: Uuid,
    anonymous_sub: Option<Uuid>,
    groups: Option<BTreeSet<&'a str>>,
    roles: Option<BTreeSet<&'a str>>,
    upstream_token: Option<EmbeddedToken<'a>>,
}

/// The settings of an access token. Those of the API take precedence over those of the client, and those over the
/// service's. For several APIs, the shortest lifetime counts, and the algorithm and `typ` of the first API that has
/// one.
struct AccessTokenSettings {
    audience: Audience,
    lifetime: Duration,
    alg: Algorithm,
    typ: AccessTokenTyp,
}

impl AccessTokenSettings {
    fn of(policy: &Policy, client: &Client, target: &TokenTarget) -> Self {
        let apis = || target.apis.iter().map(|api| &api.metadata);
        let mut audience: Vec<_> = target.apis.iter().map(|api| api.identifier.clone()).collect();
        if audience.is_empty() {
            audience.push(client.audience.as_ref().unwrap_or(&policy.issuer).clone());
        } else if !target.is_exact && target.scope.contains(Scope::OPENID) {
            audience.push(policy.issuer.clone());
        }
        let lifetime = apis().filter_map(|api| api.access_token_lifetime).min();
        let lifetime = lifetime.or(client.access_token_lifetime).map(Duration::from);
        Self {
            audience: Audience::of(audience),
            lifetime: lifetime
                .unwrap_or(policy.lifetimes.access_token)
                .min(policy.key_retention()),
            alg: client.allowed_algorithm(
                apis()
                    .find_map(|api| api.access_token_alg)
                    .or(client.access_token_alg)
                    .unwrap_or(policy.access_token_alg),
            ),
            typ: apis()
                .find_map(|api| api.access_token_typ)
                .or(client.access_token_typ)
                .unwrap_or(policy.access_token_typ),
        }
    }
}

/// How long an access token of this client for these APIs lasts.
pub(super) fn access_token_lifetime(policy: &Policy, client: &Client, target: &TokenTarget) -> Duration {
    AccessTokenSettings::of(policy, client, target).lifetime
}

fn access_token(
    catalog: &Catalog,
    client: &Client,
    form: &AccessTokenSettings,
    common: &CommonClaims,
    grant: Grant<'_>,
) -> Result<String, Failure> {
    let encoder = catalog.access_token_encoder(form.alg, form.typ)?;
    Ok(encoder.encode(&AccessTokenClaims {
        common,
        sub: common.uuid,
        aud: &form.audience,
        exp: common.iat + form.lifetime,
        client_id: &client.client_id,
        auth_time: grant.auth_time,
        acr: grant.acr,
        grant_id: grant.id,
        anonymous_sub: grant.anonymous_sub,
        cnf: grant.cnf,
        act: grant.act,
        groups: grant.groups,
        roles: grant.roles,
        upstream_token: grant.upstream_token,
    })?)
}

/// Signs the token of a client that acts for itself. There is no user, so there is neither an ID token nor a refresh
/// token (RFC 6749 section 4.4.3).
pub fn issue_tokens_for_client(
    core: &Core,
    client: &Client,
    target: TokenTarget,
    bound_to: Option<Confirmation>,
    now: Timestamp,
) -> Result<TokenResponse, FlowError> {
    const KIND: &str = User::CLIENT_TYPE;
    let policy = &core.policy;
    let form = AccessTokenSettings::of(policy, client, &target);
    let common = CommonClaims {
        iss: policy.issuer.clone(),
        iat: now,
        jti: core.random.uuid_v4(),
        scope: target.scope,
        account_id: client.client_id.clone(),
        user_type: KIND.to_owned(),
        venue_id: None,
        organization: policy.organization.clone(),
        amr: vec![Authority {
            authority: KIND.to_owned(),
        }],
        phone_number: None,
        source: KIND.to_ascii_uppercase(),
        email: String::new(),
        email_verified: false,
        uuid: client.client_uuid,
    };
    let token_type = token_type(bound_to.as_ref());
    let grant = Grant {
        cnf: bound_to,
        act: None,
        id: client.own_grant,
        anonymous_sub: None,
        auth_time: None,
        acr: None,
        groups: None,
        roles: None,
        upstream_token: None,
    };
    let access_token = access_token(&core.catalog(), client, &form, &common, grant)?;
    check_length("access_token", &access_token, client, None)?;
    audit::record(&Event::TokensIssued {
        user: None,
        client_id: &client.client_id,
        grant_type: GrantType::ClientCredentials.as_str(),
        audience: form.audience.values(),
        jti: common.jti,
        family: None,
        actor: None,
        exchanged_of: None,
    });
    Ok(TokenResponse {
        access_token,
        issued_token_type: None,
        token_type,
        expires_in: form.lifetime.as_secs(),
        refresh_token: None,
        id_token_alias: None,
        id_token: None,
        common,
    })
}
