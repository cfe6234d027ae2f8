//! The vectors of the Wycheproof project, for every algorithm that is accepted. The service accepts exactly the
//! signatures that the vectors call valid.

use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwk::{JwkSet, PublicKey};
use idsvc::jose::jws::Compact;
use idsvc::jose::jwt::{self, ExpectedTyp, JwtError};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vectors<G> {
    test_groups: Vec<G>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CommitDecision {
    Valid,
    Invalid,
    /// Valid by some reading of the standard.
    Acceptable,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignatureGroup {
    public_key_jwk: Option<Value>,
    public_key_pem: String,
    tests: Vec<SignatureTest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignatureTest {
    tc_id: u32,
    comment: String,
    msg: String,
    sig: String,
    result: CommitDecision,
}

#[derive(Deserialize)]
struct TokenGroup {
    key: Value,
    tests: Vec<TokenTest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenTest {
    tc_id: u32,
    comment: String,
    jws: String,
    result: CommitDecision,
}

macro_rules! vectors {
    ($name:literal) => {
        serde_json::from_str::<Vectors<_>>(include_str!(concat!("../vectors/wycheproof/", $name, ".json")))
            .unwrap()
            .test_groups
    };
}

fn bytes(hex: &str) -> Vec<u8> {
    assert_eq!(hex.len() % 2, 0);
    let pairs = (0..hex.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// Checks every signature; says how many were valid and how many were not.
fn check(groups: Vec<SignatureGroup>, alg: Algorithm) -> (usize, usize) {
    let (mut accepted, mut refused) = (0, 0);
    for group in groups {
        let key = PublicKey::from_pem(&group.public_key_pem).unwrap();
        if let Some(jwk) = &group.public_key_jwk {
            let read = PublicKey::from_jwk(jwk).unwrap();
            assert_eq!(read.thumbprint(), key.thumbprint());
        }
        for test in group.tests {
            let holds = key.verify(alg, &bytes(&test.msg), &bytes(&test.sig)).is_ok();
            // what is merely acceptable leaves out the NULL of the digest's algorithm: RFC 8017 section 9.2 wants it
            assert_eq!(
                holds,
                test.result == CommitDecision::Valid,
                "{alg} {}: {}",
                test.tc_id,
                test.comment
            );
            if holds {
                accepted += 1;
            } else {
                refused += 1;
            }
        }
    }
    (accepted, refused)
}

/// The vectors of an algorithm, a file for each size of its keys, and how many of the signatures in it are valid and how
/// many are not.
fn vectors_of(alg: Algorithm) -> Vec<(Vec<SignatureGroup>, (usize, usize))> {
    match alg {
        Algorithm::Rs256 => vec![
            (vectors!("rsa_signature_2048_sha256_test"), (9, 250)),
            (vectors!("rsa_signature_3072_sha256_test"), (8, 251)),
            (vectors!("rsa_signature_4096_sha256_test"), (7, 251)),
        ],
        Algorithm::Ps256 => vec![
            (vectors!("rsa_pss_2048_sha256_mgf1_32_test"), (63, 45)),
            (vectors!("rsa_pss_3072_sha256_mgf1_32_test"), (63, 45)),
            (vectors!("rsa_pss_4096_sha256_mgf1_32_test"), (63, 45)),
        ],
        Algorithm::Es256 => vec![(vectors!("ecdsa_secp256r1_sha256_p1363_test"), (173, 89))],
        Algorithm::EdDsa => vec![(vectors!("ed25519_test"), (88, 63))],
        _ => Vec::new(),
    }
}

#[test]
fn each_algorithm_holds_for_what_is_valid_and_for_nothing_else() {
    for alg in Algorithm::SIGNING {
        let (found, expected): (Vec<_>, Vec<_>) = vectors_of(alg)
            .into_iter()
            .map(|(groups, counts)| (check(groups, alg), counts))
            .unzip();
        assert_eq!(found, expected, "{alg}");
    }
}

/// Whether the signature of a token holds under a key of the set; what is signed need not be claims.
fn is_accepted(token: &str, keys: &JwkSet) -> bool {
    let select = |kid: Option<&str>, alg| keys.select(kid, alg);
    let verified = jwt::verify::<Value>(token, ExpectedTyp::Any, &Algorithm::ALL, select);
    matches!(verified, Ok(_) | Err(JwtError::Claims))
}

/// Whether a token says that it is signed in a way that is known here, and that its key is for. Two vectors are signed
/// with PS384 by a key for PS256.
fn is_known(token: &str, key: &Value) -> bool {
    let Ok(compact) = Compact::parse(token) else {
        return false;
    };
    let is_for = |alg: &Value| alg.as_str().is_none_or(|alg| alg == compact.alg());
    compact.alg().parse::<Algorithm>().is_ok() && key.get("alg").is_none_or(is_for)
}

#[test]
fn a_token_is_accepted_when_it_is_valid_and_signed_in_a_way_that_is_known() {
    let groups: Vec<TokenGroup> = vectors!("json_web_signature_test");
    let mut accepted = 0;
    for group in groups {
        let keys = JwkSet::of_jwks(std::slice::from_ref(&group.key));
        for test in group.tests {
            let expected = test.result == CommitDecision::Valid && is_known(&test.jws, &group.key);
            let found = is_accepted(&test.jws, &keys);
            assert_eq!(found, expected, "{}: {}", test.tc_id, test.comment);
            accepted += usize::from(found);
        }
    }
    // of the 46 valid ones the others are HMACs, ES512, or signed by a key for another algorithm
    assert_eq!(accepted, 32);
}

#[test]
fn a_key_set_with_a_key_that_must_not_be_used_accepts_nothing_by_it() {
    let groups: Vec<TokenGroup> = vectors!("json_web_key_test");
    let mut accepted = 0;
    for group in groups {
        let keys = JwkSet::parse(group.key.to_string().as_bytes()).unwrap_or_default();
        for test in group.tests {
            let expected = test.result == CommitDecision::Valid && is_known(&test.jws, &Value::Null);
            let found = is_accepted(&test.jws, &keys);
            assert_eq!(found, expected, "{}: {}", test.tc_id, test.comment);
            accepted += usize::from(found);
        }
    }
    assert_eq!(accepted, 1);
}
