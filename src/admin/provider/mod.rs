//! Upstream providers: add, show, update, remove.

pub mod check;
pub mod examine;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use self::check::{apply, check, check_id};
pub use self::view::ProviderView;
use super::client::exchange_only;
use super::{
    Admin, AdminError, AdminResult, SecretString, TxResult, about, all_or_none, already_exists, not_found,
};
use crate::federation::Provider;
pub use crate::federation::provider::ProviderFields;
use crate::flow::client_check::lets_nobody_in;
use crate::flow::or_refuse;
use crate::oauth::FaultCode;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{CLIENTS, PROVIDERS};

/// A provider to be registered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddProvider {
    /// The provider's id.
    pub id: String,
    /// The secret that belongs to its `client_id`; empty to remove it.
    #[serde(default)]
    pub client_secret: Option<SecretString>,
    /// Everything else.
    pub fields: ProviderFields,
}

/// A change of a provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateProvider {
    /// Which provider.
    pub id: String,
    /// The secret that belongs to its `client_id`; empty to remove it.
    #[serde(default)]
    pub client_secret: Option<SecretString>,
    /// What changes.
    pub fields: ProviderFields,
}

/// The kind of record in faults.
pub(super) const KIND: &str = "provider";

/// The other provider that has this issuer, among `issuers` by id. An issuer belongs to one provider, since the
/// issuer of a token tells which record the token is checked with.
pub(super) fn other_with_issuer<'a>(
    issuers: &'a BTreeMap<String, String>,
    id: &str,
    issuer: &str,
) -> Option<&'a str> {
    let mut others = issuers.iter().filter(|(other, _)| *other != id);
    others
        .find(|(_, theirs)| *theirs == issuer)
        .map(|(other, _)| other.as_str())
}

/// The issuers of all providers, by id.
pub(super) fn issuers(snapshot: &dyn Snapshot) -> Result<BTreeMap<String, String>, StoreError> {
    let all = PROVIDERS.scan(snapshot, .., usize::MAX)?;
    Ok(all
        .into_iter()
        .map(|(id, provider)| (id, provider.settings.issuer))
        .collect())
}

fn check_issuer(snapshot: &dyn Snapshot, provider: &Provider) -> TxResult<()> {
    Ok(
        match other_with_issuer(&issuers(snapshot)?, &provider.id, &provider.issuer) {
            Some(other) => {
                let detail = format!("provider {other} has this issuer already");
                let fault = FaultCode::AlreadyExists.at(["issuer"], detail);
                Err(fault.about(KIND, &provider.id).into())
            }
            None => Ok(()),
        },
    )
}

/// Registers a provider.
pub async fn add(admin: Admin<'_>, request: AddProvider) -> AdminResult<ProviderView> {
    let core = admin.core;
    let now = core.clock.now();
    let mut faults = Vec::new();
    check_id(&request.id, &mut faults);
    let AddProvider {
        id,
        client_secret,
        fields,
    } = request;
    let mut provider = Provider::new(id, core.random.uuid_v4(), now);
    let sealing = (&*core.sealer, &core.random);
    apply(fields, client_secret, &mut provider, sealing, &mut faults);
    check(&provider, &mut faults);
    all_or_none(about(KIND, &provider.id, faults).collect())?;
    let view = ProviderView::of(&provider, &core.policy.issuer);
    let written = core
        .store
        .write("provider add", move |tx| -> TxResult<()> {
            if PROVIDERS.contains(&*tx, &provider.id)? {
                return Ok(Err(already_exists(KIND, &provider.id).into()));
            }
            or_refuse!(check_issuer(&*tx, &provider)?);
            PROVIDERS.put(tx, &provider.id, &provider)?;
            Ok(Ok(()))
        })
        .await;
    core.reload_after::<_, _, AdminError>(written).await??;
    admin.record("provider add", &view.id);
    Ok(view)
}

/// Every provider, by id.
pub async fn list(admin: Admin<'_>) -> AdminResult<Vec<ProviderView>> {
    let providers = admin
        .core
        .store
        .read(|snapshot| PROVIDERS.scan(snapshot, .., usize::MAX))
        .await?;
    let view = |provider: &Provider| ProviderView::of(provider, &admin.core.policy.issuer);
    Ok(providers.iter().map(|(_, provider)| view(provider)).collect())
}

