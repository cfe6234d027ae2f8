use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, named};
use crate::oauth::{Group, GroupFields, GroupMetadata};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddGroup {
    pub name: String,
    /// Its settings.
    pub fields: GroupFields,
}

impl Operation for AddGroup {
    const NAME: &'static str = "group add";
    const EFFECT: Effect = Effect::Write;
    const MAY_CREATE_DATA_DIR: bool = true;
    type Output = Group;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Self::Output>> {
        named::add::<Self, GroupMetadata>(admin, self.name, self.fields).await
    }
}
