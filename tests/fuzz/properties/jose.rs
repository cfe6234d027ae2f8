//! Signed tokens and the keys that they are checked with.

use std::sync::LazyLock;

use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwk::{JwkSet, PublicKey};
use idsvc::jose::jws::{Compact, JwsError, MAX_TOKEN_LEN};
use idsvc::jose::jwt::{self as tokens, ExpectedTyp, JwtError};
use idsvc::jose::keyring::SigningKey;
use serde_json::{Map, Value, json};

use super::reference::base64url;

/// A token's header, payload and signature.
type Parts = (Map<String, Value>, Vec<u8>, Vec<u8>);

/// What a token's form says, found out in another way.
fn parts(token: &str) -> Option<Parts> {
    let [header, payload, signature] = token
        .split('.')
        .map(base64url)
        .collect::<Option<Vec<_>>>()?
        .try_into()
        .ok()?;
    Some((serde_json::from_slice(&header).ok()?, payload, signature))
}

/// A compact JWS is accepted in one spelling only, and parses to exactly its content.
pub(super) fn compact_jws(data: &[u8]) -> bool {
    let Ok(token) = std::str::from_utf8(data) else {
        return false;
    };
    let is_accepted = match (Compact::parse(token), parts(token)) {
        (Ok(compact), Some((header, payload, signature))) => {
            assert!(token.len() <= MAX_TOKEN_LEN);
            assert!(!header.contains_key("crit") && !header.contains_key("b64"));
            let member = |name: &str| header.get(name).map(|value| value.as_str().unwrap());
            assert_eq!(Some(compact.alg()), member("alg"));
            assert_eq!(compact.kid(), member("kid"));
            assert_eq!(compact.typ(), member("typ"));
            assert_eq!(compact.payload(), payload);
            assert_eq!(compact.signature(), signature);
            assert_eq!(
                Some(compact.signing_input()),
                token.rsplit_once('.').map(|(input, _)| input)
            );
            true
        }
        (Ok(_), None) => panic!("accepted what is no compact JWS"),
        (Err(error), Some(_)) => {
            assert!(!matches!(error, JwsError::NotCompact | JwsError::NotBase64Url));
            false
        }
        (Err(_), None) => false,
    };
    if let Ok(claim) = tokens::unverified_claim(token, "iss") {
        let (_, payload, _) = parts(token).unwrap();
        let claims: Value = serde_json::from_slice(&payload).unwrap();
        assert_eq!(
            claims.get("iss").map(|iss| iss.as_str().unwrap()),
            claim.as_deref()
        );
    }
    is_accepted
}