/// One provider.
pub async fn show(admin: Admin<'_>, id: &str) -> AdminResult<ProviderView> {
    Ok(ProviderView::of(
        &find(admin, id).await?,
        &admin.core.policy.issuer,
    ))
}

/// The record of one provider.
pub(super) async fn find(admin: Admin<'_>, id: &str) -> AdminResult<Provider> {
    let provider = admin
        .core
        .store
        .read(|snapshot| PROVIDERS.get(snapshot, id))
        .await?;
    Ok(provider.ok_or_else(|| not_found(KIND, id))?)
}

/// Changes a provider. The secret is sealed before the transaction, which may run twice.
pub async fn update(admin: Admin<'_>, request: UpdateProvider) -> AdminResult<ProviderView> {
    let core = admin.core;
    let now = core.clock.now();
    let UpdateProvider {
        id,
        client_secret,
        fields,
    } = request;
    let mut changed = find(admin, &id).await?;
    let before = changed.clone();
    let mut faults = Vec::new();
    let sealing = (&*core.sealer, &core.random);
    apply(fields, client_secret, &mut changed, sealing, &mut faults);
    check(&changed, &mut faults);
    all_or_none(about(KIND, &id, faults).collect())?;
    changed.updated_at = now;
    if changed.issuer != before.issuer {
        changed.incarnation = core.random.uuid_v4();
    }
    let view = ProviderView::of(&changed, &core.policy.issuer);
    let written = core
        .store
        .write("provider update", move |tx| -> TxResult<()> {
            match PROVIDERS.get(&*tx, &changed.id)? {
                None => return Ok(Err(not_found(KIND, &changed.id).into())),
                Some(found) if found != before => {
                    let detail = format!("provider {} was changed by another command just now", changed.id);
                    return Ok(Err(FaultCode::Conflict.of(KIND, &changed.id, detail).into()));
                }
                Some(_) => {}
            }
            or_refuse!(check_issuer(&*tx, &changed)?);
            or_refuse!(check_clients(&*tx, &changed)?);
            PROVIDERS.put(tx, &changed.id, &changed).map(Ok)
        })
        .await;
    core.reload_after::<_, _, AdminError>(written).await??;
    admin.record("provider update", &id);
    Ok(view)
}

/// The clients whose users could sign in before, and cannot once sign-ins at the providers `after` are refused.
pub(super) fn shut_out(snapshot: &dyn Snapshot, after: &BTreeSet<String>) -> Result<Vec<String>, StoreError> {
    let before = exchange_only(snapshot)?;
    let mut clients = CLIENTS.scan(snapshot, .., usize::MAX)?;
    clients.retain(|(_, client)| lets_nobody_in(client, after) && !lets_nobody_in(client, &before));
    Ok(clients.into_iter().map(|(client_id, _)| client_id).collect())
}

/// Refuses a change of the provider by which the users of a client could no longer sign in.
fn check_clients(snapshot: &dyn Snapshot, changed: &Provider) -> TxResult<()> {
    if changed.signs_people_in() {
        return Ok(Ok(()));
    }
    let id = &changed.id;
    let mut after = exchange_only(snapshot)?;
    after.insert(id.clone());
    let shut_out = shut_out(snapshot, &after)?;
    if shut_out.is_empty() {
        return Ok(Ok(()));
    }
    let detail = format!(
        "users of client {} can sign in only at provider {id}",
        shut_out.join(", ")
    );
    Ok(Err(FaultCode::InUse
        .at(["client_id"], detail)
        .about(KIND, id)
        .into()))
}

