//! Clients in a declared state.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Plan, PlannedWrite, SecretChange, check_keys, export_fields, members, refuse_duplicates};
pub(super) use crate::admin::client::KIND;
use crate::admin::client::secret_of;
use crate::admin::{Admin, RecordChecks, SecretString, about};
use crate::clock::Timestamp;
use crate::flow::client_check::{ClientRules, apply_to_new, check_client_id};
use crate::oauth::client::{Client, StoredSecret};
use crate::oauth::fields::Form;
use crate::oauth::resource::Apis;
use crate::oauth::{ClientFields, ClientMetadata, Fault, FaultCode};
use crate::secret::{ClientSecret, Digest};
use crate::store::StoreError;
use crate::store::engine::Snapshot;
use crate::store::tables::CLIENTS;

/// The keys of an entry beside [`ClientFields::FIELDS`], including those for files and variables.
pub const KEYS: &[(&str, Form)] = &[
    ("client_id", Form::Text),
    ("client_uuid", Form::Uuid),
    ("public", Form::Flag),
    ("enabled", Form::Flag),
    ("public_key_file", Form::Text),
    ("jwks_file", Form::Text),
    ("logo_file", Form::Text),
    ("secret_file", Form::Text),
    ("secret_env", Form::Text),
    ("secret_sha256", Form::Texts),
];

/// A declared client. A missing field gets its default. A missing secret does not change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeclaredClient {
    /// The identifier the client sends.
    pub client_id: String,
    /// The record's own identifier. Without one it is generated.
    pub client_uuid: Option<Uuid>,
    /// Whether the client cannot keep a secret.
    pub public: bool,
    /// Whether the client is enabled.
    pub enabled: Option<bool>,
    /// What is registered of the client.
    #[serde(flatten)]
    pub fields: ClientFields,
    /// The secret.
    pub secret: Option<SecretString>,
    /// The digests of the current secrets, as in an export.
    pub secret_sha256: Option<Vec<Digest<ClientSecret>>>,
}

/// A declared client, with what was drawn before the transaction.
pub(super) struct PreparedClient {
    client_id: String,
    uuid: Option<Uuid>,
    /// The record of a new client, without its secrets.
    record: Client,
    declared_secrets: Option<Vec<StoredSecret>>,
    /// The secret for a client that needs one and has none.
    generated_secret: (StoredSecret, Option<SecretString>),
    /// The fault of a client without a grant, to be reported with those of the plan.
    no_grant: Option<Fault>,
}

/// Builds the record of each declared client as if it were new.
pub(super) fn prepare(
    admin: Admin<'_>,
    declared: Vec<DeclaredClient>,
    faults: &mut Vec<Fault>,
) -> Vec<PreparedClient> {
    refuse_duplicates(
        KIND,
        declared.iter().map(|client| client.client_id.clone()),
        faults,
    );
    let mut all = Vec::new();
    for entry in declared {
        let mut own = Vec::new();
        let id = entry.client_id.clone();
        all.push(prepare_one(admin, entry, &mut own));
        faults.extend(about(KIND, &id, own));
    }
    all
}

fn prepare_one(admin: Admin<'_>, entry: DeclaredClient, faults: &mut Vec<Fault>) -> PreparedClient {
    let core = admin.core;
    let now = core.clock.now();
    check_client_id(&entry.client_id, faults);
    let uuid = entry
        .client_uuid
        .unwrap_or_else(|| core.random.uuid_v7(core.clock.since_epoch()));
    let own_grant = core.random.uuid_v4();
    let mut client = Client::new(&entry.client_id, uuid, own_grant, entry.public, now);
    client.enabled = entry.enabled.unwrap_or(true);
    let fields = entry.fields;
    check_keys(fields.jwks.as_ref(), fields.jwks_uri.as_ref(), faults);
    let no_grant = apply_to_new(fields, &mut client, faults);
    let declared_secrets = match (entry.secret, entry.secret_sha256) {
        (Some(_), Some(_)) => {
            let detail = "there are both a secret and digests of secrets";
            faults.push(FaultCode::NotAllowed.at(["secret_sha256", "secret"], detail));
            None
        }
        (Some(secret), None) => Some(vec![secret_of(admin, Some(secret), faults).0]),
        (None, Some(digests)) => Some(
            digests
                .into_iter()
                .map(|digest| StoredSecret {
                    digest,
                    created_at: now,
                    expires_at: None,
                })
                .collect(),
        ),
        (None, None) => None,
    };
    if entry.public
        && declared_secrets
            .as_ref()
            .is_some_and(|secrets| !secrets.is_empty())
    {
        faults.push(FaultCode::NotAllowed.at(["secret"], "a public client has no secret"));
    }
    PreparedClient {
        client_id: entry.client_id,
        uuid: entry.client_uuid,
        record: client,
        declared_secrets,
        generated_secret: secret_of(admin, None, faults),
        no_grant,
    }
}

/// The record of a declared client after the change.
struct MergedClient {
    client: Client,
    has_new_secret: bool,
    generated_secret: Option<SecretString>,
}

impl From<Client> for MergedClient {
    fn from(client: Client) -> Self {
        Self {
            client,
            has_new_secret: false,
            generated_secret: None,
        }
    }
}

