use serde::{Deserialize, Serialize};

use super::{ClientView, KIND};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, not_found};
use crate::store::tables::CLIENTS;

/// A request for one client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowClient {
    /// Its identifier.
    pub client_id: String,
}

impl Operation for ShowClient {
    const NAME: &'static str = "client show";
    const EFFECT: Effect = Effect::Read;
    type Output = ClientView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ClientView>> {
        let core = admin.core;
        let client = core
            .store
            .read(|snapshot| CLIENTS.get(snapshot, &self.client_id))
            .await?;
        let client = client.ok_or_else(|| not_found(KIND, &self.client_id))?;
        let view = ClientView::of(&client, &core.policy.issuer, None, core.clock.now());
        Ok(Done::unrecorded(view))
    }
}
