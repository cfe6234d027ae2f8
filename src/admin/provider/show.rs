use serde::{Deserialize, Serialize};

use super::{ProviderView, find};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};

/// A request for one provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowProvider {
    pub id: String,
}

impl Operation for ShowProvider {
    const NAME: &'static str = "provider show";
    const EFFECT: Effect = Effect::Read;
    type Output = ProviderView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ProviderView>> {
        let provider = find(admin, &self.id).await?;
        Ok(Done::unrecorded(ProviderView::of(
            &provider,
            &admin.core.policy.issuer,
        )))
    }
}
