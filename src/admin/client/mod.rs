//! Clients: add, show, update, remove, replace the secret.

pub mod api_key;
pub mod registration_token;
pub mod view;

#[cfg(test)]
pub(super) mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::view::ClientView;
use super::page::Page;
use super::{
    Admin, AdminError, AdminRefusal, AdminResult, RecordChecks, SecretString, about, all_or_none,
    already_exists, api, not_found,
};
use crate::flow::client_check::{ClientRules, apply, apply_to_new, check_client_id};
use crate::flow::remove_client::remove_client;
use crate::oauth::client::{Client, GrantType, StoredSecret};
use crate::oauth::resource::Apis;
use crate::oauth::{ClientFields, Fault, FaultCode};
use crate::secret::{ClientSecret, Digest, Secret};
use crate::store::engine::Snapshot;
use crate::store::tables::{CLIENTS, PROVIDERS};
use crate::store::{StoreError, TxError};

/// The fewest bytes of a secret that the operator chooses.
const SECRET_MIN_BYTES: usize = 32;
/// The most bytes of a secret that the operator chooses.
const SECRET_MAX_BYTES: usize = 1024;

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

/// A change of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateClient {
    /// Which client.
    pub client_id: String,
    /// Whether its secrets are removed, with what only they allow. Then the client authenticates with its key.
    pub no_secret: bool,
    /// What changes.
    pub fields: ClientFields,
}

/// A new secret for a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RotateSecret {
    /// Which client.
    pub client_id: String,
    /// The secret that the operator chose. Without one it is generated.
    pub secret: Option<SecretString>,
    /// For how many seconds the current secrets stay valid.
    pub keep_old_seconds: Option<u64>,
}

/// The kind of record in faults.
pub(super) const KIND: &str = "client";
/// The fault of an API key for a client that may not refresh.
const NEEDS_REFRESH: &str =
    "an API key is for refreshing, for which the client needs the grant refresh_token";

/// The secret to store, and a generated one to show.
pub(super) fn secret_of(
    admin: Admin<'_>,
    chosen: Option<SecretString>,
    faults: &mut Vec<Fault>,
) -> (StoredSecret, Option<SecretString>) {
    let (digest, shown) = if let Some(chosen) = chosen {
        let bytes = chosen.reveal().as_bytes();
        if !(SECRET_MIN_BYTES..=SECRET_MAX_BYTES).contains(&bytes.len()) {
            let detail = format!("a secret has {SECRET_MIN_BYTES} to {SECRET_MAX_BYTES} bytes");
            faults.push(FaultCode::Invalid.at(["secret"], detail));
        }
        if bytes.iter().any(|byte| !(0x20..0x7f).contains(byte)) {
            let detail = "a secret is printable ASCII (RFC 6749 appendix A.2)";
            faults.push(FaultCode::Invalid.at(["secret"], detail));
        }
        (Digest::of(bytes), None)
    } else {
        let secret = Secret::<ClientSecret>::generate(&[], &admin.core.random);
        (secret.digest(), Some(SecretString::new(secret.reveal())))
    };
    (
        StoredSecret {
            digest,
            created_at: admin.core.clock.now(),
            expires_at: None,
        },
        shown,
    )
}

/// Checks the record as a whole, and refuses it with these and earlier faults. Keys, APIs and providers may change at any
/// time, so they are read in the transaction that writes the record.
fn check_in(
    snapshot: &dyn Snapshot,
    before: Option<&Client>,
    client: &Client,
    checks: &RecordChecks,
    mut faults: Vec<Fault>,
) -> Result<(), TxError<AdminRefusal>> {
    let providers = PROVIDERS.scan(snapshot, .., usize::MAX)?;
    let rules = ClientRules::for_operator(
        &checks.policy,
        checks.usable_algorithms(snapshot)?,
        Apis::new(api::all(snapshot)?.into_values()),
        providers.iter().map(|(_, provider)| provider),
    );
    rules.check(before, client, &mut faults);
    Ok(all_or_none(about(KIND, &client.client_id, faults).collect())?)
}

/// Registers a client. Only this answer shows a generated secret.
pub async fn add(admin: Admin<'_>, request: AddClient) -> AdminResult<ClientView> {
    let core = admin.core;
    let mut faults = Vec::new();
    check_client_id(&request.client_id, &mut faults);
    let now = core.clock.now();
    let uuid = core.random.uuid_v7(core.clock.since_epoch());
    let own_grant = core.random.uuid_v4();
    let mut client = Client::new(&request.client_id, uuid, own_grant, request.public, now);
    let no_grant = apply_to_new(request.fields, &mut client, &mut faults);
    faults.extend(no_grant);
    let mut shown = None;
    if client.is_public() {
        if request.secret.is_some() {
            faults.push(FaultCode::NotAllowed.at(["secret"], "a public client has no secret"));
        }
    } else if (client.profile.is_none() && client.needs_secret()) || request.secret.is_some() {
        let (stored, made) = secret_of(admin, request.secret, &mut faults);
        client.secrets.push(stored);
        client.fit_methods_to_secrets();
        shown = made;
    }
    let mut api_key = None;
    if request.api_key {
        let (stored, made) = api_key::generate(admin);
        client.api_keys.push(stored);
        api_key = Some(made);
        if !client.may_use(GrantType::RefreshToken) {
            faults.push(FaultCode::NotAllowed.at(["grant_types"], NEEDS_REFRESH));
        }
    }
    let checks = RecordChecks::new(core);
    let view = ClientView {
        api_key,
        ..ClientView::of(&client, &core.policy.issuer, shown, now)
    };
    let written = core
        .store
        .write("add_client", move |tx| -> Result<_, TxError<AdminRefusal>> {
            check_in(&*tx, None, &client, &checks, faults.clone())?;
            if CLIENTS.contains(&*tx, &client.client_id)? {
                return Err(already_exists(KIND, &client.client_id).into());
            }
            Ok(CLIENTS.put(tx, &client.client_id, &client)?)
        })
        .await;
    core.reload_after::<_, _, AdminError>(written).await?;
    admin.record("client add", &view.client_id);
    Ok(view)
}

