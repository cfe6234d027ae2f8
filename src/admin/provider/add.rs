use serde::{Deserialize, Serialize};

use super::check::{PreparedSecret, apply, check, check_id};
use super::{KIND, ProviderFields, ProviderView, check_issuer};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, SecretString, about, all_or_none, already_exists};
use crate::federation::Provider;
use crate::store::tables::PROVIDERS;

/// A provider to be registered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddProvider {
    /// The provider's id.
    pub id: String,
    /// The secret that belongs to its `client_id`; empty to remove it.
    #[serde(default)]
    pub client_secret: Option<SecretString>,
    /// Everything else.
    pub fields: ProviderFields,
}

impl Operation for AddProvider {
    const NAME: &'static str = "provider add";
    const EFFECT: Effect = Effect::Write;
    const MAY_CREATE_DATA_DIR: bool = true;
    type Output = ProviderView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ProviderView>> {
        let core = admin.core;
        let mut faults = Vec::new();
        check_id(&self.id, &mut faults);
        let mut provider = Provider::new(self.id, core.random.uuid_v4(), core.clock.now());
        let secret = self.client_secret;
        let secret = secret.map(|secret| PreparedSecret::new(&provider.id, secret, core));
        apply(self.fields, secret.as_ref(), &mut provider, &mut faults);
        check(&provider, &mut faults);
        all_or_none(about(KIND, &provider.id, faults).collect())?;
        let view = ProviderView::of(&provider, &core.policy.issuer);
        let write = admin.write_catalog(Self::NAME, move |tx| {
            if PROVIDERS.contains(&*tx, &provider.id)? {
                return Err(already_exists(KIND, &provider.id).into());
            }
            check_issuer(&*tx, &provider)?;
            Ok(PROVIDERS.put(tx, &provider.id, &provider)?)
        });
        write.await?;
        Ok(Done::about(view.id.clone(), view))
    }
}
