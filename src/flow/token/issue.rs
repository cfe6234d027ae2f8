//! Signs tokens, after the commit that allows them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::access_token_settings::AccessTokenSettings;
use crate::clock::Timestamp;
use crate::flow::{Catalog, Core, Failure, FlowError, upstream_token};
use crate::identity::session::{level_of, methods_of};
use crate::identity::{AuthenticationLevel, AuthenticationMethod, SecondFactor, User};
use crate::jose::alg::Algorithm;
use crate::jose::claims::Audience;
use crate::jose::jwt::Encoder;
use crate::jose::keyring::SignError;
use crate::oauth::access_token::{AccessTokenClaims, Authority, CommonClaims, EmbeddedToken};
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
use crate::seal::Sealer;
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

/// What the tokens of a grant are made from, beside the grant itself.
#[derive(Clone)]
pub struct TokenIssuer {
    pub(super) catalog: Arc<Catalog>,
    pub(super) policy: Arc<Policy>,
    sealer: Arc<Sealer>,
}

impl TokenIssuer {
    pub fn new(core: &Core) -> Self {
        Self {
            catalog: core.catalog(),
            policy: Arc::clone(&core.policy),
            sealer: Arc::clone(&core.sealer),
        }
    }

    /// Whether the user may use the client.
    pub fn lets_in(&self, client: &Client, user: &User) -> bool {
        client.lets_in(user, self.catalog.groups())
    }

    /// Makes the tokens of a grant.
    pub(super) fn make(
        &self,
        encoding: Encoding,
        client: &Client,
        approved: ApprovedGrant,
        settings: &AccessTokenSettings,
        jti: Uuid,
        now: Timestamp,
    ) -> Result<TokenResponse, FlowError> {
        let (catalog, policy) = (&*self.catalog, &*self.policy);
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
        let of_user = id_token_claims(catalog, client, &user, &authorization, scope);
        let groups = catalog.groups().of(&user);
        // A role has a meaning in one API. In a token for several APIs, an API could not tell which roles are its own.
        let roles = match target.apis.as_slice() {
            [api] => api.roles_of(&groups),
            _ => None,
        };
        let claimed_groups = scope
            .contains(Scope::GROUPS)
            .then(|| client.claimed_groups(&user, catalog.groups()));
        let common = common_claims(policy, client, user, &authorization, scope, jti, now);
        let embedded = self.embedded_token(client, &authorization, now);
        let token_type = token_type(bound_to.as_ref());
        let grant = Grant {
            cnf: bound_to,
            act: authorization.actor.as_deref(),
            auth_time: authorization.auth_time,
            acr: level,
            id: family,
            anonymous_sub,
            roles,
            groups: claimed_groups,
            upstream_token: embedded
                .as_ref()
                .and_then(|(claim, token)| EmbeddedToken::new(claim, token)),
        };
        let access_token = access_token(encoding, catalog, client, settings, &common, grant)?;
        check_length("access_token", &access_token, client, Some(common.uuid))?;
        let id_token = if client.gets_id_token(grant_type, &common.scope) {
            let alg =
                client.allowed_algorithm(client.id_token_signed_response_alg.unwrap_or(Algorithm::Rs256));
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
            let id_token = encoding
                .encode(catalog.id_token_encoder(alg)?, &claims)
                .map_err(Failure::from)?;
            check_length("id_token", &id_token, client, Some(common.uuid))?;
            Some(id_token)
        } else {
            None
        };
        Ok(TokenResponse {
            access_token,
            issued_token_type: exchanged.is_some().then_some(token_exchange::ACCESS_TOKEN),
            token_type,
            expires_in: settings.lifetime.as_secs(),
            refresh_token: refresh_token.map(|token| token.reveal().to_owned()),
            id_token_alias: id_token.as_ref().filter(|_| policy.id_token_alias).cloned(),
            id_token,
            common,
        })
    }

    /// The name of the claim that holds the provider's access token, and that token.
    fn embedded_token(
        &self,
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
        let provider = self.catalog.provider(provider)?;
        let claim = provider.embed_token.clone()?;
        Some((claim, upstream_token::open(&self.sealer, provider, token, now)?))
    }
}

