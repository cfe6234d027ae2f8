use serde_json::{Value, json};

use super::*;
use crate::jose::keyring::SigningKey;
use crate::jose::rsa_keygen;
use crate::random::Random;

const HEADER: &str = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19";
/// Sections 4.1 and 5: a token request.
const TOKEN_REQUEST: &str = "eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2VuIiwiaWF0IjoxNTYyMjYyNjE2fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT3Lg";
/// Section 5: a refresh.
const REFRESH: &str = "eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2VuIiwiaWF0IjoxNTYyMjY1Mjk2fQ.pAqut2IRDm_De6PR93SYmGBPXpwrAk90e8cP2hjiaG5QsGSuKDYW7_X620BxqhvYC8ynrrvZLTk41mSRroapUA";
/// Section 7.1: a request for a resource.
const RESOURCE_REQUEST: &str = "eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA";
const ACCESS_TOKEN: &str = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU";
/// Section 6.1.
const THUMBPRINT: &str = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";

const TOKEN_ENDPOINT: &str = "https://server.example.com/token";
const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

fn request(method: &'static str, url: &'static str) -> ExpectedRequest<'static> {
    ExpectedRequest {
        method,
        url,
        access_token: None,
        nonce_end: None,
    }
}

fn token_request() -> ExpectedRequest<'static> {
    request("POST", TOKEN_ENDPOINT)
}

#[test]
fn the_examples_of_the_standard_are_good_at_their_time() {
    let resource = ExpectedRequest {
        access_token: Some(ACCESS_TOKEN),
        ..request("GET", "https://resource.example.org/protectedresource")
    };
    for (proof, request, iat) in [
        (TOKEN_REQUEST, token_request(), 1_562_262_616),
        (REFRESH, token_request(), 1_562_265_296),
        (RESOURCE_REQUEST, resource, 1_562_262_618),
    ] {
        let proof = format!("{HEADER}.{proof}");
        let at = |seconds| DpopProof::check(&proof, request, Timestamp::from_seconds(seconds));
        for now in [iat - 10, iat, iat + 60] {
            assert_eq!(at(now).unwrap().key, THUMBPRINT.parse().unwrap());
        }
        for now in [iat - 11, iat + 61] {
            assert_eq!(at(now).unwrap_err().code, ErrorCode::InvalidDpopProof);
        }
    }
}

/// A key, and proofs that it signs.
struct Holder(SigningKey);

impl Holder {
    fn new() -> Self {
        Self(SigningKey::generate_es256(&Random::system()).unwrap())
    }

    fn claims() -> Value {
        json!({ "jti": "1", "htm": "POST", "htu": TOKEN_ENDPOINT, "iat": NOW.seconds() })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let input = format!("{}.{}", part(header), part(claims));
        let signature = self.0.sign(input.as_bytes()).unwrap();
        format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn header(&self) -> Value {
        json!({ "typ": "dpop+jwt", "alg": "ES256", "jwk": self.0.public().to_jwk() })
    }

    fn problem(&self, header: &Value, claims: &Value) -> String {
        let refusal = DpopProof::check(&self.sign(header, claims), token_request(), NOW).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::InvalidDpopProof);
        refusal.description.trim_start_matches("DPoP proof: ").to_owned()
    }
}

fn with(json: &Value, name: &str, value: Value) -> Value {
    let mut changed = json.clone();
    changed[name] = value;
    changed
}

