use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, named};
use crate::oauth::{RegisteredScope, ScopeFields, ScopeMetadata};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddScope {
    pub name: String,
    /// Its settings.
    pub fields: ScopeFields,
}

impl Operation for AddScope {
    const NAME: &'static str = "scope add";
    const EFFECT: Effect = Effect::Write;
    const MAY_CREATE_DATA_DIR: bool = true;
    type Output = RegisteredScope;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Self::Output>> {
        named::add::<Self, ScopeMetadata>(admin, self.name, self.fields).await
    }
}