/// Removes a provider that no client names. Sessions and refresh families that began there end. Its users stay, and
/// are found again if the issuer is registered again.
pub async fn remove(admin: Admin<'_>, id: String) -> AdminResult<String> {
    let core = admin.core;
    let subject = id.clone();
    let written = core
        .store
        .write("provider remove", move |tx| -> TxResult<()> {
            if !PROVIDERS.contains(&*tx, &id)? {
                return Ok(Err(not_found(KIND, &id).into()));
            }
            let clients = CLIENTS.scan(&*tx, .., usize::MAX)?;
            let named_by: Vec<_> = clients
                .into_iter()
                .filter(|(_, client)| client.providers.contains(&id))
                .map(|(client_id, _)| client_id)
                .collect();
            if !named_by.is_empty() {
                let detail = format!("provider {id} is named by client {}", named_by.join(", "));
                return Ok(Err(FaultCode::InUse.of(KIND, &id, detail).into()));
            }
            PROVIDERS.remove(tx, &id)?;
            Ok(Ok(()))
        })
        .await;
    core.reload_after::<_, _, AdminError>(written).await??;
    admin.record("provider remove", &subject);
    Ok(subject)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::admin::client;
    use crate::admin::client::tests::request;
    use crate::admin::tests::{admin, assert_faults, core, refusal};
    use crate::oauth::ClientFields;

    fn fields(issuer: &str) -> ProviderFields {
        ProviderFields {
            issuer: Some(issuer.to_owned()),
            audiences: Some(vec!["app".to_owned()]),
            exchange: Some(true),
            ..ProviderFields::default()
        }
    }

    async fn added(core: &crate::flow::Core, id: &str) {
        let request = AddProvider {
            id: id.to_owned(),
            client_secret: None,
            fields: fields(&format!("https://{id}.example")),
        };
        add(admin(core), request).await.unwrap();
    }

    fn renamed(name: &str) -> UpdateProvider {
        UpdateProvider {
            id: "corp".to_owned(),
            client_secret: None,
            fields: ProviderFields {
                name: Some(name.to_owned()),
                ..ProviderFields::default()
            },
        }
    }

    #[tokio::test]
    async fn a_provider_stays_where_a_clients_people_sign_in() {
        let core = core();
        let corp = ProviderFields {
            client_id: Some("us".to_owned()),
            ..fields("https://corp.example")
        };
        let with = |secret: &str| AddProvider {
            id: "corp".to_owned(),
            client_secret: Some(SecretString::new(secret)),
            fields: corp.clone(),
        };
        let refused = refusal(add(admin(&core), with("zzzzzzzz\n")).await);
        assert_faults(&refused, &[(FaultCode::Invalid, &["client_secret"])]);
        add(admin(&core), with("zzzzzzzz")).await.unwrap();
        let mut sso = request("sso");
        sso.fields.providers = Some(vec!["corp".to_owned()]);
        sso.fields.password_sign_in = Some(false);
        client::add(admin(&core), sso).await.unwrap();
        let close = UpdateProvider {
            id: "corp".to_owned(),
            client_secret: Some(SecretString::new("")),
            fields: ProviderFields {
                client_id: Some(String::new()),
                ..ProviderFields::default()
            },
        };
        let refused = refusal(update(admin(&core), close.clone()).await);
        assert_faults(&refused, &[(FaultCode::InUse, &["client_id"])]);
        let allow = client::UpdateClient {
            client_id: "sso".to_owned(),
            no_secret: false,
            fields: ClientFields {
                password_sign_in: Some(true),
                ..ClientFields::default()
            },
        };
        client::update(admin(&core), allow).await.unwrap();
        update(admin(&core), close).await.unwrap();
    }

    /// The users of a provider are found by its issuer.
    #[tokio::test]
    async fn no_provider_takes_the_issuer_of_another() {
        let core = core();
        for id in ["corp", "partner"] {
            added(&core, id).await;
        }
        let request = UpdateProvider {
            id: "corp".to_owned(),
            client_secret: None,
            fields: fields("https://partner.example"),
        };
        let refused = refusal(update(admin(&core), request).await);
        assert_faults(&refused, &[(FaultCode::AlreadyExists, &["issuer"])]);
        assert_eq!(
            show(admin(&core), "corp").await.unwrap().issuer,
            "https://corp.example"
        );
    }

    #[tokio::test]
    async fn of_two_changes_at_once_none_is_undone_by_the_other() {
        let core = core();
        added(&core, "corp").await;
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let held = core.store.write("test", move |_| -> Result<_, StoreError> {
            let _ = wait.lock().unwrap().recv();
            Ok(())
        });
        let (_, first, second, ()) = tokio::join!(
            held,
            update(admin(&core), renamed("One")),
            update(admin(&core), renamed("Other")),
            async move { drop(go) },
        );
        assert_eq!(first.unwrap().name.as_deref(), Some("One"));
        assert_faults(&refusal(second), &[(FaultCode::Conflict, &[])]);
        assert_eq!(
            show(admin(&core), "corp").await.unwrap().name.as_deref(),
            Some("One")
        );
    }
}
