//! Clients that register themselves: RFC 7591, RFC 7592, OpenID Connect Dynamic Client Registration 1.0.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::jose::json;
use crate::jose::jwk::{JwkError, PublicKey};
use crate::oauth::client::{AuthMethod, Client, GrantType};
use crate::oauth::client_metadata::{ClientFields, ConsentRequirement};
use crate::oauth::error::{ErrorCode, Refusal};
use crate::oauth::fault::Fault;
use crate::oauth::fields::Removable;
use crate::oauth::redirect_uri::is_private_by_name;
use crate::oauth::scope::Scope;
use crate::secret::{Digest, InitialAccessToken};

/// The most bytes of the metadata. They are bounded because the clients are in memory.
const MAX_METADATA: usize = 8 * 1024;
/// The most keys of a client that the operator did not register.
pub const MOST_KEYS: usize = 4;
/// The member of a request and of a response that names the client.
const CLIENT_ID: &str = "client_id";
/// The member with the secret of the client.
const CLIENT_SECRET: &str = "client_secret";
const REDIRECT_URIS: &str = "redirect_uris";
const AUTH_METHOD: &str = "token_endpoint_auth_method";
const BACKCHANNEL_LOGOUT_URI: &str = "backchannel_logout_uri";
const BACKCHANNEL_LOGOUT_SESSION: &str = "backchannel_logout_session_required";
const CERTIFICATE_BOUND: &str = "tls_client_certificate_bound_access_tokens";
/// The most characters of the name of such a client, which people see.
const MAX_NAME_CHARS: usize = 100;

/// The grants that clients may register for.
const GRANTS: &[GrantType] = &[
    GrantType::AuthorizationCode,
    GrantType::DeviceCode,
    GrantType::RefreshToken,
];

/// Members that demand unsupported features. They are refused, because a client may rely on them. `false` demands
/// nothing.
const NOT_SUPPORTED: [&str; 7] = [
    "authorization_encrypted_response_alg",
    "id_token_encrypted_response_alg",
    "id_token_encrypted_response_enc",
    "request_object_encryption_alg",
    "sector_identifier_uri",
    "userinfo_encrypted_response_alg",
    "userinfo_encrypted_response_enc",
];

/// Members of a response that a change must not have (RFC 7592 section 2.2).
const NOT_CHANGEABLE: [&str; 4] = [
    "registration_access_token",
    "registration_client_uri",
    "client_secret_expires_at",
    "client_id_issued_at",
];

/// Who may register a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegistrationMode {
    /// Nobody.
    #[default]
    Off,
    /// A holder of an initial access token (RFC 7591 section 1.2).
    Token,
    /// Anyone.
    Open,
}

/// The settings of registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationPolicy {
    /// Who may register a client.
    pub mode: RegistrationMode,
    /// The most clients that have registered themselves.
    pub most_clients: usize,
    /// The memory for clients that the operator did not register, in bytes.
    pub room: usize,
    /// The private-use schemes without a dot that their redirect URIs may have.
    pub schemes: Vec<String>,
}

impl RegistrationPolicy {
    /// Whether a client that the operator did not register may redirect to the scheme of `uri`. A scheme with a dot belongs
    /// to a domain (RFC 8252 section 7.1). Another one may start any program of the device.
    pub fn allows_scheme(&self, uri: &str) -> bool {
        let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
        is_private_by_name(uri)
            || self
                .schemes
                .iter()
                .any(|known| known.eq_ignore_ascii_case(scheme))
    }
}

/// The schemes of programs that are known to register themselves at MCP servers.
pub const KNOWN_SCHEMES: &[&str] = &[
    "claude",
    "cursor",
    "jetbrains",
    "kiro",
    "vscode",
    "vscode-insiders",
    "vscodium",
    "windsurf",
    "zed",
];

