//! The document in which a client describes itself.

use idsvc::oauth::Scope;
use idsvc::oauth::client::{AuthMethod, ConsentRequirement, GrantType};
use idsvc::oauth::client_document::{address_of, parse};
use serde_json::{Map, Value};

const OTHER: &str = "https://other.example/client";

/// A document is accepted only at its own address. Its client has no secret and cannot act for itself.
pub(super) fn client_document(data: &[u8]) -> bool {
    let members: Map<String, Value> = serde_json::from_slice(data).unwrap_or_default();
    let client_id = members
        .get("client_id")
        .and_then(Value::as_str)
        .unwrap_or_default();
    assert!(client_id == OTHER || parse(OTHER, data).is_err());
    let parsed = parse(client_id, data);
    assert_eq!(parsed, parse(client_id, data));
    let requested = match parsed {
        Ok(requested) => requested,
        Err(problem) => {
            assert!(!problem.to_string().is_empty());
            return false;
        }
    };
    assert!([AuthMethod::None, AuthMethod::PrivateKeyJwt].contains(&requested.auth_method()));
    let fields = requested.fields(&Scope::empty());
    let grants = fields.grant_types.unwrap();
    let known = [GrantType::AuthorizationCode, GrantType::RefreshToken];
    assert!(
        grants.contains(&GrantType::AuthorizationCode) && grants.iter().all(|grant| known.contains(grant))
    );
    assert_eq!(
        (fields.consent, fields.pkce, fields.providers),
        (Some(ConsentRequirement::Require), None, None)
    );
    assert_eq!(
        (fields.scope, fields.apis, fields.cors_origins),
        (None, None, None)
    );
    let Some(address) = address_of(client_id) else {
        return false;
    };
    assert_eq!((address.scheme(), address.as_str()), ("https", client_id));
    let host = address.domain().unwrap();
    assert!(host.is_ascii() && host == host.to_ascii_lowercase());
    assert!(!client_id.contains(['#', '\\', ' ']) && address.username().is_empty());
    true
}
