//! RFC 7518 section 3: the algorithms that others may sign with, wherever they sign something.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::admin::provider::ProviderFields;
use idsvc::jose::alg::Algorithm;
use idsvc::oauth::assertion::ASSERTION_TYPE;
use idsvc::oauth::client::{AuthMethod, Client, ClientOrigin, GrantType};
use idsvc::random::Random;
use serde_json::{Value, json};

use crate::harness::foreign_key::ForeignKey;
use crate::harness::process::Service;
use crate::harness::wire::Call;
use crate::harness::{Audit, ISSUER, RelyingParty, Server};

/// A client that authenticates with this key and acts for itself.
async fn robot(server: &Server, key: &ForeignKey) -> RelyingParty {
    let jwk = key.jwk.clone();
    let id = key.alg.as_str().to_lowercase();
    server
        .client_with(&id, |client| {
            client.jwks = vec![jwk];
            client.token_endpoint_auth_methods = [AuthMethod::PrivateKeyJwt].into();
            client.secrets.clear();
            client.grant_types.insert(GrantType::ClientCredentials);
        })
        .await
}

fn assertion_claims(server: &Server, robot: &RelyingParty) -> Value {
    let (id, now) = (robot.client_id(), server.clock.now().seconds());
    json!({ "iss": id, "sub": id, "aud": ISSUER, "exp": now + 60, "jti": Random::system().uuid_v4() })
}

fn asserted(call: Call, assertion: &str) -> Call {
    call.with("client_assertion_type", ASSERTION_TYPE)
        .with("client_assertion", assertion)
}

fn own_token(server: &Server, assertion: &str) -> Call {
    asserted(server.post("/oauth2/token"), assertion)
        .with("grant_type", "client_credentials")
        .with("scope", "notes.read")
}

#[tokio::test]
async fn a_client_may_sign_assertions_proofs_and_requests_with_every_algorithm_that_is_verified() {
    let server = Server::start_with_limits(|limits| limits.enabled = false).await;
    for key in ForeignKey::one_of_each() {
        let robot = robot(&server, &key).await;
        let claims = || assertion_claims(&server, &robot);
        let assertion = || key.sign(json!({}), &claims());
        for other in Algorithm::ALL.into_iter().filter(|other| *other != key.alg) {
            let mislabelled = key.sign_as(&json!({ "alg": other }), &claims());
            let refused = own_token(&server, &mislabelled).await;
            assert_eq!(refused.error(), "invalid_client", "{} as {other}", key.alg);
        }
        let now = server.clock.now().seconds();
        let proof = json!({
            "jti": Random::system().uuid_v4(), "htm": "POST", "htu": format!("{ISSUER}/oauth2/token"), "iat": now,
        });
        let proof = key.sign(json!({ "typ": "dpop+jwt", "jwk": key.jwk }), &proof);
        let tokens = own_token(&server, &assertion())
            .header("dpop", &proof)
            .await
            .tokens();
        assert_eq!(tokens.0["token_type"], "DPoP", "{}", key.alg);

        let mut object = json!({ "iss": robot.client_id(), "aud": ISSUER, "nbf": now, "exp": now + 60 });
        for (name, value) in &robot.request().parameters {
            object[name] = json!(value);
        }
        let object = key.sign(json!({ "typ": "oauth-authz-req+jwt" }), &object);
        let push = || {
            let push = asserted(server.post("/oauth2/par"), &assertion());
            push.with("request", &object)
        };
        assert_eq!(push().await.status, 201, "{}", key.alg);
        for (registered, status) in [(key.alg, 201), (Algorithm::Es256, 400)] {
            let register = |client: &mut Client| client.request_object_signing_alg = Some(registered);
            server.change_client(&robot, register).await;
            assert_eq!(push().await.status, status, "{} for {registered}", key.alg);
        }
    }
}

