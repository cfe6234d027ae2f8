//! The metadata of a client, with the names of RFC 7591 section 2.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::identity::{AuthenticationLevel, User};
use crate::jose::alg::Algorithm;
use crate::oauth::Logo;
use crate::oauth::access_token_typ::AccessTokenTyp;
use crate::oauth::fields::{Lifetime, Plain, fields, is_default};
use crate::oauth::group::Groups;
use crate::oauth::scope::Scope;
use crate::oauth::token_exchange::TokenExchangePolicy;

/// A set of rules for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientProfile {
    /// The FAPI 2.0 Security Profile.
    Fapi2,
    /// FAPI 2.0 Message Signing, with the Security Profile.
    Fapi2MessageSigning,
}

/// A grant type that a client may be registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantType {
    /// RFC 6749 section 4.1.
    AuthorizationCode,
    /// RFC 6749 section 6.
    RefreshToken,
    /// A new user for a device, which keeps the account by its refresh token.
    Anonymous,
    /// RFC 6749 section 4.4.
    ClientCredentials,
    /// RFC 7523 section 2.1: an upstream provider's ID token is exchanged.
    #[serde(rename = "jwt-bearer")]
    JwtBearer,
    /// RFC 8693: an access token, or a provider's ID token, is exchanged for an access token.
    #[serde(rename = "token-exchange")]
    TokenExchange,
    /// RFC 8628: a person allows a device on another one.
    DeviceCode,
}

impl GrantType {
    /// Every grant type the service knows.
    pub const ALL: [Self; 7] = [
        Self::AuthorizationCode,
        Self::RefreshToken,
        Self::Anonymous,
        Self::ClientCredentials,
        Self::JwtBearer,
        Self::TokenExchange,
        Self::DeviceCode,
    ];

    /// The name under which a client is registered for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AuthorizationCode => "authorization_code",
            Self::RefreshToken => "refresh_token",
            Self::Anonymous => "anonymous",
            Self::ClientCredentials => "client_credentials",
            Self::JwtBearer => "jwt-bearer",
            Self::TokenExchange => "token-exchange",
            Self::DeviceCode => "device_code",
        }
    }

    /// The value of `grant_type`. That of the anonymous grant contains the name of the service.
    pub fn value(self, service_name: &str) -> Cow<'static, str> {
        match self {
            Self::AuthorizationCode | Self::RefreshToken | Self::ClientCredentials => {
                Cow::Borrowed(self.as_str())
            }
            Self::Anonymous => Cow::Owned(format!("urn:{service_name}:oauth2:grant-type:anonymous")),
            Self::JwtBearer => Cow::Borrowed("urn:ietf:params:oauth:grant-type:jwt-bearer"),
            Self::TokenExchange => Cow::Borrowed("urn:ietf:params:oauth:grant-type:token-exchange"),
            Self::DeviceCode => Cow::Borrowed("urn:ietf:params:oauth:grant-type:device_code"),
        }
    }

    /// Whether a text is the value of `grant_type` at a service of some name.
    fn has_value(self, text: &str) -> bool {
        let urn = text.strip_prefix("urn:");
        let service_name = urn.and_then(|rest| rest.split(':').next()).unwrap_or_default();
        !service_name.is_empty() && self.value(service_name) == text
    }

    /// The grant type that a value of `grant_type` stands for.
    pub fn of_value(value: &str, service_name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|grant| grant.value(service_name) == value)
    }

    /// Whether its request may be a JSON object.
    pub const fn accepts_json(self) -> bool {
        match self {
            Self::AuthorizationCode
            | Self::RefreshToken
            | Self::ClientCredentials
            | Self::TokenExchange
            | Self::DeviceCode => false,
            Self::Anonymous | Self::JwtBearer => true,
        }
    }
}

impl fmt::Display for GrantType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Parses the short name, or the value of `grant_type` that discovery shows.
impl FromStr for GrantType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|grant| grant.as_str() == text || grant.has_value(text))
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|grant| grant.as_str()).collect();
                format!("unknown grant type {text}; known are {}", known.join(", "))
            })
    }
}

