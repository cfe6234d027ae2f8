//! Passkeys whose bytes were changed: attestation objects, authenticator data, keys and signatures, as real programs made
//! them and as an attacker changes them. Nothing panics, and of what is signed nothing changed is accepted.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::flow::factors;
use idsvc::identity::{FactorKind, Passkey as StoredPasskey};
use idsvc::pages::text::EN;
use idsvc::webauthn::cbor::{self, Value};
use idsvc::webauthn::{NewCredential, WebAuthnError};
use serde_json::{Value as Json, json};

use crate::harness::authenticator::Passkey;
use crate::harness::report::{amount, report};
use crate::harness::{Person, Server, scene};
use crate::passkeys::{data, passkey_form, store};
use crate::webauthn_vectors::{RegistrationVector, RelyingParty, Vector, vectors};

/// Numbers without order, the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 8).unwrap() % end.max(1)
    }
}

/// The bytes after one to three changes.
fn mutated(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=numbers.below(3) {
        change(&mut bytes, numbers);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    /// Heads that promise more than there is, that have no length, and that nest.
    const HEADS: [&[u8]; 8] = [
        &[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0xbb, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x5f],
        &[0xbf, 0xff],
        &[0xc0],
        &[0x81; 64],
        &[0xa1; 64],
    ];
    let (from, other) = (numbers.below(bytes.len()), numbers.below(bytes.len()));
    let (start, end) = (from.min(other), from.max(other));
    match numbers.below(10) {
        0 | 1 if !bytes.is_empty() => bytes[from] ^= 1 << numbers.below(8),
        2 if !bytes.is_empty() => bytes[from] = numbers.below(256).to_le_bytes()[0],
        // Another major type of the same argument, or another argument of the same type.
        3 if !bytes.is_empty() => bytes[from] ^= 0xe0 & numbers.below(256).to_le_bytes()[0],
        4 if !bytes.is_empty() => bytes[from] ^= 0x1f & numbers.below(256).to_le_bytes()[0],
        5 => bytes.truncate(from),
        6 => drop(bytes.drain(start..end)),
        7 => {
            let repeated = bytes[start..end].to_vec();
            bytes.splice(end..end, repeated);
        }
        8 => {
            let head = HEADS[numbers.below(HEADS.len())];
            bytes.splice(from..from, head.iter().copied());
        }
        _ => {
            let depth = [1, 4, 5, 10_000][numbers.below(4)];
            bytes.splice(from..from, vec![0x81; depth]);
        }
    }
}

/// The parts of an attestation object: its format and statement as they are written, and the authenticator data.
struct Parts<'a> {
    before: &'a [u8],
    data: &'a [u8],
}

/// The data is the last member of all these objects.
fn parts(object: &[u8]) -> Parts<'_> {
    let at = object
        .windows(9)
        .position(|window| window == b"\x68authData")
        .unwrap();
    let (before, value) = object.split_at(at + 9);
    let Ok(Value::Bytes(data)) = cbor::only(value) else {
        panic!("the data is the last member")
    };
    Parts { before, data }
}

/// An attestation object with other authenticator data.
fn with_data(parts: &Parts<'_>, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    let head = match length {
        0..=23 => vec![0x40 | length.to_be_bytes()[1]],
        24..=255 => vec![0x58, length.to_be_bytes()[1]],
        _ => [&[0x59], &length.to_be_bytes()[..]].concat(),
    };
    [parts.before, &head, data].concat()
}

/// A member of an attestation object that was accepted.
fn member<'a>(object: &'a [u8], name: &str) -> Option<Value<'a>> {
    let Ok(Value::Map(members)) = cbor::in_any_order(object) else {
        panic!("no map is accepted")
    };
    let mut members = members.into_iter();
    let found = members.find(|(key, _)| *key == Value::Text(name));
    found.map(|(_, value)| value)
}

/// Checks that an accepted credential has the values of the data. If the data has a signature, they are the signed ones.
fn check_registration(accepted: &NewCredential, object: &[u8], original: &RegistrationVector) {
    let Some(Value::Bytes(data)) = member(object, "authData") else {
        panic!("it has no data")
    };
    let end = 55 + accepted.id.len();
    assert_eq!(accepted.id, &data[55..end]);
    assert_eq!(accepted.public_key, &data[end..end + accepted.public_key.len()]);
    assert_eq!(accepted.sign_count.to_be_bytes(), data[33..37]);
    assert_eq!(data[32] & 0x45, 0x45, "present, verified, attested");
    assert_eq!(&data[..32], &parts(&original.attestation_object).data[..32]);
    let Some(Value::Map(statement)) = member(object, "attStmt") else {
        panic!("it has no statement")
    };
    let has_certificate = statement.iter().any(|(key, _)| *key == Value::Text("x5c"));
    if member(object, "fmt") == Some(Value::Text("packed")) && !has_certificate {
        assert_eq!(data, parts(&original.attestation_object).data);
    }
}

