use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::updated::Updated;
use crate::admin::{Admin, AdminResult, named};
use crate::oauth::{Group, GroupFields, GroupMetadata};

/// A change of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateGroup {
    pub name: String,
    /// What changes.
    pub fields: GroupFields,
}

impl Operation for UpdateGroup {
    const NAME: &'static str = "group update";
    const EFFECT: Effect = Effect::Write;
    type Output = Updated<Group>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Self::Output>> {
        named::update::<Self, GroupMetadata>(admin, self.name, self.fields).await
    }
}
