//! Initial access tokens, with which clients register themselves (RFC 7591 section 1.2).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::{Admin, AdminRefusal, AdminResult, SecretString, not_found};
use crate::clock::Timestamp;
use crate::oauth::registration::StoredInitialAccessToken;
use crate::secret::{InitialAccessToken, Secret};
use crate::store::TxError;
use crate::store::tables::INITIAL_ACCESS_TOKENS;

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddRegistrationToken {
    /// The seconds until it expires; `None` for never.
    pub expires_in: Option<u64>,
    /// How many clients may register with it; `None` for any number.
    pub uses: Option<u64>,
}

/// A token as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistrationTokenView {
    /// Its id.
    pub id: Uuid,
    /// The token itself, only in the answer of `add`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_access_token: Option<SecretString>,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// How many clients may still register with it; `None` for any number.
    pub uses_left: Option<u64>,
}

impl RegistrationTokenView {
    fn of(id: Uuid, stored: &StoredInitialAccessToken) -> Self {
        Self {
            id,
            initial_access_token: None,
            created_at: stored.created_at,
            expires_at: stored.expires_at,
            uses_left: stored.uses_left,
        }
    }
}

/// Makes a token. Only this answer shows it.
pub async fn add(admin: Admin<'_>, request: AddRegistrationToken) -> AdminResult<RegistrationTokenView> {
    let core = admin.core;
    let (id, now) = (core.random.uuid_v7(core.clock.since_epoch()), core.clock.now());
    let token = Secret::<InitialAccessToken>::generate(id.as_bytes(), &core.random);
    let stored = StoredInitialAccessToken {
        digest: token.digest(),
        created_at: now,
        expires_at: request
            .expires_in
            .map(|seconds| now + Duration::from_secs(seconds)),
        uses_left: request.uses,
    };
    let view = RegistrationTokenView {
        initial_access_token: Some(SecretString::new(token.reveal())),
        ..RegistrationTokenView::of(id, &stored)
    };
    core.store
        .write("add_registration_token", move |tx| {
            INITIAL_ACCESS_TOKENS.put(tx, &id, &stored)
        })
        .await?;
    admin.record("client registration-token add", &id.to_string());
    Ok(view)
}

/// All tokens, oldest first.
pub async fn list(admin: Admin<'_>) -> AdminResult<Vec<RegistrationTokenView>> {
    let rows = admin
        .core
        .store
        .read(|snapshot| INITIAL_ACCESS_TOKENS.scan(snapshot, .., usize::MAX))
        .await?;
    let views = rows
        .iter()
        .map(|(id, stored)| RegistrationTokenView::of(*id, stored));
    Ok(views.collect())
}

/// Removes a token. Clients that registered with it stay.
pub async fn remove(admin: Admin<'_>, id: Uuid) -> AdminResult<Uuid> {
    admin
        .core
        .store
        .write(
            "remove_registration_token",
            move |tx| -> Result<_, TxError<AdminRefusal>> {
                if !INITIAL_ACCESS_TOKENS.remove(tx, &id)? {
                    return Err(not_found("registration_token", &id.to_string()).into());
                }
                Ok(())
            },
        )
        .await?;
    admin.record("client registration-token remove", &id.to_string());
    Ok(id)
}
