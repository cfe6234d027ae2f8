//! Authorization Server Issuer Identification.

use crate::harness::server::Setup;
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
        .authorize(&acme.request().with("prompt", "none login"))
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

/// At another of its names the service is the same issuer, and people are sent to the one at which they can sign in.
#[tokio::test]
async fn a_page_at_another_name_of_the_service_is_at_the_issuer() {
    let names = ["id.example.test", "login.example.test"].map(str::to_owned);
    let setup = Setup {
        names: names.into(),
        ..Setup::default()
    };
    let server = setup.start().await;
    let at = |host, path| server.get(path).without_header("host").header("host", host);
    for path in [
        "/account",
        "/login?transaction=%2F%2Fevil&a=b",
        "/oauth2/logout?state=x",
    ] {
        for host in ["login.example.test", "LOGIN.example.test:8443"] {
            let elsewhere = at(host, path).await;
            assert_eq!(elsewhere.status, 303, "{host}{path}");
            assert_eq!(elsewhere.location(), format!("{ISSUER}{path}"));
        }
        // As HTTP/2 names the host.
        let elsewhere = server.get(&format!("https://login.example.test{path}")).await;
        assert_eq!(elsewhere.location(), format!("{ISSUER}{path}"));
    }
    for host in ["id.example.test", "evil.example"] {
        let page = at(host, "/account").await;
        assert!(
            page.location().starts_with("/login?"),
            "{host}: {}",
            page.location()
        );
    }
    assert_eq!(at("login.example.test", "/oauth2/jwks").await.status, 200);
}
