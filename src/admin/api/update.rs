use serde::{Deserialize, Serialize};

use super::{Api, KIND, check_in};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, RecordChecks, not_found};
use crate::oauth::ApiFields;
use crate::store::tables::APIS;

/// A change of an API.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateApi {
    pub id: String,
    /// What changes.
    pub fields: ApiFields,
}

impl Operation for UpdateApi {
    const NAME: &'static str = "api update";
    const EFFECT: Effect = Effect::Write;
    type Output = Api;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Api>> {
        let (now, checks) = (admin.core.clock.now(), RecordChecks::new(admin.core));
        let write = admin.write_catalog(Self::NAME, move |tx| {
            let Some(mut api) = APIS.get(&*tx, &self.id)? else {
                return Err(not_found(KIND, &self.id).into());
            };
            let mut faults = Vec::new();
            self.fields.clone().apply(&mut api.metadata, &mut faults);
            check_in(&*tx, &checks, &api, faults)?;
            api.updated_at = now;
            APIS.put(tx, &self.id, &api)?;
            Ok(api)
        });
        let api = write.await?;
        Ok(Done::about(api.id.clone(), api))
    }
}
