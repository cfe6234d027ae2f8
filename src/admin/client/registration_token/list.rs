use serde::{Deserialize, Serialize};

use super::RegistrationTokenView;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::store::tables::INITIAL_ACCESS_TOKENS;

/// A request for all tokens, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListRegistrationTokens;

impl Operation for ListRegistrationTokens {
    const NAME: &'static str = "client registration-token list";
    const EFFECT: Effect = Effect::Read;
    type Output = Vec<RegistrationTokenView>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Vec<RegistrationTokenView>>> {
        let rows = admin
            .core
            .store
            .read(|snapshot| INITIAL_ACCESS_TOKENS.scan(snapshot, .., usize::MAX))
            .await?;
        let views = rows
            .iter()
            .map(|(id, stored)| RegistrationTokenView::of(*id, stored));
        Ok(Done::unrecorded(views.collect()))
    }
}
