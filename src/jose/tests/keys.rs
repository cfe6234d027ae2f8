//! Valid and invalid keys in every form.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{es256, one_of_each, rs256};
use crate::jose::alg::Algorithm;
use crate::jose::der;
use crate::jose::jwk::{JwkError, JwkSet, PublicKey};
use crate::jose::keyring::{KeyState, Keyring, SigningKey, SigningKeyError};

fn pem(label: &str, der: &[u8]) -> String {
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        STANDARD.encode(der)
    )
}

/// The private key inside a `PrivateKeyInfo`.
fn inner(pkcs8: &[u8]) -> &[u8] {
    let mut info = der::Reader::new(der::Reader::only(pkcs8, der::SEQUENCE).unwrap());
    info.element(der::INTEGER).unwrap();
    info.element(der::SEQUENCE).unwrap();
    info.element(der::OCTET_STRING).unwrap()
}

#[test]
fn a_ring_signs_with_the_active_key_and_publishes_all() {
    let [announced, active, retired, other] = [es256(), es256(), es256(), rs256()];
    let ring = Keyring::new(vec![
        (announced.clone(), KeyState::Announced),
        (retired.clone(), KeyState::Retired),
        (active.clone(), KeyState::Active),
        (other.clone(), KeyState::Active),
        (active.clone(), KeyState::Retired),
    ]);
    assert_eq!(ring.signer(Algorithm::Es256).unwrap().kid(), active.kid());
    assert_eq!(ring.signer(Algorithm::Rs256).unwrap().kid(), other.kid());
    assert!(ring.signer(Algorithm::EdDsa).is_none());
    assert_eq!(ring.keys().len(), 4);
    let outdated = Keyring::new(vec![
        (announced.clone(), KeyState::Announced),
        (other.clone(), KeyState::Retired),
    ]);
    assert!(Algorithm::ALL.iter().all(|alg| outdated.signer(*alg).is_none()));
    assert_eq!(
        outdated.published_algorithms(),
        [Algorithm::Rs256, Algorithm::Es256]
    );

    let document: Value = serde_json::from_slice(ring.jwks()).unwrap();
    let set = JwkSet::parse(ring.jwks()).unwrap();
    for (index, key) in [&announced, &retired, &active, &other].into_iter().enumerate() {
        assert_eq!(ring.verifier(key.kid()), Some(key.public()));
        assert_eq!(&set.keys[index], key.public());
        let jwk = document["keys"][index].as_object().unwrap();
        assert_eq!(jwk["kid"], key.kid());
        assert_eq!(jwk["alg"], key.alg().as_str());
        assert_eq!(jwk["use"], "sig");
        let names: Vec<&str> = jwk.keys().map(String::as_str).collect();
        let public: &[&str] = match key.alg() {
            Algorithm::Es256 => &["alg", "crv", "kid", "kty", "use", "x", "y"],
            _ => &["alg", "e", "kid", "kty", "n", "use"],
        };
        assert_eq!(names, public);
    }
    assert_eq!(ring.verifier("unknown"), None);
    let empty = Keyring::new(Vec::new());
    assert_eq!(empty.jwks().as_ref(), br#"{"keys":[]}"#);
    assert!(empty.published_algorithms().is_empty());
}

#[test]
fn a_set_skips_what_it_cannot_use_and_refuses_what_is_broken() {
    let good = es256().public().to_jwk();
    let with = |name: &str, value: Value| {
        let mut key = good.clone();
        key[name] = value;
        key
    };
    let small = json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode([0xff; 128]), "e": "AQAB"});
    let even = json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode([0xff; 256]), "e": "AQAA"});
    let huge = json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode([0xff; 1025]), "e": "AQAB"});
    let skipped = [
        json!({"kty": "oct", "k": "c2VjcmV0"}),
        json!({"kty": "AKP"}),
        json!({}),
        json!({"kty": "EC", "crv": "P-521", "x": "", "y": ""}),
        json!({"kty": "OKP", "crv": "X25519", "x": ""}),
        json!({"kty": "RSA", "e": "AQAB"}),
        small,
        even,
        huge,
        with("use", "enc".into()),
        with("key_ops", json!(["deriveKey"])),
        with("alg", "ES512".into()),
        with("alg", "RS256".into()),
    ];
    for key in skipped {
        let set = JwkSet::parse(json!({"keys": [key, good]}).to_string().as_bytes()).unwrap();
        assert_eq!(set.keys.len(), 1, "{key}");
    }
    let broken = [
        json!("key"),
        with("d", "AAAA".into()),
        with("k", "AAAA".into()),
        with("x", "AAAA".into()),
        with("x", 7.into()),
        with("x", "not base64!".into()),
        with("kid", 7.into()),
        with("use", json!([])),
        with("key_ops", "verify".into()),
        json!({"kty": "RSA", "n": "", "e": "AQAB"}),
        json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode([0xff; 256]), "e": ""}),
        json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode([&[0][..], &[0xff; 256]].concat()), "e": "AQAB"}),
    ];
    for key in broken {
        assert!(
            JwkSet::parse(json!({"keys": [good, key]}).to_string().as_bytes()).is_err(),
            "{key}"
        );
    }
    for document in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[],"keys":[]}"#] {
        assert!(JwkSet::parse(document.as_bytes()).is_err(), "{document}");
    }
    assert_eq!(
        PublicKey::from_jwk(&with("d", "AAAA".into())),
        Err(JwkError::Private)
    );
}

