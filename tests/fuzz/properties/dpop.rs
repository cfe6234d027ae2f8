//! Proofs of possession.

use idsvc::clock::Timestamp;
use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwk::PublicKey;
use idsvc::jose::jws::Compact;
use idsvc::oauth::dpop::{DpopProof, ExpectedRequest};
use idsvc::oauth::error::ErrorCode;
use serde_json::Value;

/// The time of the examples in RFC 9449 sections 4.1 and 5.
const NOW: u64 = 1_562_262_616;

fn check(proof: &str, method: &str, url: &str, now: u64) -> Result<DpopProof, ErrorCode> {
    let request = ExpectedRequest {
        method,
        url,
        access_token: None,
        nonce_end: None,
    };
    DpopProof::check(proof, request, Timestamp::from_seconds(now)).map_err(|refusal| refusal.code)
}

/// A proof that is accepted names its public key, its request and its time, and is good for no other request and at no
/// other time.
pub(super) fn dpop_proof(data: &[u8]) -> bool {
    let Ok(proof) = std::str::from_utf8(data) else {
        return false;
    };
    let url = "https://server.example.com/token";
    let Ok(checked) = check(proof, "POST", url, NOW) else {
        return false;
    };
    let compact = Compact::parse(proof).unwrap();
    let jwk = compact.jwk().unwrap();
    for secret in ["d", "p", "q", "dp", "dq", "qi", "oth", "k"] {
        assert!(jwk.get(secret).is_none(), "{secret}");
    }
    assert!(Algorithm::of_received(compact.alg()).is_ok());
    let key = PublicKey::from_jwk(jwk).unwrap();
    assert_eq!(Ok(checked.key), key.thumbprint().parse());
    let claims: Value = serde_json::from_slice(compact.payload()).unwrap();
    assert_eq!(claims["htm"], "POST");
    let jti = claims["jti"].as_str().unwrap().chars().count();
    assert!((1..=255).contains(&jti));
    for (method, url, now) in [
        ("GET", url, NOW),
        ("POST", "https://server.example.com/other", NOW),
        ("POST", "https://other.example.com/token", NOW),
        ("POST", url, NOW + 131),
        ("POST", url, NOW - 131),
    ] {
        let other = check(proof, method, url, now);
        assert_eq!(other.err(), Some(ErrorCode::InvalidDpopProof));
    }
    true
}
