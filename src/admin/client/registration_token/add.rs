use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::RegistrationTokenView;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, SecretString};
use crate::oauth::registration::StoredInitialAccessToken;
use crate::secret::{InitialAccessToken, Secret};
use crate::store::tables::INITIAL_ACCESS_TOKENS;

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddRegistrationToken {
    /// The seconds until it expires; `None` for never.
    pub expires_in: Option<u64>,
    /// How many clients may register with it; `None` for any number.
    pub uses: Option<u64>,
}

impl Operation for AddRegistrationToken {
    const NAME: &'static str = "client registration-token add";
    const EFFECT: Effect = Effect::Write;
    const MAY_CREATE_DATA_DIR: bool = true;
    type Output = RegistrationTokenView;

    /// Only this answer shows the token.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<RegistrationTokenView>> {
        let core = admin.core;
        let (id, now) = (core.random.uuid_v7(core.clock.since_epoch()), core.clock.now());
        let token = Secret::<InitialAccessToken>::generate(id.as_bytes(), &core.random);
        let stored = StoredInitialAccessToken {
            digest: token.digest(),
            created_at: now,
            expires_at: self.expires_in.map(|seconds| now + Duration::from_secs(seconds)),
            uses_left: self.uses,
        };
        let view = RegistrationTokenView {
            initial_access_token: Some(SecretString::new(token.reveal())),
            ..RegistrationTokenView::of(id, &stored)
        };
        let write = admin.write(Self::NAME, move |tx| {
            Ok(INITIAL_ACCESS_TOKENS.put(tx, &id, &stored)?)
        });
        write.await?;
        Ok(Done::about(id, view))
    }
}