#[test]
fn changed_bytes_of_passkeys_neither_panic_nor_are_accepted_for_what_was_signed() {
    let relying_party = RelyingParty::new("id.example.org");
    let all: Vec<Vector> = vectors()
        .into_iter()
        .filter(|vector| relying_party.register(&vector.registration).is_ok())
        .collect();
    let rounds = amount(1500, 100_000);
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut accepted, mut refusals) = (0, BTreeSet::new());
    for Vector {
        name,
        registration,
        authentication,
    } in &all
    {
        let credential = relying_party.register(registration).unwrap();
        let whole = &registration.attestation_object;
        let parts = parts(whole);
        let key_at = 55 + credential.id.len();
        for round in 0..rounds {
            let attestation_object = match round % 3 {
                0 => mutated(whole, &mut numbers),
                1 => with_data(&parts, &mutated(parts.data, &mut numbers)),
                _ => {
                    let key = mutated(&parts.data[key_at..], &mut numbers);
                    with_data(&parts, &[&parts.data[..key_at], &key].concat())
                }
            };
            let changed = RegistrationVector {
                attestation_object,
                ..registration.clone()
            };
            match relying_party.register(&changed) {
                Ok(new) => {
                    accepted += 1;
                    check_registration(&new, &changed.attestation_object, registration);
                    // With the key of another nobody signs in.
                    if new.public_key != credential.public_key {
                        assert!(relying_party.sign_in(authentication, &new).is_err(), "{name}");
                    }
                }
                Err(refusal) => drop(refusals.insert(refusal.to_string())),
            }
            let (mut signed, mut stored) = (authentication.clone(), credential.clone());
            let part = match round % 4 {
                0 => &mut signed.authenticator_data,
                1 => &mut signed.client_data,
                2 => &mut signed.signature,
                _ => &mut stored.public_key,
            };
            *part = mutated(part, &mut numbers);
            if relying_party.sign_in(&signed, &stored).is_ok() {
                let is_as_signed = (
                    &signed.authenticator_data,
                    &signed.client_data,
                    &stored.public_key,
                ) == (
                    &authentication.authenticator_data,
                    &authentication.client_data,
                    &credential.public_key,
                );
                assert!(is_as_signed, "{name}: {round}");
            }
        }
    }
    assert!(accepted > 0, "each of them is refused");
    for reason in [
        WebAuthnError::AttestationObject,
        WebAuthnError::AuthenticatorData,
        WebAuthnError::Key,
        WebAuthnError::AttestationStatement,
        WebAuthnError::RpIdHash,
    ] {
        assert!(refusals.contains(&reason.to_string()), "{reason}: {refusals:?}");
    }
    report(
        "changed passkeys",
        &format!(
            "{} vectors, {rounds} changes of each: {accepted} accepted, {} kinds of refusal",
            all.len(),
            refusals.len()
        ),
    );
}

/// The bytes of a member of the response.
fn bytes_of(response: &Json, member: &str) -> Vec<u8> {
    let part = response["response"][member].as_str().unwrap();
    URL_SAFE_NO_PAD.decode(part).unwrap()
}

/// A response with changed bytes in a member.
fn changed_in(response: &Json, member: &str, numbers: &mut Numbers) -> Json {
    let mut response = response.clone();
    let part = mutated(&bytes_of(&response, member), numbers);
    response["response"][member] = json!(URL_SAFE_NO_PAD.encode(part));
    response
}

/// Takes the passkey of the user away, if one was stored.
async fn take(server: &Server, person: &Person) -> Option<StoredPasskey> {
    let user = person.user.uuid;
    let removed = server
        .app
        .core
        .store
        .write("test_factors", move |tx| factors::remove_all(tx, user));
    let mut removed = removed.await.unwrap().into_iter();
    removed.find_map(|(_, factor)| match factor.kind {
        FactorKind::Passkey(passkey) => Some(passkey),
        _ => None,
    })
}

/// Checks that a stored passkey has the values of the data, and is of this service. Without an attestation, there is no
/// signature to check.
fn check_stored(stored: &StoredPasskey, changed: &[u8], original: &[u8]) {
    let Some(Value::Bytes(data)) = member(changed, "authData") else {
        panic!("it has no data")
    };
    let end = 55 + stored.credential_id.len();
    assert_eq!(stored.credential_id, data[55..end]);
    assert_eq!(stored.public_key, data[end..end + stored.public_key.len()]);
    assert_eq!(stored.sign_count.to_be_bytes(), data[33..37]);
    assert_eq!(data[32] & 0x45, 0x45, "present, verified, attested");
    assert_eq!(data[..32], parts(original).data[..32], "of this service");
}

#[tokio::test]
async fn changed_passkeys_are_refused_on_the_pages() {
    let (server, acme, alice) = scene().await;
    let passkey = Passkey::new(alice.user.uuid.as_bytes());
    let browser = alice.browser();
    browser.visit("/account/security").await.sign_in().await;
    let (mut numbers, mut refused) = (Numbers(7), 0);
    for _ in 0..40 {
        let page = browser.visit("/account/security").await;
        let created = passkey.create(&data(&page, "challenge").unwrap());
        let changed = changed_in(&created, "attestationObject", &mut numbers);
        let form = page.account_form("passkey").with("passkey", &changed.to_string());
        let answer = browser.submit(&form).await;
        assert!(answer.status < 500, "{}", answer.text());
        let stored = take(&server, &alice).await;
        let says_added = answer.text().contains(EN.passkey_added);
        assert_eq!(says_added, stored.is_some(), "{}", answer.text());
        let [changed, original] = [&changed, &created].map(|object| bytes_of(object, "attestationObject"));
        match stored {
            Some(stored) => check_stored(&stored, &changed, &original),
            None => refused += usize::from(changed != original),
        }
    }
    assert!((20..40).contains(&refused), "{refused} of 40 are refused");
    store(&server, &alice, &passkey).await;
    for round in 0..60 {
        let login = server.browser().authorize(&acme.request()).await;
        let response = passkey.get(&data(&login, "challenge").unwrap());
        let member = ["authenticatorData", "signature", "userHandle"][round % 3];
        let changed = changed_in(&response, member, &mut numbers);
        let answer = login
            .browser()
            .submit(&passkey_form(&login).with("passkey", &changed.to_string()))
            .await;
        assert!(answer.status < 500, "{}", answer.text());
        assert!(answer.header("location").is_none(), "{round}: {member} {changed}");
    }
}
