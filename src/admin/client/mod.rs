//! Clients.

mod access;
mod add;
mod api_key;
mod disable;
mod enable;
mod list;
mod list_secrets;
mod registration_token;
mod remove;
mod revoke_secret;
mod rotate_secret;
mod secret;
mod show;
#[cfg(test)]
pub(super) mod tests;
mod update;
mod view;

use std::ops::ControlFlow;

pub use self::access::{ClientAccess, ListAccess};
pub use self::add::AddClient;
pub use self::api_key::{AddApiKey, ApiKeyView, ListApiKeys, RevokeApiKey};
pub use self::disable::DisableClient;
pub use self::enable::EnableClient;
pub use self::list::{ListClients, page};
pub use self::list_secrets::{ListSecrets, UsedSecretView};
pub use self::registration_token::{
    AddRegistrationToken, ListRegistrationTokens, RegistrationTokenView, RemoveRegistrationToken,
};
pub use self::remove::RemoveClient;
pub use self::revoke_secret::RevokeSecret;
pub use self::rotate_secret::RotateSecret;
pub(super) use self::secret::{PreparedSecret, secret_of};
pub use self::show::ShowClient;
pub use self::update::UpdateClient;
pub use self::view::ClientView;
use super::groups::groups;
use super::operation::{Done, Operation};
use super::updated::Updated;
use super::{
    Admin, AdminRefusal, AdminResult, AdminTxError, RecordChecks, about, all_or_none, api, not_found,
};
use crate::flow::client_check::ClientRules;
use crate::oauth::client::Client;
use crate::oauth::resource::Apis;
use crate::oauth::{ClientFields, Fault, FaultCode};
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{CLIENTS, PROVIDERS};

/// The kind of record in faults.
pub(super) const KIND: &str = "client";
/// The fault of an API key for a client that may not refresh.
const NEEDS_REFRESH: &str =
    "an API key is for refreshing, for which the client needs the grant refresh_token";

/// Names the groups of the record as they are registered, checks it as a whole, and refuses it with these and earlier
/// faults. Keys, APIs, groups and providers may change at any time, so they are read in the transaction that writes the
/// record.
fn check_in(
    snapshot: &dyn Snapshot,
    before: Option<&Client>,
    client: &mut Client,
    checks: &RecordChecks,
    mut faults: Vec<Fault>,
) -> Result<(), AdminTxError> {
    let providers = PROVIDERS.scan(snapshot, .., usize::MAX)?;
    let rules = ClientRules::for_operator(
        &checks.policy,
        checks.usable_algorithms(snapshot)?,
        Apis::new(api::all(snapshot)?.into_values()),
        groups(snapshot)?,
        providers.iter().map(|(_, provider)| provider),
    );
    rules.name_groups(client);
    rules.check(before, client, &mut faults);
    Ok(all_or_none(about(KIND, &client.client_id, faults).collect())?)
}

/// The ids of the clients that a group may use and that are not for everybody.
pub(super) fn clients_of_group(snapshot: &dyn Snapshot, group: &str) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    CLIENTS.visit(snapshot, .., |client_id, client| {
        if client.allowed_groups.contains(group) {
            found.push(client_id);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Refuses a secret or an API key for a client with a profile.
fn refuse_for_profile(client: &Client, what: &str) -> Result<(), AdminRefusal> {
    let Some(profile) = client.profile else {
        return Ok(());
    };
    let detail = format!(
        "a client with the profile {} cannot have {what}: it authenticates with its key",
        profile.as_str()
    );
    Err(FaultCode::NotAllowed
        .at(["profile"], detail)
        .about(KIND, &client.client_id)
        .into())
}

/// Changes a client by `change`, which may refuse, in one transaction.
async fn change<O: Operation>(
    admin: Admin<'_>,
    client_id: String,
    change: impl Fn(&dyn Snapshot, &mut Client) -> Result<(), AdminTxError> + Send + 'static,
) -> AdminResult<Done<Updated<ClientView>>> {
    let now = admin.core.clock.now();
    let write = admin.write_catalog(O::NAME, move |tx| {
        let Some(before) = CLIENTS.get(&*tx, &client_id)? else {
            return Err(not_found(KIND, &client_id).into());
        };
        let mut client = before.clone();
        change(&*tx, &mut client)?;
        client.updated_at = now;
        CLIENTS.put(tx, &client_id, &client)?;
        Ok([before, client])
    });
    let [before, view] = write
        .await?
        .map(|client| ClientView::of(&client, &admin.core.policy.issuer, None, now));
    let updated = Updated::of(&before, view, ClientFields::FIELDS);
    Ok(Done::about(updated.client_id.clone(), updated))
}

/// Records that a secret or an API key of a client was revoked.
fn record_revoked(admin: Admin<'_>, command: &str, client_id: &str, credential: &str) {
    audit::record(&Event::CredentialRevoked {
        command,
        subject: client_id,
        actor: &admin.actor.to_string(),
        credential,
    });
}
