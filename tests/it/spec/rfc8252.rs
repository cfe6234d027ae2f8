//! OAuth 2.0 for Native Apps.

use idsvc::admin::SecretString;
use idsvc::admin::client::{AddClient, UpdateClient};
use idsvc::oauth::ClientFields;
use idsvc::oauth::client::{AuthMethod, Client, PkceRequirement};
use serde_json::json;

use crate::harness::{Server, scene};

const SECRET: &str = "a secret that the operator chose, long enough";

/// Section 8.6: another application on the machine can take the place of a public client without the user's notice.
#[tokio::test]
async fn a_native_application_gets_no_code_without_a_person() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    for (address, asked) in [
        ("com.example.app:/cb", "com.example.app:/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:49152/cb"),
        ("http://[::1]/cb", "http://[::1]/cb"),
        ("http://localhost/cb", "http://localhost:58135/cb"),
    ] {
        let id = format!("native-{}", address.len());
        let is_native = |client: &mut Client| {
            client.token_endpoint_auth_methods = [AuthMethod::None].into();
            client.redirect_uris = vec![address.to_owned()];
        };
        let native = server.client_with(&id, is_native).await;
        let request = native.request().with("redirect_uri", asked);
        let silent = request.clone().with("prompt", "none");
        let answer = browser.authorize(&silent).await.callback();
        assert_eq!(answer.get("error"), Some("interaction_required"), "{address}");
        let screen = browser.authorize(&request).await;
        assert!(screen.text().contains("value=\"continue\""), "{address}");
        let code = screen.decide("continue").await.callback().code();
        let tokens = native.redeem(&code).with("redirect_uri", asked).await.tokens();
        assert_eq!(tokens.id().claims["sub"], alice.sub());
    }
    let web = server.public_client("web").await;
    let silent = web.request().with("prompt", "none");
    browser.authorize(&silent).await.callback().code();
}

/// Section 8.6 excepts a client that proves who it is: nobody else can redeem its code.
#[tokio::test]
async fn a_confidential_client_at_a_loopback_address_is_answered_without_a_person() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let at_loopback =
        |client: &mut Client| client.redirect_uris = vec!["http://localhost:3000/cb".to_owned()];
    let web = server.client_with("web", at_loopback).await;
    let silent = web.request().with("prompt", "none");
    browser.authorize(&silent).await.callback().code();
}

/// Section 8.4, for a server with a mobile application. The server redeems the code of any application that has taken
/// the scheme, so a person must agree first.
#[tokio::test]
async fn a_scheme_of_a_client_with_a_secret_needs_pkce_and_a_person() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let uris = [
        "https://immich.example/auth/login",
        "app.immich:///oauth-callback",
    ];
    let add = |client_id: &str, uris: &[&str], pkce| AddClient {
        client_id: client_id.to_owned(),
        public: false,
        secret: Some(SecretString::new(SECRET)),
        api_key: false,
        fields: ClientFields {
            redirect_uris: Some(uris.iter().map(|uri| (*uri).to_owned()).collect()),
            pkce,
            ..ClientFields::default()
        },
    };
    let refused = server
        .admin()
        .call(add("lax", &uris, Some(PkceRequirement::Optional)))
        .await;
    assert!(refused.is_err());
    for (id, unusable) in [
        ("script", "javascript:alert(1)"),
        ("blank", "ms-msdt:/id x"),
        ("any", "https://abs.example/*"),
    ] {
        let refused = server.admin().call(add(id, &[unusable], None)).await;
        assert!(refused.is_err(), "{unusable}");
    }
    for (id, uris) in [
        (
            "abs",
            &[
                "https://abs.example/auth/openid/callback",
                "audiobookshelf://oauth",
            ][..],
        ),
        ("oc", &["oc://ios.owncloud.example"]),
    ] {
        server.admin().call(add(id, uris, None)).await.unwrap();
    }
    server.admin().call(add("immich", &uris, None)).await.unwrap();
    let lax = UpdateClient {
        client_id: "immich".to_owned(),
        no_secret: false,
        fields: ClientFields {
            pkce: Some(PkceRequirement::Optional),
            ..ClientFields::default()
        },
    };
    assert!(server.admin().call(lax).await.is_err());

    let immich = server.party("immich", SECRET);
    let browser = alice.browser();
    browser.authorize(&immich.request()).await.through().await.code();
    let silent = immich.request().with("prompt", "none");
    browser.authorize(&silent).await.callback().code();
    let to_app = immich.request().with("redirect_uri", uris[1]);
    let bare = to_app
        .clone()
        .without("code_challenge")
        .without("code_challenge_method");
    assert_eq!(
        browser.authorize(&bare).await.callback().error(),
        "invalid_request"
    );
    let silent = browser.authorize(&to_app.clone().with("prompt", "none")).await;
    assert_eq!(silent.callback().error(), "interaction_required");
    let page = browser.authorize(&to_app).await;
    let answer = page.decide("continue").await;
    assert!(
        answer
            .location()
            .starts_with("app.immich:///oauth-callback?code="),
        "{}",
        answer.location()
    );
    let redeemed = immich
        .redeem(&answer.callback().code())
        .with("redirect_uri", uris[1]);
    redeemed.await.tokens();
}

/// Nobody vouches for a client that registered itself.
#[tokio::test]
async fn a_client_that_registered_itself_and_keeps_a_secret_has_no_scheme_of_its_own() {
    let server = Server::open().await;
    let metadata = |method: &str| {
        json!({
            "redirect_uris": ["https://immich.example/auth/login", "app.immich:///oauth-callback"],
            "token_endpoint_auth_method": method,
        })
    };
    let refused = server.register(&metadata("client_secret_basic")).await;
    assert_eq!(refused.error(), "invalid_redirect_uri");
    assert_eq!(server.register(&metadata("none")).await.status, 201);
}
