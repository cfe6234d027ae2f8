//! A client as it is shown: to people as a table, to programs as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::admin::SecretString;
use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::oauth::client::{
    AssertionAudience, AuthMethod, Client, ConsentRequirement, GrantType, PkceRequirement, RefreshPolicy,
};
use crate::oauth::scope::Scope;

/// A secret as it is shown: nothing of it but its times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretView {
    /// When it was made or handed over, in seconds since the epoch.
    pub created_at: Timestamp,
    /// When it stops being accepted.
    pub expires_at: Option<Timestamp>,
}

/// A client as it is shown: the record without digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientView {
    /// The identifier the client sends.
    pub client_id: String,
    /// The record's own identifier.
    pub client_uuid: Uuid,
    /// The secret, in the one answer that shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretString>,
    /// The API key, in the one answer that shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<SecretString>,
    /// The name shown to people.
    pub name: Option<String>,
    /// Whether the client cannot keep a secret.
    pub public: bool,
    /// How the client may prove who it is.
    pub auth_methods: BTreeSet<AuthMethod>,
    /// The secrets in force.
    pub secrets: Vec<SecretView>,
    /// The public keys that its assertions are checked with.
    #[serde(default)]
    pub keys: Vec<Value>,
    /// Where the client publishes these keys.
    #[serde(default)]
    pub jwks_uri: Option<String>,
    /// Whom its assertions must be addressed to.
    #[serde(default)]
    pub assertion_audience: AssertionAudience,
    /// The most that it may be granted for itself with a secret; none when it may not.
    #[serde(default)]
    pub max_scope: Option<Scope>,
    /// Redirect URIs.
    pub redirect_uris: Vec<String>,
    /// Redirect URIs after signing out.
    pub post_logout_redirect_uris: Vec<String>,
    /// Origins beside those of the redirect URIs.
    pub cors_origins: Vec<String>,
    /// Allowed scope values, space-delimited.
    pub scope: Scope,
    /// Scope values when a request names none.
    pub default_scope: Scope,
    /// Allowed grants.
    pub grant_types: BTreeSet<GrantType>,
    /// Whether PKCE is demanded; a public client always needs it.
    pub pkce: PkceRequirement,
    /// Whether people are asked for consent.
    pub consent: ConsentRequirement,
    /// The providers whose people may come in.
    #[serde(default)]
    pub providers: BTreeSet<String>,
    /// Whether people may sign in with a stored password.
    pub password_sign_in: bool,
    /// `aud` of access tokens; the issuer when there is none.
    pub audience: Option<String>,
    /// The algorithm of ID tokens; RS256 when there is none.
    pub id_token_signed_response_alg: Option<Algorithm>,
    /// The algorithm of access tokens; the service's when there is none.
    pub access_token_alg: Option<Algorithm>,
    /// What a refresh does with the refresh token.
    pub refresh_policy: RefreshPolicy,
    /// The theme of its pages; the service's when there is none.
    #[serde(default)]
    pub theme: Option<String>,
    /// What the consent page says of scope values.
    #[serde(default)]
    pub scope_texts: BTreeMap<String, String>,
    /// Whether the client may do anything at all.
    pub enabled: bool,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
    /// The issuer that the client works with.
    pub issuer: String,
}

impl ClientView {
    pub(in crate::admin::client) fn of(
        client: &Client,
        issuer: &str,
        client_secret: Option<SecretString>,
        now: Timestamp,
    ) -> Self {
        let secrets = client
            .secrets
            .iter()
            .filter(|secret| secret.expires_at.is_none_or(|end| now < end));
        Self {
            client_id: client.client_id.clone(),
            client_uuid: client.client_uuid,
            client_secret,
            api_key: None,
            name: client.name.clone(),
            public: client.is_public(),
            auth_methods: client.auth_methods.clone(),
            secrets: secrets
                .map(|secret| SecretView {
                    created_at: secret.created_at,
                    expires_at: secret.expires_at,
                })
                .collect(),
            keys: client.keys.clone(),
            jwks_uri: client.jwks_uri.clone(),
            assertion_audience: client.assertion_audience,
            max_scope: client.secret_credentials.clone(),
            redirect_uris: client.redirect_uris.clone(),
            post_logout_redirect_uris: client.post_logout_redirect_uris.clone(),
            cors_origins: client.cors_origins.clone(),
            scope: client.scope.clone(),
            default_scope: client.default_scope.clone(),
            grant_types: client.grant_types.clone(),
            pkce: if client.requires_pkce() {
                PkceRequirement::Required
            } else {
                client.pkce
            },
            consent: client.consent,
            providers: client.providers.clone(),
            password_sign_in: client.password_sign_in,
            audience: client.audience.clone(),
            id_token_signed_response_alg: client.id_token_signed_response_alg,
            access_token_alg: client.access_token_alg,
            refresh_policy: client.refresh_policy,
            theme: client.theme.clone(),
            scope_texts: client.scope_texts.clone(),
            enabled: client.enabled,
            created_at: client.created_at,
            updated_at: client.updated_at,
            issuer: issuer.to_owned(),
        }
    }
}
