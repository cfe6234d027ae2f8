//! OpenID Connect Discovery 1.0, and the key set that it points to.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::admin::key;
use idsvc::admin::key::RotateKey;
use idsvc::flow::rotate_keys;
use idsvc::jose::alg::Algorithm;
use serde_json::json;

use crate::harness::{ISSUER, Server, scene};

/// Section 3: what is published, all of it.
#[tokio::test]
async fn the_document_says_what_works_and_nothing_else() {
    let server = Server::start().await;
    server.client("acme").await;
    let reply = server.get("/.well-known/openid-configuration").await;
    assert_eq!(reply.status, 200);
    let mut document = reply.json();
    let at = |path: &str| format!("{ISSUER}{path}");
    let algs = [
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "Ed25519",
    ];
    let claims = document
        .as_object_mut()
        .unwrap()
        .remove("claims_supported")
        .unwrap();
    for claim in [
        "sub",
        "iss",
        "auth_time",
        "acr",
        "name",
        "email",
        "email_verified",
        "address",
        "phone_number",
    ] {
        assert!(claims.as_array().unwrap().contains(&json!(claim)), "{claim}");
    }
    let locales = document
        .as_object_mut()
        .unwrap()
        .remove("ui_locales_supported")
        .unwrap();
    for locale in ["en", "de", "fr", "es", "ja", "ar"] {
        assert!(locales.as_array().unwrap().contains(&json!(locale)), "{locale}");
    }
    assert_eq!(
        document,
        json!({
            "issuer": ISSUER,
            "authorization_endpoint": at("/oauth2/authorize"),
            "token_endpoint": at("/oauth2/token"),
            "device_authorization_endpoint": at("/oauth2/device_authorization"),
            "pushed_authorization_request_endpoint": at("/oauth2/par"),
            "jwks_uri": at("/oauth2/jwks"),
            "userinfo_endpoint": at("/oauth2/userinfo"),
            "introspection_endpoint": at("/oauth2/introspect"),
            "revocation_endpoint": at("/oauth2/revoke"),
            "end_session_endpoint": at("/oauth2/logout"),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query", "form_post", "jwt", "query.jwt", "form_post.jwt"],
            "grant_types_supported": ["authorization_code", "refresh_token",
                                      "urn:service:oauth2:grant-type:anonymous", "client_credentials",
                                      "urn:ietf:params:oauth:grant-type:jwt-bearer",
                                      "urn:ietf:params:oauth:grant-type:token-exchange",
                                      "urn:ietf:params:oauth:grant-type:device_code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
            "userinfo_signing_alg_values_supported": ["RS256", "ES256"],
            "authorization_signing_alg_values_supported": ["RS256", "ES256"],
            "introspection_signing_alg_values_supported": ["RS256", "ES256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post",
                                                      "private_key_jwt", "none"],
            "token_endpoint_auth_signing_alg_values_supported": algs,
            "introspection_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post",
                                                              "private_key_jwt"],
            "introspection_endpoint_auth_signing_alg_values_supported": algs,
            "revocation_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post",
                                                           "private_key_jwt", "none"],
            "revocation_endpoint_auth_signing_alg_values_supported": algs,
            "code_challenge_methods_supported": ["S256"],
            "dpop_signing_alg_values_supported": algs,
            "scopes_supported": ["openid", "profile", "email", "phone", "address", "offline_access", "notes.read",
                                 "notes.write"],
            "claim_types_supported": ["normal"],
            "claims_parameter_supported": true,
            "acr_values_supported": ["1", "2", "phr"],
            "prompt_values_supported": ["none", "login", "consent", "select_account"],
            "display_values_supported": ["page"],
            "authorization_response_iss_parameter_supported": true,
            "backchannel_logout_supported": true,
            "backchannel_logout_session_supported": true,
            "request_parameter_supported": true,
            "request_uri_parameter_supported": false,
            "request_object_signing_alg_values_supported": algs,
        })
    );
}

/// Section 3: where the operator says what developers should read, they are told.
#[tokio::test]
async fn the_operators_documentation_is_published() {
    let page = "https://docs.example.com/sign-in";
    let server = Server::start_with(|policy| policy.service_documentation = Some(page.to_owned())).await;
    let document = server.get("/.well-known/openid-configuration").await.json();
    assert_eq!(document["service_documentation"], page);
}

