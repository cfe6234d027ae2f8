//! A registered client: RFC 6749 section 2, with the metadata names of RFC 7591 section 2.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::identity::Factor;
use crate::jose::alg::Algorithm;
use crate::oauth::redirect_uri::{self, ReturnTo};
use crate::oauth::scope::Scope;
use crate::secret::{ApiKey, ClientSecret, Digest};

/// A grant type that a client may be registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantType {
    /// RFC 6749 section 4.1.
    AuthorizationCode,
    /// RFC 6749 section 6.
    RefreshToken,
    /// A user for whoever holds a device, kept by its refresh token.
    Anonymous,
    /// RFC 6749 section 4.4.
    ClientCredentials,
    /// RFC 7523 section 2.1: an upstream provider's ID token is exchanged.
    #[serde(rename = "jwt-bearer")]
    JwtBearer,
}

impl GrantType {
    /// Every grant type the service knows.
    pub const ALL: [Self; 5] = [
        Self::AuthorizationCode,
        Self::RefreshToken,
        Self::Anonymous,
        Self::ClientCredentials,
        Self::JwtBearer,
    ];

    /// The name under which a client is registered for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AuthorizationCode => "authorization_code",
            Self::RefreshToken => "refresh_token",
            Self::Anonymous => "anonymous",
            Self::ClientCredentials => "client_credentials",
            Self::JwtBearer => "jwt-bearer",
        }
    }

    /// The value of `grant_type`, in which the service's own name may stand.
    pub fn value(self, service_name: &str) -> Cow<'static, str> {
        match self {
            Self::AuthorizationCode | Self::RefreshToken | Self::ClientCredentials => {
                Cow::Borrowed(self.as_str())
            }
            Self::Anonymous => Cow::Owned(format!("urn:{service_name}:oauth2:grant-type:anonymous")),
            Self::JwtBearer => Cow::Borrowed("urn:ietf:params:oauth:grant-type:jwt-bearer"),
        }
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
            Self::AuthorizationCode | Self::RefreshToken | Self::ClientCredentials => false,
            Self::Anonymous | Self::JwtBearer => true,
        }
    }
}

impl fmt::Display for GrantType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for GrantType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|grant| grant.as_str() == text)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|grant| grant.as_str()).collect();
                format!("unknown grant type {text}; known are {}", known.join(", "))
            })
    }
}

/// How a client proves who it is (RFC 6749 section 2.3, OpenID Connect Core 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// The secret in a Basic header.
    ClientSecretBasic,
    /// The secret in the body.
    ClientSecretPost,
    /// An assertion signed with a key of its own (RFC 7523 section 2.2).
    PrivateKeyJwt,
    /// A public client: it cannot keep a secret.
    None,
}

impl AuthMethod {
    /// Every method the service knows.
    pub const ALL: [Self; 4] = [
        Self::ClientSecretBasic,
        Self::ClientSecretPost,
        Self::PrivateKeyJwt,
        Self::None,
    ];

    /// The method's registered name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientSecretBasic => "client_secret_basic",
            Self::ClientSecretPost => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
            Self::None => "none",
        }
    }
}

/// Whom the assertions of a client must be addressed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssertionAudience {
    /// The issuer or the token endpoint (RFC 7523 section 3).
    #[default]
    Any,
    /// The issuer, and nobody else.
    Strict,
}

/// Whether a confidential client must use PKCE. A public one always must.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PkceRequirement {
    /// A code challenge may be left out.
    #[default]
    Optional,
    /// A request without a code challenge is refused.
    Required,
}

/// Whether the user is asked before a client gets tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsentRequirement {
    /// The operator vouches for the client.
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
    /// It stays as it is, for clients that prove who they are (FAPI 2.0 Security Profile).
    Reuse,
}

/// Whether a text can be the name of a theme: it names a folder and stands in addresses.
pub fn is_theme_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=64).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(is_plain)
}

/// A secret of a client, by its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSecret {
    /// The digest.
    pub digest: Digest<ClientSecret>,
    /// When it was made or handed over.
    pub created_at: Timestamp,
    /// When it stops being accepted; none for the one in force.
    pub expires_at: Option<Timestamp>,
}

