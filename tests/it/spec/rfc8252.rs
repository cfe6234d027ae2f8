//! OAuth 2.0 for Native Apps.

use idsvc::oauth::client::{AuthMethod, Client};

use crate::harness::scene;

/// Section 8.6: another application on the machine can take the place of a public client without the user's notice.
#[tokio::test]
async fn a_native_application_gets_no_code_without_a_person() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    for address in [
        "com.example.app:/cb",
        "http://127.0.0.1/cb",
        "http://[::1]/cb",
        "http://localhost/cb",
    ] {
        let id = format!("native-{}", address.len());
        let is_native = |client: &mut Client| {
            client.token_endpoint_auth_methods = [AuthMethod::None].into();
            client.redirect_uris = vec![address.to_owned()];
        };
        let native = server.client_with(&id, is_native).await;
        let silent = native.request().with("prompt", "none");
        let answer = browser.authorize(&silent).await.callback();
        assert_eq!(answer.get("error"), Some("interaction_required"), "{address}");
        let screen = browser.authorize(&native.request()).await;
        assert!(screen.text().contains("value=\"continue\""), "{address}");
        let code = screen.decide("continue").await.callback().code();
        assert_eq!(
            native.redeem(&code).await.tokens().id().claims["sub"],
            alice.sub()
        );
    }
    let web = server.public_client("web").await;
    let silent = web.request().with("prompt", "none");
    browser.authorize(&silent).await.callback().code();
}