/// Section 3: the document follows clients and keys.
#[tokio::test]
async fn the_document_changes_with_clients_and_keys() {
    let server = Server::start().await;
    let ask = async || server.get("/.well-known/openid-configuration").await.json();
    assert!(!ask().await["scopes_supported"].to_string().contains("billing"));
    let acme = server
        .client_with("acme", |client| client.scope = "openid billing".parse().unwrap())
        .await;
    assert!(ask().await["scopes_supported"].to_string().contains("billing"));
    server.change_client(&acme, |client| client.enabled = false).await;
    assert!(!ask().await["scopes_supported"].to_string().contains("billing"));
    let eddsa = RotateKey {
        alg: Algorithm::EdDsa,
        at_once: true,
    };
    let made = server.admin().call(eddsa).await.unwrap();
    for _ in ["signing", "retired, while its tokens are good"] {
        assert_eq!(
            ask().await["id_token_signing_alg_values_supported"],
            json!(["RS256", "ES256", "EdDSA"])
        );
        server
            .admin()
            .call(key::RetireKey {
                kid: made.kid.clone(),
            })
            .await
            .unwrap();
    }
    assert_eq!(
        ask().await["id_token_signing_alg_values_supported"],
        json!(["RS256", "ES256"])
    );
}

/// RFC 7517 section 5: public keys, each with a name, and nothing secret.
#[tokio::test]
async fn the_key_set_holds_public_keys_only() {
    let server = Server::start().await;
    let reply = server.get("/oauth2/jwks").await;
    let document = reply.json();
    let keys = document["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2);
    let names: HashSet<_> = keys.iter().map(|key| key["kid"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2);
    for key in keys {
        assert_eq!(key["use"], "sig");
        let members: Vec<_> = key.as_object().unwrap().keys().map(String::as_str).collect();
        let public: &[&str] = match key["kty"].as_str().unwrap() {
            "RSA" => &["alg", "e", "kid", "kty", "n", "use"],
            "EC" => &["alg", "crv", "kid", "kty", "use", "x", "y"],
            other => panic!("{other}"),
        };
        assert_eq!(members, public);
        if let Some(modulus) = key["n"].as_str() {
            assert_eq!(URL_SAFE_NO_PAD.decode(modulus).unwrap().len(), 256);
        }
    }
}

/// RFC 9110 section 13.1.2 and the Fetch standard: both documents may be kept, and read from anywhere.
#[tokio::test]
async fn the_documents_are_cacheable_and_open_to_all_scripts() {
    let server = Server::start().await;
    for path in [
        "/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server",
        "/oauth2/jwks",
    ] {
        let reply = server
            .get(path)
            .header("origin", "https://anywhere.example")
            .await;
        assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
        assert_eq!(reply.header("access-control-allow-credentials"), None);
        assert!(
            reply
                .header("cache-control")
                .unwrap()
                .starts_with("public, max-age=")
        );
        let tag = reply.header("etag").unwrap();
        let known = server.get(path).header("if-none-match", tag).await;
        assert_eq!(
            (known.status, known.text(), known.header("etag")),
            (304, "", Some(tag))
        );
        let other = server.get(path).header("if-none-match", "\"other\"").await;
        assert_eq!(other.status, 200);
        assert_eq!(server.call("HEAD", path).await.text(), "");
        let preflight = server
            .call("OPTIONS", path)
            .header("origin", "https://anywhere.example")
            .header("access-control-request-method", "POST")
            .await;
        assert_eq!(
            (preflight.status, preflight.header("access-control-allow-origin")),
            (204, Some("*"))
        );
    }
}

/// OpenID Connect Core 10.1.1: a new key is published before it signs, the old one after.
#[tokio::test]
async fn a_replaced_key_stays_published_while_its_tokens_last() {
    let (server, acme, alice) = scene().await;
    let names = async || {
        let keys = server.get("/oauth2/jwks").await.json()["keys"]
            .as_array()
            .unwrap()
            .clone();
        keys.iter()
            .map(|key| key["kid"].as_str().unwrap().to_owned())
            .collect::<HashSet<_>>()
    };
    let before = names().await;
    let tag = server
        .get("/oauth2/jwks")
        .await
        .header("etag")
        .unwrap()
        .to_owned();
    let old = acme.tokens(&alice.browser()).await;
    rotate_keys::rotate(&server.app.core, Algorithm::Es256, false)
        .await
        .unwrap();
    let announced = names().await;
    assert_eq!((announced.len(), before.is_subset(&announced)), (3, true));
    assert_eq!(
        server
            .get("/oauth2/jwks")
            .header("if-none-match", &tag)
            .await
            .status,
        200
    );
    let refreshed = acme.refresh(old.refresh_token()).await.tokens();
    assert_eq!(refreshed.access().header["kid"], old.access().header["kid"]);

    rotate_keys::rotate(&server.app.core, Algorithm::Es256, true)
        .await
        .unwrap();
    assert_eq!(names().await, announced);
    let new = acme.refresh(refreshed.refresh_token()).await.tokens();
    assert_ne!(new.access().header["kid"], old.access().header["kid"]);
    for tokens in [&old, &refreshed, &new] {
        acme.verify(tokens.access_token()).await;
        assert!(acme.is_welcome(tokens).await);
    }
}
