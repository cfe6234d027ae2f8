//! The API key at the refresh endpoint: a Basic header in each form that clients are known to send.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use zeroize::Zeroizing;

use crate::oauth::error::Refusal;
use crate::oauth::parameters::form_decode;
use crate::secret::{ApiKey, Secret};

/// An API key as a client presents it.
#[derive(Debug)]
pub struct PresentedApiKey {
    /// The key. Only its form was checked.
    pub key: Secret<ApiKey>,
    /// The client that the header names beside it, as it was sent, if it names one.
    pub client_id: Option<String>,
}

impl PresentedApiKey {
    /// Whether the header names this client or none. The name may be form-encoded (RFC 6749 section 2.3.1).
    pub fn is_of(&self, client_id: &str) -> bool {
        self.client_id.as_deref().is_none_or(|named| {
            let decoded = form_decode(named.as_bytes());
            named == client_id || decoded.is_some_and(|decoded| *decoded == client_id)
        })
    }
}

/// The refusal of everything except a valid API key.
pub const UNKNOWN: Refusal = Refusal::invalid_client("the API key is missing, unknown or revoked");

/// Reads what follows `Basic`: base64 of `key`, `key:`, `:key` or `client_id:key`, or the key itself.
pub fn parse(credentials: &str) -> Result<PresentedApiKey, Refusal> {
    if let Ok(key) = Secret::parse(credentials) {
        return Ok(PresentedApiKey { key, client_id: None });
    }
    let decoded = STANDARD
        .decode(credentials)
        .or_else(|_| STANDARD_NO_PAD.decode(credentials))
        .map_err(|_| UNKNOWN)?;
    let text = Zeroizing::new(String::from_utf8(decoded).map_err(|_| UNKNOWN)?);
    let (before, after) = text.rsplit_once(':').unwrap_or((text.as_str(), ""));
    let (client_id, key) = match (before, after) {
        (key, "") | ("", key) => (None, key),
        (client_id, key) => (Some(client_id), key),
    };
    let key = Secret::parse(key).map_err(|_| UNKNOWN)?;
    Ok(PresentedApiKey {
        key,
        client_id: client_id.map(ToOwned::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_known_form_is_read() {
        let key = Secret::<ApiKey>::generate(&[5; 16], &Random::seeded(1));
        let text = key.reveal();
        for (sent, client_id) in [
            (STANDARD.encode(text), None),
            (STANDARD.encode(format!("{text}:")), None),
            (STANDARD.encode(format!(":{text}")), None),
            (STANDARD.encode(format!("tv:{text}")), Some("tv")),
            (STANDARD.encode(format!("urn:tv:{text}")), Some("urn:tv")),
            (STANDARD_NO_PAD.encode(format!("{text}:")), None),
            (text.to_owned(), None),
        ] {
            let presented = parse(&sent).unwrap();
            assert_eq!(presented.key.digest(), key.digest(), "{sent}");
            assert_eq!(presented.client_id.as_deref(), client_id, "{sent}");
        }
    }

    #[test]
    fn a_client_is_named_plainly_or_form_encoded() {
        let key = Secret::<ApiKey>::generate(&[5; 16], &Random::seeded(1));
        let is_of = |named: &str, client_id: &str| {
            let sent = STANDARD.encode(format!("{named}{}", key.reveal()));
            parse(&sent).unwrap().is_of(client_id)
        };
        assert!(is_of("", "tv") && is_of("tv:", "tv"));
        assert!(is_of("urn%3Atv+app:", "urn:tv app") && is_of("urn:tv app:", "urn:tv app"));
        assert!(is_of("a+b%20c:", "a+b%20c"));
        assert!(!is_of("other:", "tv") && !is_of("%74%ff:", "tv"));
    }

    #[test]
    fn anything_else_is_refused_alike() {
        for sent in [
            "",
            "x",
            "idsvc_key_x",
            "////",
            &STANDARD.encode("a:b"),
            &STANDARD.encode([0xff, 0xfe]),
        ] {
            assert_eq!(parse(sent).unwrap_err(), UNKNOWN, "{sent}");
        }
    }
}
