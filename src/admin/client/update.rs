use serde::{Deserialize, Serialize};

use super::{ClientView, change, check_in};
use crate::admin::groups::groups;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::updated::Updated;
use crate::admin::{Admin, AdminResult, RecordChecks};
use crate::flow::client_check::apply;
use crate::oauth::ClientFields;
use crate::store::StoreError;
use crate::store::engine::Snapshot;

/// A change of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateClient {
    pub client_id: String,
    /// Whether its secrets are removed, with what only they allow. Then the client authenticates with its key.
    pub no_secret: bool,
    /// What changes.
    pub fields: ClientFields,
}

impl Operation for UpdateClient {
    const NAME: &'static str = "client update";
    const EFFECT: Effect = Effect::Write;
    type Output = Updated<ClientView>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Updated<ClientView>>> {
        let checks = RecordChecks::new(admin.core);
        change::<Self>(admin, self.client_id, move |snapshot, client| {
            let (before, mut faults) = (client.clone(), Vec::new());
            let mut fields = self.fields.clone();
            name_edited_groups(snapshot, &mut fields)?;
            apply(fields, client, &mut faults);
            if self.no_secret {
                client.secrets.clear();
                client.max_scope = None;
                client.fit_methods_to_secrets();
            }
            check_in(snapshot, Some(&before), client, &checks, faults)
        })
        .await
    }
}

/// Gives the groups that the edits name the names under which they are registered, as the record has them.
fn name_edited_groups(snapshot: &dyn Snapshot, fields: &mut ClientFields) -> Result<(), StoreError> {
    let Some(edits) = &mut fields.edits else {
        return Ok(());
    };
    let mut names: Vec<_> = [&mut edits.add, &mut edits.remove]
        .into_iter()
        .filter_map(|edited| edited.allowed_groups.as_mut())
        .flatten()
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let groups = groups(snapshot)?;
    for name in &mut names {
        **name = groups.registered_name(std::mem::take(*name));
    }
    Ok(())
}
