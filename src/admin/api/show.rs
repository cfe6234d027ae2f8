use serde::{Deserialize, Serialize};

use super::{Api, KIND};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, not_found};
use crate::store::tables::APIS;

/// A request for one API.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowApi {
    pub id: String,
}

impl Operation for ShowApi {
    const NAME: &'static str = "api show";
    const EFFECT: Effect = Effect::Read;
    type Output = Api;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Api>> {
        let api = admin
            .core
            .store
            .read(|snapshot| APIS.get(snapshot, &self.id))
            .await?;
        Ok(Done::unrecorded(api.ok_or_else(|| not_found(KIND, &self.id))?))
    }
}
