use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, named};
use crate::oauth::{RegisteredScope, ScopeMetadata};

/// A request for all scope values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListScopes;

impl Operation for ListScopes {
    const NAME: &'static str = "scope list";
    const EFFECT: Effect = Effect::Read;
    type Output = Vec<RegisteredScope>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Self::Output>> {
        named::list::<ScopeMetadata>(admin).await
    }
}
