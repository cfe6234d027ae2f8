use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, named};
use crate::oauth::{RegisteredScope, ScopeMetadata};

/// A request for one scope value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowScope {
    pub name: String,
}

impl Operation for ShowScope {
    const NAME: &'static str = "scope show";
    const EFFECT: Effect = Effect::Read;
    type Output = RegisteredScope;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Self::Output>> {
        named::show::<ScopeMetadata>(admin, &self.name).await
    }
}
