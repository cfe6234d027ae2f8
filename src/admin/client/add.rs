use serde::{Deserialize, Serialize};

use super::{ClientView, KIND, NEEDS_REFRESH, api_key, check_in, secret_of};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, RecordChecks, SecretString, already_exists};
use crate::flow::client_check::{apply_to_new, check_client_id};
use crate::oauth::client::{Client, GrantType};
use crate::oauth::{ClientFields, FaultCode};
use crate::store::tables::CLIENTS;

/// A client to be registered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddClient {
    /// The identifier the client will send.
    pub client_id: String,
    /// Whether the client cannot keep a secret.
    pub public: bool,
    /// The secret that the operator chose. Without one it is generated.
    pub secret: Option<SecretString>,
    /// Whether an API key is generated as well.
    pub api_key: bool,
    /// Everything else.
    pub fields: ClientFields,
}

impl Operation for AddClient {
    const NAME: &'static str = "client add";
    const EFFECT: Effect = Effect::Write;
    const MAY_CREATE_DATA_DIR: bool = true;
    type Output = ClientView;

    /// Only this answer shows a generated secret.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ClientView>> {
        let core = admin.core;
        let mut faults = Vec::new();
        check_client_id(&self.client_id, &mut faults);
        let now = core.clock.now();
        let uuid = core.random.uuid_v7(core.clock.since_epoch());
        let own_grant = core.random.uuid_v4();
        let mut client = Client::new(&self.client_id, uuid, own_grant, self.public, now);
        let no_grant = apply_to_new(self.fields, &mut client, &mut faults);
        faults.extend(no_grant);
        let mut shown = None;
        if client.is_public() {
            if self.secret.is_some() {
                faults.push(FaultCode::NotAllowed.at(["secret"], "a public client has no secret"));
            }
        } else if (client.profile.is_none() && client.needs_secret()) || self.secret.is_some() {
            let secret = secret_of(admin, self.secret, &mut faults);
            client.secrets.push(secret.stored);
            client.fit_methods_to_secrets();
            shown = secret.generated;
        }
        let mut api_key = None;
        if self.api_key {
            let generated = api_key::generate(admin);
            client.api_keys.push(generated.stored);
            api_key = Some(generated.shown);
            if !client.may_use(GrantType::RefreshToken) {
                faults.push(FaultCode::NotAllowed.at(["grant_types"], NEEDS_REFRESH));
            }
        }
        let checks = RecordChecks::new(core);
        let write = admin.write_catalog(Self::NAME, move |tx| {
            let mut client = client.clone();
            check_in(&*tx, None, &mut client, &checks, faults.clone())?;
            if CLIENTS.contains(&*tx, &client.client_id)? {
                return Err(already_exists(KIND, &client.client_id).into());
            }
            CLIENTS.put(tx, &client.client_id, &client)?;
            Ok(client)
        });
        let client = write.await?;
        let view = ClientView {
            api_key,
            ..ClientView::of(&client, &core.policy.issuer, shown, now)
        };
        Ok(Done::about(self.client_id, view))
    }
}
