use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, not_found};
use crate::store::tables::INITIAL_ACCESS_TOKENS;

/// A token to be removed. Clients that registered with it stay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveRegistrationToken {
    pub id: Uuid,
}

impl Operation for RemoveRegistrationToken {
    const NAME: &'static str = "client registration-token remove";
    const EFFECT: Effect = Effect::Destructive;
    type Output = ();

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<()>> {
        let id = self.id;
        let write = admin.write(Self::NAME, move |tx| {
            if !INITIAL_ACCESS_TOKENS.remove(tx, &id)? {
                return Err(not_found("registration_token", &id.to_string()).into());
            }
            Ok(())
        });
        write.await?;
        Ok(Done::about(id, ()))
    }
}
