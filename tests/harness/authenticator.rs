//! An authenticator with passkeys, and the browser's part of the ceremonies (Web Authentication Level 3).

use std::cell::Cell;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use super::server::ISSUER;

pub(crate) const UP: u8 = 1;
pub(crate) const UV: u8 = 1 << 2;
pub(crate) const BE: u8 = 1 << 3;
pub(crate) const BS: u8 = 1 << 4;
const AT: u8 = 1 << 6;

#[expect(
    clippy::disallowed_methods,
    reason = "an authenticator has entropy of its own"
)]
fn entropy() -> SystemRandom {
    SystemRandom::new()
}

/// One passkey. What a test changes makes it lie.
pub(crate) struct Passkey {
    key: EcdsaKeyPair,
    pub(crate) id: Vec<u8>,
    pub(crate) user_handle: Vec<u8>,
    pub(crate) origin: String,
    pub(crate) rp_id: String,
    pub(crate) flags: Cell<u8>,
    pub(crate) sign_count: Cell<u32>,
    /// Further members of the client data.
    pub(crate) client_data: Value,
}

impl Passkey {
    /// A passkey of a user, as a device syncs it.
    pub(crate) fn new(user_handle: &[u8]) -> Self {
        let random = entropy();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let mut id = vec![0; 32];
        random.fill(&mut id).unwrap();
        Self {
            key,
            id,
            user_handle: user_handle.to_vec(),
            origin: ISSUER.to_owned(),
            rp_id: ISSUER.strip_prefix("https://").unwrap().to_owned(),
            flags: Cell::new(UP | UV | BE | BS),
            sign_count: Cell::new(0),
            client_data: json!({}),
        }
    }

    /// A passkey that never leaves its security key, which counts its signatures.
    pub(crate) fn of_security_key(user_handle: &[u8]) -> Self {
        let passkey = Self::new(user_handle);
        passkey.flags.set(UP | UV);
        passkey.sign_count.set(1);
        passkey
    }

    /// `navigator.credentials.create()`, as JSON.
    pub(crate) fn create(&self, challenge: &str) -> Value {
        let client_data = self.client_data("webauthn.create", challenge);
        let object = [
            b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58".as_slice(),
            &[u8::try_from(self.attested().len()).unwrap()],
            &self.attested(),
        ]
        .concat();
        json!({
            "id": encode(&self.id),
            "rawId": encode(&self.id),
            "type": "public-key",
            "authenticatorAttachment": "platform",
            "response": {
                "clientDataJSON": encode(&client_data),
                "attestationObject": encode(&object),
                "transports": ["internal", "hybrid"],
            },
        })
    }

    /// `navigator.credentials.get()`, as JSON.
    pub(crate) fn get(&self, challenge: &str) -> Value {
        let client_data = self.client_data("webauthn.get", challenge);
        if self.sign_count.get() > 0 {
            self.sign_count.set(self.sign_count.get() + 1);
        }
        let data = self.data(self.flags.get());
        let hash = digest::digest(&digest::SHA256, &client_data);
        let message = [&data, hash.as_ref()].concat();
        let signature = self.key.sign(&entropy(), &message).unwrap();
        json!({
            "id": encode(&self.id),
            "rawId": encode(&self.id),
            "type": "public-key",
            "response": {
                "clientDataJSON": encode(&client_data),
                "authenticatorData": encode(&data),
                "signature": encode(signature.as_ref()),
                "userHandle": encode(&self.user_handle),
            },
        })
    }

    /// The `COSE_Key`.
    pub(crate) fn public_key(&self) -> Vec<u8> {
        let point = self.key.public_key().as_ref();
        [
            b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20".as_slice(),
            &point[1..33],
            b"\x22\x58\x20",
            &point[33..],
        ]
        .concat()
    }

    fn client_data(&self, kind: &str, challenge: &str) -> Vec<u8> {
        let mut client_data = json!({
            "type": kind,
            "challenge": challenge,
            "origin": self.origin,
            "crossOrigin": false,
        });
        let members = client_data.as_object_mut().unwrap();
        members.extend(self.client_data.as_object().unwrap().clone());
        client_data.to_string().into_bytes()
    }

    fn data(&self, flags: u8) -> Vec<u8> {
        let rp_id = digest::digest(&digest::SHA256, self.rp_id.as_bytes());
        [rp_id.as_ref(), &[flags], &self.sign_count.get().to_be_bytes()].concat()
    }

    /// The authenticator data of a registration.
    pub(crate) fn attested(&self) -> Vec<u8> {
        let length = u16::try_from(self.id.len()).unwrap();
        [
            self.data(self.flags.get() | AT).as_slice(),
            &[0; 16],
            &length.to_be_bytes(),
            &self.id,
            &self.public_key(),
        ]
        .concat()
    }
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
