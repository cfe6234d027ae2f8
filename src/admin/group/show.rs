use serde::{Deserialize, Serialize};

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, named};
use crate::oauth::{Group, GroupMetadata};

/// A request for one group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowGroup {
    pub name: String,
}

impl Operation for ShowGroup {
    const NAME: &'static str = "group show";
    const EFFECT: Effect = Effect::Read;
    type Output = Group;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Self::Output>> {
        named::show::<GroupMetadata>(admin, &self.name).await
    }
}
