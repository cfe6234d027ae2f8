//! Client ID Metadata Documents (draft-ietf-oauth-client-id-metadata-document): a client whose identifier is the address
//! of its metadata.

use ring::digest;
use serde_json::Value;
use url::{Host, Url};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::oauth::client::{AuthMethod, Client, ClientOrigin, GrantType};
use crate::oauth::error::Refusal;
use crate::oauth::registration::{RequestedMetadata, members};

/// The longest document. The draft recommends 5 KiB at least (section "Maximum Response Size"); documents with keys and
/// texts in several languages are longer.
pub const MAX_BYTES: usize = 16 * 1024;
/// The grants that such a client may have.
const GRANTS: &[GrantType] = &[GrantType::AuthorizationCode, GrantType::RefreshToken];
/// The longest identifier. A short one is recommended, because people may see it.
const MAX_ID_BYTES: usize = 512;

/// The address of the document, if the identifier is one: https with a path, without a user name, a fragment or dot
/// segments (section "Client Identifier").
///
/// The address must be in the normal form of the URL standard, with the host in lower case and in Punycode. So a client
/// has only one identifier, and the service fetches the address that it shows.
pub fn address_of(client_id: &str) -> Option<Url> {
    let url = Url::parse(client_id)
        .ok()
        .filter(|url| url.as_str() == client_id)?;
    let has_name = matches!(url.host(), Some(Host::Domain(name)) if !name.ends_with('.'));
    let is_address = client_id.len() <= MAX_ID_BYTES
        && url.scheme() == "https"
        && has_name
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
        && url.path() != "/";
    is_address.then_some(url)
}

