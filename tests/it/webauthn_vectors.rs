//! Passkeys of other programs: what they register is accepted, and what they sign. One changed byte is refused.

use idsvc::webauthn::authenticator_data::AuthenticatorData;
use idsvc::webauthn::cbor::{self, Value};
use idsvc::webauthn::{Assertion, Expected, NewCredential, Registration, StoredCredential, WebAuthnError};
use ring::digest;
use serde::Deserialize;

use crate::harness::report::report;

#[derive(Deserialize)]
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) registration: RegistrationVector,
    pub(crate) authentication: AuthenticationVector,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RegistrationVector {
    #[serde(deserialize_with = "bytes")]
    pub(crate) challenge: Vec<u8>,
    #[serde(rename = "clientDataJSON", deserialize_with = "bytes")]
    pub(crate) client_data: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(crate) attestation_object: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(crate) credential_id: Vec<u8>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuthenticationVector {
    #[serde(deserialize_with = "bytes")]
    pub(crate) challenge: Vec<u8>,
    #[serde(rename = "clientDataJSON", deserialize_with = "bytes")]
    pub(crate) client_data: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(crate) authenticator_data: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(crate) signature: Vec<u8>,
}

fn bytes<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let digits = String::deserialize(deserializer)?;
    let starts = (0..digits.len()).step_by(2);
    Ok(starts
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect())
}

pub(crate) struct RelyingParty {
    id: &'static str,
    origins: [String; 1],
}

impl RelyingParty {
    pub(crate) fn new(id: &'static str) -> Self {
        Self {
            id,
            origins: [format!("https://{id}")],
        }
    }

    fn expects<'a>(&'a self, challenge: &'a [u8]) -> Expected<'a> {
        Expected {
            rp_id: self.id,
            origins: &self.origins,
            challenge,
        }
    }

    pub(crate) fn register(&self, vector: &RegistrationVector) -> Result<NewCredential, WebAuthnError> {
        let registration = Registration {
            client_data: &vector.client_data,
            attestation_object: &vector.attestation_object,
        };
        registration.verify(&self.expects(&vector.challenge))
    }

    pub(crate) fn sign_in(
        &self,
        vector: &AuthenticationVector,
        credential: &NewCredential,
    ) -> Result<(u32, bool), WebAuthnError> {
        let assertion = Assertion {
            client_data: &vector.client_data,
            authenticator_data: &vector.authenticator_data,
            signature: &vector.signature,
        };
        let stored = StoredCredential {
            public_key: &credential.public_key,
            sign_count: credential.sign_count,
            backup_eligible: credential.backup_eligible,
        };
        let state = assertion.verify(&self.expects(&vector.challenge), &stored)?;
        Ok((state.sign_count, state.backed_up))
    }
}

/// What other programs registered and signed.
pub(crate) fn vectors() -> Vec<Vector> {
    let files = [
        include_str!("../vectors/webauthn/passkey-authenticator.json"),
        include_str!("../vectors/webauthn/fido2.json"),
    ];
    let vectors = files.map(|file| serde_json::from_str::<Vec<Vector>>(file).unwrap());
    vectors.into_iter().flatten().collect()
}

fn changed(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at] ^= 1;
    changed
}

/// Registers, signs in, and changes each byte of each part once.
fn accepts(relying_party: &RelyingParty, vector: &Vector) {
    let (name, registration, sign_in) = (&vector.name, &vector.registration, &vector.authentication);
    let credential = relying_party
        .register(registration)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(credential.id, registration.credential_id, "{name}");
    let (sign_count, _) = relying_party
        .sign_in(sign_in, &credential)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(sign_count >= credential.sign_count, "{name}");
    let refused = |vector: AuthenticationVector, at: usize| {
        assert!(
            relying_party.sign_in(&vector, &credential).is_err(),
            "{name}: byte {at}"
        );
    };
    let copy = || AuthenticationVector {
        challenge: sign_in.challenge.clone(),
        client_data: sign_in.client_data.clone(),
        authenticator_data: sign_in.authenticator_data.clone(),
        signature: sign_in.signature.clone(),
    };
    for at in 0..sign_in.challenge.len() {
        refused(
            AuthenticationVector {
                challenge: changed(&sign_in.challenge, at),
                ..copy()
            },
            at,
        );
    }
    for at in 0..sign_in.client_data.len() {
        refused(
            AuthenticationVector {
                client_data: changed(&sign_in.client_data, at),
                ..copy()
            },
            at,
        );
    }
    for at in 0..sign_in.authenticator_data.len() {
        let authenticator_data = changed(&sign_in.authenticator_data, at);
        refused(
            AuthenticationVector {
                authenticator_data,
                ..copy()
            },
            at,
        );
    }
    for at in 0..sign_in.signature.len() {
        refused(
            AuthenticationVector {
                signature: changed(&sign_in.signature, at),
                ..copy()
            },
            at,
        );
    }
    let other = AuthenticationVector {
        client_data: registration.client_data.clone(),
        challenge: registration.challenge.clone(),
        ..copy()
    };
    assert_eq!(
        relying_party.sign_in(&other, &credential),
        Err(WebAuthnError::Ceremony),
        "{name}"
    );
}

