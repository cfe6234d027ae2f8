//! A stored record as an entry of a file.

use crate::admin::import::UserLine;
use crate::admin::named::NamedKind;
use crate::admin::provider::check::NO_CLAIM;
use crate::federation::Provider;
use crate::federation::provider::{ProviderFields, ProviderSettings};
use crate::identity::User;
use crate::oauth::api::ApiMetadata;
use crate::oauth::fields::Form;
use crate::oauth::group::Groups;
use crate::oauth::named::NamedRecord;
use crate::oauth::{Api, ApiFields, Client, ClientFields, ClientMetadata};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::members;

/// A record as an entry of a file.
pub(super) fn named<M: NamedKind>(record: &NamedRecord<M>) -> Map<String, Value> {
    let mut entry = fields_of(&record.metadata, &members(&M::default()), M::FIELDS);
    entry.insert("name".to_owned(), json!(record.name));
    entry
}

/// A provider as an entry of a file, without its secret: that would allow the reader of the file to act as this
/// service.
pub(super) fn provider(provider: &Provider) -> Map<String, Value> {
    let usual = members(&ProviderSettings::default());
    let mut entry = fields_of(&provider.settings, &usual, ProviderFields::FIELDS);
    entry.insert("id".to_owned(), json!(provider.id));
    if let Some(logo) = &provider.logo {
        entry.insert("logo".to_owned(), json!(logo.data));
    }
    if provider.embed_token.is_none() {
        entry.insert("embed_token".to_owned(), json!(NO_CLAIM));
    }
    entry
}

/// An API as an entry of a file.
pub(super) fn api(api: &Api) -> Map<String, Value> {
    let usual = members(&ApiMetadata::default());
    let mut entry = fields_of(&api.metadata, &usual, ApiFields::FIELDS);
    entry.insert("id".to_owned(), json!(api.id));
    entry.insert("identifier".to_owned(), json!(api.identifier));
    entry
}

/// A client as an entry of a file.
pub(super) fn client(client: &Client, with_hashes: bool) -> Map<String, Value> {
    let mut usual = members(&ClientMetadata::default());
    for always in ["scope", "default_scope", "grant_types", "id_token_claims"] {
        usual.remove(always);
    }
    let mut entry = fields_of(&client.metadata, &usual, ClientFields::FIELDS);
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

/// A user as an entry of a file.
pub(super) fn user(user: &User, groups: &Groups, with_hashes: bool) -> Map<String, Value> {
    let hash = user.password.as_ref().filter(|_| with_hashes);
    let user_type = Some(user.user_type.clone()).filter(|name| name != User::DEFAULT_TYPE);
    let mut entry = members(&UserLine {
        uuid: Some(user.uuid),
        account_id: Some(user.account_id.clone()),
        email: user.email.clone(),
        email_verified: user.email_verified.then_some(true),
        phone_number: user.phone_number.clone(),
        phone_number_verified: user.phone_number_verified.then_some(true),
        user_type,
        venue_id: user.venue_id.clone(),
        organization: Some(user.organization.clone()),
        enabled: (!user.enabled).then_some(false),
        claims: user.claims.clone(),
        groups: Some(groups.of(user).into_iter().map(ToOwned::to_owned).collect()),
        password_hash: hash.map(|hash| hash.as_str().into()),
        totp: Value::Null,
        created_at: None,
    });
    let is_empty = |value: &Value| {
        value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
    };
    entry.retain(|_, value| !value.is_null() && !is_empty(value));
    entry
}

/// The fields of a record that differ from the `usual` one, as an entry of a file.
fn fields_of(
    record: &impl Serialize,
    usual: &Map<String, Value>,
    fields: &[(&str, Form)],
) -> Map<String, Value> {
    let mut entry = members(record);
    entry.retain(|name, value| usual.get(name) != Some(value) && !value.is_null());
    // In a file a scope is a list of values.
    for (name, _) in fields.iter().filter(|(_, form)| *form == Form::Texts) {
        if let Some(Value::String(scope)) = entry.get(*name) {
            let values: Value = scope.split(' ').filter(|value| !value.is_empty()).collect();
            entry.insert((*name).to_owned(), values);
        }
    }
    entry
}
