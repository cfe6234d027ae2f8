//! The answers of a browser as JSON: `RegistrationResponseJSON` and `AuthenticationResponseJSON` (sections 5.1.8 and
//! 5.1.9).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::WebAuthnError;
use super::{Assertion, Registration};
use crate::jose::json;

/// The most transports that are kept, and the longest name of one.
const MAX_TRANSPORTS: (usize, usize) = (8, 32);

/// The answer to `navigator.credentials.create()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationResponse {
    client_data: Vec<u8>,
    attestation_object: Vec<u8>,
    /// How the browser reaches the authenticator, as it says itself.
    pub transports: Vec<String>,
    /// Whether the authenticator is a part of the device with the browser.
    pub is_platform: bool,
}

/// The answer to `navigator.credentials.get()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationResponse {
    pub credential_id: Vec<u8>,
    /// The user handle that the authenticator stored; empty if it stored none.
    pub user_handle: Vec<u8>,
    client_data: Vec<u8>,
    authenticator_data: Vec<u8>,
    signature: Vec<u8>,
}

impl RegistrationResponse {
    /// Reads the answer. Unknown members are ignored.
    pub fn parse(text: &str) -> Result<Self, WebAuthnError> {
        let credential = json::object(text.as_bytes()).map_err(|_| WebAuthnError::Response)?;
        let response = response(&credential)?;
        let transports = response.get("transports").and_then(Value::as_array);
        let (count, length) = MAX_TRANSPORTS;
        let transports = transports
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|name| name.len() <= length && name.bytes().all(|byte| byte.is_ascii_graphic()))
            .take(count)
            .map(ToOwned::to_owned);
        Ok(Self {
            client_data: bytes(response, "clientDataJSON")?,
            attestation_object: bytes(response, "attestationObject")?,
            transports: transports.collect(),
            is_platform: credential.get("authenticatorAttachment") == Some(&Value::from("platform")),
        })
    }

    /// What is verified.
    pub fn registration(&self) -> Registration<'_> {
        Registration {
            client_data: &self.client_data,
            attestation_object: &self.attestation_object,
        }
    }
}

impl AuthenticationResponse {
    /// Reads the answer. Unknown members are ignored.
    pub fn parse(text: &str) -> Result<Self, WebAuthnError> {
        let credential = json::object(text.as_bytes()).map_err(|_| WebAuthnError::Response)?;
        let response = response(&credential)?;
        let user_handle = match response.get("userHandle") {
            None | Some(Value::Null) => Vec::new(),
            Some(_) => bytes(response, "userHandle")?,
        };
        Ok(Self {
            credential_id: bytes(&credential, "rawId")?,
            user_handle,
            client_data: bytes(response, "clientDataJSON")?,
            authenticator_data: bytes(response, "authenticatorData")?,
            signature: bytes(response, "signature")?,
        })
    }

    /// What is verified.
    pub fn assertion(&self) -> Assertion<'_> {
        Assertion {
            client_data: &self.client_data,
            authenticator_data: &self.authenticator_data,
            signature: &self.signature,
        }
    }
}

fn response(credential: &Map<String, Value>) -> Result<&Map<String, Value>, WebAuthnError> {
    let response = credential.get("response").and_then(Value::as_object);
    response.ok_or(WebAuthnError::Response)
}

fn bytes(members: &Map<String, Value>, name: &str) -> Result<Vec<u8>, WebAuthnError> {
    let text = members.get(name).and_then(Value::as_str);
    let bytes = URL_SAFE_NO_PAD.decode(text.ok_or(WebAuthnError::Response)?);
    bytes.map_err(|_| WebAuthnError::Response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_a_browser_are_read() {
        let registered = RegistrationResponse::parse(
            r#"{"id":"AQI","rawId":"AQI","type":"public-key","authenticatorAttachment":"platform",
                "response":{"clientDataJSON":"e30","attestationObject":"oA","transports":["internal","hybrid","a b",1]}}"#,
        )
        .unwrap();
        assert_eq!(registered.transports, ["internal", "hybrid"]);
        assert!(registered.is_platform);
        assert_eq!(registered.registration().attestation_object, [0xa0]);
        let signed = AuthenticationResponse::parse(
            r#"{"rawId":"AQI","response":{"clientDataJSON":"e30","authenticatorData":"AA","signature":"AQ","userHandle":null}}"#,
        )
        .unwrap();
        assert_eq!((signed.credential_id, signed.user_handle), (vec![1, 2], vec![]));
    }

    #[test]
    fn an_answer_of_another_form_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"rawId":"AQI"}"#,
            r#"{"rawId":"AQI","rawId":"AQI","response":{"clientDataJSON":"e30","authenticatorData":"AA","signature":"AQ"}}"#,
            r#"{"rawId":"AQI=","response":{"clientDataJSON":"e30","authenticatorData":"AA","signature":"AQ"}}"#,
            r#"{"rawId":"AQI","response":{"clientDataJSON":{},"authenticatorData":"AA","signature":"AQ"}}"#,
            r#"{"rawId":"AQI","response":{"clientDataJSON":"e30","authenticatorData":"AA","signature":"AQ","userHandle":1}}"#,
        ] {
            assert_eq!(
                AuthenticationResponse::parse(text),
                Err(WebAuthnError::Response),
                "{text}"
            );
            assert_eq!(
                RegistrationResponse::parse(text),
                Err(WebAuthnError::Response),
                "{text}"
            );
        }
    }
}