/// The audience that the assertions of a client must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssertionAudience {
    /// The issuer or the address of the endpoint that is called (RFC 7523 section 3). At introspection, revocation and
    /// PAR the address of the token endpoint as well.
    #[default]
    Any,
    /// Only the issuer.
    Strict,
}

/// Whether a confidential client must use PKCE. A public one always must.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PkceRequirement {
    /// A request without a code challenge is refused (OAuth 2.1 section 7.6).
    #[default]
    Required,
    /// A code challenge may be left out, for software that cannot send one.
    Optional,
}

/// Whether the user is asked before a client gets tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsentRequirement {
    /// The user is not asked.
    #[default]
    Skip,
    /// The user is asked for scopes not yet allowed.
    Require,
}

/// What a refresh does with the refresh token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefreshPolicy {
    /// Each use replaces it (RFC 9700 section 4.14.2).
    #[default]
    Rotate,
    /// The token stays the same, for clients that authenticate (FAPI 2.0 Security Profile), and for public clients on
    /// devices whose tokens are bound to a key.
    Reuse,
    /// The token stays the same although nothing binds it, for public clients on devices.
    #[serde(rename = "reuse-unbound")]
    ReuseUnbound,
}

/// Which claims of the user are in the ID token of a sign-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdTokenContent {
    /// The claims that the parameter `claims` requests; the others are at `UserInfo` (OpenID Connect Core 5.4).
    #[default]
    Requested,
    /// The claims of the scope as well, which much software expects.
    Userinfo,
}

impl IdTokenContent {
    /// The value of a new client of the operator. The default of the type is for records that are older than the field,
    /// and for clients that register themselves.
    pub fn of_new_client(profile: Option<ClientProfile>) -> Self {
        match profile {
            None => Self::Userinfo,
            Some(_) => Self::Requested,
        }
    }
}

/// Which groups the claim `groups` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupsClaim {
    /// All groups of the user.
    #[default]
    All,
    /// Those of them that may use the client.
    Allowed,
}

impl Plain for Algorithm {}
impl Plain for AccessTokenTyp {}
impl Plain for ClientProfile {}
impl Plain for GrantType {}
impl Plain for AssertionAudience {}
impl Plain for PkceRequirement {}
impl Plain for ConsentRequirement {}
impl Plain for RefreshPolicy {}
impl Plain for IdTokenContent {}
impl Plain for GroupsClaim {}
impl Plain for AuthenticationLevel {}
impl Plain for TokenExchangePolicy {}

