//! Tokens, as a client sees them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::jose::keyring::SigningKey;
use ring::hmac;
use serde_json::Value;

use super::reply::text;

/// The answer of the token endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Tokens(pub(crate) Value);

impl Tokens {
    pub(crate) fn access_token(&self) -> &str {
        text(&self.0["access_token"])
    }

    pub(crate) fn refresh_token(&self) -> &str {
        text(&self.0["refresh_token"])
    }

    pub(crate) fn id_token(&self) -> &str {
        text(&self.0["id_token"])
    }

    /// The granted scope values in order.
    pub(crate) fn scope(&self) -> Vec<&str> {
        text(&self.0["scope"]).split(' ').collect()
    }

    /// The access token, read but not verified.
    pub(crate) fn access(&self) -> Jwt {
        Jwt::read(self.access_token())
    }

    /// The ID token, read but not verified.
    pub(crate) fn id(&self) -> Jwt {
        Jwt::read(self.id_token())
    }
}

/// A token's header and claims.
#[derive(Clone, Debug)]
pub(crate) struct Jwt {
    pub(crate) header: Value,
    pub(crate) claims: Value,
}

impl Jwt {
    /// Reads a token without looking at its signature.
    pub(crate) fn read(token: &str) -> Self {
        let mut parts = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap());
        let mut next = || serde_json::from_slice(&parts.next().unwrap()).unwrap();
        Self {
            header: next(),
            claims: next(),
        }
    }

    /// A token with these parts, signed with HMAC-SHA-256 under a key, or with nothing at all.
    pub(crate) fn forge(&self, hmac_key: Option<&[u8]>) -> String {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let input = format!("{}.{}", part(&self.header), part(&self.claims));
        let signature = hmac_key.map_or_else(String::new, |key| {
            URL_SAFE_NO_PAD.encode(hmac::sign(
                &hmac::Key::new(hmac::HMAC_SHA256, key),
                input.as_bytes(),
            ))
        });
        format!("{input}.{signature}")
    }
}

/// A token with this header and these claims, signed by this key even if the header names another.
pub(crate) fn signed(key: &SigningKey, header: &Value, claims: &Value) -> String {
    sign_text(key, &header.to_string(), claims.to_string())
}

/// The same for texts that need not be JSON.
pub(crate) fn sign_text(key: &SigningKey, header: &str, claims: impl AsRef<[u8]>) -> String {
    let input = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims)
    );
    let signature = URL_SAFE_NO_PAD.encode(key.sign(input.as_bytes()).unwrap());
    format!("{input}.{signature}")
}