#[test]
fn passkeys_of_other_programs_are_accepted_and_changed_ones_are_not() {
    let relying_party = RelyingParty::new("id.example.org");
    for vector in vectors() {
        if vector.name.ends_with("without user verification") {
            let refused = relying_party.register(&vector.registration);
            assert_eq!(refused, Err(WebAuthnError::UserNotVerified), "{}", vector.name);
        } else {
            accepts(&relying_party, &vector);
        }
    }
}

/// Whether the authenticator signed the assertion with the key of the registration. The flags are not looked at.
fn is_signed(vector: &Vector) -> Result<(), WebAuthnError> {
    let object = cbor::only(&vector.registration.attestation_object).unwrap();
    let Value::Map(members) = &object else { panic!() };
    let (_, Value::Bytes(data)) = &members[2] else {
        panic!()
    };
    let key = AuthenticatorData::parse(data)?.attested.unwrap().key;
    let signed = &vector.authentication;
    let hash = digest::digest(&digest::SHA256, &signed.client_data);
    key.verify(
        &[&signed.authenticator_data, hash.as_ref()].concat(),
        &signed.signature,
    )
}

/// The vectors of section 16. In many of them the user was not verified, or the page was in a frame. Such a response is
/// refused, and its signature matches nevertheless.
#[test]
fn the_vectors_of_the_standard_are_judged_as_the_service_decides() {
    let name = "the test vectors of Web Authentication Level 3";
    let Some(file) = std::env::var_os("WEBAUTHN_VECTORS") else {
        return report(name, "NOT RUN: WEBAUTHN_VECTORS names no file");
    };
    let text = std::fs::read_to_string(file).unwrap();
    let relying_party = RelyingParty::new("example.org");
    let vectors: Vec<Vector> = serde_json::from_str(&text).unwrap();
    for vector in &vectors {
        let name = &vector.name;
        let is_framed = ["crossOrigin", "topOrigin"]
            .iter()
            .any(|word| name.contains(word));
        let is_supported = !["ES384", "ES512", "Ed448"].iter().any(|key| name.contains(key));
        let expected = if is_supported {
            Ok(())
        } else {
            Err(WebAuthnError::Key)
        };
        assert_eq!(is_signed(vector), expected, "{name}");
        let flags = vector.authentication.authenticator_data[32];
        match relying_party.register(&vector.registration) {
            Ok(credential) => {
                let is_verified = flags & 4 != 0;
                let expected = if is_verified {
                    Ok(())
                } else {
                    Err(WebAuthnError::UserNotVerified)
                };
                let signed_in = relying_party.sign_in(&vector.authentication, &credential);
                assert_eq!(signed_in.map(drop), expected, "{name}");
                assert!(!is_framed && is_supported, "{name}");
                eprintln!("{name}: registered, and then {expected:?}");
            }
            Err(refusal) => {
                let is_expected = match refusal {
                    WebAuthnError::CrossOrigin => is_framed,
                    WebAuthnError::Key => !is_supported,
                    WebAuthnError::UserNotVerified => !is_framed && is_supported,
                    _ => false,
                };
                assert!(is_expected, "{name}: {refusal}");
                eprintln!("{name}: {refusal}");
            }
        }
    }
    report(name, &format!("{} vectors", vectors.len()));
}