impl Default for RegistrationPolicy {
    fn default() -> Self {
        Self {
            mode: RegistrationMode::Off,
            most_clients: 0,
            room: 16 << 20,
            schemes: KNOWN_SCHEMES.iter().map(|&scheme| scheme.to_owned()).collect(),
        }
    }
}

/// An initial access token (RFC 7591 section 1.2), by its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredInitialAccessToken {
    pub digest: Digest<InitialAccessToken>,
    /// When it was made.
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// How many clients may still register with it; `None` for any number.
    pub uses_left: Option<u64>,
}

impl StoredInitialAccessToken {
    /// Whether a client may register with the token that has this digest.
    pub fn accepts(&self, presented: &Digest<InitialAccessToken>, now: Timestamp) -> bool {
        self.digest == *presented && self.expires_at.is_none_or(|end| now < end) && self.uses_left != Some(0)
    }
}

/// The metadata that a client sends.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedMetadata {
    auth_method: AuthMethod,
    scope: Option<Scope>,
    fields: ClientFields,
}

/// A change of a registration (RFC 7592 section 2.2).
#[derive(Clone, Debug)]
pub struct RequestedChange {
    /// The metadata. A member that is left out loses its value.
    pub metadata: RequestedMetadata,
    /// The secret of the request, which must be the current secret of the client.
    pub secret: Option<String>,
}

impl RequestedChange {
    /// Reads a change of the client with this identifier.
    pub fn parse(body: &[u8], client_id: &str) -> Result<Self, Refusal> {
        let mut members = members(body, MAX_METADATA)?;
        if let Some(name) = NOT_CHANGEABLE.iter().find(|name| members.contains_key(**name)) {
            return Err(unusable(name, "must be left out of a change"));
        }
        if members.get(CLIENT_ID).and_then(Value::as_str) != Some(client_id) {
            return Err(unusable(CLIENT_ID, "must be the identifier of this client"));
        }
        let secret = take(&mut members, CLIENT_SECRET)?;
        let metadata = RequestedMetadata::read(members, GRANTS)?;
        Ok(Self { metadata, secret })
    }
}

