use serde::{Deserialize, Serialize};

use super::{ApiKeyView, GeneratedApiKey, generate};
use crate::admin::client::{KIND, NEEDS_REFRESH, change, refuse_for_profile};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::oauth::FaultCode;
use crate::oauth::client::GrantType;

/// The most API keys of a client. A rotation needs two.
const MOST_KEYS: usize = 20;

/// An API key for a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddApiKey {
    pub client_id: String,
}

impl Operation for AddApiKey {
    const NAME: &'static str = "client api-key add";
    const EFFECT: Effect = Effect::Write;
    type Output = ApiKeyView;

    /// Only this answer shows the key.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ApiKeyView>> {
        let GeneratedApiKey { stored, shown } = generate(admin);
        let view = ApiKeyView {
            client_id: self.client_id.clone(),
            id: stored.id,
            api_key: Some(shown),
            created_at: stored.created_at,
            last_used_at: None,
        };
        let add = change::<Self>(admin, self.client_id, move |_, client| {
            if !client.may_use(GrantType::RefreshToken) {
                let fault = FaultCode::NotAllowed.at(["grant_types"], NEEDS_REFRESH);
                return Err(fault.about(KIND, &client.client_id).into());
            }
            refuse_for_profile(client, "an API key")?;
            if client.api_keys.len() >= MOST_KEYS {
                let detail = format!("this client has {MOST_KEYS} API keys already");
                let fault = FaultCode::TooMany.at(["api_keys"], detail);
                return Err(fault.about(KIND, &client.client_id).into());
            }
            client.api_keys.push(stored.clone());
            Ok(())
        });
        Ok(add.await?.with(view))
    }
}