/// A page of the clients after one, in the order of their identifiers.
pub fn page(admin: Admin<'_>, after: Option<String>) -> Result<Page<ClientView, String>, StoreError> {
    let now = admin.core.clock.now();
    Page::read(&admin.core.store, CLIENTS, after, |client| {
        Some(ClientView::of(&client, &admin.core.policy.issuer, None, now))
    })
}

/// One client.
pub async fn show(admin: Admin<'_>, client_id: &str) -> AdminResult<ClientView> {
    let client = admin
        .core
        .store
        .read(|snapshot| CLIENTS.get(snapshot, client_id))
        .await?;
    let client = client.ok_or_else(|| not_found(KIND, client_id))?;
    Ok(ClientView::of(
        &client,
        &admin.core.policy.issuer,
        None,
        admin.core.clock.now(),
    ))
}

/// Changes a client by `change`, which may refuse, in one transaction.
async fn change(
    admin: Admin<'_>,
    command: &'static str,
    client_id: String,
    change: impl Fn(&dyn Snapshot, &mut Client) -> Result<(), TxError<AdminRefusal>> + Send + 'static,
) -> AdminResult<ClientView> {
    let core = admin.core;
    let now = core.clock.now();
    let subject = client_id.clone();
    let written = core
        .store
        .write(command, move |tx| -> Result<_, TxError<AdminRefusal>> {
            let Some(mut client) = CLIENTS.get(&*tx, &client_id)? else {
                return Err(not_found(KIND, &client_id).into());
            };
            change(&*tx, &mut client)?;
            client.updated_at = now;
            CLIENTS.put(tx, &client_id, &client)?;
            Ok(client)
        })
        .await;
    let client = core.reload_after::<_, _, AdminError>(written).await?;
    admin.record(command, &subject);
    Ok(ClientView::of(&client, &core.policy.issuer, None, now))
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

/// Changes a client.
pub async fn update(admin: Admin<'_>, request: UpdateClient) -> AdminResult<ClientView> {
    let checks = RecordChecks::new(admin.core);
    let command = "client update";
    change(admin, command, request.client_id, move |snapshot, client| {
        let (before, mut faults) = (client.clone(), Vec::new());
        apply(request.fields.clone(), client, &mut faults);
        if request.no_secret {
            client.secrets.clear();
            client.max_scope = None;
            client.fit_methods_to_secrets();
        }
        check_in(snapshot, Some(&before), client, &checks, faults)
    })
    .await
}

/// Enables or disables a client. Tokens of a disabled client cannot be refreshed.
pub async fn set_enabled(admin: Admin<'_>, client_id: String, enabled: bool) -> AdminResult<ClientView> {
    let command = if enabled {
        "client enable"
    } else {
        "client disable"
    };
    change(admin, command, client_id, move |_, client| {
        client.enabled = enabled;
        Ok(())
    })
    .await
}

/// Gives a client a new secret, or a first one beside its key. Only this answer shows a generated secret.
pub async fn rotate_secret(admin: Admin<'_>, request: RotateSecret) -> AdminResult<ClientView> {
    let mut faults = Vec::new();
    let (stored, shown) = secret_of(admin, request.secret, &mut faults);
    all_or_none(about(KIND, &request.client_id, faults).collect())?;
    let now = stored.created_at;
    let keep = Duration::from_secs(request.keep_old_seconds.unwrap_or(0));
    let command = "client rotate-secret";
    let view = change(admin, command, request.client_id, move |_, client| {
        refuse_for_profile(client, "a secret")?;
        if client.is_public() {
            let detail = format!("client {} is public and has no secret", client.client_id);
            return Err(FaultCode::NotAllowed.of(KIND, &client.client_id, detail).into());
        }
        let end = now + keep;
        for secret in &mut client.secrets {
            secret.expires_at = Some(secret.expires_at.map_or(end, |earlier| earlier.min(end)));
        }
        client
            .secrets
            .retain(|secret| secret.expires_at.is_some_and(|end| now < end));
        client.secrets.insert(0, stored.clone());
        client.fit_methods_to_secrets();
        Ok(())
    })
    .await?;
    Ok(ClientView {
        client_secret: shown,
        ..view
    })
}

/// Removes a client with all that was granted to it, so that a later client with the same identifier does not inherit
/// it.
pub async fn remove(admin: Admin<'_>, client_id: String) -> AdminResult<String> {
    let subject = client_id.clone();
    let written = admin
        .core
        .store
        .write("client remove", move |tx| -> Result<_, TxError<AdminRefusal>> {
            let Some(client) = CLIENTS.get(&*tx, &client_id)? else {
                return Err(not_found(KIND, &client_id).into());
            };
            Ok(remove_client(tx, &client)?)
        })
        .await;
    admin.core.reload_after::<_, _, AdminError>(written).await?;
    admin.record("client remove", &subject);
    Ok(subject)
}
