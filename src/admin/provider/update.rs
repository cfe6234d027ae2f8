use serde::{Deserialize, Serialize};

use super::check::{apply, check};
use super::{KIND, ProviderFields, ProviderView, check_issuer, find, shut_out};
use crate::admin::operation::{Done, Effect, Operation};
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
    type Output = ProviderView;

    /// Seals the secret before the transaction, which may run twice.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<ProviderView>> {
        let core = admin.core;
        let now = core.clock.now();
        let mut changed = find(admin, &self.id).await?;
        let before = changed.clone();
        let mut faults = Vec::new();
        apply(
            self.fields,
            self.client_secret,
            &mut changed,
            &core.sealer,
            &core.random,
            &mut faults,
        );
        check(&changed, &mut faults);
        all_or_none(about(KIND, &self.id, faults).collect())?;
        changed.updated_at = now;
        if changed.issuer != before.issuer {
            changed.incarnation = core.random.uuid_v4();
        }
        let view = ProviderView::of(&changed, &core.policy.issuer);
        let write = admin.write_catalog(Self::NAME, move |tx| {
            match PROVIDERS.get(&*tx, &changed.id)? {
                None => return Err(not_found(KIND, &changed.id).into()),
                Some(found) if found != before => {
                    let detail = format!("provider {} was changed by another command just now", changed.id);
                    return Err(FaultCode::Conflict.of(KIND, &changed.id, detail).into());
                }
                Some(_) => {}
            }
            check_issuer(&*tx, &changed)?;
            check_clients(&*tx, &changed)?;
            Ok(PROVIDERS.put(tx, &changed.id, &changed)?)
        });
        write.await?;
        Ok(Done::about(self.id, view))
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
