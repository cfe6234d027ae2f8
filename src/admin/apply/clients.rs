//! Clients in a declared state.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::plan::{Comparison, Entry, Plan};
use super::stored_record::StoredRecord;
use super::{FieldChange, apis, check_keys, providers, refuse_duplicates};
pub(super) use crate::admin::client::KIND;
use crate::admin::client::{PreparedSecret, secret_of};
use crate::admin::named::NamedKind;
use crate::admin::{Admin, AdminRefusal, SecretString, about};
use crate::flow::client_check::{
    ClientRules, apply_to_new, check_client_id, exchange_only, lets_nobody_in, stored_exchange_only,
};
use crate::oauth::client::{Client, StoredSecret};
use crate::oauth::fields::Form;
use crate::oauth::{ClientFields, Fault, FaultCode, GroupMetadata};
use crate::secret::{ClientSecret, Digest};
use crate::store::engine::Snapshot;
use crate::store::tables::CLIENTS;
use crate::store::{StoreError, TxError};

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

/// A declared client. A missing field gets its default. A missing secret does not change, and neither does
/// `id_token_claims`: its default is for new clients only.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeclaredClient {
    /// The identifier the client sends.
    pub client_id: String,
    /// The record's own identifier. Without one it is generated.
    pub client_uuid: Option<Uuid>,
    /// Whether the client cannot keep a secret.
    pub public: bool,
    pub enabled: Option<bool>,
    /// What is registered of the client.
    #[serde(flatten)]
    pub fields: ClientFields,
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
    names_id_token_claims: bool,
    declared_secrets: Option<Vec<StoredSecret>>,
    /// The secret for a client that needs one and has none.
    generated_secret: PreparedSecret,
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
    let names_id_token_claims = fields.id_token_claims.is_some();
    let no_grant = apply_to_new(fields, &mut client, faults);
    let declared_secrets = match (entry.secret, entry.secret_sha256) {
        (Some(_), Some(_)) => {
            let detail = "there are both a secret and digests of secrets";
            faults.push(FaultCode::NotAllowed.at(["secret_sha256", "secret"], detail));
            None
        }
        (Some(secret), None) => Some(vec![secret_of(admin, Some(secret), faults).stored]),
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
        names_id_token_claims,
        declared_secrets,
        generated_secret: secret_of(admin, None, faults),
        no_grant,
    }
}

impl PreparedClient {
    /// Merges the declared client with the stored one, without its secrets.
    fn merge(&self, before: Option<&Client>) -> Client {
        let mut client = self.record.clone();
        if let Some(before) = before {
            client.client_uuid = before.client_uuid;
            client.own_grant = before.own_grant;
            client.incarnation = before.incarnation;
            client.api_keys.clone_from(&before.api_keys);
            client.created_at = before.created_at;
            client.updated_at = before.updated_at;
            if !self.names_id_token_claims {
                client.id_token_claims = before.id_token_claims;
            }
        }
        client
    }

    /// Sets the secrets of a client. Returns whether it has a new one.
    fn merge_secrets(&self, stored: Vec<StoredSecret>, client: &mut Client) -> NewSecret {
        if client.is_public() {
            return NewSecret::None;
        }
        let mut new = NewSecret::None;
        match &self.declared_secrets {
            Some(declared) => {
                // A secret with an expiry time is not the declared one, which has none.
                let lasting = || stored.iter().filter(|secret| secret.expires_at.is_none());
                let is_same = declared
                    .iter()
                    .all(|one| lasting().any(|other| other.digest == one.digest))
                    && lasting().all(|one| declared.iter().any(|other| other.digest == one.digest));
                if !is_same && !declared.is_empty() {
                    new = NewSecret::Declared;
                }
                client.secrets = if is_same { stored } else { declared.clone() };
            }
            None => client.secrets = stored,
        }
        let has_secret = client.secrets.iter().any(|secret| secret.expires_at.is_none());
        if client.needs_secret() && !has_secret && self.declared_secrets.is_none() {
            client.secrets.push(self.generated_secret.stored.clone());
            new = NewSecret::Generated;
        }
        client.fit_methods_to_secrets();
        new
    }
}