#[test]
fn a_set_finds_the_key_by_name_and_guesses_only_when_there_is_no_choice() {
    let [one, two, rsa] = [es256(), es256(), rs256()];
    let set = JwkSet {
        keys: vec![one.public().clone(), two.public().clone(), rsa.public().clone()],
    };
    assert_eq!(set.select(Some(two.kid()), Algorithm::Es256), Some(two.public()));
    assert_eq!(set.select(Some(two.kid()), Algorithm::Rs256), None);
    assert_eq!(set.select(Some("unknown"), Algorithm::Rs256), None);
    assert_eq!(set.select(None, Algorithm::Rs256), Some(rsa.public()));
    assert_eq!(set.select(None, Algorithm::Es256), None);

    let mut jwk = one.public().to_jwk();
    jwk.as_object_mut().unwrap().remove("kid");
    let nameless = PublicKey::from_jwk(&jwk).unwrap();
    let set = JwkSet {
        keys: vec![nameless.clone(), rsa.public().clone()],
    };
    assert_eq!(set.select(Some("anything"), Algorithm::Es256), Some(&nameless));
    assert_eq!(set.select(Some("anything"), Algorithm::Rs256), None);
}

#[test]
fn private_keys_are_read_from_every_pem_that_openssl_writes() {
    let [rsa, pss, ec, ed] = one_of_each();
    for key in [&rsa, &ec, &ed] {
        let read = SigningKey::from_pem(&pem("PRIVATE KEY", key.pkcs8()), None).unwrap();
        assert_eq!((read.kid(), read.alg()), (key.kid(), key.alg()));
    }
    let pkcs1 = pem("RSA PRIVATE KEY", inner(rsa.pkcs8()));
    assert_eq!(
        SigningKey::from_pem(&pkcs1, None).unwrap().alg(),
        Algorithm::Rs256
    );
    assert_eq!(
        SigningKey::from_pem(&pkcs1, Some(Algorithm::Ps256))
            .unwrap()
            .public(),
        pss.public()
    );
    assert_eq!(
        SigningKey::from_pem(&pkcs1, Some(Algorithm::Es256)).unwrap_err(),
        SigningKeyError::WrongAlgorithm
    );

    let mut fields = der::Reader::new(der::Reader::only(inner(ec.pkcs8()), der::SEQUENCE).unwrap());
    fields.element(der::INTEGER).unwrap();
    let scalar = der::element(der::OCTET_STRING, &[fields.element(der::OCTET_STRING).unwrap()]);
    let public = der::element(der::CONTEXT_1, &[fields.element(der::CONTEXT_1).unwrap()]);
    let sec1 = |curve: &[u8]| {
        let curve = der::element(der::CONTEXT_0, &[&der::element(der::OBJECT_IDENTIFIER, &[curve])]);
        let version = der::element(der::INTEGER, &[&[1]]);
        pem(
            "EC PRIVATE KEY",
            &der::element(der::SEQUENCE, &[&version, &scalar, &curve, &public]),
        )
    };
    let parameters = pem(
        "EC PARAMETERS",
        &der::element(der::OBJECT_IDENTIFIER, &[der::SECP256R1]),
    );
    let read = SigningKey::from_pem(&format!("{parameters}{}", sec1(der::SECP256R1)), None).unwrap();
    assert_eq!(read.kid(), ec.kid());
    let p384 = [0x2b, 0x81, 0x04, 0x00, 0x22];
    assert_eq!(
        SigningKey::from_pem(&sec1(&p384), None).unwrap_err(),
        SigningKeyError::UnsupportedType
    );
}

