//! A registered client: RFC 6749 section 2, with the metadata names of RFC 7591 section 2.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::identity::AuthenticationMethod;
pub use crate::oauth::client_metadata::{
    AssertionAudience, ClientMetadata, ConsentRequirement, PkceRequirement, RefreshPolicy,
};
use crate::oauth::redirect_uri::{self, ReturnTo};
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

/// A registered client. What is registered of it can be read as if it were its own: `client.scope` is
/// `client.metadata.scope`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// The identifier the client sends.
    pub client_id: String,
    /// The record's own identifier.
    pub client_uuid: Uuid,
    /// The `grant_id` of the tokens that the client is given for itself. It is in no file: of two clients with the same
    /// identifiers, one after the other, each has its own tokens.
    pub own_grant: Uuid,
    /// How the client may prove who it is: what its secrets and keys allow.
    pub token_endpoint_auth_methods: BTreeSet<AuthMethod>,
    /// The secrets that are accepted; more than one only while one replaces another.
    pub secrets: Vec<StoredSecret>,
    /// The API keys that are accepted at the refresh endpoint; several, so that one can replace another.
    pub api_keys: Vec<StoredApiKey>,
    /// What is registered of the client.
    pub metadata: ClientMetadata,
    /// Whether the client may do anything at all.
    pub enabled: bool,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
}

impl Deref for Client {
    type Target = ClientMetadata;

    fn deref(&self) -> &ClientMetadata {
        &self.metadata
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut ClientMetadata {
        &mut self.metadata
    }
}

impl Client {
    /// A client of which nothing is registered yet. A public one always needs PKCE.
    pub fn new(client_id: &str, client_uuid: Uuid, own_grant: Uuid, is_public: bool, now: Timestamp) -> Self {
        let mut client = Self {
            client_id: client_id.to_owned(),
            client_uuid,
            own_grant,
            token_endpoint_auth_methods: BTreeSet::new(),
            secrets: Vec::new(),
            api_keys: Vec::new(),
            metadata: ClientMetadata::default(),
            enabled: true,
            created_at: now,
            updated_at: now,
        };
        if is_public {
            client.token_endpoint_auth_methods.insert(AuthMethod::None);
            client.pkce = PkceRequirement::Required;
        }
        client
    }

    /// Whether the client is registered for this grant (RFC 6749 section 5.2, `unauthorized_client`).
    pub fn may_use(&self, grant: GrantType) -> bool {
        self.grant_types.contains(&grant)
    }

    /// Whether the client takes people who proved in this way who they are.
    pub fn accepts(&self, factor: &AuthenticationMethod) -> bool {
        match factor {
            AuthenticationMethod::Password => self.password_sign_in,
            AuthenticationMethod::Federated { provider } => self.providers.contains(provider),
            AuthenticationMethod::Anonymous => self.may_use(GrantType::Anonymous),
        }
    }

    /// Whether the client may sign who it is.
    pub fn has_keys(&self) -> bool {
        !self.jwks.is_empty() || self.jwks_uri.is_some()
    }

    /// Whether the client cannot keep a secret (RFC 6749 section 2.1).
    pub fn is_public(&self) -> bool {
        self.token_endpoint_auth_methods.contains(&AuthMethod::None)
    }

    /// Whether the client may prove with a secret who it is.
    pub fn uses_secret(&self) -> bool {
        self.token_endpoint_auth_methods
            .contains(&AuthMethod::ClientSecretBasic)
            || self
                .token_endpoint_auth_methods
                .contains(&AuthMethod::ClientSecretPost)
    }

    /// Allows the ways to prove with a secret who it is when there is a secret, and forbids them when there is none.
    pub fn fit_methods_to_secrets(&mut self) {
        for method in [AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost] {
            if self.secrets.is_empty() {
                self.token_endpoint_auth_methods.remove(&method);
            } else {
                self.token_endpoint_auth_methods.insert(method);
            }
        }
    }

    /// Whether a code challenge is demanded.
    pub fn requires_pkce(&self) -> bool {
        self.is_public() || self.pkce == PkceRequirement::Required
    }

    /// The name shown to people.
    pub fn display_name(&self) -> &str {
        self.client_name.as_deref().unwrap_or(&self.client_id)
    }

    /// Whether `digest` is of a secret in force.
    pub fn accepts_secret(&self, digest: &Digest<ClientSecret>, now: Timestamp) -> bool {
        self.secrets
            .iter()
            .any(|secret| secret.digest == *digest && secret.expires_at.is_none_or(|end| now < end))
    }

    /// The redirect URI of a request matched against the registration: the only way to a [`ReturnTo`].
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