/// An API key of a client, by its digest: what the client shows at the refresh endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredApiKey {
    /// The name by which it is listed and revoked.
    pub id: Uuid,
    /// The digest.
    pub digest: Digest<ApiKey>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A registered client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// The identifier the client sends.
    pub client_id: String,
    /// The record's own identifier.
    pub client_uuid: Uuid,
    /// The `grant_id` of the tokens that the client is given for itself. It is in no file: of two clients with the same
    /// identifiers, one after the other, each has its own tokens.
    pub own_grant: Uuid,
    /// The name shown to people; the identifier when there is none.
    pub name: Option<String>,
    /// How the client may prove who it is.
    pub auth_methods: BTreeSet<AuthMethod>,
    /// The secrets that are accepted; more than one only while one replaces another.
    pub secrets: Vec<StoredSecret>,
    /// The API keys that are accepted at the refresh endpoint; several, so that one can replace another.
    pub api_keys: Vec<StoredApiKey>,
    /// The public keys that its assertions are checked with, each a JSON Web Key (RFC 7517 section 4).
    pub keys: Vec<Value>,
    /// Where the client publishes these keys, instead of registering them (RFC 7591 section 2).
    pub jwks_uri: Option<String>,
    /// Whom its assertions must be addressed to.
    pub assertion_audience: AssertionAudience,
    /// The most that it may be granted for itself when it authenticates with a secret; none when it may not.
    pub secret_credentials: Option<Scope>,
    /// Where people may be sent back to, compared by equality.
    pub redirect_uris: Vec<String>,
    /// Where people may be sent after signing out, compared by equality.
    pub post_logout_redirect_uris: Vec<String>,
    /// Origins beside those of the redirect URIs from which scripts may call.
    pub cors_origins: Vec<String>,
    /// The scope values the client may be granted.
    pub scope: Scope,
    /// The scope when a request names none.
    pub default_scope: Scope,
    /// The grants the client may use.
    pub grant_types: BTreeSet<GrantType>,
    /// Whether PKCE is demanded of a confidential client.
    pub pkce: PkceRequirement,
    /// Whether people are asked for consent.
    pub consent: ConsentRequirement,
    /// The providers whose people may come in by this client, by id.
    pub providers: BTreeSet<String>,
    /// Whether its people may sign in with a stored password.
    pub password_sign_in: bool,
    /// The `aud` of its access tokens; the issuer when there is none.
    pub audience: Option<String>,
    /// The algorithm of its ID tokens; RS256 when there is none (OpenID Connect Registration 2).
    pub id_token_signed_response_alg: Option<Algorithm>,
    /// The algorithm of its access tokens; the service's when there is none.
    pub access_token_alg: Option<Algorithm>,
    /// What a refresh does with the refresh token.
    pub refresh_policy: RefreshPolicy,
    /// The theme of its pages; the service's when there is none.
    pub theme: Option<String>,
    /// What the consent page says of scope values, in the place of other words for them.
    pub scope_texts: BTreeMap<String, String>,
    /// Whether the client may do anything at all.
    pub enabled: bool,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
}

impl Client {
    /// Whether the client takes people who proved in this way who they are.
    pub fn accepts(&self, factor: &Factor) -> bool {
        match factor {
            Factor::Password => self.password_sign_in,
            Factor::Federated { provider } => self.providers.contains(provider),
            Factor::Anonymous => self.grant_types.contains(&GrantType::Anonymous),
        }
    }

    /// Whether the client may sign who it is.
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty() || self.jwks_uri.is_some()
    }

    /// Whether the client cannot keep a secret (RFC 6749 section 2.1).
    pub fn is_public(&self) -> bool {
        self.auth_methods.contains(&AuthMethod::None)
    }

    /// Whether the client may prove with a secret who it is.
    pub fn uses_secret(&self) -> bool {
        self.auth_methods.contains(&AuthMethod::ClientSecretBasic)
            || self.auth_methods.contains(&AuthMethod::ClientSecretPost)
    }

    /// Allows the ways to prove with a secret who it is when there is a secret, and forbids them when there is none.
    pub fn fit_methods_to_secrets(&mut self) {
        for method in [AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost] {
            if self.secrets.is_empty() {
                self.auth_methods.remove(&method);
            } else {
                self.auth_methods.insert(method);
            }
        }
    }

    /// Whether a code challenge is demanded.
    pub fn requires_pkce(&self) -> bool {
        self.is_public() || self.pkce == PkceRequirement::Required
    }

    /// The name shown to people.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.client_id)
    }

    /// Whether `digest` is of a secret in force.
    pub fn accepts_secret(&self, digest: &Digest<ClientSecret>, now: Timestamp) -> bool {
        self.secrets
            .iter()
            .any(|secret| secret.digest == *digest && secret.expires_at.is_none_or(|end| now < end))
    }

    /// The redirect URI of a request matched against the registration: the only way to a [`ReturnTo`] that is not the
    /// service's own.
    ///
    /// `requested` may be left out where exactly one is registered (RFC 6749 section 3.1.2.3).
    pub fn return_to(&self, requested: Option<&str>) -> Result<ReturnTo, redirect_uri::Mismatch> {
        redirect_uri::select(&self.redirect_uris, requested, self.is_public())
    }

    /// The origins whose scripts may call the token endpoint: those of a public client's redirect URIs, and
    /// those that the operator named.
    pub fn origins(&self) -> impl Iterator<Item = String> {
        let own: &[String] = if self.is_public() {
            &self.redirect_uris
        } else {
            &[]
        };
        self.cors_origins
            .iter()
            .cloned()
            .chain(own.iter().filter_map(|uri| redirect_uri::origin(uri)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_theme_is_named_by_a_plain_word() {
        for name in ["acme", "acme-2", "0"] {
            assert!(is_theme_name(name), "{name}");
        }
        for name in ["", "..", "a/b", "-a", "A", "a b", "é", &"a".repeat(65)] {
            assert!(!is_theme_name(name), "{name}");
        }
    }
}
