//! Upstream providers in a declared state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::plan::{Comparison, Entry, Plan};
use super::stored_record::StoredRecord;
use super::{FieldChange, check_keys, refuse_duplicates};
pub(super) use crate::admin::provider::KIND;
use crate::admin::provider::check::{PreparedSecret, apply, check, check_id};
use crate::admin::provider::other_with_issuer;
use crate::admin::{Admin, AdminRefusal, AdminResult, SecretString, about};
use crate::federation::provider::{Provider, ProviderFields};
use crate::oauth::fields::Form;
use crate::oauth::{Fault, FaultCode};
use crate::store::engine::Snapshot;
use crate::store::tables::PROVIDERS;
use crate::store::{StoreError, TxError};

/// The keys of an entry beside [`ProviderFields::FIELDS`], including those for files and variables.
pub const KEYS: &[(&str, Form)] = &[
    ("id", Form::Text),
    ("logo_file", Form::Text),
    ("client_secret_file", Form::Text),
    ("client_secret_env", Form::Text),
    ("jwks_file", Form::Text),
];

/// A declared provider. A missing field gets its default. A missing secret does not change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeclaredProvider {
    /// The provider's id.
    pub id: String,
    /// The secret that belongs to its `client_id`.
    pub client_secret: Option<SecretString>,
    /// What is registered of it.
    #[serde(flatten)]
    pub fields: ProviderFields,
}

/// A declared provider whose secret was compared and sealed before the transaction.
pub(super) struct PreparedProvider {
    record: Provider,
    /// Whether the secret in the record differs from the stored one. If not, the stored one is kept.
    is_new_secret: bool,
    declares_secret: bool,
}

/// Builds the record of each declared provider as if it were new.
pub(super) async fn prepare(
    admin: Admin<'_>,
    declared: Vec<DeclaredProvider>,
    faults: &mut Vec<Fault>,
) -> AdminResult<Vec<PreparedProvider>> {
    refuse_duplicates(KIND, declared.iter().map(|entry| entry.id.clone()), faults);
    let mut all = Vec::new();
    for entry in declared {
        let (mut own, id) = (Vec::new(), entry.id.clone());
        all.push(prepare_one(admin, entry, &mut own).await?);
        faults.extend(about(KIND, &id, own));
    }
    Ok(all)
}

async fn prepare_one(
    admin: Admin<'_>,
    entry: DeclaredProvider,
    faults: &mut Vec<Fault>,
) -> AdminResult<PreparedProvider> {
    let core = admin.core;
    check_id(&entry.id, faults);
    let is_new_secret = match &entry.client_secret {
        Some(secret) => !has_secret(admin, &entry.id, secret).await?,
        None => false,
    };
    let declares_secret = entry.client_secret.is_some();
    check_keys(entry.fields.keys.as_ref(), entry.fields.jwks_uri.as_ref(), faults);
    let mut record = Provider::new(entry.id, core.random.uuid_v4(), core.clock.now());
    let secret = entry.client_secret;
    let secret = secret.map(|secret| PreparedSecret::new(&record.id, secret, core));
    apply(entry.fields, secret.as_ref(), &mut record, faults);
    Ok(PreparedProvider {
        record,
        is_new_secret,
        declares_secret,
    })
}

/// Whether this secret is stored for the provider already.
async fn has_secret(admin: Admin<'_>, id: &str, secret: &SecretString) -> AdminResult<bool> {
    let core = admin.core;
    let before = core.store.read(|snapshot| PROVIDERS.get(snapshot, id)).await?;
    let sealed = before.and_then(|provider| provider.sealed_secret);
    Ok(sealed.is_some_and(|sealed| {
        let opened = core.sealer.open_text(&Provider::secret_context(id), &sealed);
        opened.is_ok_and(|text| text.as_str() == secret.reveal())
    }))
}

impl PreparedProvider {
    /// Merges the declared provider with the stored one.
    fn merge(&self, before: Option<&Provider>) -> Provider {
        let mut provider = self.record.clone();
        if let Some(before) = before {
            provider.created_at = before.created_at;
            provider.updated_at = before.updated_at;
            // The grants of another issuer end.
            if provider.issuer == before.issuer {
                provider.incarnation = before.incarnation;
            }
            if !self.is_new_secret && provider.posts_answer() == before.posts_answer() {
                provider.sealed_secret.clone_from(&before.sealed_secret);
            }
        }
        // A secret that is not used is not kept.
        if !self.declares_secret && (provider.client_id.is_none() || !provider.auth_method.uses_secret()) {
            provider.sealed_secret = None;
        }
        provider
    }
}

impl Entry for PreparedProvider {
    type Context = ();
    const KIND: &'static str = KIND;

    fn id(&self) -> &str {
        &self.record.id
    }

    fn compare(
        &self,
        snapshot: &dyn Snapshot,
        (): &(),
        faults: &mut Vec<Fault>,
    ) -> Result<Comparison, TxError<AdminRefusal>> {
        let before = PROVIDERS.get(snapshot, &self.record.id)?;
        let provider = self.merge(before.as_ref());
        check(&provider, faults);
        let secret_before = before.as_ref().and_then(|before| before.sealed_secret.clone());
        let secret = (secret_before != provider.sealed_secret).then(|| {
            let is_set = provider.sealed_secret.is_some();
            FieldChange::of_secret("client_secret", is_set)
        });
        Ok(Comparison {
            secret,
            ..Comparison::of(before, provider)
        })
    }

    fn prunable(snapshot: &dyn Snapshot) -> Result<Vec<StoredRecord>, StoreError> {
        let stored = PROVIDERS.scan(snapshot, .., usize::MAX)?;
        Ok(stored.into_iter().map(|(_, provider)| provider.into()).collect())
    }
}

/// Refuses two providers with one issuer.
pub(super) fn check_issuers(plan: &mut Plan) {
    let stored = plan.providers.values();
    let issuers: BTreeMap<_, _> = stored
        .map(|provider| (provider.id.clone(), provider.issuer.clone()))
        .collect();
    for (id, issuer) in &issuers {
        if let Some(other) = other_with_issuer(&issuers, id, issuer).filter(|other| *other < id.as_str()) {
            let detail = format!("provider {other} has the same issuer");
            let fault = FaultCode::AlreadyExists.at(["issuer"], detail);
            plan.faults.push(fault.about(KIND, id));
        }
    }
}
