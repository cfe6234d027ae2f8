use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::updated::Updated;
use crate::admin::{Admin, AdminResult, named};
use crate::oauth::{RegisteredScope, ScopeFields, ScopeMetadata};

/// A change of a scope value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateScope {
    pub name: String,
    /// What changes.
    pub fields: ScopeFields,
}

impl Operation for UpdateScope {
    const NAME: &'static str = "scope update";
    const EFFECT: Effect = Effect::Write;
    type Output = Updated<RegisteredScope>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Self::Output>> {
        named::update::<Self, ScopeMetadata>(admin, self.name, self.fields).await
    }
}
