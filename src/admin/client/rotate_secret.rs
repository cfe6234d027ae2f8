use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ClientView, KIND, PreparedSecret, change, refuse_for_profile, secret_of};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, SecretString, about, all_or_none};
use crate::oauth::FaultCode;

/// A new secret for a client, or a first one beside its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RotateSecret {
    pub client_id: String,
    /// The secret that the operator chose. Without one it is generated.
    pub secret: Option<SecretString>,
    /// For how many seconds the current secrets stay valid.
    pub keep_old_seconds: Option<u64>,
}

impl Operation for RotateSecret {
    const NAME: &'static str = "client rotate-secret";
    const EFFECT: Effect = Effect::Destructive;
    type Output = ClientView;

    /// Only this answer shows a generated secret.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ClientView>> {
        let mut faults = Vec::new();
        let PreparedSecret { stored, generated } = secret_of(admin, self.secret, &mut faults);
        all_or_none(about(KIND, &self.client_id, faults).collect())?;
        let now = stored.created_at;
        let end = now + Duration::from_secs(self.keep_old_seconds.unwrap_or(0));
        let rotate = change::<Self>(admin, self.client_id, move |_, client| {
            refuse_for_profile(client, "a secret")?;
            if client.is_public() {
                let detail = format!("client {} is public and has no secret", client.client_id);
                return Err(FaultCode::NotAllowed.of(KIND, &client.client_id, detail).into());
            }
            for secret in &mut client.secrets {
                secret.expires_at = Some(secret.expires_at.map_or(end, |earlier| earlier.min(end)));
            }
            client
                .secrets
                .retain(|secret| secret.expires_at.is_some_and(|end| now < end));
            client.secrets.insert(0, stored.clone());
            client.fit_methods_to_secrets();
            Ok(())
        });
        let mut done = rotate.await?.without_changes();
        done.output.client_secret = generated;
        Ok(done)
    }
}
