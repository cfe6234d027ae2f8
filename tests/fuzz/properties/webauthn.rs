//! Passkeys: the parts of what a browser sends.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::webauthn::authenticator_data::AuthenticatorData;
use idsvc::webauthn::cbor::{self, Value};
use idsvc::webauthn::client_data::{self, Ceremony};
use idsvc::webauthn::cose::{ALGORITHMS, CredentialKey};
use idsvc::webauthn::{Expected, Registration};
use serde_json::Value as Json;

/// Writes the canonical encoding.
fn encode(value: &Value<'_>, into: &mut Vec<u8>, depth: usize) {
    let head = |major: u8, argument: u64, into: &mut Vec<u8>| {
        let bytes = argument.to_be_bytes();
        let (info, length) = match argument {
            0..=23 => (bytes[7], 0),
            24..=0xff => (24, 1),
            0x100..=0xffff => (25, 2),
            0x1_0000..=0xffff_ffff => (26, 4),
            _ => (27, 8),
        };
        into.push(major << 5 | info);
        into.extend_from_slice(&bytes[8 - length..]);
    };
    let length = |of: usize| u64::try_from(of).unwrap();
    match value {
        Value::Integer(number @ 0..) => head(0, u64::try_from(*number).unwrap(), into),
        Value::Integer(number) => head(1, u64::try_from(-1 - number).unwrap(), into),
        Value::Bytes(bytes) => {
            head(2, length(bytes.len()), into);
            into.extend_from_slice(bytes);
        }
        Value::Text(text) => {
            head(3, length(text.len()), into);
            into.extend_from_slice(text.as_bytes());
        }
        Value::Array(values) => {
            assert!(depth < 4);
            head(4, length(values.len()), into);
            for value in values {
                encode(value, into, depth + 1);
            }
        }
        Value::Map(entries) => {
            assert!(depth < 4);
            head(5, length(entries.len()), into);
            for (key, value) in entries {
                encode(key, into, depth + 1);
                encode(value, into, depth + 1);
            }
        }
        Value::Simple => into.push(0xf5),
    }
}

fn has_simple(value: &Value<'_>) -> bool {
    match value {
        Value::Simple => true,
        Value::Array(values) => values.iter().any(has_simple),
        Value::Map(entries) => entries
            .iter()
            .any(|(key, value)| has_simple(key) || has_simple(value)),
        Value::Integer(_) | Value::Bytes(_) | Value::Text(_) => false,
    }
}

/// There is one encoding of each value: what is read is written to the same bytes. With a byte more or less it is refused.
pub(super) fn cbor(data: &[u8]) -> bool {
    let Ok((value, rest)) = cbor::first(data) else {
        return false;
    };
    let read = &data[..data.len() - rest.len()];
    assert_eq!(cbor::only(read).as_ref(), Ok(&value));
    assert!(cbor::only(&[read, &[0]].concat()).is_err());
    assert!(cbor::first(&read[..read.len() - 1]).is_err());
    if !has_simple(&value) {
        let mut written = Vec::new();
        encode(&value, &mut written, 0);
        assert_eq!(written, read);
    }
    true
}

/// A key that is read is for an offered algorithm, and what nobody signed does not match.
pub(super) fn cose_key(data: &[u8]) -> bool {
    let Ok(value) = cbor::only(data) else {
        return false;
    };
    let Ok(key) = CredentialKey::of_value(&value) else {
        return false;
    };
    assert!(ALGORITHMS.contains(&key.algorithm()));
    assert!(key.verify(b"message", &[]).is_err());
    assert!(key.verify(b"message", data).is_err());
    true
}

/// What is read is used up to the last byte. The parts of a new credential lie where the standard puts them.
pub(super) fn authenticator_data(data: &[u8]) -> bool {
    let Ok(read) = AuthenticatorData::parse(data) else {
        return false;
    };
    assert!(AuthenticatorData::parse(&[data, &[0]].concat()).is_err());
    assert!(AuthenticatorData::parse(&data[..data.len() - 1]).is_err());
    assert_eq!(read.sign_count.to_be_bytes(), data[33..37]);
    assert_eq!(read.attested.is_some(), data[32] & 0x40 != 0);
    if let Some(attested) = read.attested {
        assert!((1..=1023).contains(&attested.id.len()));
        assert_eq!(attested.id, &data[55..55 + attested.id.len()]);
        assert!(cose_key(attested.public_key));
    }
    true
}

/// Client data that is accepted is a JSON object with the challenge and the origin that were expected. It is refused with
/// others, and in the other ceremony.
pub(super) fn client_data(data: &[u8]) -> bool {
    let origins = ["https://id.example.org".to_owned()];
    let text = data.strip_prefix("\u{feff}".as_bytes()).unwrap_or(data);
    let json: Json = serde_json::from_slice(text).unwrap_or_default();
    let challenge = json["challenge"].as_str().unwrap_or_default();
    let challenge = URL_SAFE_NO_PAD.decode(challenge).unwrap_or_default();
    let expected = |challenge, origins| Expected {
        rp_id: "id.example.org",
        origins,
        challenge,
    };
    let own = expected(&challenge, &origins);
    let accepted: Vec<_> = [Ceremony::Registration, Ceremony::Authentication]
        .into_iter()
        .filter(|ceremony| client_data::check(data, *ceremony, &own).is_ok())
        .collect();
    let [ceremony] = accepted[..] else {
        assert!(accepted.is_empty());
        return false;
    };
    assert_eq!(json["origin"], origins[0]);
    assert_ne!(json["crossOrigin"], true);
    let longer = [&challenge[..], &[0]].concat();
    assert!(client_data::check(data, ceremony, &expected(&longer, &origins)).is_err());
    let others = ["https://id.example.net".to_owned()];
    assert!(client_data::check(data, ceremony, &expected(&challenge, &others)).is_err());
    let registration = Registration {
        client_data: data,
        attestation_object: &[],
    };
    assert!(registration.verify(&own).is_err());
    true
}
