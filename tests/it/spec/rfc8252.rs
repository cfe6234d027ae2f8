//! OAuth 2.0 for Native Apps.

use idsvc::oauth::client::{AuthMethod, Client};

use crate::harness::scene;

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
