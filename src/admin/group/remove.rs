use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, named};
use crate::oauth::GroupMetadata;

/// A group to be removed. Users keep its identifier, which no new group gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveGroup {
    pub name: String,
}

impl Operation for RemoveGroup {
    const NAME: &'static str = "group remove";
    const EFFECT: Effect = Effect::Destructive;
    type Output = ();

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Self::Output>> {
        named::remove::<Self, GroupMetadata>(admin, self.name).await
    }
}
