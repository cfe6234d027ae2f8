//! Upstream providers as a file declares them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Form, Plan, SecretChange, Step, about, clients, refuse_twins, without_nulls};
use crate::admin::provider;
use crate::admin::provider::fields::{ProviderFields, check, check_id};
use crate::admin::provider::{blank, holder_of_issuer};
use crate::admin::{Admin, Done, SecretString, Wording};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::federation::provider::{LinkPolicy, UpstreamAuth};
use crate::jose::alg::Algorithm;
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::{CLIENTS, PROVIDERS};

pub(in crate::admin::apply) const KIND: &str = "provider";

/// What stands for no claim where a claim could be named, as on the command line.
const NO_CLAIM: &str = "off";

/// What an entry may say, secrets still to be read among it.
pub const KEYS: &[(&str, Form)] = &[
    ("id", Form::Text),
    ("issuer", Form::Text),
    ("name", Form::Text),
    ("logo", Form::Text),
    ("logo_file", Form::Text),
    ("client_id", Form::Text),
    ("client_secret_file", Form::Text),
    ("client_secret_env", Form::Text),
    ("auth_method", Form::Text),
    ("scope", Form::Texts),
    ("audiences", Form::Texts),
    ("algs", Form::Texts),
    ("keys", Form::Tables),
    ("jwks_file", Form::Text),
    ("jwks_uri", Form::Text),
    ("exchange", Form::Flag),
    ("max_age", Form::Number),
    ("create_users", Form::Flag),
    ("link", Form::Text),
    ("embed_token", Form::Text),
    ("domains", Form::Texts),
    ("claims", Form::Table),
    ("enabled", Form::Flag),
];

/// A provider as it is to be. What is left out has its default; a secret that is left out stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeclaredProvider {
    /// The name under which the operator knows it.
    pub id: String,
    /// Its issuer identifier.
    pub issuer: String,
    /// The name shown to people.
    pub name: Option<String>,
    /// A picture: its file, base64.
    pub logo: Option<String>,
    /// The identifier of this service there.
    pub client_id: Option<String>,
    /// The secret that belongs to it.
    pub client_secret: Option<SecretString>,
    /// How the service proves there who it is.
    pub auth_method: Option<UpstreamAuth>,
    /// The scope to ask for.
    pub scope: Option<Vec<String>>,
    /// Accepted audiences of tokens to be exchanged.
    pub audiences: Vec<String>,
    /// Accepted algorithms.
    pub algs: Option<Vec<Algorithm>>,
    /// Its public keys.
    pub keys: Option<Vec<Value>>,
    /// The same, as the text of a JWK Set.
    pub jwks: Option<String>,
    /// Where its keys are published, where discovery does not say.
    pub jwks_uri: Option<String>,
    /// Whether tokens can be exchanged.
    pub exchange: bool,
    /// How old a token to be exchanged may be, in seconds.
    pub max_age: Option<u64>,
    /// Whether somebody unknown becomes a new user.
    pub create_users: bool,
    /// Whether somebody unknown becomes a user that exists.
    pub link: LinkPolicy,
    /// The claim for the provider's access token; `off` for none.
    pub embed_token: Option<String>,
    /// E-mail domains.
    pub domains: Vec<String>,
    /// Claims whose name differs there: ours, theirs.
    pub claims: BTreeMap<String, String>,
    /// Whether anybody may come in by it.
    pub enabled: Option<bool>,
}

/// A declared provider whose secret was compared and sealed before the transaction.
pub(in crate::admin::apply) struct Prepared {
    fresh: Provider,
    /// Whether the secret in it is another than the one that is there; else that one stays.
    is_new_secret: bool,
    declares_secret: bool,
}

/// Builds every declared provider as if it were new.
pub(in crate::admin::apply) fn prepare(
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
    let others = [("jwks_uri", entry.jwks_uri.is_some())];
    let jwks = clients::key_set(entry.keys, entry.jwks, &others, faults);
    let fields = ProviderFields {
        issuer: Some(entry.issuer),
        name: entry.name,
        logo: entry.logo,
        client_id: entry.client_id,
        client_secret: entry.client_secret,
        auth_method: entry.auth_method,
        scope: entry.scope,
        audiences: Some(entry.audiences),
        algs: entry.algs,
        jwks,
        jwks_uri: entry.jwks_uri,
        exchange: Some(entry.exchange),
        max_age: entry.max_age,
        create_users: Some(entry.create_users),
        link: Some(entry.link),
        embed_token: entry
            .embed_token
            .map(|claim| if claim == NO_CLAIM { String::new() } else { claim }),
        domains: Some(entry.domains),
        claims: Some(entry.claims.into_iter().collect()),
        enabled: entry.enabled,
    };
    let mut fresh = blank(entry.id, core.clock.now());
    fields.apply(&mut fresh, (&core.sealer, &core.random), faults);
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
pub(in crate::admin::apply) fn plan(
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
pub(in crate::admin::apply) fn refuse_orphans(
    snapshot: &dyn Snapshot,
    plan: &mut Plan,
) -> Result<(), StoreError> {
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
pub(in crate::admin::apply) fn export(provider: &Provider) -> Map<String, Value> {
    let usual = blank(provider.id.clone(), provider.created_at);
    let differs = |value: Value, usual: Value| if value == usual { Value::Null } else { value };
    let values = |scope: &crate::oauth::Scope| json!(scope.iter().collect::<Vec<_>>());
    let claim = |claim: &Option<String>| json!(claim.as_deref().unwrap_or(NO_CLAIM));
    without_nulls([
        ("id", json!(provider.id)),
        ("issuer", json!(provider.issuer)),
        ("name", json!(provider.name)),
        ("logo", json!(provider.logo.as_ref().map(|logo| &logo.data))),
        ("client_id", json!(provider.client_id)),
        (
            "auth_method",
            differs(json!(provider.auth_method), json!(usual.auth_method)),
        ),
        ("scope", differs(values(&provider.scope), values(&usual.scope))),
        ("audiences", differs(json!(provider.audiences), json!([]))),
        ("algs", differs(json!(provider.algs), json!(usual.algs))),
        ("keys", differs(json!(provider.keys), json!([]))),
        ("jwks_uri", json!(provider.jwks_uri)),
        ("exchange", differs(json!(provider.exchange), json!(false))),
        ("max_age", differs(json!(provider.max_age), json!(usual.max_age))),
        (
            "create_users",
            differs(json!(provider.create_users), json!(false)),
        ),
        ("link", differs(json!(provider.link), json!(usual.link))),
        (
            "embed_token",
            differs(claim(&provider.embed_token), claim(&usual.embed_token)),
        ),
        ("domains", differs(json!(provider.domains), json!([]))),
        ("claims", differs(json!(provider.claims), json!({}))),
        ("enabled", differs(json!(provider.enabled), json!(true))),
    ])
}
