use serde::{Deserialize, Serialize};

use super::{ClientView, change};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};

/// A client to be disabled. Tokens of a disabled client cannot be refreshed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DisableClient {
    /// Its identifier.
    pub client_id: String,
}

impl Operation for DisableClient {
    const NAME: &'static str = "client disable";
    const EFFECT: Effect = Effect::Write;
    type Output = ClientView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ClientView>> {
        let changed = change::<Self>(admin, self.client_id, |_, client| {
            client.enabled = false;
            Ok(())
        })
        .await?;
        Ok(changed.without_changes())
    }
}
