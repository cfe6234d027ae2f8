use serde::{Deserialize, Serialize};

use super::{ClientView, change, check_in};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::updated::Updated;
use crate::admin::{Admin, AdminResult, RecordChecks};
use crate::flow::client_check::apply;
use crate::oauth::ClientFields;

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
            apply(self.fields.clone(), client, &mut faults);
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
