use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, named};
use crate::oauth::ScopeMetadata;

/// A scope value to be removed. Clients keep it, but it releases nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveScope {
    pub name: String,
}

impl Operation for RemoveScope {
    const NAME: &'static str = "scope remove";
    const EFFECT: Effect = Effect::Destructive;
    type Output = ();

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Self::Output>> {
        named::remove::<Self, ScopeMetadata>(admin, self.name).await
    }
}
