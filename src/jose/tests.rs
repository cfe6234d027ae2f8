//! Published test vectors and hostile tokens.

mod keys;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::alg::Algorithm;
use super::jwk::{BadSignature, PublicKey};
use super::jws::{Compact, JwsError, MAX_TOKEN_LEN};
use super::jwt::{self, Encoder, ExpectedTyp, JwtError, TimeError, check_times, payload_claims};
use super::keyring::{KeyState, Keyring, SigningKey};
use super::{der, rsa_keygen};
use crate::clock::Timestamp;
use crate::random::Random;

const JOE: &str =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claims {
    iss: String,
    exp: Timestamp,
}

fn claims() -> Claims {
    Claims {
        iss: "joe".into(),
        exp: Timestamp::from_seconds(1_300_819_380),
    }
}

fn es256() -> SigningKey {
    SigningKey::generate_es256(&Random::system()).unwrap()
}

fn rs256() -> SigningKey {
    static DER: std::sync::OnceLock<zeroize::Zeroizing<Vec<u8>>> = std::sync::OnceLock::new();
    let der = DER.get_or_init(|| rsa_keygen::generate(&Random::system()).unwrap());
    SigningKey::from_pkcs8_der(Algorithm::Rs256, der).unwrap()
}

fn one_of_each() -> [SigningKey; 4] {
    [
        rs256(),
        SigningKey::from_pkcs8_der(Algorithm::Ps256, rs256().pkcs8()).unwrap(),
        es256(),
        SigningKey::generate_ed25519(&Random::system()).unwrap(),
    ]
}

/// A token with this header and a valid signature by `key`.
fn forge(key: &SigningKey, header: &str, payload: &[u8]) -> String {
    let input = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(payload)
    );
    let signature = key.sign(input.as_bytes()).unwrap();
    format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The result of verifying a token with `key` as the only key and its algorithms as the only ones.
fn judge(token: &str, key: &PublicKey) -> Result<Claims, JwtError> {
    jwt::verify(token, ExpectedTyp::Any, key.algorithms(), |_, _| Some(key))
}

#[test]
fn rfc_7515_appendix_a_2_holds_for_rs256() {
    let key = PublicKey::from_jwk(&json!({
        "kty": "RSA",
        "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
        "e": "AQAB",
    }))
    .unwrap();
    let token = format!(
        "eyJhbGciOiJSUzI1NiJ9.{JOE}.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
    );
    assert_eq!(judge(&token, &key), Ok(claims()));
}

