use serde::{Deserialize, Serialize};

use super::{ClientView, change, record_revoked};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::oauth::FaultCode;

/// The kind of record in faults.
const SECRET: &str = "client_secret";

/// A secret to be revoked. It is refused from now on, and the other one goes on. The last secret can be revoked only if the
/// client can authenticate in another way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokeSecret {
    pub client_id: String,
    /// The secret, by its id.
    pub id: String,
}

impl Operation for RevokeSecret {
    const NAME: &'static str = "client secret revoke";
    const EFFECT: Effect = Effect::Destructive;
    type Output = ClientView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ClientView>> {
        let (id, now) = (self.id.clone(), admin.core.clock.now());
        let revoke = change::<Self>(admin, self.client_id, move |_, client| {
            let is_known = client
                .secrets
                .iter()
                .any(|secret| secret.is_valid(now) && secret.id() == id);
            if !is_known {
                let detail = format!("client {} has no secret {id}", client.client_id);
                return Err(FaultCode::NotFound.of(SECRET, &id, detail).into());
            }
            client
                .secrets
                .retain(|secret| secret.is_valid(now) && secret.id() != id);
            if client.secrets.is_empty() && client.needs_secret() {
                let detail = format!(
                    "secret {id} is the last one of client {}, which needs a secret",
                    client.client_id
                );
                return Err(FaultCode::InUse.of(SECRET, &id, detail).into());
            }
            client.fit_methods_to_secrets();
            Ok(())
        });
        let done = revoke.await?.without_changes();
        record_revoked(admin, Self::NAME, &done.output.client_id, &self.id);
        Ok(Done::unrecorded(done.output))
    }
}