/// Why a document cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentProblem {
    /// It is the document of another identifier.
    #[error("its client_id is not the address that it was fetched from")]
    Identifier,
    /// It has a secret, which a client without a registration cannot share with the service.
    #[error("it has {0}, but a client with a metadata document has no secret")]
    Secret(&'static str),
    /// The client would authenticate with a secret.
    #[error("its token_endpoint_auth_method is {0}: supported are none and private_key_jwt")]
    AuthMethod(&'static str),
    /// It would be refused as a registration.
    #[error("{}", .0.description)]
    Metadata(Refusal),
}

/// Reads the document of the client with this identifier.
///
/// Without `token_endpoint_auth_method` the client is public, because the default of RFC 7591 needs a secret.
pub fn parse(client_id: &str, document: &[u8]) -> Result<RequestedMetadata, DocumentProblem> {
    let mut members = members(document, MAX_BYTES).map_err(DocumentProblem::Metadata)?;
    if members.get("client_id").and_then(Value::as_str) != Some(client_id) {
        return Err(DocumentProblem::Identifier);
    }
    let secrets = ["client_secret", "client_secret_expires_at"];
    if let Some(name) = secrets.into_iter().find(|name| members.contains_key(*name)) {
        return Err(DocumentProblem::Secret(name));
    }
    members
        .entry("token_endpoint_auth_method")
        .or_insert_with(|| AuthMethod::None.as_str().into());
    let requested = RequestedMetadata::read(members, GRANTS).map_err(DocumentProblem::Metadata)?;
    match requested.auth_method() {
        AuthMethod::None | AuthMethod::PrivateKeyJwt => Ok(requested),
        method => Err(DocumentProblem::AuthMethod(method.as_str())),
    }
}

/// A new client with this identifier, without the metadata of its document.
pub fn new_client(client_id: &str, own_grant: Uuid, now: Timestamp) -> Client {
    Client {
        origin: ClientOrigin::MetadataDocument,
        ..Client::new(client_id, uuid_of(client_id), own_grant, false, now)
    }
}

/// The UUID of the client. It is derived from the address, because a sign-in needs it before the client has a record.
fn uuid_of(client_id: &str) -> Uuid {
    let digest = digest::digest(&digest::SHA256, client_id.as_bytes());
    let mut bytes = [0; 16];
    for (byte, of_digest) in bytes.iter_mut().zip(digest.as_ref()) {
        *byte = *of_digest;
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oauth::Scope;

    const ID: &str = "https://app.example/oauth/client.json";

    fn parse_with(changes: &Value) -> Result<RequestedMetadata, DocumentProblem> {
        let mut document = json!({ "client_id": ID, "redirect_uris": ["https://app.example/cb"] });
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        parse(ID, document.to_string().as_bytes())
    }

    #[test]
    fn an_address_in_normal_form_with_a_path_is_an_identifier() {
        for id in [
            ID,
            "https://app.example:8443/client",
            "https://app.example/client?v=1",
            "https://xn--pple-43d.example/client",
            "https://app.example/a//b/",
            "https://app.example/%7euser/client",
        ] {
            assert!(address_of(id).is_some(), "{id}");
        }
    }

    #[test]
    fn other_ways_to_write_an_address_are_no_identifier() {
        for id in [
            "http://app.example/client",
            "https://app.example",
            "https://app.example/",
            "https://app.example/?client",
            "https://app.example/client#x",
            "https://app.example/client#",
            "https://user@app.example/client",
            "https://user:pass@app.example/client",
            "https://@app.example/client",
            "https://app.example/a/../client",
            "https://app.example/./client",
            "https://app.example/%2e%2e/client",
            "https://app.example/a/.%2E",
            "https://app.example:443/client",
            "https://APP.example/client",
            "HTTPS://app.example/client",
            "https://\u{430}pple.example/client",
            "https://app.example./client",
            "https://169.254.169.254/client",
            "https://[::1]/client",
            "https://2130706433/client",
            "https:/app.example/client",
            "https:app.example/client",
            "https:\\\\app.example\\client",
            "https://app.example/cl\tient",
            " https://app.example/client",
            "https://app.example/cl ient",
            "https://app.example/\u{e9}",
            "urn:example:client",
            "client",
            "",
            &format!("https://app.example/{}", "a".repeat(MAX_ID_BYTES)),
        ] {
            assert!(address_of(id).is_none(), "{id}");
        }
    }

    #[test]
    fn a_document_describes_a_public_client_unless_it_says_otherwise() {
        let device = "urn:ietf:params:oauth:grant-type:device_code";
        let changes = json!({
            "grant_types": ["authorization_code", device, "refresh_token"],
            "response_types": ["code", "id_token"],
        });
        let requested = parse_with(&changes).unwrap();
        assert_eq!(requested.auth_method(), AuthMethod::None);
        let grants = requested.fields(&Scope::empty()).grant_types;
        assert_eq!(
            grants,
            Some(vec![GrantType::AuthorizationCode, GrantType::RefreshToken])
        );
        let with_key = json!({ "token_endpoint_auth_method": "private_key_jwt" });
        assert_eq!(
            parse_with(&with_key).unwrap().auth_method(),
            AuthMethod::PrivateKeyJwt
        );
    }

    #[test]
    fn the_identifier_of_the_record_follows_from_the_address() {
        let at = Timestamp::from_seconds;
        let client = new_client(ID, Uuid::nil(), at(1));
        assert!(client.registered_itself());
        assert_eq!(new_client(ID, Uuid::max(), at(2)).client_uuid, client.client_uuid);
        let other = new_client("https://app.example/other", Uuid::nil(), at(1));
        assert_ne!(other.client_uuid, client.client_uuid);
    }

    #[test]
    fn what_is_wrong_with_a_document_is_said() {
        for (changes, problem) in [
            (
                json!({ "client_id": "https://evil.example/client" }),
                DocumentProblem::Identifier,
            ),
            (json!({ "client_id": 7 }), DocumentProblem::Identifier),
            (
                json!({ "client_secret": "x" }),
                DocumentProblem::Secret("client_secret"),
            ),
            (
                json!({ "client_secret_expires_at": 0 }),
                DocumentProblem::Secret("client_secret_expires_at"),
            ),
            (
                json!({ "token_endpoint_auth_method": "client_secret_post" }),
                DocumentProblem::AuthMethod("client_secret_post"),
            ),
        ] {
            assert_eq!(parse_with(&changes), Err(problem), "{changes}");
        }
        for changes in [
            json!({ "token_endpoint_auth_method": "client_secret_jwt" }),
            json!({ "grant_types": ["implicit"] }),
            json!({ "response_types": ["token"] }),
            json!({ "request_object_encryption_alg": "RSA-OAEP" }),
        ] {
            let refused = parse_with(&changes);
            assert!(matches!(refused, Err(DocumentProblem::Metadata(_))), "{changes}");
        }
        for document in [
            "",
            "[]",
            "null",
            "{",
            "\u{feff}{}",
            "{\"client_id\":1,\"client_id\":2}",
        ] {
            let refused = parse(ID, document.as_bytes());
            assert!(matches!(refused, Err(DocumentProblem::Metadata(_))), "{document}");
        }
    }
}
