use serde::{Deserialize, Serialize};

use super::KIND;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, not_found};
use crate::clock::Timestamp;
use crate::flow::secret_uses;
use crate::store::tables::CLIENTS;

/// A request for the valid secrets of a client, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListSecrets {
    pub client_id: String,
}

/// A secret with its last use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedSecretView {
    pub id: String,
    /// When it was generated or set.
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// When the client last authenticated with it, to within the minute.
    pub last_used: Option<Timestamp>,
}

impl Operation for ListSecrets {
    const NAME: &'static str = "client secret list";
    const EFFECT: Effect = Effect::Read;
    type Output = Vec<UsedSecretView>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Vec<UsedSecretView>>> {
        let now = admin.core.clock.now();
        let read = admin.read(|snapshot| {
            let client = CLIENTS.get(snapshot, &self.client_id)?;
            let client = client.ok_or_else(|| not_found(KIND, &self.client_id))?;
            let uses = secret_uses::read(admin.core, snapshot, &client)?;
            let valid = client.secrets.iter().filter(|secret| secret.is_valid(now));
            let views = valid.map(|secret| {
                let id = secret.id();
                UsedSecretView {
                    last_used: uses.last_used_at.get(&id).copied(),
                    id,
                    created_at: secret.created_at,
                    expires_at: secret.expires_at,
                }
            });
            Ok(views.collect())
        });
        Ok(Done::unrecorded(read.await?))
    }
}