#[tokio::test]
async fn a_provider_may_sign_with_every_algorithm_that_its_record_names() {
    const PROVIDER: &str = "https://up.example";
    for key in ForeignKey::one_of_each() {
        let server = Server::start().await;
        let fields = ProviderFields {
            issuer: Some(PROVIDER.to_owned()),
            audiences: Some(vec!["app".to_owned()]),
            exchange: Some(true),
            create_users: Some(true),
            keys: Some(vec![key.jwk.clone()]),
            algs: Some(vec![key.alg]),
            ..ProviderFields::default()
        };
        server.provider("up", fields).await;
        let acme = server
            .client_with("acme", |client| {
                client.grant_types.insert(GrantType::JwtBearer);
                client.providers.insert("up".to_owned());
            })
            .await;
        let now = server.clock.now().seconds();
        let claims = json!({ "iss": PROVIDER, "sub": "u-1", "aud": "app", "iat": now, "exp": now + 60 });
        let exchange = |token: &str| {
            acme.post("/oauth2/token")
                .with("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
                .with("assertion", token)
        };
        exchange(&key.sign(json!({}), &claims)).await.tokens();
        for other in Algorithm::ALL.into_iter().filter(|other| *other != key.alg) {
            let mislabelled = key.sign_as(&json!({ "alg": other }), &claims);
            assert_eq!(exchange(&mislabelled).await.error(), "invalid_grant", "{other}");
        }
    }
}

/// An earlier release stored keys that make a verification slow.
#[tokio::test]
async fn a_stored_key_of_a_client_that_registered_itself_is_tried_only_if_that_is_cheap() {
    let server = Server::start_with_limits(|limits| limits.enabled = false).await;
    for (number, (origin, bytes, exponent, reason)) in [
        (ClientOrigin::Operator, 513, "AQAB", "bad_signature"),
        (ClientOrigin::Operator, 256, "Aw", "bad_signature"),
        (ClientOrigin::DynamicRegistration, 512, "AQAB", "bad_signature"),
        (
            ClientOrigin::DynamicRegistration,
            513,
            "AQAB",
            "algorithm_not_allowed",
        ),
        (
            ClientOrigin::DynamicRegistration,
            256,
            "Aw",
            "algorithm_not_allowed",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let robot = server
            .client_with(&format!("robot{number}"), |client| {
                client.jwks = vec![json!({ "kty": "RSA", "n": modulus(bytes), "e": exponent })];
                client.origin = origin;
                client.token_endpoint_auth_methods = [AuthMethod::PrivateKeyJwt].into();
                client.secrets.clear();
                client.grant_types.insert(GrantType::ClientCredentials);
            })
            .await;
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let assertion = format!(
            "{}.{}.{}",
            part(&json!({ "alg": "RS256" })),
            part(&assertion_claims(&server, &robot)),
            URL_SAFE_NO_PAD.encode(vec![1; bytes])
        );
        let audit = Audit::listen();
        assert_eq!(own_token(&server, &assertion).await.error(), "invalid_client");
        assert_eq!(
            audit.refusals()[0]["reason"],
            reason,
            "{origin:?} {bytes} {exponent}"
        );
    }
}

/// A public RSA modulus of this length, whose private key nobody has.
fn modulus(bytes: usize) -> String {
    URL_SAFE_NO_PAD.encode([&[0xd3; 1], &vec![0x91; bytes - 1][..]].concat())
}

/// A verification by a key that a stranger chooses must be cheap.
#[tokio::test]
async fn an_rsa_key_of_a_stranger_has_at_most_4096_bits_and_the_usual_exponent() {
    let server = Server::open().await;
    for (bytes, exponent, is_cheap) in [
        (512, "AQAB", true),
        (256, "AQAB", true),
        (513, "AQAB", false),
        (1024, "AQAB", false),
        (256, "Aw", false),
        (256, "AQAAAAE", false),
    ] {
        let jwk = json!({ "kty": "RSA", "n": modulus(bytes), "e": exponent });
        let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let proof = format!(
            "{}.{}.AAAA",
            part(json!({ "typ": "dpop+jwt", "alg": "RS256", "jwk": jwk })),
            part(json!({}))
        );
        let proven = server.post("/oauth2/token").header("dpop", &proof).await;
        let problem = if is_cheap {
            "the signature is not by the key in jwk"
        } else {
            "jwk: rsa key has more than 4096 bits, or another exponent than 65537"
        };
        let refusal = format!("400 invalid_dpop_proof: DPoP proof: {problem}");
        assert_eq!(proven.refusal(), refusal, "{bytes} {exponent}");
        let metadata = json!({
            "redirect_uris": ["https://app.example/cb"],
            "token_endpoint_auth_method": "private_key_jwt",
            "jwks": { "keys": [jwk] },
        });
        let reply = server.register(&metadata).await;
        if is_cheap {
            assert_eq!(reply.status, 201, "{}", reply.text());
        } else {
            assert_eq!(reply.error(), "invalid_client_metadata");
        }
    }
}

/// What `openssl ecparam -name secp384r1 -genkey` and `openssl pkey -pubout` write.
const P384_PEM: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE9RmtGv+nfjMrKmMCO7UuP6aSrbrYYasT\n\
l8UKx3y1rwtwOv+8YwjhST+ua3B4qwpspcx/BePGu5NMJ3ZV15gi0mztPo0pL8fl\n\
/66hjXtKrgoeXUdj4i3wMUvZnFaVYkZu\n\
-----END PUBLIC KEY-----\n";

#[test]
fn a_client_is_registered_with_a_p_384_key_from_a_file() {
    let service = Service::new();
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("key.pem");
    std::fs::write(&file, P384_PEM).unwrap();
    let file = file.to_str().unwrap();
    let add = "client add robot --grant client_credentials --scope notes.read --json --public-key-file";
    let words = add.split(' ').chain([file]).collect::<Vec<_>>();
    let added = service.json(&words);
    assert_eq!(added["keys"][0]["crv"], "P-384");
    assert_eq!(added["keys"][0]["alg"], "ES384");
    let provider = "provider add up --issuer https://up.example --exchange --audience app --alg es384 --alg PS512 --json";
    let added = service.json(&provider.split(' ').collect::<Vec<_>>());
    assert_eq!(added["algs"], json!(["PS512", "ES384"]));
}

/// The service itself signs with four algorithms.
#[tokio::test]
async fn discovery_tells_what_others_may_sign_with_and_what_the_service_signs_with() {
    let server = Server::start().await;
    let document = server.get("/.well-known/openid-configuration").await.json();
    let received = json!([
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "Ed25519"
    ]);
    for member in [
        "token_endpoint_auth_signing_alg_values_supported",
        "introspection_endpoint_auth_signing_alg_values_supported",
        "revocation_endpoint_auth_signing_alg_values_supported",
        "request_object_signing_alg_values_supported",
        "dpop_signing_alg_values_supported",
    ] {
        assert_eq!(document[member], received, "{member}");
    }
    assert_eq!(
        document["id_token_signing_alg_values_supported"],
        json!(["RS256", "ES256"])
    );
    let service = Service::new();
    for refused in [
        "key rotate --alg ES384",
        "client add web --redirect-uri https://a.example/cb --id-token-alg RS512",
    ] {
        let words: Vec<_> = refused.split(' ').collect();
        let ran = service.run(&words);
        assert!(!ran.status.success(), "{refused}");
    }
}
