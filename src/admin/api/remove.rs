use serde::{Deserialize, Serialize};

use super::KIND;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, not_found};
use crate::oauth::FaultCode;
use crate::store::tables::{APIS, CLIENTS};

/// An API to be removed. No client may name it.
///
/// Refreshes of grants that are only for this API are refused. They work again if an API with the same identifier is
/// added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveApi {
    pub id: String,
}

impl Operation for RemoveApi {
    const NAME: &'static str = "api remove";
    const EFFECT: Effect = Effect::Destructive;
    type Output = ();

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<()>> {
        let id = self.id.clone();
        let write = admin.write_catalog(Self::NAME, move |tx| {
            if !APIS.contains(&*tx, &id)? {
                return Err(not_found(KIND, &id).into());
            }
            let clients = CLIENTS.scan(&*tx, .., usize::MAX)?;
            let named_by: Vec<_> = clients
                .into_iter()
                .filter(|(_, client)| client.apis.contains(&id))
                .map(|(client_id, _)| client_id)
                .collect();
            if !named_by.is_empty() {
                let detail = format!("clients may name api {id}: {}", named_by.join(", "));
                return Err(FaultCode::InUse.of(KIND, &id, detail).into());
            }
            APIS.remove(tx, &id)?;
            Ok(())
        });
        write.await?;
        Ok(Done::about(self.id, ()))
    }
}
