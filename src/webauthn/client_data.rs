//! Client data: what the browser says of the page that used a passkey (section 5.8.1).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::{Expected, WebAuthnError};
use crate::jose::json;

const MAX_LEN: usize = 4096;

/// The ceremony that `type` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ceremony {
    /// `webauthn.create`.
    Registration,
    /// `webauthn.get`.
    Authentication,
}

impl Ceremony {
    const fn type_name(self) -> &'static str {
        match self {
            Self::Registration => "webauthn.create",
            Self::Authentication => "webauthn.get",
        }
    }
}

/// Checks `clientDataJSON` (section 7.1 steps 5 to 11, section 7.2 steps 8 to 14).
///
/// Members that the standard does not name are ignored (section 5.8.1.2). The pages of the service are never in a frame of
/// another origin, so a response from there is refused.
pub fn check(client_data: &[u8], ceremony: Ceremony, expected: &Expected<'_>) -> Result<(), WebAuthnError> {
    if client_data.len() > MAX_LEN {
        return Err(WebAuthnError::ClientData);
    }
    let text = client_data.strip_prefix("\u{feff}".as_bytes());
    let members = json::object(text.unwrap_or(client_data)).map_err(|_| WebAuthnError::ClientData)?;
    let text = |name| {
        let member = members.get(name).and_then(Value::as_str);
        member.ok_or(WebAuthnError::ClientData)
    };
    if text("type")? != ceremony.type_name() {
        return Err(WebAuthnError::Ceremony);
    }
    if text("challenge")? != URL_SAFE_NO_PAD.encode(expected.challenge) {
        return Err(WebAuthnError::Challenge);
    }
    let origin = text("origin")?;
    if !expected.origins.iter().any(|known| known == origin) {
        return Err(WebAuthnError::Origin);
    }
    match members.get("crossOrigin") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => return Err(WebAuthnError::CrossOrigin),
        Some(_) => return Err(WebAuthnError::ClientData),
    }
    if members.contains_key("topOrigin") {
        return Err(WebAuthnError::CrossOrigin);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(client_data: &str) -> Result<(), WebAuthnError> {
        let origins = ["https://id.example".to_owned()];
        let expected = Expected {
            rp_id: "id.example",
            origins: &origins,
            challenge: &[0xfb; 16],
        };
        check(client_data.as_bytes(), Ceremony::Authentication, &expected)
    }

    #[test]
    fn the_client_data_of_the_own_page_is_accepted() {
        let plain =
            r#"{"type":"webauthn.get","challenge":"-_v7-_v7-_v7-_v7-_v7-w","origin":"https://id.example"}"#;
        assert_eq!(checked(plain), Ok(()));
        assert_eq!(checked(&format!("\u{feff}{plain}")), Ok(()));
        let more = plain.replace('}', r#","crossOrigin":false,"other_keys":{"a":[1]}}"#);
        assert_eq!(checked(&more), Ok(()));
    }

    #[test]
    fn another_page_ceremony_or_challenge_is_refused() {
        let client_data = |kind: &str, challenge: &str, origin: &str, more: &str| {
            checked(&format!(
                r#"{{"type":{kind},"challenge":{challenge},"origin":{origin}{more}}}"#
            ))
        };
        let (kind, challenge, origin) = (
            r#""webauthn.get""#,
            r#""-_v7-_v7-_v7-_v7-_v7-w""#,
            r#""https://id.example""#,
        );
        assert_eq!(client_data(kind, challenge, origin, ""), Ok(()));
        let other = [
            r#""webauthn.create""#,
            r#""webauthn.GET""#,
            r#""payment.get""#,
            r#""""#,
        ];
        for other in other {
            assert_eq!(
                client_data(other, challenge, origin, ""),
                Err(WebAuthnError::Ceremony)
            );
        }
        for other in [
            r#""-_v7-_v7-_v7-_v7-_v7-w==""#,
            r#""+/v7+/v7+/v7+/v7+/v7+w""#,
            r#""""#,
        ] {
            assert_eq!(
                client_data(kind, other, origin, ""),
                Err(WebAuthnError::Challenge)
            );
        }
        for other in [
            "https://id.example/",
            "https://id.example:443",
            "https://id.example:8443",
            "http://id.example",
            "https://ID.example",
            "https://evil.id.example",
            "https://id.example.evil",
            "null",
        ] {
            let other = format!("\"{other}\"");
            assert_eq!(
                client_data(kind, challenge, &other, ""),
                Err(WebAuthnError::Origin),
                "{other}"
            );
        }
        for more in [
            r#","crossOrigin":true"#,
            r#","topOrigin":"https://id.example""#,
            r#","topOrigin":null"#,
        ] {
            assert_eq!(
                client_data(kind, challenge, origin, more),
                Err(WebAuthnError::CrossOrigin)
            );
        }
        for more in [
            r#","crossOrigin":"false""#,
            r#","crossOrigin":null"#,
            r#","type":"webauthn.get""#,
        ] {
            assert_eq!(
                client_data(kind, challenge, origin, more),
                Err(WebAuthnError::ClientData)
            );
        }
        for (kind, challenge, origin) in [
            ("1", challenge, origin),
            (kind, "null", origin),
            (kind, challenge, r#"["https://id.example"]"#),
        ] {
            assert_eq!(
                client_data(kind, challenge, origin, ""),
                Err(WebAuthnError::ClientData)
            );
        }
    }

    #[test]
    fn what_is_not_a_short_json_object_is_refused() {
        let long = format!(r#"{{"type":"{}"}}"#, "a".repeat(MAX_LEN));
        let deep = "[".repeat(MAX_LEN);
        for text in ["", "null", "[]", "{}", "{", "{} {}", &long, &deep] {
            assert_eq!(checked(text), Err(WebAuthnError::ClientData));
        }
    }
}