fields! {
    /// The metadata of a client.
    ClientMetadata;

    /// A change of the metadata of a client. A field that is left out keeps its value.
    ///
    /// An empty text removes an optional value. A list replaces the stored list.
    ClientFields;

    /// The name shown to people; the identifier when there is none.
    client_name as "name": Option<String>;
    /// The redirect URIs, compared by equality.
    redirect_uris: Vec<String>;
    /// The redirect URIs after signing out, compared by equality.
    post_logout_redirect_uris: Vec<String>;
    /// Where the service tells the client that a session has ended (OpenID Connect Back-Channel Logout 1.0 section 2.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    backchannel_logout_uri: Option<String>;
    /// Whether the client needs `sid` in logout tokens. They always have it.
    #[serde(skip_serializing_if = "crate::oauth::fields::is_default")]
    backchannel_logout_session_required: bool;
    /// The privacy policy, which the consent page links to.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_uri: Option<String>;
    /// The terms of service, which the consent page links to.
    #[serde(skip_serializing_if = "Option::is_none")]
    tos_uri: Option<String>;
    /// Where a sign-in at the client begins (OpenID Connect Core 4). The account page links to it, with `iss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    initiate_login_uri: Option<String>;
    /// The home page of the application. The account page lists an application that has one, or the address before.
    #[serde(skip_serializing_if = "Option::is_none")]
    home_uri: Option<String>;
    /// Further origins whose scripts may call the service, besides those of the redirect URIs.
    cors_origins: Vec<String>;
    /// The scope values the client may be granted.
    scope: Scope = Scope::of(Scope::STANDARD).unwrap_or_default();
    /// The scope when a request names none.
    default_scope: Scope = Scope::empty().with(Scope::OPENID);
    /// Whether the tokens of users who signed in have the marker scope `authenticated`.
    scope_marker: bool = true;
    /// The grants the client may use.
    grant_types: BTreeSet<GrantType>;
    /// Whether PKCE is demanded of a confidential client.
    pkce: PkceRequirement;
    /// Whether users are asked for consent.
    consent: ConsentRequirement;
    /// The names of the groups whose users may use the client; everybody may when there is none.
    #[serde(skip_serializing_if = "is_default")]
    allowed_groups: BTreeSet<String>;
    /// Which groups the claim `groups` names.
    #[serde(skip_serializing_if = "is_default")]
    groups_claim: GroupsClaim;
    /// The ids of the providers at which users of this client may sign in.
    providers: BTreeSet<String>;
    /// Whether users may sign in with a stored password.
    password_sign_in: bool = true;
    /// The level that each of its sign-ins must have, as `acr` names it; any when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    acr: Option<AuthenticationLevel>;
    /// The greatest age of a sign-in, in seconds, if the request has no `max_age` (OpenID Connect Registration 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    default_max_age: Option<u64>;
    /// Whether a public client gets the access tokens of providers. Its tokens are in the hands of users.
    embed_upstream_token: bool;
    /// The ids of the APIs that it may name in `resource`, and whose scope values it may be granted.
    apis: BTreeSet<String>;
    /// The `aud` of access tokens that are for no API; the issuer when there is none.
    audience: Option<String>;
    /// The token exchanges that the client may request.
    #[serde(skip_serializing_if = "is_default")]
    token_exchange: TokenExchangePolicy;
    /// The algorithm of its ID tokens; RS256 when there is none (OpenID Connect Registration 2).
    id_token_signed_response_alg: Option<Algorithm>;
    /// The algorithm of its answers from `UserInfo`, which are JSON when there is none (OpenID Connect Core 5.3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    userinfo_signed_response_alg: Option<Algorithm>;
    /// The algorithm of its access tokens; the service's when there is none.
    access_token_alg: Option<Algorithm>;
    /// `typ` of its access tokens; the service's when there is none.
    access_token_typ: Option<AccessTokenTyp>;
    /// How long its access tokens last, in seconds; as configured when there is none.
    access_token_lifetime: Option<Lifetime>;
    /// How long its refresh tokens last, in seconds; as configured when there is none.
    refresh_token_lifetime: Option<Lifetime>;
    /// Whether the client must push its authorization requests (RFC 9126 section 6).
    require_pushed_authorization_requests: bool;
    /// Whether each of its token requests must have a DPoP proof (RFC 9449 section 5.2).
    dpop_bound_access_tokens: bool;
    /// Whether its access tokens are bound to its certificate (RFC 8705 section 3.4).
    tls_client_certificate_bound_access_tokens: bool;
    /// What a refresh does with the refresh token.
    refresh_policy: RefreshPolicy;
    /// Whether a refresh brings a new ID token (OpenID Connect Core 12.2).
    id_token_on_refresh: bool = true;
    /// Which claims of the user are in its ID tokens.
    id_token_claims: IdTokenContent;
    /// The profile whose rules the client must follow.
    profile: Option<ClientProfile>;
    /// The theme of its pages; the service's when there is none.
    theme: Option<String>;
    /// The logo on its pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    logo: Option<Logo>;
    /// Descriptions of scope values on the consent page, which replace those of the service.
    scope_texts: BTreeMap<String, String>;
    /// The public keys that its assertions are checked with, each a JSON Web Key (RFC 7517 section 4).
    jwks as "keys": Vec<Value>;
    /// Where the client publishes its keys, if they are not registered.
    jwks_uri: Option<String>;
    /// Whether it authenticates with a certificate for one of its keys, and not with assertions (RFC 8705 section 2.2).
    self_signed_tls_client_auth: bool;
    /// The subject of its certificate (RFC 8705 section 2.1.2). It authenticates with a certificate of an authority if this
    /// or one of the next four fields is set.
    tls_client_auth_subject_dn: Option<String>;
    /// The DNS name in its certificate.
    tls_client_auth_san_dns: Option<String>;
    /// The URI in its certificate.
    tls_client_auth_san_uri: Option<String>;
    /// The address in its certificate.
    tls_client_auth_san_ip: Option<String>;
    /// The mail address in its certificate.
    tls_client_auth_san_email: Option<String>;
    /// The audience that its assertions must have.
    assertion_audience: AssertionAudience;
    /// The scope limit of the client credentials grant, if the client authenticates with a secret. Without a limit such
    /// a client cannot use the grant.
    max_scope: Option<Scope>;
    /// The algorithm of its request objects; any that the service verifies when there is none.
    request_object_signing_alg: Option<Algorithm>;
    /// Whether each authorization request must be a signed request object (RFC 9101 section 10.5).
    require_signed_request_object: bool;
    /// The algorithm of signed authorization responses; RS256 when there is none (JARM section 3).
    authorization_signed_response_alg: Option<Algorithm>;
    /// The algorithm of signed introspection responses; RS256 when there is none (RFC 9701 section 6).
    introspection_signed_response_alg: Option<Algorithm>;
}

