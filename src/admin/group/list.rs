use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, named};
use crate::oauth::{Group, GroupMetadata};

/// A request for all groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListGroups;

impl Operation for ListGroups {
    const NAME: &'static str = "group list";
    const EFFECT: Effect = Effect::Read;
    type Output = Vec<Group>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Self::Output>> {
        named::list::<GroupMetadata>(admin).await
    }
}
