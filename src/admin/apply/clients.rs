//! Clients as a file declares them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Form, Plan, SecretChange, Step, about, refuse_twins, without_nulls};
use crate::admin::client::fields::{ClientFields, check, check_client_id, usual_grants};
use crate::admin::client::{blank, secret_of, usable};
use crate::admin::{Admin, SecretString, Wording};
use crate::clock::Timestamp;
use crate::federation::Provider;
use crate::flow::rotate_keys;
use crate::jose::alg::Algorithm;
use crate::oauth::Client;
use crate::oauth::client::{
    AssertionAudience, AuthMethod, ConsentRequirement, GrantType, PkceRequirement, RefreshPolicy,
    StoredSecret,
};
use crate::secret::{ClientSecret, Digest};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{CLIENTS, PROVIDERS};

pub(in crate::admin::apply) const KIND: &str = "client";

/// What an entry may say, secrets still to be read among it.
pub const KEYS: &[(&str, Form)] = &[
    ("client_id", Form::Text),
    ("client_uuid", Form::Uuid),
    ("name", Form::Text),
    ("public", Form::Flag),
    ("enabled", Form::Flag),
    ("redirect_uris", Form::Texts),
    ("post_logout_redirect_uris", Form::Texts),
    ("cors_origins", Form::Texts),
    ("scope", Form::Texts),
    ("default_scope", Form::Texts),
    ("grant_types", Form::Texts),
    ("pkce", Form::Text),
    ("consent", Form::Text),
    ("audience", Form::Text),
    ("id_token_signed_response_alg", Form::Text),
    ("access_token_alg", Form::Text),
    ("refresh_policy", Form::Text),
    ("assertion_audience", Form::Text),
    ("max_scope", Form::Texts),
    ("providers", Form::Texts),
    ("password_sign_in", Form::Flag),
    ("theme", Form::Text),
    ("scope_texts", Form::Table),
    ("keys", Form::Tables),
    ("jwks_uri", Form::Text),
    ("public_key_file", Form::Text),
    ("jwks_file", Form::Text),
    ("secret_file", Form::Text),
    ("secret_env", Form::Text),
    ("secret_sha256", Form::Texts),
];

/// A client as it is to be. What is left out has its default; a secret that is left out stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeclaredClient {
    /// The identifier the client sends.
    pub client_id: String,
    /// The record's own identifier; made when there is none.
    pub client_uuid: Option<Uuid>,
    /// The name shown to people.
    pub name: Option<String>,
    /// Whether the client cannot keep a secret.
    pub public: bool,
    /// Whether it may do anything at all.
    pub enabled: Option<bool>,
    /// Redirect URIs.
    pub redirect_uris: Vec<String>,
    /// Redirect URIs after signing out.
    pub post_logout_redirect_uris: Vec<String>,
    /// Origins beside those of the redirect URIs.
    pub cors_origins: Vec<String>,
    /// Allowed scope values.
    pub scope: Option<Vec<String>>,
    /// Scope values when a request names none.
    pub default_scope: Option<Vec<String>>,
    /// Allowed grants.
    pub grant_types: Option<Vec<GrantType>>,
    /// Whether PKCE is demanded.
    pub pkce: Option<PkceRequirement>,
    /// Whether people are asked for consent.
    pub consent: Option<ConsentRequirement>,
    /// `aud` of access tokens.
    pub audience: Option<String>,
    /// The algorithm of ID tokens.
    pub id_token_signed_response_alg: Option<Algorithm>,
    /// The algorithm of access tokens.
    pub access_token_alg: Option<Algorithm>,
    /// What a refresh does with the refresh token.
    pub refresh_policy: Option<RefreshPolicy>,
    /// Whom assertions must be addressed to.
    pub assertion_audience: Option<AssertionAudience>,
    /// The most that the client may be granted for itself with a secret.
    pub max_scope: Option<Vec<String>>,
    /// The providers whose people may come in.
    pub providers: Vec<String>,
    /// Whether people may sign in with a stored password.
    pub password_sign_in: Option<bool>,
    /// The theme of its pages.
    pub theme: Option<String>,
    /// What scope values mean in the client's own words.
    pub scope_texts: Option<BTreeMap<String, String>>,
    /// Where the client publishes its public keys.
    pub jwks_uri: Option<String>,
    /// The public keys that assertions are checked with.
    pub keys: Option<Vec<Value>>,
    /// The same, as the text of a PEM file.
    pub public_key: Option<String>,
    /// The same, as the text of a JWK Set.
    pub jwks: Option<String>,
    /// The secret.
    pub secret: Option<SecretString>,
    /// The digests of the secrets in force, as an export has them.
    pub secret_sha256: Option<Vec<Digest<ClientSecret>>>,
}

