use serde::{Deserialize, Serialize};

use super::ProviderView;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::store::tables::PROVIDERS;

/// A request for all providers, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListProviders;

impl Operation for ListProviders {
    const NAME: &'static str = "provider list";
    const EFFECT: Effect = Effect::Read;
    type Output = Vec<ProviderView>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Vec<ProviderView>>> {
        let providers = admin
            .core
            .store
            .read(|snapshot| PROVIDERS.scan(snapshot, .., usize::MAX))
            .await?;
        let issuer = &admin.core.policy.issuer;
        let views = providers
            .iter()
            .map(|(_, provider)| ProviderView::of(provider, issuer));
        Ok(Done::unrecorded(views.collect()))
    }
}
