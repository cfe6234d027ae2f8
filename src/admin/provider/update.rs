use serde::{Deserialize, Serialize};

use super::check::{PreparedSecret, apply, check};
use super::{KIND, ProviderFields, ProviderView, check_issuer, shut_out};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::updated::Updated;
use crate::admin::{Admin, AdminResult, AdminTxError, SecretString, about, all_or_none, not_found};
use crate::federation::Provider;
use crate::flow::client_check::stored_exchange_only;
use crate::oauth::FaultCode;
use crate::store::engine::Snapshot;
use crate::store::tables::PROVIDERS;

/// A change of a provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateProvider {
    pub id: String,
    /// The secret that belongs to its `client_id`; empty to remove it.
    #[serde(default)]
    pub client_secret: Option<SecretString>,
    /// What changes.
    pub fields: ProviderFields,
}

impl Operation for UpdateProvider {
    const NAME: &'static str = "provider update";
    const EFFECT: Effect = Effect::Write;
    type Output = Updated<ProviderView>;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<Updated<ProviderView>>> {
        let core = admin.core;
        let (now, incarnation) = (core.clock.now(), core.random.uuid_v4());
        let Self {
            id,
            client_secret,
            fields,
        } = self;
        let secret = client_secret.map(|secret| PreparedSecret::new(&id, secret, core));
        let write = admin.write_catalog(Self::NAME, move |tx| {
            let Some(before) = PROVIDERS.get(&*tx, &id)? else {
                return Err(not_found(KIND, &id).into());
            };
            let (mut changed, mut faults) = (before.clone(), Vec::new());
            apply(fields.clone(), secret.as_ref(), &mut changed, &mut faults);
            check(&changed, &mut faults);
            all_or_none(about(KIND, &id, faults).collect())?;
            changed.updated_at = now;
            if changed.issuer != before.issuer {
                changed.incarnation = incarnation;
            }
            check_issuer(&*tx, &changed)?;
            check_clients(&*tx, &changed)?;
            PROVIDERS.put(tx, &id, &changed)?;
            Ok([before, changed])
        });
        let [before, view] = write
            .await?
            .map(|provider| ProviderView::of(&provider, &core.policy.issuer));
        let updated = Updated::of(&before, view, ProviderFields::FIELDS);
        Ok(Done::about(updated.id.clone(), updated))
    }
}

/// Refuses a change of the provider by which the users of a client could no longer sign in.
fn check_clients(snapshot: &dyn Snapshot, changed: &Provider) -> Result<(), AdminTxError> {
    if changed.signs_people_in() {
        return Ok(());
    }
    let id = &changed.id;
    let mut after = stored_exchange_only(snapshot)?;
    after.insert(id.clone());
    let shut_out = shut_out(snapshot, &after)?;
    if shut_out.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "users of client {} can sign in only at provider {id}",
        shut_out.join(", ")
    );
    Err(FaultCode::InUse.at(["client_id"], detail).about(KIND, id).into())
}
