use serde::{Deserialize, Serialize};

use super::ApiKeyView;
use crate::admin::client::KIND;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, not_found};
use crate::store::tables::{API_KEY_USES, CLIENTS};

/// A request for the API keys of a client, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListApiKeys {
    pub client_id: String,
}

impl Operation for ListApiKeys {
    const NAME: &'static str = "client api-key list";
    const EFFECT: Effect = Effect::Read;
    type Output = Vec<ApiKeyView>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Vec<ApiKeyView>>> {
        let read = admin.read(|snapshot| {
            let client = CLIENTS.get(snapshot, &self.client_id)?;
            let client = client.ok_or_else(|| not_found(KIND, &self.client_id))?;
            let mut views = Vec::new();
            for key in client.api_keys {
                let last_use = API_KEY_USES.get(snapshot, &key.id)?;
                views.push(ApiKeyView {
                    client_id: self.client_id.clone(),
                    id: key.id,
                    api_key: None,
                    created_at: key.created_at,
                    last_used_at: last_use.map(|last_use| last_use.last_used_at),
                });
            }
            Ok(views)
        });
        Ok(Done::unrecorded(read.await?))
    }
}
