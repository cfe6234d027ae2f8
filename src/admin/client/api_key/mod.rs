//! API keys: several for a client, so that one can replace another without a gap.

mod add;
mod list;
mod revoke;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::add::AddApiKey;
pub use self::list::ListApiKeys;
pub use self::revoke::RevokeApiKey;
use crate::admin::{Admin, SecretString};
use crate::clock::Timestamp;
use crate::oauth::client::StoredApiKey;
use crate::secret::{ApiKey, Secret};

/// An API key as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyView {
    /// The client it belongs to.
    pub client_id: String,
    pub id: Uuid,
    /// The key, in the answer that adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<SecretString>,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was last used, to within the hour.
    pub last_used_at: Option<Timestamp>,
}

pub(super) struct GeneratedApiKey {
    pub(super) stored: StoredApiKey,
    /// The key, to be shown once.
    pub(super) shown: SecretString,
}

pub(super) fn generate(admin: Admin<'_>) -> GeneratedApiKey {
    let core = admin.core;
    let id = core.random.uuid_v7(core.clock.since_epoch());
    let key = Secret::<ApiKey>::generate(id.as_bytes(), &core.random);
    let stored = StoredApiKey {
        id,
        digest: key.digest(),
        created_at: core.clock.now(),
    };
    GeneratedApiKey {
        stored,
        shown: SecretString::new(key.reveal()),
    }
}