/// How the tokens of a grant are encoded.
#[derive(Clone, Copy)]
pub(super) enum Encoding {
    Signed,
    /// With zeros in place of the signature, to learn the length.
    Unsigned,
}

impl Encoding {
    fn encode(self, encoder: &Encoder, claims: &impl Serialize) -> Result<String, SignError> {
        match self {
            Self::Signed => encoder.encode(claims),
            Self::Unsigned => encoder.encode_unsigned(claims),
        }
    }
}

/// Signs the tokens of a grant.
pub fn issue_tokens(
    core: &Core,
    client: &Client,
    approved: ApprovedGrant,
    now: Timestamp,
) -> Result<TokenResponse, FlowError> {
    let mut settings = AccessTokenSettings::of(&core.policy, client, &approved.target);
    if let Some(exchanged) = &approved.exchanged {
        settings.lifetime = settings.lifetime.min(exchanged.expires_at.since(now));
        settings.audience = exchanged.audience.clone().unwrap_or(settings.audience);
    }
    let (grant_type, family) = (approved.grant_type, approved.family);
    let actor = approved.authorization.actor.clone();
    let exchanged_of = approved
        .exchanged
        .as_ref()
        .and_then(|token| token.client_id.clone());
    let jti = core.random.uuid_v4();
    let issuer = TokenIssuer::new(core);
    let response = issuer.make(Encoding::Signed, client, approved, &settings, jti, now)?;
    audit::record(&Event::TokensIssued {
        user: Some(response.common.uuid),
        client_id: &client.client_id,
        grant_type: grant_type.as_str(),
        audience: settings.audience.values(),
        jti,
        family: Some(family),
        actor: actor.as_ref().map(|actor| actor.sub.as_str()),
        exchanged_of: exchanged_of.as_deref(),
    });
    Ok(response)
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
    policy: &Policy,
    client: &Client,
    user: User,
    authorization: &Authorization,
    scope: &Scope,
    jti: Uuid,
    now: Timestamp,
) -> CommonClaims {
    let may_learn_email = client.may_learn("email", scope);
    let email = user.email.filter(|_| may_learn_email);
    CommonClaims {
        iss: policy.issuer.clone(),
        iat: now,
        jti,
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
    let about = catalog.claims_of(user, client);
    let has_whole_scope =
        authorization.session.is_none() || client.id_token_claims == IdTokenContent::Userinfo;
    let released = scope.filter(|value| has_whole_scope || value == Scope::GROUPS);
    let mut claims = about.of_scope(&released);
    claims.extend(about.requested_in_id_token(&authorization.claims_within(scope, &client.scope)));
    claims
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

fn access_token(
    encoding: Encoding,
    catalog: &Catalog,
    client: &Client,
    settings: &AccessTokenSettings,
    common: &CommonClaims,
    grant: Grant<'_>,
) -> Result<String, Failure> {
    let encoder = catalog.access_token_encoder(settings.alg, settings.typ)?;
    let claims = AccessTokenClaims {
        common,
        sub: common.uuid,
        aud: &settings.audience,
        exp: common.iat + settings.lifetime,
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
    };
    Ok(encoding.encode(encoder, &claims)?)
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
    let settings = AccessTokenSettings::of(policy, client, &target);
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
    let access_token = access_token(
        Encoding::Signed,
        &core.catalog(),
        client,
        &settings,
        &common,
        grant,
    )?;
    check_length("access_token", &access_token, client, None)?;
    audit::record(&Event::TokensIssued {
        user: None,
        client_id: &client.client_id,
        grant_type: GrantType::ClientCredentials.as_str(),
        audience: settings.audience.values(),
        jti: common.jti,
        family: None,
        actor: None,
        exchanged_of: None,
    });
    Ok(TokenResponse {
        access_token,
        issued_token_type: None,
        token_type,
        expires_in: settings.lifetime.as_secs(),
        refresh_token: None,
        id_token_alias: None,
        id_token: None,
        common,
    })
}