/// The keys of RFC 7515 appendices A.2 and A.3 and of RFC 8037 appendix A.
static KEYS: LazyLock<JwkSet> = LazyLock::new(|| {
    JwkSet::of_jwks(&[
        json!({
            "kty": "RSA",
            "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
            "e": "AQAB",
        }),
        json!({
            "kty": "EC",
            "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        }),
        json!({
            "kty": "OKP",
            "crv": "Ed25519",
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        }),
    ])
});

/// What the holders of these keys are known to have signed: the examples of the RFCs.
const SIGNED: [&str; 3] = [
    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
    "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
    "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
];

/// Nothing passes for signed but what was signed, and nothing in a token chooses the algorithm or the key.
pub(super) fn jwt(data: &[u8]) -> bool {
    let Ok(token) = std::str::from_utf8(data) else {
        return false;
    };
    let verified = tokens::verify::<Value>(token, ExpectedTyp::Any, &Algorithm::ALL, |kid, alg| {
        KEYS.select(kid, alg)
    });
    let Ok(compact) = Compact::parse(token) else {
        assert!(matches!(verified, Err(JwtError::Form(_))));
        return false;
    };
    let was_signed = SIGNED.contains(&compact.signing_input());
    match verified {
        Ok(claims) => {
            assert!(was_signed);
            let payload: Value = serde_json::from_slice(compact.payload()).unwrap();
            assert_eq!(claims, payload);
            let is = |alg: Algorithm| alg.as_str() == compact.alg();
            let others: Vec<_> = Algorithm::ALL.into_iter().filter(|alg| !is(*alg)).collect();
            let refused =
                tokens::verify::<Value>(token, ExpectedTyp::Any, &others, |kid, alg| KEYS.select(kid, alg));
            assert_eq!(refused.err(), Some(JwtError::Algorithm));
            true
        }
        Err(error) => {
            // the signature held, what it is over is no set of claims
            assert!(was_signed || error != JwtError::Claims);
            false
        }
    }
}

/// A key that is accepted is public, of a known type, and the same after it was written and read again.
pub(super) fn jwk(data: &[u8]) -> bool {
    let Ok(jwk) = serde_json::from_slice::<Value>(data) else {
        return false;
    };
    let Ok(key) = PublicKey::from_jwk(&jwk) else {
        return false;
    };
    for secret in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
        assert!(jwk.get(secret).is_none(), "{secret}");
    }
    assert!(matches!(
        jwk.get("use").and_then(Value::as_str),
        None | Some("sig")
    ));
    assert_eq!(jwk.get("kid").and_then(Value::as_str), key.kid());
    check_key(&key);
    true
}

fn check_key(key: &PublicKey) {
    let written = key.to_jwk();
    let again = PublicKey::from_jwk(&written).unwrap();
    assert_eq!(again.to_jwk(), written);
    assert_eq!(again.thumbprint(), key.thumbprint());
    assert_eq!(again.algorithms(), key.algorithms());
    assert!(!key.algorithms().is_empty());
    for alg in Algorithm::ALL {
        assert!(key.verify(alg, b"message", &[]).is_err());
        assert_eq!(key.clone().pinned(alg).is_ok(), key.algorithms().contains(&alg));
    }
    let alg = written.get("alg").and_then(Value::as_str);
    assert!(alg.is_none_or(|alg| key.algorithms().iter().any(|mine| mine.as_str() == alg)));
}

/// A key set holds the keys that can be used and no others, and never guesses between two.
pub(super) fn jwk_set(data: &[u8]) -> bool {
    let Ok(set) = JwkSet::parse(data) else {
        return false;
    };
    let document: Value = serde_json::from_slice(data).unwrap();
    let listed = document["keys"].as_array().unwrap();
    let usable: Vec<_> = listed
        .iter()
        .filter_map(|jwk| PublicKey::from_jwk(jwk).ok())
        .collect();
    assert_eq!(set.keys, usable);
    assert_eq!(JwkSet::of_jwks(listed), set);
    for key in &set.keys {
        check_key(key);
    }
    let names = set.keys.iter().map(PublicKey::kid).chain([None, Some("another")]);
    for (kid, alg) in names.flat_map(|kid| Algorithm::ALL.map(|alg| (kid, alg))) {
        let serving = || set.keys.iter().filter(|key| key.algorithms().contains(&alg));
        match set.select(kid, alg) {
            Some(key) => {
                assert!(key.algorithms().contains(&alg));
                let is_named = kid.is_some() && key.kid() == kid;
                let is_only = serving()
                    .filter(|key| kid.is_none() || key.kid().is_none())
                    .count()
                    == 1;
                assert!(is_named || is_only);
            }
            None => assert!(!serving().any(|key| kid.is_some() && key.kid() == kid)),
        }
    }
    !set.keys.is_empty()
}

/// A PEM file holds a public key or a private one, never both; what is read of it signs and verifies.
pub(super) fn pem(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let public = PublicKey::from_pem(text);
    if let Ok(key) = &public {
        check_key(key);
        assert_eq!(key.kid(), None);
    }
    let private = SigningKey::from_pem(text, None);
    if let Ok(key) = &private {
        assert!(public.is_err());
        check_key(key.public());
        assert_eq!(key.kid(), key.public().thumbprint());
    }
    public.is_ok() || private.is_ok()
}