#[test]
fn files_without_a_usable_private_key_say_what_is_wrong() {
    let key = es256();
    let good = pem("PRIVATE KEY", key.pkcs8());
    let mut swapped = key.pkcs8().to_vec();
    *swapped.last_mut().unwrap() ^= 1;
    for (text, error) in [
        (String::new(), SigningKeyError::NotPem),
        (pem("PUBLIC KEY", b"x"), SigningKeyError::NotPem),
        (pem("ENCRYPTED PRIVATE KEY", b"x"), SigningKeyError::Encrypted),
        (
            pem("RSA PRIVATE KEY", b"x").replacen('\n', "\nProc-Type: 4,ENCRYPTED\n\n", 1),
            SigningKeyError::Encrypted,
        ),
        (format!("{good}{good}"), SigningKeyError::Several),
        (pem("PRIVATE KEY", b"x"), SigningKeyError::Rejected),
        (pem("PRIVATE KEY", &swapped), SigningKeyError::Rejected),
        (good.replace("-----END", "----END"), SigningKeyError::NotPem),
    ] {
        assert_eq!(SigningKey::from_pem(&text, None).unwrap_err(), error, "{text}");
    }
    assert_eq!(
        SigningKey::from_pkcs8_der(Algorithm::Rs256, key.pkcs8()).unwrap_err(),
        SigningKeyError::WrongAlgorithm
    );
}

#[test]
fn public_keys_are_read_from_pem_and_private_ones_refused() {
    for key in one_of_each() {
        let (identifier, bytes) = match key.alg() {
            Algorithm::Es256 => (der::EC_P256, point(&key)),
            Algorithm::EdDsa => (der::ED25519, decoded(&key, "x")),
            _ => (
                der::RSA_ENCRYPTION,
                der::element(
                    der::SEQUENCE,
                    &[
                        &der::unsigned(&decoded(&key, "n")),
                        &der::unsigned(&decoded(&key, "e")),
                    ],
                )
                .to_vec(),
            ),
        };
        let spki = der::element(
            der::SEQUENCE,
            &[
                &der::element(der::SEQUENCE, &[identifier]),
                &der::element(der::BIT_STRING, &[&[0], &bytes]),
            ],
        );
        let read = PublicKey::from_pem(&pem("PUBLIC KEY", &spki)).unwrap();
        assert_eq!(read.kid(), None);
        assert_eq!(read.thumbprint(), key.kid());
        assert_eq!(
            read.verify(key.alg(), b"message", &key.sign(b"message").unwrap()),
            Ok(())
        );
        for length in 0..spki.len() {
            assert!(PublicKey::from_pem(&pem("PUBLIC KEY", &spki[..length])).is_err());
        }
        assert_eq!(
            PublicKey::from_pem(&pem("PRIVATE KEY", key.pkcs8())),
            Err(JwkError::Private)
        );
    }
    assert_eq!(PublicKey::from_pem("no key"), Err(JwkError::NotPem));
}

fn decoded(key: &SigningKey, name: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD
        .decode(key.public().to_jwk()[name].as_str().unwrap())
        .unwrap()
}

fn point(key: &SigningKey) -> Vec<u8> {
    [vec![4], decoded(key, "x"), decoded(key, "y")].concat()
}

#[test]
fn a_private_key_is_never_printed() {
    let key = es256();
    assert_eq!(
        format!("{key:?}"),
        format!("SigningKey(ES256 {} [redacted])", key.kid())
    );
}
