//! Upstream providers as a file declares them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Plan, SecretChange, Step, about, check_keys, clients, export_fields, members, refuse_twins};
use crate::admin::provider;
use crate::admin::provider::check::{NO_CLAIM, apply, check, check_id};
use crate::admin::provider::holder_of_issuer;
use crate::admin::{Admin, Done, SecretString, Wording};
use crate::clock::Timestamp;
use crate::federation::provider::{Provider, ProviderFields, ProviderSettings};
use crate::oauth::fields::Form;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{CLIENTS, PROVIDERS};

pub(super) const KIND: &str = "provider";

/// What an entry may say beside [`ProviderFields::FIELDS`], secrets and keys still to be read among it.
pub const KEYS: &[(&str, Form)] = &[
    ("id", Form::Text),
    ("logo_file", Form::Text),
    ("client_secret_file", Form::Text),
    ("client_secret_env", Form::Text),
    ("jwks_file", Form::Text),
];

/// A provider as it is to be. What is left out has its default; a secret that is left out stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeclaredProvider {
    /// The name under which the operator knows it.
    pub id: String,
    /// The secret that belongs to its `client_id`.
    pub client_secret: Option<SecretString>,
    /// What is registered of it.
    #[serde(flatten)]
    pub fields: ProviderFields,
}

/// A declared provider whose secret was compared and sealed before the transaction.
pub(super) struct Prepared {
    fresh: Provider,
    /// Whether the secret in it is another than the one that is there; else that one stays.
    is_new_secret: bool,
    declares_secret: bool,
}

/// Builds every declared provider as if it were new.
pub(super) fn prepare(
    admin: Admin<'_>,
    declared: Vec<DeclaredProvider>,
    faults: &mut Vec<String>,
) -> Done<Vec<Prepared>> {
    refuse_twins(KIND, declared.iter().map(|entry| entry.id.clone()), faults);
    let mut all = Vec::new();
    for entry in declared {
        let (mut own, id) = (Vec::new(), entry.id.clone());
        all.push(prepare_one(admin, entry, &mut own)?);
        faults.extend(about(KIND, &id, own));
    }
    Ok(all)
}

fn prepare_one(admin: Admin<'_>, entry: DeclaredProvider, faults: &mut Vec<String>) -> Done<Prepared> {
    let core = admin.core;
    check_id(&entry.id, faults);
    let is_new_secret = match &entry.client_secret {
        Some(secret) => !holds(admin, &entry.id, secret)?,
        None => false,
    };
    let declares_secret = entry.client_secret.is_some();
    check_keys(entry.fields.keys.as_ref(), entry.fields.jwks_uri.as_ref(), faults);
    let mut fresh = Provider::new(entry.id, core.clock.now());
    let sealing = (&core.sealer, &core.random);
    apply(entry.fields, entry.client_secret, &mut fresh, sealing, faults);
    Ok(Prepared {
        fresh,
        is_new_secret,
        declares_secret,
    })
}

/// Whether the provider has this secret already.
fn holds(admin: Admin<'_>, id: &str, secret: &SecretString) -> Done<bool> {
    let core = admin.core;
    let before = core.store.read(|snapshot| PROVIDERS.get(snapshot, id))?;
    let sealed = before.and_then(|provider| provider.sealed_secret);
    Ok(sealed.is_some_and(|sealed| {
        let opened = core.sealer.open_text(&Provider::secret_context(id), &sealed);
        opened.is_ok_and(|text| text.as_str() == secret.reveal())
    }))
}

impl Prepared {
    /// The record as it is to be, made of the one that is there.
    fn settle(&self, before: Option<&Provider>) -> Provider {
        let mut provider = self.fresh.clone();
        if let Some(before) = before {
            provider.created_at = before.created_at;
            provider.updated_at = before.updated_at;
            if !self.is_new_secret {
                provider.sealed_secret.clone_from(&before.sealed_secret);
            }
        }
        // Where nothing is to be proven with a secret, none is kept.
        if !self.declares_secret && (provider.client_id.is_none() || !provider.auth_method.uses_secret()) {
            provider.sealed_secret = None;
        }
        provider
    }
}