/// Whether a client has a secret that it did not have before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NewSecret {
    None,
    Declared,
    Generated,
}

impl Entry for PreparedClient {
    type Context = ClientRules;
    const KIND: &'static str = KIND;

    fn id(&self) -> &str {
        &self.client_id
    }

    fn compare(
        &self,
        snapshot: &dyn Snapshot,
        rules: &ClientRules,
        faults: &mut Vec<Fault>,
    ) -> Result<Comparison, TxError<AdminRefusal>> {
        let before = CLIENTS.get(snapshot, &self.client_id)?;
        let secrets_before = before.as_ref().map(|before| before.secrets.clone());
        let secrets_before = secrets_before.unwrap_or_default();
        let had_secret = !secrets_before.is_empty();
        let mut client = self.merge(before.as_ref());
        let new_secret = self.merge_secrets(secrets_before, &mut client);
        faults.extend(self.no_grant.clone());
        if let (Some(uuid), Some(before)) = (self.uuid, &before)
            && uuid != before.client_uuid
        {
            let detail = format!(
                "the stored client has the uuid {}, which cannot be changed",
                before.client_uuid
            );
            faults.push(FaultCode::NotAllowed.at(["client_uuid"], detail));
        }
        rules.name_groups(&mut client);
        rules.check(before.as_ref(), &client, faults);
        let is_removed = had_secret && client.secrets.is_empty();
        let has_new = new_secret != NewSecret::None;
        let is_generated = before.is_none() && self.uuid.is_none();
        Ok(Comparison {
            secret: (has_new || is_removed).then(|| FieldChange::of_secret("secret", has_new)),
            generated_secret: self
                .generated_secret
                .generated
                .clone()
                .filter(|_| new_secret == NewSecret::Generated),
            generated_field: is_generated.then_some("client_uuid"),
            ..Comparison::of(before, client)
        })
    }

    /// A client that registered itself is in no file.
    fn prunable(snapshot: &dyn Snapshot) -> Result<Vec<StoredRecord>, StoreError> {
        let mut stored = CLIENTS.scan(snapshot, .., usize::MAX)?;
        stored.retain(|(_, client)| !client.registered_itself());
        Ok(stored.into_iter().map(|(_, client)| client.into()).collect())
    }
}

/// Refuses changes that a client outside of the file does not allow: it names a provider, an API or a group that is removed, or
/// its users can sign in only at providers that will not allow it.
pub(super) fn refuse_orphans(snapshot: &dyn Snapshot, plan: &mut Plan) -> Result<(), StoreError> {
    let before = stored_exchange_only(snapshot)?;
    let after = exchange_only(plan.providers.values());
    let changed = plan.changed_clients();
    let mut faults = Vec::new();
    for (client_id, client) in CLIENTS.scan(snapshot, .., usize::MAX)? {
        if changed.contains_key(client_id.as_str()) {
            continue;
        }
        if lets_nobody_in(&client, &after) && !lets_nobody_in(&client, &before) {
            let detail = "no provider would be left at which its users can sign in";
            let fault = FaultCode::NotAllowed.at(["password_sign_in", "providers"], detail);
            let fault = fault.about(KIND, &client_id);
            if plan.faults.iter().all(|known| known.subject != fault.subject) {
                faults.push(fault);
            }
        }
        let named_by = format!("client {client_id} names it");
        let is_there = |id: &&String| plan.providers.contains_key(*id);
        for id in client.providers.iter().filter(|id| !is_there(id)) {
            faults.push(FaultCode::InUse.of(providers::KIND, id, &named_by));
        }
        for id in client.apis.iter().filter(|id| !plan.apis.contains_key(*id)) {
            faults.push(FaultCode::InUse.of(apis::KIND, id, &named_by));
        }
        let groups = client.allowed_groups.iter();
        for name in groups.filter(|name| !plan.groups.contains_key(*name)) {
            faults.push(FaultCode::InUse.of(GroupMetadata::KIND, name, &named_by));
        }
    }
    plan.faults.extend(faults);
    Ok(())
}
