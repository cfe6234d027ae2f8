use serde::{Deserialize, Serialize};

use super::{Api, KIND, check_in, new_api};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, RecordChecks, already_exists};
use crate::oauth::ApiFields;
use crate::store::tables::APIS;

/// An API to be registered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddApi {
    /// The name by which the operator and clients' records refer to it.
    pub id: String,
    /// The value of `resource` and `aud`.
    pub identifier: String,
    /// The metadata.
    pub fields: ApiFields,
}

impl Operation for AddApi {
    const NAME: &'static str = "api add";
    const EFFECT: Effect = Effect::Write;
    const MAY_CREATE_DATA_DIR: bool = true;
    type Output = Api;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Api>> {
        let mut faults = Vec::new();
        let mut api = new_api(admin, self.id, self.identifier);
        self.fields.apply(&mut api.metadata, &mut faults);
        let (added, checks) = (api.clone(), RecordChecks::new(admin.core));
        let write = admin.write_catalog(Self::NAME, move |tx| {
            check_in(&*tx, &checks, &api, faults.clone())?;
            if APIS.contains(&*tx, &api.id)? {
                return Err(already_exists(KIND, &api.id).into());
            }
            Ok(APIS.put(tx, &api.id, &api)?)
        });
        write.await?;
        Ok(Done::about(added.id.clone(), added))
    }
}