/// What must change so that the providers are as declared. Afterwards the plan knows which there will be.
pub(super) fn plan(
    snapshot: &dyn Snapshot,
    declared: &[Prepared],
    prune: bool,
    now: Timestamp,
    plan: &mut Plan,
) -> Result<(), StoreError> {
    for entry in declared {
        let id = &entry.fresh.id;
        let before = PROVIDERS.get(snapshot, id)?;
        let mut provider = entry.settle(before.as_ref());
        let mut faults = Vec::new();
        check(&provider, Wording::Keys, &mut faults);
        plan.faults.extend(about(KIND, id, faults));
        plan.providers.insert(id.clone(), provider.issuer.clone());
        if before.as_ref() == Some(&provider) {
            plan.applied.unchanged += 1;
            continue;
        }
        provider.updated_at = now;
        plan.note(
            KIND,
            id,
            before.as_ref().map(export).as_ref(),
            Some(&export(&provider)),
        );
        if before.and_then(|before| before.sealed_secret) != provider.sealed_secret {
            plan.note_secret(
                "client_secret",
                match provider.sealed_secret {
                    Some(_) => SecretChange::New,
                    None => SecretChange::Removed,
                },
            );
        }
        plan.steps.push(Step::PutProvider(Box::new(provider)));
    }
    if prune {
        for (id, _) in PROVIDERS.scan(snapshot, .., usize::MAX)? {
            if declared.iter().all(|entry| entry.fresh.id != id) {
                plan.providers.remove(&id);
                plan.note(KIND, &id, Some(&Map::new()), None);
                plan.steps.push(Step::RemoveProvider(id));
            }
        }
    }
    for (id, issuer) in &plan.providers {
        if let Some(other) =
            holder_of_issuer(&plan.providers, id, issuer).filter(|other| *other < id.as_str())
        {
            plan.faults
                .push(format!("{KIND} {id}: provider {other} has the same issuer"));
        }
    }
    Ok(())
}

/// Providers that go although a client that is not declared goes on naming them, or at which its people could sign in and
/// will not, though they can nowhere else.
pub(super) fn refuse_orphans(snapshot: &dyn Snapshot, plan: &mut Plan) -> Result<(), StoreError> {
    let is_planned = |client_id: &str| {
        plan.steps.iter().any(|step| match step {
            Step::PutClient(client) | Step::RemoveClient(client) => client.client_id == client_id,
            _ => false,
        })
    };
    let mut faults = Vec::new();
    let closed = clients::exchange_only(snapshot, plan)?;
    for client_id in provider::shut_out(snapshot, &closed)? {
        let subject = super::subject(clients::KIND, &client_id);
        if !is_planned(&client_id) && !plan.faults.iter().any(|fault| fault.starts_with(&subject)) {
            faults.push(format!("{subject}nobody could sign in at its providers any more"));
        }
    }
    for (client_id, client) in CLIENTS.scan(snapshot, .., usize::MAX)? {
        if is_planned(&client_id) {
            continue;
        }
        for id in client
            .providers
            .iter()
            .filter(|id| !plan.providers.contains_key(*id))
        {
            faults.push(format!("{KIND} {id}: client {client_id} names it"));
        }
    }
    plan.faults.extend(faults);
    Ok(())
}

/// A provider as a file has it. Its secret is never in it: whoever reads that could speak for this service.
pub(super) fn export(provider: &Provider) -> Map<String, Value> {
    let usual = members(&ProviderSettings::default());
    let mut entry = export_fields(&provider.settings, &usual, ProviderFields::FIELDS);
    entry.insert("id".to_owned(), json!(provider.id));
    if let Some(logo) = &provider.logo {
        entry.insert("logo".to_owned(), json!(logo.data));
    }
    if provider.embed_token.is_none() {
        entry.insert("embed_token".to_owned(), json!(NO_CLAIM));
    }
    entry
}