impl ClientMetadata {
    /// Whether the user may use the client: it is for everybody, or the user is in one of its groups.
    pub fn lets_in(&self, user: &User, groups: &Groups) -> bool {
        self.allowed_groups.is_empty() || !groups.among(&self.allowed_groups, user).is_empty()
    }

    /// The groups of the user that the claim `groups` names.
    pub fn claimed_groups<'a>(&'a self, user: &User, groups: &'a Groups) -> BTreeSet<&'a str> {
        match self.groups_claim {
            GroupsClaim::All => groups.of(user),
            GroupsClaim::Allowed => groups.among(&self.allowed_groups, user),
        }
    }

    /// The algorithms of what the service signs for the client, with the names of their fields.
    pub fn signing_algs(&self) -> [(&'static str, Option<Algorithm>); 5] {
        [
            ("id_token_signed_response_alg", self.id_token_signed_response_alg),
            ("userinfo_signed_response_alg", self.userinfo_signed_response_alg),
            ("access_token_alg", self.access_token_alg),
            (
                "authorization_signed_response_alg",
                self.authorization_signed_response_alg,
            ),
            (
                "introspection_signed_response_alg",
                self.introspection_signed_response_alg,
            ),
        ]
    }
}

impl ClientFields {
    /// The algorithms of what the service will sign for the client, as far as the change names them.
    pub fn signing_algs(&self) -> impl Iterator<Item = Algorithm> + use<> {
        let named = [
            self.id_token_signed_response_alg,
            self.userinfo_signed_response_alg,
            self.access_token_alg,
            self.authorization_signed_response_alg,
            self.introspection_signed_response_alg,
        ];
        named.into_iter().flatten().filter_map(|alg| alg.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_type_has_a_short_name_and_the_value_that_discovery_shows() {
        for grant in GrantType::ALL {
            assert_eq!(grant.as_str().parse(), Ok(grant));
            for service_name in ["service", "acme-2"] {
                assert_eq!(grant.value(service_name).parse(), Ok(grant));
            }
        }
        for wrong in [
            "urn:ietf:params:oauth:grant-type:password",
            "urn::oauth2:grant-type:anonymous",
            "urn:a:b:oauth2:grant-type:anonymous",
            "jwt_bearer",
            "",
        ] {
            assert!(wrong.parse::<GrantType>().is_err(), "{wrong}");
        }
    }
}
