//! Authorization Server Issuer Identification.

use crate::harness::{ISSUER, scene, write_form};

/// Sections 2 and 2.3: every answer names its issuer, which metadata announces.
#[tokio::test]
async fn every_answer_names_its_issuer() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let metadata = server.get("/.well-known/oauth-authorization-server").await.json();
    assert_eq!(metadata["authorization_response_iss_parameter_supported"], true);
    assert_eq!(metadata["issuer"], ISSUER);
    let code = browser.authorize(&acme.request()).await.through().await;
    let refusal = browser
        .authorize(&acme.request().with("prompt", "other"))
        .await
        .callback();
    let posted = browser
        .authorize(&acme.request().with("response_mode", "form_post"))
        .await
        .posted_callback();
    for callback in [code, refusal, posted] {
        assert_eq!(callback.get("iss"), Some(ISSUER));
    }
}

/// Section 2: the issuer is configured, never taken from what a request says its host is.
#[tokio::test]
async fn the_issuer_does_not_follow_the_host_header() {
    let (server, acme, alice) = scene().await;
    let elsewhere = server
        .get("/.well-known/openid-configuration")
        .without_header("host")
        .header("host", "evil.example:8443")
        .header("x-forwarded-host", "evil.example")
        .header("x-forwarded-proto", "http")
        .header("forwarded", "host=evil.example;proto=http")
        .await;
    assert_eq!(elsewhere.json()["issuer"], ISSUER);
    assert!(!elsewhere.text().contains("evil"));
    let query = write_form(&acme.request().parameters);
    let page = server
        .get(&format!("/oauth2/authorize?{query}"))
        .without_header("host")
        .header("host", "evil.example")
        .await;
    assert!(page.location().starts_with("/login?"), "{}", page.location());
    let tokens = acme.tokens(&alice.browser()).await;
    let userinfo = acme
        .userinfo(tokens.access_token())
        .without_header("host")
        .header("host", "evil.example");
    assert_eq!(userinfo.await.status, 200);
}
