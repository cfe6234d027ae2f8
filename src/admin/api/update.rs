use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Api, KIND, check_in};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::updated::Updated;
use crate::admin::{Admin, AdminResult, RecordChecks, not_found};
use crate::oauth::ApiFields;
use crate::oauth::api::ApiMetadata;
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
    type Output = Updated<Api>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Updated<Api>>> {
        let (now, checks) = (admin.core.clock.now(), RecordChecks::new(admin.core));
        let write = admin.write_catalog(Self::NAME, move |tx| {
            let Some(before) = APIS.get(&*tx, &self.id)? else {
                return Err(not_found(KIND, &self.id).into());
            };
            let (mut api, mut faults) = (before.clone(), Vec::new());
            let fields = self.fields.clone();
            let fields = fields.apply_edits(&before.metadata, &mut faults);
            drop_described(&fields, &mut api.metadata);
            fields.apply(&mut api.metadata, &mut faults);
            check_in(&*tx, &checks, &api, faults)?;
            api.updated_at = now;
            APIS.put(tx, &self.id, &api)?;
            Ok([before, api])
        });
        let [before, api] = write.await?;
        let updated = Updated::of(&before, api, ApiFields::FIELDS);
        Ok(Done::about(updated.id.clone(), updated))
    }
}

/// Removes the texts of scope values and the groups of roles that the API loses.
fn drop_described(fields: &ApiFields, metadata: &mut ApiMetadata) {
    if let Some(scope) = &fields.scope {
        let values: BTreeSet<_> = scope.iter().flat_map(|text| text.split(' ')).collect();
        metadata
            .scope_texts
            .retain(|value, _| values.contains(value.as_str()));
    }
    if let Some(roles) = &fields.roles {
        metadata.role_groups.retain(|role, _| roles.contains(role));
    }
}
