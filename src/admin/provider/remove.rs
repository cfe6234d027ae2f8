use serde::{Deserialize, Serialize};

use super::KIND;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, not_found};
use crate::oauth::FaultCode;
use crate::store::tables::{CLIENTS, PROVIDERS};

/// A provider to be removed. No client may name it.
///
/// Sessions and refresh families that began there end. Its users stay, and are found again if the issuer is registered
/// again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveProvider {
    pub id: String,
}

impl Operation for RemoveProvider {
    const NAME: &'static str = "provider remove";
    const EFFECT: Effect = Effect::Destructive;
    type Output = ();

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<()>> {
        let id = self.id.clone();
        let write = admin.write_catalog(Self::NAME, move |tx| {
            if !PROVIDERS.contains(&*tx, &id)? {
                return Err(not_found(KIND, &id).into());
            }
            let clients = CLIENTS.scan(&*tx, .., usize::MAX)?;
            let named_by: Vec<_> = clients
                .into_iter()
                .filter(|(_, client)| client.providers.contains(&id))
                .map(|(client_id, _)| client_id)
                .collect();
            if !named_by.is_empty() {
                let detail = format!("provider {id} is named by client {}", named_by.join(", "));
                return Err(FaultCode::InUse.of(KIND, &id, detail).into());
            }
            PROVIDERS.remove(tx, &id)?;
            Ok(())
        });
        write.await?;
        Ok(Done::about(self.id, ()))
    }
}
