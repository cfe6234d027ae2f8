use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::client::{change, record_revoked};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::oauth::FaultCode;
use crate::store::tables::API_KEY_USES;

/// An API key to be revoked. It is refused from now on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokeApiKey {
    pub client_id: String,
    pub id: Uuid,
}

impl Operation for RevokeApiKey {
    const NAME: &'static str = "client api-key revoke";
    const EFFECT: Effect = Effect::Destructive;
    type Output = ();

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<()>> {
        let id = self.id;
        let revoke = change::<Self>(admin, self.client_id, move |_, client| {
            let before = client.api_keys.len();
            client.api_keys.retain(|key| key.id != id);
            if client.api_keys.len() == before {
                let detail = format!("client {} has no API key {id}", client.client_id);
                return Err(FaultCode::NotFound.of("api_key", &id.to_string(), detail).into());
            }
            Ok(())
        });
        let revoked = revoke.await?.output;
        record_revoked(admin, Self::NAME, &revoked.client_id, &id.to_string());
        let forget = admin.write(Self::NAME, move |tx| Ok(API_KEY_USES.remove(tx, &id)?));
        forget.await?;
        Ok(Done::unrecorded(()))
    }
}