impl PreparedClient {
    /// Merges the declared client with the stored one.
    fn merge(&self, before: Option<&Client>) -> MergedClient {
        let mut client = self.record.clone();
        if let Some(before) = before {
            client.client_uuid = before.client_uuid;
            client.own_grant = before.own_grant;
            client.incarnation = before.incarnation;
            client.api_keys.clone_from(&before.api_keys);
            client.created_at = before.created_at;
        }
        if client.is_public() {
            return MergedClient::from(client);
        }
        let mut merged = MergedClient::from(client);
        let client = &mut merged.client;
        let stored = before.map(|before| before.secrets.clone()).unwrap_or_default();
        match &self.declared_secrets {
            Some(declared) => {
                // A secret with an expiry time is not the declared one, which has none.
                let lasting = || stored.iter().filter(|secret| secret.expires_at.is_none());
                let is_same = declared
                    .iter()
                    .all(|one| lasting().any(|other| other.digest == one.digest))
                    && lasting().all(|one| declared.iter().any(|other| other.digest == one.digest));
                merged.has_new_secret = !is_same;
                client.secrets = if is_same { stored } else { declared.clone() };
            }
            None => client.secrets = stored,
        }
        let has_secret = client.secrets.iter().any(|secret| secret.expires_at.is_none());
        if client.needs_secret() && !has_secret && self.declared_secrets.is_none() {
            client.secrets.push(self.generated_secret.0.clone());
            merged.generated_secret.clone_from(&self.generated_secret.1);
            merged.has_new_secret = true;
        }
        client.fit_methods_to_secrets();
        merged
    }
}

/// Plans the changes to the declared clients.
pub(super) fn plan(
    snapshot: &dyn Snapshot,
    declared: &[PreparedClient],
    checks: &RecordChecks,
    prune: bool,
    now: Timestamp,
    plan: &mut Plan,
) -> Result<(), StoreError> {
    let rules = ClientRules::for_operator(
        &checks.policy,
        checks.usable_algorithms(snapshot)?,
        Apis::new(plan.apis.values().cloned()),
        plan.providers.values(),
    );
    for entry in declared {
        let before = CLIENTS.get(snapshot, &entry.client_id)?;
        let MergedClient {
            mut client,
            has_new_secret,
            generated_secret,
        } = entry.merge(before.as_ref());
        let mut faults: Vec<_> = entry.no_grant.clone().into_iter().collect();
        if let (Some(uuid), Some(before)) = (entry.uuid, &before)
            && uuid != before.client_uuid
        {
            let detail = format!(
                "the stored client has the uuid {}, which cannot be changed",
                before.client_uuid
            );
            faults.push(FaultCode::NotAllowed.at(["client_uuid"], detail));
        }
        rules.check(before.as_ref(), &client, &mut faults);
        plan.faults.extend(about(KIND, &entry.client_id, faults));
        client.updated_at = before.as_ref().map_or(now, |before| before.updated_at);
        if before.as_ref() == Some(&client) {
            plan.applied.unchanged += 1;
            continue;
        }
        client.updated_at = now;
        let then = before.as_ref().map(|before| export(before, false));
        plan.note(
            KIND,
            &entry.client_id,
            then.as_ref(),
            Some(&export(&client, false)),
        );
        if before.is_none() && entry.uuid.is_none() {
            plan.hide_generated("client_uuid");
        }
        if has_new_secret && !client.secrets.is_empty() {
            plan.note_secret("secret", SecretChange::New);
            plan.note_generated_secret(generated_secret);
        } else if client.secrets.is_empty() && before.is_some_and(|before| !before.secrets.is_empty()) {
            plan.note_secret("secret", SecretChange::Removed);
        }
        plan.writes.push(PlannedWrite::PutClient(Box::new(client)));
    }
    if prune {
        for (client_id, client) in CLIENTS.scan(snapshot, .., usize::MAX)? {
            let is_declared = declared.iter().any(|entry| entry.client_id == client_id);
            if !is_declared && !client.registered_itself() {
                plan.note(KIND, &client_id, Some(&Map::new()), None);
                plan.writes.push(PlannedWrite::RemoveClient(Box::new(client)));
            }
        }
    }
    Ok(())
}

/// A client as an entry of a file.
pub(super) fn export(client: &Client, with_hashes: bool) -> Map<String, Value> {
    let mut usual = members(&ClientMetadata::default());
    for always in ["scope", "default_scope", "grant_types"] {
        usual.remove(always);
    }
    let mut entry = export_fields(&client.metadata, &usual, ClientFields::FIELDS);
    if let Some(logo) = &client.logo {
        entry.insert("logo".to_owned(), json!(logo.data));
    }
    entry.insert("client_id".to_owned(), json!(client.client_id));
    entry.insert("client_uuid".to_owned(), json!(client.client_uuid));
    if client.is_public() {
        entry.insert("public".to_owned(), json!(true));
        entry.remove("pkce");
    }
    if !client.enabled {
        entry.insert("enabled".to_owned(), json!(false));
    }
    // A file cannot declare when a secret expires. So a secret with an expiry time is left out.
    let lasting = client.secrets.iter().filter(|secret| secret.expires_at.is_none());
    let digests: Vec<_> = lasting.map(|secret| secret.digest).collect();
    if with_hashes && !digests.is_empty() {
        entry.insert("secret_sha256".to_owned(), json!(digests));
    }
    entry
}
