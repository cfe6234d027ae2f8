use serde::{Deserialize, Serialize};

use super::{ClientView, change};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EnableClient {
    /// Its identifier.
    pub client_id: String,
}

impl Operation for EnableClient {
    const NAME: &'static str = "client enable";
    const EFFECT: Effect = Effect::Write;
    type Output = ClientView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ClientView>> {
        let changed = change::<Self>(admin, self.client_id, |_, client| {
            client.enabled = true;
            Ok(())
        })
        .await?;
        Ok(changed.without_changes())
    }
}