/// A declared client with all that must be drawn or looked up before the transaction.
pub(in crate::admin::apply) struct Prepared {
    client_id: String,
    uuid: Option<Uuid>,
    /// As it would be if it were new; its secrets are in the next two.
    fresh: Client,
    declared_secrets: Option<Vec<StoredSecret>>,
    spare_secret: (StoredSecret, Option<SecretString>),
    indispensable: Vec<Algorithm>,
    /// What is wrong with the record as a whole, to be said with the rest of it.
    faults: Vec<String>,
}

/// Builds every declared client as if it were new.
pub(in crate::admin::apply) fn prepare(
    admin: Admin<'_>,
    declared: Vec<DeclaredClient>,
    faults: &mut Vec<String>,
) -> Vec<Prepared> {
    refuse_twins(
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

fn prepare_one(admin: Admin<'_>, entry: DeclaredClient, faults: &mut Vec<String>) -> Prepared {
    let core = admin.core;
    let now = core.clock.now();
    check_client_id(&entry.client_id, faults);
    let uuid = entry
        .client_uuid
        .unwrap_or_else(|| core.random.uuid_v7(core.clock.since_epoch()));
    let mut client = blank(&entry.client_id, uuid, core.random.uuid_v4(), now);
    client.enabled = entry.enabled.unwrap_or(true);
    if entry.public {
        client.auth_methods = BTreeSet::from([AuthMethod::None]);
        client.pkce = PkceRequirement::Required;
    }
    let others = [
        ("public_key_file", entry.public_key.is_some()),
        ("jwks_uri", entry.jwks_uri.is_some()),
    ];
    let jwks = key_set(entry.keys, entry.jwks, &others, faults);
    let mut of_the_whole = Vec::new();
    let grant_types = entry
        .grant_types
        .unwrap_or_else(|| usual_grants(&entry.redirect_uris, Wording::Keys, &mut of_the_whole));
    let fields = ClientFields {
        name: entry.name,
        redirect_uris: Some(entry.redirect_uris),
        post_logout_redirect_uris: Some(entry.post_logout_redirect_uris),
        cors_origins: Some(entry.cors_origins),
        scope: entry.scope,
        default_scope: entry.default_scope,
        public_key: entry.public_key,
        jwks,
        jwks_uri: entry.jwks_uri,
        assertion_audience: entry.assertion_audience,
        max_scope: entry.max_scope,
        grant_types: Some(grant_types),
        pkce: entry.pkce,
        consent: entry.consent,
        providers: Some(entry.providers),
        password_sign_in: entry.password_sign_in,
        theme: entry.theme,
        scope_texts: entry.scope_texts,
        audience: entry.audience,
        id_token_alg: entry.id_token_signed_response_alg,
        access_token_alg: entry.access_token_alg,
        refresh_policy: entry.refresh_policy,
    };
    fields.apply(&mut client, faults);
    let declared_secrets = match (entry.secret, entry.secret_sha256) {
        (Some(_), Some(_)) => {
            faults.push("secret_sha256 beside another secret: give one of them".to_owned());
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
        faults.push("a public client has no secret".to_owned());
    }
    Prepared {
        client_id: entry.client_id,
        uuid: entry.client_uuid,
        fresh: client,
        declared_secrets,
        spare_secret: secret_of(admin, None, faults),
        indispensable: rotate_keys::indispensable(core),
        faults: of_the_whole,
    }
}

/// The keys that an entry brings, as the text of a JWK Set. An empty list brings none. Keys are said in one way, and
/// `others` are the ways besides these two, and whether the entry takes them.
pub(in crate::admin::apply) fn key_set(
    keys: Option<Vec<Value>>,
    jwks: Option<String>,
    others: &[(&'static str, bool)],
    faults: &mut Vec<String>,
) -> Option<String> {
    let keys = keys.filter(|keys| !keys.is_empty());
    let own = [("keys", keys.is_some()), ("jwks_file", jwks.is_some())];
    let ways = own.iter().chain(others).filter(|(_, is_given)| *is_given);
    let ways: Vec<&str> = ways.map(|(name, _)| *name).collect();
    if ways.len() > 1 {
        faults.push(format!("{}: give one of them", ways.join(" beside ")));
    }
    jwks.or_else(|| keys.map(|keys| json!({ "keys": keys }).to_string()))
}

impl Prepared {
    /// The record as it is to be, made of the one that is there; whether its secret is new, and the one that was made.
    fn settle(&self, before: Option<&Client>) -> (Client, bool, Option<SecretString>) {
        let mut client = self.fresh.clone();
        let mut made = None;
        let mut is_new = false;
        if let Some(before) = before {
            client.client_uuid = before.client_uuid;
            client.own_grant = before.own_grant;
            client.api_keys.clone_from(&before.api_keys);
            client.created_at = before.created_at;
        }
        if client.is_public() {
            return (client, is_new, made);
        }
        let kept: Vec<StoredSecret> = before.map(|before| before.secrets.clone()).unwrap_or_default();
        match &self.declared_secrets {
            Some(declared) => {
                // One that is about to end is not what the file says: there it lasts.
                let lasting = || kept.iter().filter(|secret| secret.expires_at.is_none());
                let is_same = declared
                    .iter()
                    .all(|one| lasting().any(|other| other.digest == one.digest))
                    && lasting().all(|one| declared.iter().any(|other| other.digest == one.digest));
                is_new = !is_same;
                client.secrets = if is_same { kept } else { declared.clone() };
            }
            None => client.secrets = kept,
        }
        let has_secret = client.secrets.iter().any(|secret| secret.expires_at.is_none());
        let needs_one = !client.has_keys() || client.secret_credentials.is_some();
        if needs_one && !has_secret && self.declared_secrets.is_none() {
            client.secrets.push(self.spare_secret.0.clone());
            made.clone_from(&self.spare_secret.1);
            is_new = true;
        }
        client.fit_methods_to_secrets();
        (client, is_new, made)
    }
}

/// What must change so that the clients are as declared.
pub(in crate::admin::apply) fn plan(
    snapshot: &dyn Snapshot,
    declared: &[Prepared],
    prune: bool,
    now: Timestamp,
    plan: &mut Plan,
) -> Result<(), StoreError> {
    let exchange_only = exchange_only(snapshot, plan)?;
    for entry in declared {
        let before = CLIENTS.get(snapshot, &entry.client_id)?;
        let (mut client, is_new_secret, made) = entry.settle(before.as_ref());
        let mut faults = entry.faults.clone();
        if let (Some(uuid), Some(before)) = (entry.uuid, &before)
            && uuid != before.client_uuid
        {
            faults.push(format!(
                "it is there with another client_uuid, {}",
                before.client_uuid
            ));
        }
        let usable = usable(snapshot, &entry.indispensable)?;
        check(
            before.as_ref(),
            &client,
            &usable,
            &exchange_only,
            Wording::Keys,
            &mut faults,
        );
        for id in client
            .providers
            .iter()
            .filter(|id| !plan.providers.contains_key(*id))
        {
            faults.push(format!("there is no provider {id}"));
        }
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
            plan.forget_made("client_uuid");
        }
        if is_new_secret && !client.secrets.is_empty() {
            plan.note_secret("secret", SecretChange::New);
            plan.note_made(made);
        } else if client.secrets.is_empty() && before.is_some_and(|before| !before.secrets.is_empty()) {
            plan.note_secret("secret", SecretChange::Removed);
        }
        plan.steps.push(Step::PutClient(Box::new(client)));
    }
    if prune {
        for (client_id, client) in CLIENTS.scan(snapshot, .., usize::MAX)? {
            if declared.iter().all(|entry| entry.client_id != client_id) {
                plan.note(KIND, &client_id, Some(&Map::new()), None);
                plan.steps.push(Step::RemoveClient(Box::new(client)));
            }
        }
    }
    Ok(())
}

/// Providers at which nobody will sign in.
pub(in crate::admin::apply) fn exchange_only(
    snapshot: &dyn Snapshot,
    plan: &Plan,
) -> Result<BTreeSet<String>, StoreError> {
    let stored = PROVIDERS.scan(snapshot, .., usize::MAX)?;
    let mut by_id: BTreeMap<&str, &Provider> = BTreeMap::new();
    by_id.extend(stored.iter().map(|(id, provider)| (id.as_str(), provider)));
    by_id.extend(plan.steps.iter().filter_map(|step| match step {
        Step::PutProvider(provider) => Some((provider.id.as_str(), &**provider)),
        _ => None,
    }));
    by_id.retain(|_, provider| !provider.signs_people_in());
    Ok(by_id.into_keys().map(ToOwned::to_owned).collect())
}

/// Writes the record.
pub(in crate::admin::apply) fn put(tx: &mut dyn Tx, client: &Client) -> Result<(), StoreError> {
    CLIENTS.put(tx, &client.client_id, client)
}

/// A client as a file has it.
pub(in crate::admin::apply) fn export(client: &Client, with_hashes: bool) -> Map<String, Value> {
    let list = |values: &[String]| {
        if values.is_empty() {
            Value::Null
        } else {
            json!(values)
        }
    };
    let scope = |scope: &crate::oauth::Scope| json!(scope.iter().collect::<Vec<_>>());
    let some = |value: Value| match &value {
        Value::Array(values) if values.is_empty() => Value::Null,
        Value::Object(members) if members.is_empty() => Value::Null,
        _ => value,
    };
    let differs = |value: Value, usual: Value| if value == usual { Value::Null } else { value };
    let usual_pkce = if client.is_public() {
        json!(PkceRequirement::Required)
    } else {
        json!(PkceRequirement::default())
    };
    // A file has no room for when a secret ends: one that is about to would be good for ever where it is read.
    let lasting = client.secrets.iter().filter(|secret| secret.expires_at.is_none());
    let digests: Vec<_> = lasting.map(|secret| json!(secret.digest)).collect();
    without_nulls([
        ("client_id", json!(client.client_id)),
        ("client_uuid", json!(client.client_uuid)),
        ("name", json!(client.name)),
        ("public", differs(json!(client.is_public()), json!(false))),
        ("enabled", differs(json!(client.enabled), json!(true))),
        ("redirect_uris", list(&client.redirect_uris)),
        (
            "post_logout_redirect_uris",
            list(&client.post_logout_redirect_uris),
        ),
        ("cors_origins", list(&client.cors_origins)),
        ("scope", scope(&client.scope)),
        ("default_scope", scope(&client.default_scope)),
        ("grant_types", json!(client.grant_types)),
        ("pkce", differs(json!(client.pkce), usual_pkce)),
        (
            "consent",
            differs(json!(client.consent), json!(ConsentRequirement::default())),
        ),
        ("audience", json!(client.audience)),
        (
            "id_token_signed_response_alg",
            json!(client.id_token_signed_response_alg),
        ),
        ("access_token_alg", json!(client.access_token_alg)),
        (
            "refresh_policy",
            differs(json!(client.refresh_policy), json!(RefreshPolicy::default())),
        ),
        (
            "assertion_audience",
            differs(
                json!(client.assertion_audience),
                json!(AssertionAudience::default()),
            ),
        ),
        (
            "max_scope",
            client.secret_credentials.as_ref().map_or(Value::Null, scope),
        ),
        ("providers", some(json!(client.providers))),
        (
            "password_sign_in",
            differs(json!(client.password_sign_in), json!(true)),
        ),
        ("theme", json!(client.theme)),
        ("scope_texts", some(json!(client.scope_texts))),
        ("jwks_uri", json!(client.jwks_uri)),
        (
            "keys",
            if client.keys.is_empty() {
                Value::Null
            } else {
                json!(client.keys)
            },
        ),
        (
            "secret_sha256",
            if with_hashes && !digests.is_empty() {
                json!(digests)
            } else {
                Value::Null
            },
        ),
    ])
}