impl RequestedMetadata {
    /// Reads a registration (RFC 7591 section 3.1). Unknown members are ignored.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        Self::read(members(body, MAX_METADATA)?, GRANTS)
    }

    /// Reads members of RFC 7591 section 2. Grants that are not `offered` are left out, and so are unsupported response
    /// types, if a usable one remains. The answer says what was registered (section 3.2.1).
    pub(super) fn read(mut members: Map<String, Value>, offered: &[GrantType]) -> Result<Self, Refusal> {
        if let Some(name) = NOT_SUPPORTED.iter().find(|name| members.contains_key(**name)) {
            return Err(unusable(name, "is not supported"));
        }
        expect(&mut members, "subject_type", &["public"])?;
        expect(&mut members, "application_type", &["web", "native"])?;
        take_algorithm(&mut members, "token_endpoint_auth_signing_alg")?;
        let grant_types = grant_types(&mut members, offered)?;
        let uses_code = grant_types.contains(&GrantType::AuthorizationCode);
        let response_types: Option<Vec<String>> = take(&mut members, "response_types")?;
        let is_usable = |types: &Vec<String>| {
            let has_code = types.iter().any(|name| name == "code");
            has_code || (types.is_empty() && !uses_code)
        };
        if response_types.is_some_and(|types| !is_usable(&types)) {
            return Err(unusable("response_types", "must have code"));
        }
        let jwks = keys(&mut members)?;
        let jwks_uri: Option<String> = take(&mut members, "jwks_uri")?;
        if jwks.is_some() && jwks_uri.is_some() {
            return Err(unusable("jwks_uri", "and jwks exclude each other"));
        }
        let client_name: String = take(&mut members, "client_name")?.unwrap_or_default();
        if client_name.chars().count() > MAX_NAME_CHARS {
            return Err(unusable("client_name", "has more than 100 characters"));
        }
        let scope: Option<String> = take(&mut members, "scope")?;
        let scope = scope.map(|text| text.parse::<Scope>()).transpose();
        let auth_method: Option<AuthMethod> = take(&mut members, AUTH_METHOD)?;
        // The service cannot check that the certificate belongs to the client.
        if auth_method.is_some_and(AuthMethod::uses_certificate) {
            return Err(unusable(
                AUTH_METHOD,
                "is not supported for a client that registers itself",
            ));
        }
        Ok(Self {
            auth_method: auth_method.unwrap_or(AuthMethod::ClientSecretBasic),
            scope: scope.map_err(|error| unusable("scope", &error.to_string()))?,
            fields: ClientFields {
                client_name: Some(client_name),
                redirect_uris: Some(take(&mut members, REDIRECT_URIS)?.unwrap_or_default()),
                post_logout_redirect_uris: Some(
                    take(&mut members, "post_logout_redirect_uris")?.unwrap_or_default(),
                ),
                backchannel_logout_uri: Some(take(&mut members, BACKCHANNEL_LOGOUT_URI)?.unwrap_or_default()),
                backchannel_logout_session_required: Some(
                    take(&mut members, BACKCHANNEL_LOGOUT_SESSION)?.unwrap_or_default(),
                ),
                policy_uri: Some(take(&mut members, "policy_uri")?.unwrap_or_default()),
                tos_uri: Some(take(&mut members, "tos_uri")?.unwrap_or_default()),
                initiate_login_uri: Some(take(&mut members, "initiate_login_uri")?.unwrap_or_default()),
                default_max_age: Some(Removable(take(&mut members, "default_max_age")?)),
                grant_types: Some(grant_types),
                jwks: Some(jwks.unwrap_or_default()),
                jwks_uri: Some(jwks_uri.unwrap_or_default()),
                id_token_signed_response_alg: Some(Removable(take::<Algorithm>(
                    &mut members,
                    "id_token_signed_response_alg",
                )?)),
                userinfo_signed_response_alg: Some(Removable(take(
                    &mut members,
                    "userinfo_signed_response_alg",
                )?)),
                consent: Some(ConsentRequirement::Require),
                require_pushed_authorization_requests: Some(
                    take(&mut members, "require_pushed_authorization_requests")?.unwrap_or_default(),
                ),
                dpop_bound_access_tokens: Some(
                    take(&mut members, "dpop_bound_access_tokens")?.unwrap_or_default(),
                ),
                request_object_signing_alg: Some(Removable(take_algorithm(
                    &mut members,
                    "request_object_signing_alg",
                )?)),
                authorization_signed_response_alg: Some(Removable(take(
                    &mut members,
                    "authorization_signed_response_alg",
                )?)),
                introspection_signed_response_alg: Some(Removable(take(
                    &mut members,
                    "introspection_signed_response_alg",
                )?)),
                require_signed_request_object: Some(
                    take(&mut members, "require_signed_request_object")?.unwrap_or_default(),
                ),
                tls_client_certificate_bound_access_tokens: Some(
                    take(&mut members, CERTIFICATE_BOUND)?.unwrap_or_default(),
                ),
                ..ClientFields::default()
            },
        })
    }

    /// How the client will authenticate.
    pub fn auth_method(&self) -> AuthMethod {
        self.auth_method
    }

    /// The fields that these metadata set in the client's record. Scope values outside of `allowed` are left out (RFC
    /// 7591 section 2 lets the server replace metadata).
    pub fn fields(&self, allowed: &Scope) -> ClientFields {
        let default_scope = match &self.scope {
            Some(asked) => asked.filter(|value| allowed.contains(value)),
            None => Scope::empty().with(Scope::OPENID),
        };
        ClientFields {
            default_scope: Some(default_scope.iter().map(ToOwned::to_owned).collect()),
            ..self.fields.clone()
        }
    }
}

