//! What people are told when something is wrong: in their language, with a way on, and without developers' sentences.

use idsvc::oauth::authorize::UntrustedRedirect;
use idsvc::oauth::client::ConsentRequirement;
use idsvc::oauth::redirect_uri::Mismatch;
use idsvc::pages::text::{DE, EN};

use crate::harness::server::{CONTACT, Setup};
use crate::harness::{ISSUER, RelyingParty, Reply, Server, scene};

async fn public_server() -> Server {
    let setup = Setup {
        shows_error_details: false,
        ..Setup::default()
    };
    setup.start().await
}

/// A page in German.
async fn in_german(server: &Server, path: &str) -> Reply {
    let call = server.get(path).header("accept", "text/html,*/*;q=0.8");
    call.header("accept-language", "de-AT,de;q=0.9").await
}

fn authorize(client_id: &str, redirect_uri: &str) -> String {
    format!("/oauth2/authorize?response_type=code&client_id={client_id}&redirect_uri={redirect_uri}")
}

/// The address of the first button.
fn best_way(page: &str) -> &str {
    let button = page.split_once("<a class=\"button\" href=\"").unwrap().1;
    button.split('"').next().unwrap()
}

#[tokio::test]
async fn an_error_is_told_in_the_language_of_its_reader_without_a_word_for_developers() {
    let server = public_server().await;
    server.client("acme").await;
    let unregistered = authorize("acme", "https://evil.example/cb");
    for (path, status, heading, way) in [
        (&*unregistered, 400, DE.error_request, "https://acme.example"),
        (&*authorize("nobody", "x"), 400, DE.error_request, "/account"),
        ("/error", 400, DE.error_request, "/account"),
        ("/nowhere", 404, DE.error_not_found, "/account"),
        ("/login?transaction=x", 400, DE.error_cookies, "/account"),
    ] {
        let page = in_german(&server, path).await;
        assert_eq!(
            (page.status, page.heading().as_str()),
            (status, heading),
            "{path}"
        );
        let text = page.text();
        assert!(
            text.contains("<html lang=\"de\"") && !text.contains("<p class=\"note\" lang=\"en\""),
            "{text}"
        );
        assert_eq!(best_way(text), way, "{path}");
        assert!(!text.contains("evil.example"), "{text}");
        let id = page.header("x-request-id").unwrap();
        assert!(text.contains(&format!("{CONTACT}?subject={id}")) && text.contains(&format!(">{id}<")));
    }
}

#[tokio::test]
async fn developers_read_details_on_a_development_server_only() {
    for (server, is_shown) in [(Server::start().await, true), (public_server().await, false)] {
        let acme = server.client("acme").await;
        for (client_id, details) in [
            ("acme", Mismatch::Unregistered.to_string()),
            ("nobody", UntrustedRedirect::UnknownClient.to_string()),
        ] {
            let page = in_german(&server, &authorize(client_id, "https://evil.example/cb")).await;
            assert_eq!(page.text().contains(&details), is_shown);
            assert_eq!(page.text().contains("<details>"), is_shown);
        }
        server.change_client(&acme, |client| client.enabled = false).await;
        let page = in_german(&server, &authorize("acme", "https://acme.example/cb")).await;
        assert_eq!(
            best_way(page.text()),
            "/account",
            "nobody is sent to a disabled client"
        );
    }
}

/// The sealed sign-in still says where its reader came from.
#[tokio::test]
async fn a_sign_in_that_has_expired_leads_back_to_its_application() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let login = browser.authorize(&acme.request()).await;
    server.advance(31 * 60);
    let page = browser.visit(&login.path).await;
    assert_eq!((page.status, page.heading().as_str()), (400, EN.error_stale));
    assert_eq!(best_way(page.text()), "https://acme.example");
    assert!(page.text().contains("href=\"/account\""));
    let native = server
        .client_with("native", |client| {
            client.redirect_uris = vec!["com.example.app:/cb".to_owned()];
            client.post_logout_redirect_uris = Vec::new();
        })
        .await;
    let login = browser.authorize(&native.request()).await;
    server.advance(31 * 60);
    let page = browser.visit(&login.path).await;
    assert_eq!(best_way(page.text()), "/account", "it has no address on the web");
}

#[tokio::test]
async fn a_form_that_was_opened_under_another_address_leads_to_the_service() {
    let (server, _acme, alice) = scene().await;
    let careful = server
        .client_with("careful", |client| client.consent = ConsentRequirement::Require)
        .await;
    let browser = alice.browser();
    let consent = browser.authorize(&careful.request()).await.sign_in().await;
    let elsewhere = [
        ("origin", "https://login.example.test"),
        ("sec-fetch-site", "same-origin"),
    ];
    let account = browser.visit("/account").await.forms().remove(0);
    let logout = browser.visit("/logout/confirm").await.decision_form("logout");
    let home = format!("{ISSUER}/account");
    for (form, way) in [
        (account, home.as_str()),
        (logout, &home),
        (consent.decision_form("allow"), "https://careful.example"),
    ] {
        let page = browser.submit_with(&form, &elsewhere).await;
        assert_eq!((page.status, page.heading().as_str()), (400, EN.error_elsewhere));
        assert!(page.text().contains(&format!("<a href=\"{ISSUER}\">")));
        assert_eq!(best_way(page.text()), way);
    }
}

fn logged_out(acme: &RelyingParty) -> String {
    format!("/logged-out?client_id={}", acme.client_id())
}

#[tokio::test]
async fn the_signed_out_page_leads_back_to_the_application_that_asked() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let page = browser
        .visit(&format!("/oauth2/logout?id_token_hint={}", tokens.id_token()))
        .await;
    assert_eq!(page.path, logged_out(&acme));
    assert_eq!(best_way(page.text()), "https://acme.example");
    assert!(
        page.text()
            .contains("<a class=\"button button-quiet\" href=\"/account\"")
    );
    server.change_client(&acme, |client| client.enabled = false).await;
    for path in [&*logged_out(&acme), "/logged-out?client_id=nobody", "/logged-out"] {
        let page = browser.visit(path).await;
        assert_eq!((page.status, best_way(page.text())), (200, "/account"), "{path}");
    }
}