#[test]
fn a_refusal_says_what_is_wrong_with_the_claims() {
    let holder = Holder::new();
    let (header, claims) = (holder.header(), Holder::claims());
    for (name, value, problem) in [
        ("jti", json!(""), "jti must have 1 to 255 characters"),
        ("jti", json!("a".repeat(256)), "jti must have 1 to 255 characters"),
        (
            "jti",
            json!(7),
            "a claim is missing or malformed: jti, htm, htu, ath and nonce are text; iat, exp and nbf are seconds",
        ),
        (
            "iat",
            json!("now"),
            "a claim is missing or malformed: jti, htm, htu, ath and nonce are text; iat, exp and nbf are seconds",
        ),
        ("htm", json!("post"), "htm must be POST"),
        ("htm", json!("GET"), "htm must be POST"),
        (
            "htu",
            json!("https://server.example.com/"),
            "htu must be https://server.example.com/token",
        ),
        (
            "htu",
            json!("http://server.example.com/token"),
            "htu must be https://server.example.com/token",
        ),
        (
            "htu",
            json!("https://a@server.example.com/token"),
            "htu must be https://server.example.com/token",
        ),
        (
            "htu",
            json!("/token"),
            "htu must be https://server.example.com/token",
        ),
        ("exp", json!(NOW.seconds() - 10), "token has expired"),
        ("nbf", json!(NOW.seconds() + 11), "token is not valid yet"),
    ] {
        assert_eq!(
            holder.problem(&header, &with(&claims, name, value.clone())),
            problem,
            "{name} {value}"
        );
    }
    for name in ["jti", "htm", "htu", "iat"] {
        let mut lacking = claims.clone();
        lacking.as_object_mut().unwrap().remove(name);
        let problem = holder.problem(&header, &lacking);
        assert_eq!(
            problem,
            "a claim is missing or malformed: jti, htm, htu, ath and nonce are text; iat, exp and nbf are seconds",
            "{name}"
        );
    }
}

#[test]
fn an_address_is_compared_in_normal_form_without_query_and_fragment() {
    let holder = Holder::new();
    for htu in [
        "HTTPS://Server.Example.com:443/token",
        "https://server.example.com/token?a=b",
        "https://server.example.com/token#a",
        "https://server.example.com/a/../token",
        "https://server.example.com/%74oken",
        "https://SERVER.example.com:443/%74%6f%6B%65n?a=b",
    ] {
        let proof = holder.sign(&holder.header(), &with(&Holder::claims(), "htu", json!(htu)));
        assert!(DpopProof::check(&proof, token_request(), NOW).is_ok(), "{htu}");
    }
    for (one, other, is_same) in [
        ("https://a.example/%7Eb%2fc", "https://a.example/~b%2Fc", true),
        ("https://a.example/b%2Fc", "https://a.example/b/c", false),
        ("https://a.example/%2574oken", "https://a.example/%74oken", false),
        ("https://a.example/%7", "https://a.example/%7", true),
        ("https://a.example/%+1", "https://a.example/%01", false),
        ("https://a.example/token/", "https://a.example/token", false),
        ("https://a.example/Token", "https://a.example/token", false),
        ("https://a.example:8443/token", "https://a.example/token", false),
    ] {
        assert_eq!(is_same_resource(one, other), is_same, "{one} {other}");
    }
}

#[test]
fn a_refusal_says_what_is_wrong_with_the_header() {
    let holder = Holder::new();
    let (header, claims) = (holder.header(), Holder::claims());
    let jwk = &header["jwk"];
    let other = Holder::new().header();
    for (name, value, problem) in [
        ("typ", json!("JWT"), "typ must be dpop+jwt"),
        ("typ", Value::Null, "token header is malformed"),
        (
            "alg",
            json!("none"),
            "alg must be one of RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA Ed25519",
        ),
        (
            "alg",
            json!("HS256"),
            "alg must be one of RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA Ed25519",
        ),
        ("alg", json!("RS256"), "the signature is not by the key in jwk"),
        (
            "jwk",
            json!("x"),
            "jwk: key is not a JSON object with distinct names",
        ),
        (
            "jwk",
            json!({ "kty": "oct", "k": "AAAA" }),
            "jwk: key is neither RSA nor P-256, P-384 or Ed25519",
        ),
        (
            "jwk",
            with(jwk, "use", json!("enc")),
            "jwk: key is not for signatures",
        ),
        (
            "jwk",
            other["jwk"].clone(),
            "the signature is not by the key in jwk",
        ),
    ] {
        assert_eq!(
            holder.problem(&with(&header, name, value.clone()), &claims),
            problem,
            "{name} {value}"
        );
    }
    for secret in ["d", "k", "p"] {
        let header = with(&header, "jwk", with(jwk, secret, json!("AAAA")));
        let problem = holder.problem(&header, &claims);
        assert!(problem.starts_with("jwk: key is a private key"), "{problem}");
    }
    let mut lacking = header.clone();
    lacking.as_object_mut().unwrap().remove("jwk");
    assert_eq!(holder.problem(&lacking, &claims), "its header has no jwk");
}