/// The keys of the member `jwks`. A key with which a verification is slow is refused.
fn keys(members: &mut Map<String, Value>) -> Result<Option<Vec<Value>>, Refusal> {
    let Some(mut set) = take::<Map<String, Value>>(members, "jwks")? else {
        return Ok(None);
    };
    let keys: Option<Vec<Value>> = take(&mut set, "keys")?;
    if keys.as_ref().is_some_and(|keys| keys.len() > MOST_KEYS) {
        return Err(unusable("jwks", &format!("may have {MOST_KEYS} keys at most")));
    }
    let is_costly = |jwk: &Value| {
        let key = PublicKey::from_jwk(jwk).and_then(PublicKey::chosen_by_stranger);
        key == Err(JwkError::Costly)
    };
    if keys.iter().flatten().any(is_costly) {
        return Err(unusable("jwks", &format!("is refused: {}", JwkError::Costly)));
    }
    Ok(keys.map(|keys| keys.into_iter().map(with_plain_members).collect()))
}

/// The key without members that no standard defines: those of a key are texts, numbers and lists of texts (RFC 7517
/// section 4). A list of small objects would take a hundred times its length in memory.
fn with_plain_members(mut key: Value) -> Value {
    let is_plain = |value: &Value| match value {
        Value::Array(elements) => elements.iter().all(Value::is_string),
        value => !value.is_object(),
    };
    if let Some(members) = key.as_object_mut() {
        members.retain(|_, value| is_plain(value));
    }
    key
}

/// The grants that a client asks for, as far as they are offered.
fn grant_types(members: &mut Map<String, Value>, offered: &[GrantType]) -> Result<Vec<GrantType>, Refusal> {
    let Some(named) = take::<Vec<String>>(members, "grant_types")? else {
        return Ok(vec![GrantType::AuthorizationCode]);
    };
    let offered_as = |value: &String| offered.iter().find(|grant| grant.value("") == value.as_str());
    let grant_types: Vec<_> = named.iter().filter_map(offered_as).copied().collect();
    let begins_one = |grant: &GrantType| *grant != GrantType::RefreshToken;
    if grant_types.iter().any(begins_one) {
        return Ok(grant_types);
    }
    let usable = offered.iter().filter(|grant| begins_one(grant));
    let usable: Vec<_> = usable.map(|grant| grant.value("")).collect();
    Err(unusable(
        "grant_types",
        &format!("must have {}", usable.join(" or ")),
    ))
}

/// The members of a JSON object of at most `max_bytes`; those that are `null` or `false` are left out.
pub(super) fn members(body: &[u8], max_bytes: usize) -> Result<Map<String, Value>, Refusal> {
    if body.len() > max_bytes {
        let problem = format!("the metadata are longer than {} KiB", max_bytes / 1024);
        return Err(Refusal::naming(ErrorCode::InvalidClientMetadata, &problem));
    }
    let mut members = json::object(body).map_err(|_| {
        Refusal::new(
            ErrorCode::InvalidClientMetadata,
            "the body must be one JSON object without repeated names",
        )
    })?;
    members.retain(|_, value| !matches!(value, Value::Null | Value::Bool(false)));
    Ok(members)
}

/// Takes a member out.
fn take<T: DeserializeOwned>(members: &mut Map<String, Value>, name: &str) -> Result<Option<T>, Refusal> {
    let value = members.remove(name).map(serde_json::from_value);
    value
        .transpose()
        .map_err(|_| unusable(name, "is malformed, or has a value that is not supported"))
}

/// Takes out the name of an algorithm that the client signs with.
fn take_algorithm(members: &mut Map<String, Value>, name: &str) -> Result<Option<Algorithm>, Refusal> {
    let named: Option<String> = take(members, name)?;
    let read = named.map(|named| Algorithm::of_received(&named)).transpose();
    read.map_err(|_| unusable(name, "is not supported"))
}

