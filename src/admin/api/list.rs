use serde::{Deserialize, Serialize};

use super::{Api, all};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};

/// A request for all APIs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListApis;

impl Operation for ListApis {
    const NAME: &'static str = "api list";
    const EFFECT: Effect = Effect::Read;
    type Output = Vec<Api>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Vec<Api>>> {
        let apis = admin.core.store.read(all).await?;
        Ok(Done::unrecorded(apis.into_values().collect()))
    }
}
