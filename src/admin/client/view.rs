//! A client as the commands show it: as a table or as JSON.

use std::collections::BTreeSet;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::SecretString;
use crate::clock::Timestamp;
use crate::oauth::client::{AuthMethod, Client, ClientMetadata, ClientOrigin};

/// A secret as it is shown: only its times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretView {
    /// When it was set, in seconds since the epoch.
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

/// A client as it is shown: the record without digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientView {
    /// The identifier the client sends.
    pub client_id: String,
    /// The record's own identifier.
    pub client_uuid: Uuid,
    /// The generated secret, in the answer to the command that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretString>,
    /// The API key, in the answer to the command that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<SecretString>,
    /// Whether the client cannot keep a secret.
    pub public: bool,
    /// How the client may authenticate.
    pub auth_methods: BTreeSet<AuthMethod>,
    /// The valid secrets.
    pub secrets: Vec<SecretView>,
    /// Whether there is a logo.
    #[serde(default)]
    pub has_logo: bool,
    /// What is registered of the client, without the logo.
    #[serde(flatten)]
    pub metadata: ClientMetadata,
    /// How it came to be registered.
    #[serde(default)]
    pub origin: ClientOrigin,
    pub enabled: bool,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
    /// The issuer that the client works with.
    pub issuer: String,
}

impl Deref for ClientView {
    type Target = ClientMetadata;

    fn deref(&self) -> &ClientMetadata {
        &self.metadata
    }
}

impl ClientView {
    pub(super) fn of(
        client: &Client,
        issuer: &str,
        client_secret: Option<SecretString>,
        now: Timestamp,
    ) -> Self {
        let valid = client.secrets.iter().filter(|secret| secret.is_valid(now));
        let secrets = valid.map(|secret| SecretView {
            created_at: secret.created_at,
            expires_at: secret.expires_at,
        });
        Self {
            client_id: client.client_id.clone(),
            client_uuid: client.client_uuid,
            client_secret,
            api_key: None,
            public: client.is_public(),
            auth_methods: client.token_endpoint_auth_methods.clone(),
            secrets: secrets.collect(),
            has_logo: client.logo.is_some(),
            metadata: ClientMetadata {
                logo: None,
                ..client.metadata.clone()
            },
            origin: client.origin,
            enabled: client.enabled,
            created_at: client.created_at,
            updated_at: client.updated_at,
            issuer: issuer.to_owned(),
        }
    }
}