/// Takes a member out. Its value must be one of `known`.
fn expect(members: &mut Map<String, Value>, name: &str, known: &[&str]) -> Result<(), Refusal> {
    match take::<String>(members, name)? {
        Some(value) if !known.contains(&value.as_str()) => {
            Err(unusable(name, &format!("must be {}", known.join(" or "))))
        }
        _ => Ok(()),
    }
}

fn unusable(name: &str, rule: &str) -> Refusal {
    let code = if name == REDIRECT_URIS {
        ErrorCode::InvalidRedirectUri
    } else {
        ErrorCode::InvalidClientMetadata
    };
    Refusal::naming(code, &format!("{name} {rule}"))
}

/// The refusal for the first of these faults of a record (RFC 7591 section 3.2.2).
pub fn refusal_of(faults: &[Fault]) -> Option<Refusal> {
    let fault = faults.first()?;
    let code = if fault.fields.iter().any(|field| field == REDIRECT_URIS) {
        ErrorCode::InvalidRedirectUri
    } else {
        ErrorCode::InvalidClientMetadata
    };
    Some(Refusal::naming(code, &fault.detail.replace('"', "'")))
}

/// All registered metadata of a client (RFC 7591 section 3.2.1).
pub fn document(client: &Client) -> Map<String, Value> {
    let mut document = Map::new();
    let mut add = |name: &str, value: Value| document.insert(name.to_owned(), value);
    add(CLIENT_ID, json!(client.client_id));
    add("client_id_issued_at", json!(client.created_at));
    add(REDIRECT_URIS, json!(client.redirect_uris));
    let method = client.token_endpoint_auth_methods.first();
    add("token_endpoint_auth_method", json!(method));
    let grant_types = client.grant_types.iter().map(|grant| grant.value(""));
    add("grant_types", grant_types.collect());
    let uses_code = client.may_use(GrantType::AuthorizationCode);
    add(
        "response_types",
        if uses_code { json!(["code"]) } else { json!([]) },
    );
    if !client.default_scope.is_empty() {
        add("scope", json!(client.default_scope));
    }
    if !client.post_logout_redirect_uris.is_empty() {
        add(
            "post_logout_redirect_uris",
            json!(client.post_logout_redirect_uris),
        );
    }
    if client.backchannel_logout_session_required {
        add(BACKCHANNEL_LOGOUT_SESSION, json!(true));
    }
    if client.require_pushed_authorization_requests {
        add("require_pushed_authorization_requests", json!(true));
    }
    if client.dpop_bound_access_tokens {
        add("dpop_bound_access_tokens", json!(true));
    }
    if client.require_signed_request_object {
        add("require_signed_request_object", json!(true));
    }
    if client.tls_client_certificate_bound_access_tokens {
        add(CERTIFICATE_BOUND, json!(true));
    }
    if !client.jwks.is_empty() {
        add("jwks", json!({ "keys": client.jwks }));
    }
    for (name, value) in [
        ("client_name", json!(client.client_name)),
        ("policy_uri", json!(client.policy_uri)),
        ("tos_uri", json!(client.tos_uri)),
        ("initiate_login_uri", json!(client.initiate_login_uri)),
        ("default_max_age", json!(client.default_max_age)),
        ("jwks_uri", json!(client.jwks_uri)),
        (BACKCHANNEL_LOGOUT_URI, json!(client.backchannel_logout_uri)),
        (
            "id_token_signed_response_alg",
            json!(client.id_token_signed_response_alg),
        ),
        (
            "userinfo_signed_response_alg",
            json!(client.userinfo_signed_response_alg),
        ),
        (
            "authorization_signed_response_alg",
            json!(client.authorization_signed_response_alg),
        ),
        (
            "introspection_signed_response_alg",
            json!(client.introspection_signed_response_alg),
        ),
        (
            "request_object_signing_alg",
            json!(client.request_object_signing_alg),
        ),
    ] {
        if !value.is_null() {
            add(name, value);
        }
    }
    document
}

#[cfg(test)]
mod tests;
