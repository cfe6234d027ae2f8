//! API keys: several for a client, so that one can replace another without a gap.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{KIND, NEEDS_REFRESH, change, refuse_for_profile};
use crate::admin::{Admin, AdminResult, SecretString, not_found};
use crate::clock::Timestamp;
use crate::flow::or_refuse;
use crate::oauth::FaultCode;
use crate::oauth::client::{GrantType, StoredApiKey};
use crate::secret::{ApiKey, Secret};
use crate::store::StoreError;
use crate::store::tables::{API_KEY_USES, CLIENTS};

/// The most API keys of a client. A rotation needs two.
const MOST_KEYS: usize = 20;

/// An API key as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyView {
    /// The client it belongs to.
    pub client_id: String,
    /// Its id.
    pub id: Uuid,
    /// The key, in the answer that adds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<SecretString>,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was last used, to within the hour.
    pub last_used_at: Option<Timestamp>,
}

/// Which API key of which client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhichApiKey {
    /// The client.
    pub client_id: String,
    /// The key.
    pub id: Uuid,
}

/// Generates a key: the record to store, and the key to show.
pub(super) fn generate(admin: Admin<'_>) -> (StoredApiKey, SecretString) {
    let core = admin.core;
    let id = core.random.uuid_v7(core.clock.since_epoch());
    let key = Secret::<ApiKey>::generate(id.as_bytes(), &core.random);
    let stored = StoredApiKey {
        id,
        digest: key.digest(),
        created_at: core.clock.now(),
    };
    (stored, SecretString::new(key.reveal()))
}

/// Adds a key to a client. Only this answer shows it.
pub async fn add(admin: Admin<'_>, client_id: String) -> AdminResult<ApiKeyView> {
    let (stored, shown) = generate(admin);
    let view = ApiKeyView {
        client_id: client_id.clone(),
        id: stored.id,
        api_key: Some(shown),
        created_at: stored.created_at,
        last_used_at: None,
    };
    change(admin, "client api-key add", client_id, move |_, client| {
        if !client.may_use(GrantType::RefreshToken) {
            let fault = FaultCode::NotAllowed.at(["grant_types"], NEEDS_REFRESH);
            return Ok(Err(fault.about(KIND, &client.client_id).into()));
        }
        or_refuse!(refuse_for_profile(client, "an API key"));
        if client.api_keys.len() >= MOST_KEYS {
            let detail = format!("this client has {MOST_KEYS} API keys already");
            let fault = FaultCode::TooMany.at(["api_keys"], detail);
            return Ok(Err(fault.about(KIND, &client.client_id).into()));
        }
        client.api_keys.push(stored.clone());
        Ok(Ok(()))
    })
    .await?;
    Ok(view)
}

/// The keys of a client, oldest first.
pub async fn list(admin: Admin<'_>, client_id: &str) -> AdminResult<Vec<ApiKeyView>> {
    let views = admin
        .core
        .store
        .read(|snapshot| -> Result<_, StoreError> {
            let Some(client) = CLIENTS.get(snapshot, client_id)? else {
                return Ok(None);
            };
            let mut views = Vec::new();
            for key in client.api_keys {
                let last_use = API_KEY_USES.get(snapshot, &key.id)?;
                views.push(ApiKeyView {
                    client_id: client_id.to_owned(),
                    id: key.id,
                    api_key: None,
                    created_at: key.created_at,
                    last_used_at: last_use.map(|last_use| last_use.last_used_at),
                });
            }
            Ok(Some(views))
        })
        .await?;
    Ok(views.ok_or_else(|| not_found(KIND, client_id))?)
}

/// Revokes a key. It is refused from now on.
pub async fn revoke(admin: Admin<'_>, which: WhichApiKey) -> AdminResult<WhichApiKey> {
    let id = which.id;
    change(
        admin,
        "client api-key revoke",
        which.client_id.clone(),
        move |_, client| {
            let before = client.api_keys.len();
            client.api_keys.retain(|key| key.id != id);
            if client.api_keys.len() == before {
                let detail = format!("client {} has no API key {id}", client.client_id);
                return Ok(Err(FaultCode::NotFound
                    .of("api_key", &id.to_string(), detail)
                    .into()));
            }
            Ok(Ok(()))
        },
    )
    .await?;
    admin
        .core
        .store
        .write("forget_api_key_use", move |tx| API_KEY_USES.remove(tx, &id))
        .await?;
    Ok(which)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::client::{AddClient, add as add_client};
    use crate::admin::tests::{admin, assert_faults, core, refusal};
    use crate::oauth::ClientFields;

    fn tv(fields: ClientFields) -> AddClient {
        AddClient {
            client_id: "tv".to_owned(),
            public: false,
            secret: None,
            api_key: false,
            fields,
        }
    }

    #[tokio::test]
    async fn a_key_is_shown_once_listed_and_revoked() {
        let core = core();
        let admin = admin(&core);
        let uris = Some(vec!["https://tv.example/cb".to_owned()]);
        add_client(
            admin,
            tv(ClientFields {
                redirect_uris: uris,
                ..ClientFields::default()
            }),
        )
        .await
        .unwrap();
        let made = add(admin, "tv".to_owned()).await.unwrap();
        let key = Secret::<ApiKey>::parse(made.api_key.unwrap().reveal()).unwrap();
        assert!(core.catalog().api_key(&key.digest()).is_some());
        let listed = list(admin, "tv").await.unwrap();
        assert!(matches!(&listed[..], [view] if view.id == made.id && view.api_key.is_none()));
        let which = WhichApiKey {
            client_id: "tv".to_owned(),
            id: made.id,
        };
        revoke(admin, which.clone()).await.unwrap();
        assert!(core.catalog().api_key(&key.digest()).is_none());
        assert_faults(
            &refusal(revoke(admin, which).await),
            &[(FaultCode::NotFound, &[])],
        );
    }

    #[tokio::test]
    async fn a_client_that_may_not_refresh_gets_no_key() {
        let core = core();
        let admin = admin(&core);
        let never_refreshing = ClientFields {
            redirect_uris: Some(vec!["https://tv.example/cb".to_owned()]),
            grant_types: Some(vec![GrantType::AuthorizationCode]),
            ..ClientFields::default()
        };
        add_client(admin, tv(never_refreshing)).await.unwrap();
        assert_faults(
            &refusal(add(admin, "tv".to_owned()).await),
            &[(FaultCode::NotAllowed, &["grant_types"])],
        );
        assert_faults(
            &refusal(add(admin, "nobody".to_owned()).await),
            &[(FaultCode::NotFound, &[])],
        );
    }
}
