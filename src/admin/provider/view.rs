//! A provider as it is shown: the record without its secret.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::provider::ProviderSettings;

/// A provider as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderView {
    /// The provider's id.
    pub id: String,
    /// Whether there is a picture.
    pub has_logo: bool,
    /// Whether a secret is stored for its `client_id`.
    pub has_secret: bool,
    /// The redirect URI of this service, to be registered at the provider.
    pub redirect_uri: String,
    /// Its settings without the picture. The audiences are the accepted ones, and `addresses` is the policy in force.
    #[serde(flatten)]
    pub settings: ProviderSettings,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
}

impl Deref for ProviderView {
    type Target = ProviderSettings;

    fn deref(&self) -> &ProviderSettings {
        &self.settings
    }
}

impl ProviderView {
    pub(super) fn of(provider: &Provider, issuer: &str) -> Self {
        Self {
            id: provider.id.clone(),
            has_logo: provider.logo.is_some(),
            has_secret: provider.sealed_secret.is_some(),
            redirect_uri: provider.redirect_uri(issuer),
            settings: ProviderSettings {
                logo: None,
                addresses: provider.address_policy(),
                audiences: provider.accepted_audiences().to_vec(),
                ..provider.settings.clone()
            },
            created_at: provider.created_at,
            updated_at: provider.updated_at,
        }
    }
}
