//! Signed authorization requests.

use std::sync::LazyLock;

use idsvc::clock::Timestamp;
use idsvc::jose::jwk::JwkSet;
use idsvc::jose::jws::Compact;
use idsvc::oauth::client::Client;
use idsvc::oauth::error::{ErrorCode, Refusal};
use idsvc::oauth::parameters::Parameters;
use idsvc::oauth::request_object::RequestObject;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::reference::is_description;

const ISSUER: &str = "https://id.example";
/// The time of the seeds.
const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// The client that signed the seeds, whose private key is gone.
static CLIENT: LazyLock<(Client, JwkSet)> = LazyLock::new(|| {
    let mut client = Client::new("app", Uuid::nil(), Uuid::nil(), false, NOW);
    client.jwks = vec![json!({
        "kty": "EC", "crv": "P-256",
        "x": "pmO0-yM6hMjFm1lRTv_KXm9bNwiEU3RGmiFCUbTG3wA",
        "y": "B1HKxuZvlpcmWyceafSyxw5rkmce9k_yWzrLVvp6-S8",
    })];
    let keys = JwkSet::of_jwks(&client.jwks);
    (client, keys)
});

/// An object that is accepted is signed by the client, is for this service and this hour, and has the parameters that
/// were signed.
pub(super) fn request_object(data: &[u8]) -> bool {
    if let Ok(claims) = serde_json::from_slice(data) {
        check_parameters(&claims);
    }
    let Ok(object) = std::str::from_utf8(data) else {
        return false;
    };
    let (client, keys) = &*CLIENT;
    let accept = |issuer, now| {
        let read = RequestObject::verify(object, client, keys)?;
        read.check(client, issuer, now)?;
        Ok::<_, Refusal>(read.parameters)
    };
    let parameters = match accept(ISSUER, NOW) {
        Ok(parameters) => parameters,
        Err(refusal) => {
            assert_eq!(refusal.code, ErrorCode::InvalidRequestObject);
            assert!(is_description(&refusal.description), "{refusal:?}");
            return false;
        }
    };
    assert_eq!(parameters.get("client_id"), Some("app"));
    let compact = Compact::parse(object).unwrap();
    assert_eq!(compact.alg(), "ES256");
    let claims: Map<String, Value> = serde_json::from_slice(compact.payload()).unwrap();
    for (name, value) in parameters.iter() {
        assert!(
            ![
                "request",
                "request_uri",
                "iss",
                "sub",
                "aud",
                "exp",
                "nbf",
                "iat",
                "jti"
            ]
            .contains(&name)
        );
        assert!(claims[name].as_str().is_none_or(|text| text == value), "{name}");
    }
    if claims.contains_key("aud") {
        assert!(accept("https://third.example", NOW).is_err());
    }
    if claims.contains_key("exp") && claims.contains_key("nbf") {
        for now in [1_800_007_300, 1_799_992_700] {
            assert!(accept(ISSUER, Timestamp::from_seconds(now)).is_err());
        }
    }
    true
}

/// Each claim becomes one parameter, never an empty one, and texts stay as they are.
fn check_parameters(claims: &Map<String, Value>) {
    let Ok(parameters) = Parameters::of_claims(claims) else {
        return;
    };
    assert_eq!(parameters.each_once(), Ok(()));
    for (name, value) in parameters.iter() {
        assert!(!value.is_empty() && claims.contains_key(name));
        assert!(claims[name].as_str().is_none_or(|text| text == value));
    }
}