#[test]
fn rfc_7515_appendix_a_3_holds_for_es256() {
    let key = PublicKey::from_jwk(&json!({
        "kty": "EC", "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    }))
    .unwrap();
    let token = format!(
        "eyJhbGciOiJFUzI1NiJ9.{JOE}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    );
    assert_eq!(judge(&token, &key), Ok(claims()));
}

#[test]
fn rfc_8037_appendix_a_holds_for_ed25519() {
    let seed = URL_SAFE_NO_PAD
        .decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")
        .unwrap();
    let pkcs8 = [
        &[
            0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
        ],
        &*seed,
    ]
    .concat();
    let key = SigningKey::from_pkcs8_der(Algorithm::EdDsa, &pkcs8).unwrap();
    let public = PublicKey::from_jwk(
        &json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}),
    )
    .unwrap();
    assert_eq!(key.kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    assert_eq!(public.thumbprint(), key.kid());

    let token = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let compact = Compact::parse(token).unwrap();
    assert_eq!(compact.payload(), b"Example of Ed25519 signing");
    let message = compact.signing_input().as_bytes();
    assert_eq!(
        public.verify(Algorithm::EdDsa, message, compact.signature()),
        Ok(())
    );
    assert_eq!(key.sign(message).unwrap(), compact.signature());
}

#[test]
fn rfc_7638_section_3_1_gives_the_thumbprint() {
    let key = PublicKey::from_jwk(&json!({
        "kty": "RSA",
        "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
        "e": "AQAB", "alg": "RS256", "kid": "2011-04-29",
    }))
    .unwrap();
    assert_eq!(key.thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    assert_eq!(key.kid(), Some("2011-04-29"));
    assert_eq!(key.algorithms(), [Algorithm::Rs256]);
}

#[test]
fn what_each_algorithm_signs_its_published_key_verifies() {
    for key in one_of_each() {
        let token = jwt::sign(&key, "at+jwt", &claims()).unwrap();
        let published = PublicKey::from_jwk(&key.public().to_jwk()).unwrap();
        assert_eq!(&published, key.public());
        assert_eq!(judge(&token, &published), Ok(claims()));

        let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
        let expected = format!(
            r#"{{"alg":"{}","kid":"{}","typ":"at+jwt"}}"#,
            key.alg(),
            key.kid()
        );
        assert_eq!(String::from_utf8(header).unwrap(), expected);
    }
}

#[test]
fn no_key_verifies_what_another_key_or_algorithm_signed() {
    let keys = one_of_each();
    for signer in &keys {
        let signature = signer.sign(b"message").unwrap();
        for verifier in &keys {
            for alg in Algorithm::ALL {
                let holds = verifier.public().verify(alg, b"message", &signature).is_ok();
                assert_eq!(
                    holds,
                    signer.alg() == alg && verifier.alg() == alg,
                    "{signer:?} {verifier:?} {alg}"
                );
            }
        }
        assert_eq!(
            signer.public().verify(signer.alg(), b"massage", &signature),
            Err(BadSignature)
        );
        assert_eq!(
            signer.public().verify(signer.alg(), b"message", &[]),
            Err(BadSignature)
        );
    }
    let token = jwt::sign(&es256(), "JWT", &claims()).unwrap();
    assert_eq!(judge(&token, es256().public()), Err(JwtError::Signature));
}

#[test]
fn a_signature_in_der_is_not_one_of_es256() {
    let key = es256();
    let signature = key.sign(b"message").unwrap();
    assert_eq!(
        key.public().verify(Algorithm::Es256, b"message", &signature),
        Ok(())
    );
    let (r, s) = signature.split_at(32);
    let der = der::element(der::SEQUENCE, &[&der::unsigned(r), &der::unsigned(s)]);
    assert_eq!(
        key.public().verify(Algorithm::Es256, b"message", &der),
        Err(BadSignature)
    );
}

#[test]
fn none_and_symmetric_algorithms_are_refused() {
    let key = rs256();
    let published = key.public().to_jwk().to_string();
    for alg in [
        "none", "None", "", "HS256", "HS512", "rs256", "RS512", "ES256K", "PS256",
    ] {
        let input = format!(
            "{}.{JOE}",
            URL_SAFE_NO_PAD.encode(json!({"alg": alg, "kid": key.kid()}).to_string())
        );
        let hmac = ring::hmac::sign(
            &ring::hmac::Key::new(ring::hmac::HMAC_SHA256, published.as_bytes()),
            input.as_bytes(),
        );
        for signature in [String::new(), URL_SAFE_NO_PAD.encode(hmac)] {
            assert_eq!(
                judge(&format!("{input}.{signature}"), key.public()),
                Err(JwtError::Algorithm),
                "{alg}"
            );
        }
    }
}

#[test]
fn an_algorithm_that_the_caller_does_not_allow_never_reaches_a_key() {
    let token = jwt::sign(&es256(), "JWT", &claims()).unwrap();
    let refused = jwt::verify::<Claims>(&token, ExpectedTyp::Any, &[Algorithm::Rs256], |_, _| {
        panic!("a key was asked for");
    });
    assert_eq!(refused, Err(JwtError::Algorithm));
}

#[test]
fn a_key_that_comes_with_the_token_is_not_used() {
    let (ours, theirs) = (es256(), es256());
    for (name, value) in [
        ("jwk", theirs.public().to_jwk()),
        ("jku", "https://attacker.example/jwks".into()),
        ("x5u", "https://attacker.example/chain".into()),
        ("x5c", json!(["MIIB"])),
    ] {
        let header = json!({"alg": "ES256", "kid": ours.kid(), name: value}).to_string();
        let payload = serde_json::to_vec(&claims()).unwrap();
        assert_eq!(
            judge(&forge(&theirs, &header, &payload), ours.public()),
            Err(JwtError::Signature)
        );
        assert_eq!(
            judge(&forge(&ours, &header, &payload), ours.public()),
            Ok(claims()),
            "{name} is ignored"
        );
    }
}

#[test]
fn a_kid_is_compared_and_nothing_else() {
    let key = es256();
    let ring = Keyring::new(vec![(key.clone(), KeyState::Active)]);
    let payload = serde_json::to_vec(&claims()).unwrap();
    for kid in [
        "../../../dev/null",
        "' OR 1=1 --",
        "",
        "\u{0}",
        &key.kid().to_lowercase(),
        &format!("{}=", key.kid()),
    ] {
        let token = forge(&key, &json!({"alg": "ES256", "kid": kid}).to_string(), &payload);
        let verdict = jwt::verify::<Claims>(&token, ExpectedTyp::Any, &Algorithm::ALL, |kid, _| {
            ring.verifier(kid?)
        });
        assert_eq!(verdict, Err(JwtError::UnknownKey), "{kid:?}");
    }
    for kid in [json!(7), json!(null), json!(["a"])] {
        let token = forge(&key, &json!({"alg": "ES256", "kid": kid}).to_string(), &payload);
        assert_eq!(judge(&token, key.public()), Err(JwsError::MalformedHeader.into()));
    }
}

#[test]
fn headers_that_two_readers_could_read_differently_are_refused() {
    let key = es256();
    let cases = [
        (r#"{"alg":"ES256","alg":"none"}"#, JwsError::MalformedHeader),
        (r#"{"alg":"ES256","\u0061lg":"none"}"#, JwsError::MalformedHeader),
        (r#"{"alg":"ES256","x":{"y":1,"y":2}}"#, JwsError::MalformedHeader),
        (r#"{"alg":"ES256"} {}"#, JwsError::MalformedHeader),
        (r#"["ES256"]"#, JwsError::MalformedHeader),
        (r#"{"kid":"a"}"#, JwsError::MalformedHeader),
        (r#"{"alg":null}"#, JwsError::MalformedHeader),
        (r#"{"alg":"ES256","typ":1}"#, JwsError::MalformedHeader),
        ("", JwsError::MalformedHeader),
        ("\u{feff}{\"alg\":\"ES256\"}", JwsError::MalformedHeader),
        (
            r#"{"alg":"ES256","crit":["exp"],"exp":1}"#,
            JwsError::UnsupportedExtension,
        ),
        (r#"{"alg":"ES256","crit":[]}"#, JwsError::UnsupportedExtension),
        (r#"{"alg":"ES256","b64":false}"#, JwsError::UnsupportedExtension),
        (r#"{"alg":"ES256","b64":true}"#, JwsError::UnsupportedExtension),
    ];
    for (header, error) in cases {
        assert_eq!(
            judge(&forge(&key, header, b"{}"), key.public()),
            Err(error.into()),
            "{header}"
        );
    }
}

#[test]
fn payloads_that_are_not_one_plain_object_are_refused() {
    let key = es256();
    let deep = format!(
        r#"{{"iss":"joe","exp":1,"x":{}{}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let cases: [&[u8]; 8] = [
        b"",
        b"[]",
        b"\"joe\"",
        br#"{"iss":"joe","exp":1,"iss":"ann"}"#,
        br#"{"iss":"joe","exp":1,"x":[{"y":1,"y":1}]}"#,
        b"{\"iss\":\"jo\xff\",\"exp\":1}",
        br#"{"iss":"joe","exp":"tomorrow"}"#,
        deep.as_bytes(),
    ];
    for payload in cases {
        let token = forge(&key, r#"{"alg":"ES256"}"#, payload);
        assert_eq!(
            judge(&token, key.public()),
            Err(JwtError::Claims),
            "{}",
            String::from_utf8_lossy(payload)
        );
    }
    assert!(payload_claims(br#"{"a":1e999}"#).is_err());
    let shallow = format!(r#"{{"x":{}{}}}"#, "[".repeat(100), "]".repeat(100));
    assert!(payload_claims(shallow.as_bytes()).is_ok());
}

#[test]
fn only_canonical_base64url_is_read() {
    let key = SigningKey::generate_ed25519(&Random::system()).unwrap();
    let token = jwt::sign(&key, "JWT", &claims()).unwrap();
    assert!(Compact::parse(&token).is_ok());
    let (rest, last) = token.split_at(token.len() - 1);
    assert!(
        "AQgw".contains(last),
        "64 bytes leave four bits over in the last character"
    );
    let trailing_bits = format!("{rest}{}", char::from(last.as_bytes()[0] + 1));
    let parts: Vec<&str> = token.split('.').collect();
    for (altered, error) in [
        (trailing_bits, JwsError::NotBase64Url),
        (format!("{token}=="), JwsError::NotBase64Url),
        (format!("{token}\n"), JwsError::NotBase64Url),
        (format!(" {token}"), JwsError::NotBase64Url),
        (
            format!("{}.{}+/.{}", parts[0], parts[1], parts[2]),
            JwsError::NotBase64Url,
        ),
        (
            format!("{}.{} .{}", parts[0], parts[1], parts[2]),
            JwsError::NotBase64Url,
        ),
        (format!("{}.é.{}", parts[0], parts[2]), JwsError::NotBase64Url),
        (format!("{token}.x"), JwsError::NotCompact),
        (format!("{}.{}", parts[0], parts[1]), JwsError::NotCompact),
        (String::new(), JwsError::NotCompact),
        ("..".into(), JwsError::MalformedHeader),
        (format!("{token}.a.b"), JwsError::NotCompact),
    ] {
        assert_eq!(Compact::parse(&altered).unwrap_err(), error, "{altered}");
    }
}

#[test]
fn a_token_over_16_kib_is_not_looked_at() {
    assert_eq!(
        Compact::parse(&"a".repeat(20 * 1024)).unwrap_err(),
        JwsError::TooLong
    );
    let key = es256();
    let long = |length| json!({"iss": "i".repeat(length), "exp": 1});
    let token = jwt::sign(&key, "JWT", &long(11_900)).unwrap();
    assert!(token.len() <= MAX_TOKEN_LEN);
    assert!(judge(&token, key.public()).is_ok());
    let token = jwt::sign(&key, "JWT", &long(14_000)).unwrap();
    assert_eq!(judge(&token, key.public()), Err(JwsError::TooLong.into()));
}

#[test]
fn one_kind_of_token_does_not_pass_for_another() {
    let key = es256();
    let verdict = |typ: Option<&str>, expected| {
        let mut header = json!({"alg": "ES256"});
        if let Some(typ) = typ {
            header["typ"] = typ.into();
        }
        let token = forge(&key, &header.to_string(), br#"{"iss":"joe","exp":1}"#);
        jwt::verify::<Claims>(&token, expected, &Algorithm::ALL, |_, _| Some(key.public())).err()
    };
    let access = ExpectedTyp::Exactly("at+jwt");
    for typ in ["at+jwt", "AT+JWT", "application/at+jwt", "Application/at+JWT"] {
        assert_eq!(verdict(Some(typ), access), None, "{typ}");
    }
    for typ in [
        None,
        Some("JWT"),
        Some(""),
        Some("text/at+jwt"),
        Some("application/x/at+jwt"),
    ] {
        assert_eq!(verdict(typ, access), Some(JwtError::Typ), "{typ:?}");
    }
    let plain = ExpectedTyp::AbsentOr("JWT");
    assert_eq!(verdict(None, plain), None);
    assert_eq!(verdict(Some("jwt"), plain), None);
    assert_eq!(verdict(Some("at+jwt"), plain), Some(JwtError::Typ));
    assert_eq!(verdict(Some("other"), ExpectedTyp::Any), None);
}

#[test]
fn a_changed_token_is_refused_wherever_it_was_changed() {
    let key = es256();
    let token = jwt::sign(&key, "JWT", &claims()).unwrap();
    for position in 0..token.len() {
        let mut altered = token.clone().into_bytes();
        altered[position] = if altered[position] == b'A' { b'B' } else { b'A' };
        assert!(
            judge(std::str::from_utf8(&altered).unwrap(), key.public()).is_err(),
            "position {position}"
        );
    }
}

#[test]
fn an_unverified_claim_can_be_read_to_find_the_keys() {
    let token = jwt::sign(&es256(), "JWT", &claims()).unwrap();
    assert_eq!(jwt::unverified_claim(&token, "iss"), Ok(Some("joe".into())));
    assert_eq!(jwt::unverified_claim(&token, "sub"), Ok(None));
    assert_eq!(jwt::unverified_claim(&token, "exp"), Err(JwtError::Claims));
}

#[test]
fn an_encoder_writes_what_sign_writes() {
    let key = SigningKey::generate_ed25519(&Random::system()).unwrap();
    let encoder = Encoder::new(&key, "a \"quoted\" type");
    let token = encoder.encode(&claims()).unwrap();
    assert_eq!(token, jwt::sign(&key, "a \"quoted\" type", &claims()).unwrap());
    assert_eq!(Compact::parse(&token).unwrap().typ(), Some("a \"quoted\" type"));
}

#[test]
fn times_hold_to_the_second_and_the_leeway() {
    let at = Timestamp::from_seconds;
    let leeway = Duration::from_secs(30);
    let check = |exp: Option<u64>, nbf: Option<u64>, iat: Option<u64>| {
        check_times(exp.map(at), nbf.map(at), iat.map(at), at(1_000), leeway)
    };
    assert_eq!(check(None, None, None), Ok(()));
    assert_eq!(check(Some(971), Some(1_030), Some(1_030)), Ok(()));
    assert_eq!(check(Some(970), None, None), Err(TimeError::Expired));
    assert_eq!(check(None, Some(1_031), None), Err(TimeError::NotYetValid));
    assert_eq!(check(None, None, Some(1_031)), Err(TimeError::IssuedInFuture));
    assert_eq!(check(Some(u64::MAX), Some(0), Some(0)), Ok(()));
}