#[test]
fn every_algorithm_of_the_service_may_sign_a_proof() {
    let pkcs8 = rsa_keygen::generate(&Random::system()).unwrap();
    for key in [
        SigningKey::generate_es256(&Random::system()),
        SigningKey::generate_ed25519(&Random::system()),
        SigningKey::from_pkcs8_der(Algorithm::Rs256, &pkcs8),
        SigningKey::from_pkcs8_der(Algorithm::Ps256, &pkcs8),
    ] {
        let holder = Holder(key.unwrap());
        let header = with(&holder.header(), "alg", json!(holder.0.alg()));
        let proof = holder.sign(&header, &Holder::claims());
        let checked = DpopProof::check(&proof, token_request(), NOW).unwrap();
        assert_eq!(checked.key.0, holder.0.public().thumbprint());
    }
}

#[test]
fn one_jti_of_one_key_is_one_use_whenever_it_was_signed() {
    let (one, other) = (Holder::new(), Holder::new());
    let digest = |holder: &Holder, claims: &Value| {
        let proof = holder.sign(&holder.header(), claims);
        DpopProof::check(&proof, token_request(), NOW)
            .unwrap()
            .replay_key
            .digest
    };
    let claims = Holder::claims();
    let earlier = with(&claims, "iat", json!(NOW.seconds() - 30));
    assert_eq!(digest(&one, &claims), digest(&one, &earlier));
    assert_ne!(
        digest(&one, &claims),
        digest(&one, &with(&claims, "jti", json!("2")))
    );
    assert_ne!(digest(&one, &claims), digest(&other, &claims));
}

#[test]
fn a_nonce_is_asked_for_only_if_it_is_required() {
    let holder = Holder::new();
    let nonce_end = |nonce: &str| (nonce == "current").then_some(NOW + MAX_AGE);
    let demanding = ExpectedRequest {
        nonce_end: Some(&nonce_end),
        ..token_request()
    };
    for (nonce, is_good) in [
        (json!("current"), true),
        (json!("old"), false),
        (Value::Null, false),
    ] {
        let proof = holder.sign(&holder.header(), &with(&Holder::claims(), "nonce", nonce));
        let code = DpopProof::check(&proof, demanding, NOW).map_err(|refusal| refusal.code);
        assert_eq!(code.err(), (!is_good).then_some(ErrorCode::UseDpopNonce));
        assert!(DpopProof::check(&proof, token_request(), NOW).is_ok());
    }
}

/// Section 11.1: the nonce tells the time. The use of the proof is remembered as long as the nonce is accepted.
#[test]
fn a_proof_with_a_current_nonce_is_good_at_any_iat() {
    let holder = Holder::new();
    let nonce_end = |_: &str| Some(NOW + Duration::from_mins(5));
    let demanding = ExpectedRequest {
        nonce_end: Some(&nonce_end),
        ..token_request()
    };
    let claims = with(&Holder::claims(), "nonce", json!("current"));
    for iat in [
        0,
        NOW.seconds() - 3600,
        NOW.seconds() + 120,
        NOW.seconds() + 86_400,
    ] {
        let proof = holder.sign(&holder.header(), &with(&claims, "iat", json!(iat)));
        let checked = DpopProof::check(&proof, demanding, NOW).unwrap();
        let until = NOW + Duration::from_mins(6);
        let owner = Owner::Key(&checked.key.0);
        assert_eq!(checked.replay_key, ReplayKey::of(owner, "1", until));
        assert!(DpopProof::check(&proof, token_request(), NOW).is_err());
    }
    let mut without = claims.clone();
    without.as_object_mut().unwrap().remove("iat");
    let proof = holder.sign(&holder.header(), &without);
    assert!(DpopProof::check(&proof, demanding, NOW).is_err());
}

#[test]
fn a_thumbprint_is_a_sha_256_in_base64url() {
    assert!(THUMBPRINT.parse::<KeyThumbprint>().is_ok());
    for text in [
        "",
        "x",
        &THUMBPRINT[1..],
        &format!("{THUMBPRINT}="),
        &THUMBPRINT.replace('-', "+"),
    ] {
        assert_eq!(text.parse::<KeyThumbprint>(), Err(InvalidThumbprint), "{text}");
    }
}
