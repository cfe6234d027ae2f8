//! A registered client: RFC 6749 section 2, with the metadata names of RFC 7591 section 2.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::identity::{AuthenticationMethod, Consent};
use crate::jose::jwk::JwkSet;
use crate::oauth::client_certificate::ExpectedName;
pub use crate::oauth::client_metadata::{
    AssertionAudience, ClientMetadata, ConsentRequirement, GrantType, GroupsClaim, IdTokenContent,
    PkceRequirement, RefreshPolicy,
};
pub use crate::oauth::client_secret::StoredSecret;
use crate::oauth::redirect_uri::{self, MatchedRedirectUri};
use crate::oauth::scope::Scope;
use crate::secret::{ApiKey, ClientSecret, Digest, RegistrationAccessToken};

/// How a client authenticates (RFC 6749 section 2.3, OpenID Connect Core 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// The secret in a Basic header.
    ClientSecretBasic,
    /// The secret in the body.
    ClientSecretPost,
    /// An assertion signed with a key of its own (RFC 7523 section 2.2).
    PrivateKeyJwt,
    /// A certificate of an authority, with a registered name (RFC 8705 section 2.1).
    TlsClientAuth,
    /// A certificate for a registered key (RFC 8705 section 2.2).
    SelfSignedTlsClientAuth,
    /// A public client: it cannot keep a secret.
    None,
}

impl AuthMethod {
    /// Every method the service knows.
    pub const ALL: [Self; 6] = [
        Self::ClientSecretBasic,
        Self::ClientSecretPost,
        Self::PrivateKeyJwt,
        Self::TlsClientAuth,
        Self::SelfSignedTlsClientAuth,
        Self::None,
    ];

    /// The method's registered name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientSecretBasic => "client_secret_basic",
            Self::ClientSecretPost => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
            Self::TlsClientAuth => "tls_client_auth",
            Self::SelfSignedTlsClientAuth => "self_signed_tls_client_auth",
            Self::None => "none",
        }
    }

    /// Whether the client shows a certificate.
    pub const fn uses_certificate(self) -> bool {
        matches!(self, Self::TlsClientAuth | Self::SelfSignedTlsClientAuth)
    }
}

/// Whether a text can be the name of a theme, which is the name of a folder and a part of addresses.
pub fn is_theme_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=64).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(is_plain)
}

/// How a client came to be registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientOrigin {
    /// The operator registered it.
    #[default]
    Operator,
    /// It registered itself (RFC 7591).
    DynamicRegistration,
    /// Its identifier is the address of its metadata (OAuth Client ID Metadata Document).
    MetadataDocument,
}

impl ClientOrigin {
    /// Who registered the client, as commands print it.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::DynamicRegistration => "itself",
            Self::MetadataDocument => "document",
        }
    }
}

/// The data of a client that registered itself, besides its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The digest of the token with which the client reads and changes its registration (RFC 7592 section 3).
    pub access_token: Digest<RegistrationAccessToken>,
    /// Whether a user has ever given consent to the client. Nothing is granted without it.
    pub is_used: bool,
    /// Whether the client has removed itself. Its grants end with the next sweep.
    pub is_removed: bool,
}

/// Who holds the place of a client that the operator did not register. The service takes few clients of one holder, and
/// keeps pseudonyms ([`crate::seal::Sealer::pseudonym`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holder {
    /// The network or the initial access token that it was registered with.
    Sender(Uuid),
    /// The only user who has allowed it.
    User(Uuid),
    /// More than one user has allowed it, and only the first one was recorded. New records have
    /// [`Holder::TwoUsers`] instead.
    FirstUser(Uuid),
    /// Two users have allowed it.
    TwoUsers { first: Uuid, second: Uuid },
    /// Three or more users have allowed it, so it keeps its place.
    Users,
}

impl Holder {
    /// The pseudonym of the holder. Of two users, the first one holds it.
    pub fn id(self) -> Option<Uuid> {
        match self {
            Self::Sender(id) | Self::User(id) | Self::FirstUser(id) | Self::TwoUsers { first: id, .. } => {
                Some(id)
            }
            Self::Users => None,
        }
    }

