use serde::{Deserialize, Serialize};

use super::KIND;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, not_found};
use crate::flow::remove_client::remove_client;
use crate::store::tables::CLIENTS;

/// A client to be removed with all that was granted to it, so that a later client with the same identifier does not
/// inherit it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveClient {
    /// Its identifier.
    pub client_id: String,
}

impl Operation for RemoveClient {
    const NAME: &'static str = "client remove";
    const EFFECT: Effect = Effect::Destructive;
    type Output = ();

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<()>> {
        let client_id = self.client_id.clone();
        let write = admin.write_catalog(Self::NAME, move |tx| {
            let Some(client) = CLIENTS.get(&*tx, &client_id)? else {
                return Err(not_found(KIND, &client_id).into());
            };
            Ok(remove_client(tx, &client)?)
        });
        write.await?;
        Ok(Done::about(self.client_id, ()))
    }
}