    /// Who holds the client when this user has allowed it too.
    #[must_use]
    pub fn with_user(before: Option<Self>, user: Uuid) -> Self {
        match before {
            Some(Self::User(first) | Self::FirstUser(first)) if first != user => {
                Self::TwoUsers { first, second: user }
            }
            Some(Self::TwoUsers { first, second }) if first != user && second != user => Self::Users,
            Some(shared @ (Self::FirstUser(_) | Self::TwoUsers { .. } | Self::Users)) => shared,
            Some(Self::User(_) | Self::Sender(_)) | None => Self::User(user),
        }
    }
}

/// An API key of a client, by its digest. It authenticates the client at the refresh endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredApiKey {
    /// The identifier by which it is listed and revoked.
    pub id: Uuid,
    pub digest: Digest<ApiKey>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A registered client. It dereferences to its metadata: `client.scope` is `client.metadata.scope`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// The identifier the client sends.
    pub client_id: String,
    /// The identifier of the record.
    pub client_uuid: Uuid,
    /// The `grant_id` of the tokens that the client gets for itself. No file can set it. If a client is removed and
    /// another is registered with the same identifiers, the tokens of the first stay invalid.
    pub own_grant: Uuid,
    /// A random id of this record. Grants and consents store it, so a later client of the same identifier does not inherit
    /// them. Records of older releases have nil, and so do their grants.
    #[serde(default, skip_serializing_if = "Uuid::is_nil")]
    pub incarnation: Uuid,
    /// The authentication methods that its secrets and keys allow.
    pub token_endpoint_auth_methods: BTreeSet<AuthMethod>,
    /// The accepted secrets. There is more than one only during a replacement.
    pub secrets: Vec<StoredSecret>,
    /// The API keys that are accepted at the refresh endpoint. Several can overlap during a replacement.
    pub api_keys: Vec<StoredApiKey>,
    pub metadata: ClientMetadata,
    /// How it came to be registered.
    #[serde(default)]
    pub origin: ClientOrigin,
    /// The data of a dynamic registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration: Option<Registration>,
    /// Who holds its place among the clients that the operator did not register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<Holder>,
    /// When its metadata document last added a redirect URI that leads to another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirects_changed_at: Option<Timestamp>,
    /// Whether the client may be used.
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
    /// A client with default metadata. A public client always needs PKCE.
    pub fn new(client_id: &str, client_uuid: Uuid, own_grant: Uuid, is_public: bool, now: Timestamp) -> Self {
        let mut client = Self {
            client_id: client_id.to_owned(),
            client_uuid,
            own_grant,
            incarnation: own_grant,
            token_endpoint_auth_methods: BTreeSet::new(),
            secrets: Vec::new(),
            api_keys: Vec::new(),
            metadata: ClientMetadata::default(),
            origin: ClientOrigin::Operator,
            registration: None,
            held_by: None,
            redirects_changed_at: None,
            enabled: true,
            created_at: now,
            updated_at: now,
        };
        if is_public {
            client.token_endpoint_auth_methods.insert(AuthMethod::None);
        }
        client
    }

    /// Whether the metadata come from the client itself, so that nobody vouches for them.
    pub fn registered_itself(&self) -> bool {
        self.origin != ClientOrigin::Operator
    }

    /// The keys of its record. An earlier release let clients that registered themselves choose keys that make a
    /// verification slow: these are left out.
    pub fn key_set(&self) -> JwkSet {
        let keys = JwkSet::of_jwks(&self.jwks);
        if self.registered_itself() {
            keys.chosen_by_stranger()
        } else {
            keys
        }
    }

    /// Whether the client may learn what this scope value releases. Users allow only what the consent page shows, so a client
    /// that registered itself needs the value in the granted scope.
    pub fn may_learn(&self, value: &str, granted: &Scope) -> bool {
        !self.registered_itself() || granted.contains(value)
    }

    /// Whether the client registered itself and has removed its registration.
    pub fn has_removed_itself(&self) -> bool {
        let registration = self.registration.as_ref();
        registration.is_some_and(|registration| registration.is_removed)
    }

    /// Whether the client registered itself, and no user has given it consent so far.
    pub fn is_never_used(&self) -> bool {
        let registration = self.registration.as_ref();
        registration.is_some_and(|registration| !registration.is_used)
    }

    /// Whether users are asked before the client gets tokens.
    pub fn requires_consent(&self) -> bool {
        self.consent == ConsentRequirement::Require
    }

    /// Whether a consent was given to this client, and not to an earlier one of the same identifier.
    pub fn owns_consent(&self, consent: &Consent) -> bool {
        consent.client_incarnation == self.incarnation
    }

    /// Whether a consent counts for new authorization requests. If the client has since got redirect URIs that lead to
    /// another host, the user did not see that host and is asked again.
    pub fn accepts_consent(&self, consent: &Consent) -> bool {
        self.owns_consent(consent)
            && self
                .redirects_changed_at
                .is_none_or(|changed_at| consent.given_at >= changed_at)
    }

    /// Whether the client is registered for this grant (RFC 6749 section 5.2, `unauthorized_client`).
    pub fn may_use(&self, grant: GrantType) -> bool {
        self.grant_types.contains(&grant)
    }

    /// Whether people sign in to the client on pages of the service.
    pub fn signs_people_in(&self) -> bool {
        self.may_use(GrantType::AuthorizationCode) || self.may_use(GrantType::DeviceCode)
    }

    /// Whether this grant with this scope brings an ID token. A refresh may leave it out (OpenID Connect Core 12.2): its
    /// signature is most of the work of a refresh.
    pub fn gets_id_token(&self, grant: GrantType, scope: &Scope) -> bool {
        let brings_one = match grant {
            GrantType::RefreshToken => self.id_token_on_refresh,
            GrantType::TokenExchange => false,
            _ => true,
        };
        scope.contains(Scope::OPENID) && brings_one
    }

    /// The granted scope as it is in tokens. Without `scope_marker` it lacks `authenticated`, because some libraries
    /// refuse a scope value that they did not ask for.
    pub fn token_scope(&self, granted: &Scope) -> Scope {
        granted.filter(|value| value != Scope::AUTHENTICATED || self.scope_marker)
    }

    /// Whether users may sign in to the client by this method.
    pub fn accepts(&self, method: &AuthenticationMethod) -> bool {
        match method {
            AuthenticationMethod::Password
            | AuthenticationMethod::Email
            | AuthenticationMethod::Passkey { .. } => self.password_sign_in,
            AuthenticationMethod::Federated { provider, .. } => self.accepts_provider(provider),
            AuthenticationMethod::Anonymous => self.may_use(GrantType::Anonymous),
        }
    }

    /// Whether users may sign in at the provider with this id. A client that registered itself cannot name providers,
    /// so its users may sign in at every provider.
    pub fn accepts_provider(&self, id: &str) -> bool {
        self.registered_itself() || self.providers.contains(id)
    }

    /// Whether the client may authenticate with a signed assertion.
    pub fn has_keys(&self) -> bool {
        !self.jwks.is_empty() || self.jwks_uri.is_some()
    }

    /// Whether a name is registered that its certificate must have.
    pub fn has_certificate_name(&self) -> bool {
        ExpectedName::fields(&self.metadata).next().is_some()
    }

    /// Whether the client needs a secret: it has nothing else to authenticate with, or something that only a secret allows.
    pub fn needs_secret(&self) -> bool {
        !(self.has_keys() || self.has_certificate_name()) || self.max_scope.is_some()
    }

    /// Allows the methods that its registered keys and names are for.
    pub fn fit_methods_to_keys(&mut self) {
        let is_for_certificates = self.self_signed_tls_client_auth;
        let has_keys = self.has_keys();
        let has_name = self.has_certificate_name();
        let methods = &mut self.token_endpoint_auth_methods;
        let mut allow = |method, is_allowed| {
            if is_allowed {
                methods.insert(method);
            } else {
                methods.remove(&method);
            }
        };
        allow(AuthMethod::TlsClientAuth, has_name);
        allow(
            AuthMethod::SelfSignedTlsClientAuth,
            has_keys && is_for_certificates,
        );
        if has_keys {
            allow(AuthMethod::PrivateKeyJwt, !is_for_certificates);
        }
    }

    /// Whether the client cannot keep a secret (RFC 6749 section 2.1).
    pub fn is_public(&self) -> bool {
        self.token_endpoint_auth_methods.contains(&AuthMethod::None)
    }

    /// Whether the client authenticates with a certificate.
    pub fn uses_certificate(&self) -> bool {
        let mut methods = self.token_endpoint_auth_methods.iter();
        methods.any(|method| method.uses_certificate())
    }

    /// Whether the client may authenticate with a secret.
    pub fn uses_secret(&self) -> bool {
        [AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost]
            .iter()
            .any(|method| self.token_endpoint_auth_methods.contains(method))
    }

    /// Allows the methods that need a secret if there is one, and removes them otherwise.
    pub fn fit_methods_to_secrets(&mut self) {
        for method in [AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost] {
            if self.secrets.is_empty() {
                self.token_endpoint_auth_methods.remove(&method);
            } else {
                self.token_endpoint_auth_methods.insert(method);
            }
        }
    }

    /// Whether a code challenge is required.
    pub fn requires_pkce(&self) -> bool {
        self.is_public() || self.pkce == PkceRequirement::Required
    }

    /// Whether its redirect URIs may have private-use schemes (RFC 8252 section 7.1). A public client may have them. So
    /// may a confidential client of the operator that must use PKCE, for a server with an application on devices. Any
    /// application can take such a scheme, and could give the server the code of another person's sign-in. PKCE
    /// prevents that.
    pub fn may_have_private_schemes(&self) -> bool {
        self.is_public() || (!self.registered_itself() && self.requires_pkce())
    }

    /// Whether an authorization request with this scope and `nonce` needs a code challenge. A confidential client that
    /// registered itself may send `nonce` with the scope `openid` instead, which prevents the injection of codes as
    /// well (OAuth 2.1 section 7.5.1).
    pub fn requires_challenge(&self, scope: &Scope, nonce: Option<&str>) -> bool {
        let is_protected = scope.contains(Scope::OPENID) && nonce.is_some();
        let may_use_nonce = self.registered_itself() && !self.is_public() && self.profile.is_none();
        self.requires_pkce() && !(may_use_nonce && is_protected)
    }

    /// The name that it gives itself.
    pub fn own_name(&self) -> Option<&str> {
        self.client_name.as_deref().filter(|name| !name.is_empty())
    }

    /// The name shown to people.
    pub fn display_name(&self) -> &str {
        self.client_name.as_deref().unwrap_or(&self.client_id)
    }

    /// Whether `digest` belongs to an accepted secret.
    pub fn accepts_secret(&self, digest: &Digest<ClientSecret>, now: Timestamp) -> bool {
        let mut valid = self.secrets.iter().filter(|secret| secret.is_valid(now));
        valid.any(|secret| secret.digest == *digest)
    }

    /// Matches the redirect URI of a request with the registered ones. Only this makes a [`MatchedRedirectUri`].
    ///
    /// `requested` may be left out if exactly one is registered (RFC 6749 section 3.1.2.3).
    pub fn match_redirect_uri(
        &self,
        requested: Option<&str>,
    ) -> Result<MatchedRedirectUri, redirect_uri::Mismatch> {
        redirect_uri::select(&self.redirect_uris, requested, self.is_public())
    }

    /// The origins whose scripts may call the token endpoint: the configured ones, and for a public client those of its
    /// redirect URIs.
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
    fn a_record_from_before_a_field_gets_what_it_got_then() {
        let metadata: ClientMetadata = serde_json::from_str("{}").unwrap();
        assert!(metadata.id_token_on_refresh && metadata.scope_marker);
    }

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
