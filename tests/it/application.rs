//! Pages that name the application, in the language of the reader.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idsvc::oauth::Logo;
use idsvc::oauth::client::ConsentRequirement;
use idsvc::pages::text::{DE, EN};
use serde_json::{Value, json};

use crate::harness::process::{Service, shown};
use crate::harness::{Screen, Server, scene};

const SVG: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";

/// The address behind the first occurrence of `start` on a page, up to the quote.
fn address(page: &Screen, start: &str) -> String {
    let text = page.text().replace("&amp;", "&");
    let (_, rest) = text
        .split_once(start)
        .unwrap_or_else(|| panic!("no {start} on {text}"));
    format!("{start}{}", rest.split('"').next().unwrap())
}

#[tokio::test]
async fn pages_show_the_logo_of_the_application_and_it_can_do_nothing() {
    let server = Server::start().await;
    let logo = Logo {
        media_type: "image/svg+xml".to_owned(),
        data: STANDARD.encode(SVG),
    };
    let acme = server
        .client_with("acme", |client| {
            client.consent = ConsentRequirement::Require;
            client.logo = Some(logo);
        })
        .await;
    let alice = server.user("alice").await;
    let page = alice.browser().authorize(&acme.request()).await;
    let path = address(&page, "/logos/");
    let reply = server.get(&path).await;
    assert_eq!((reply.status, reply.text()), (200, SVG));
    assert_eq!(reply.header("content-type"), Some("image/svg+xml"));
    let policy = reply.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'") && policy.contains("sandbox"),
        "{policy}"
    );
    let caching = reply.header("cache-control").unwrap();
    assert!(caching.contains("immutable"), "{caching}");
    let consent = page.sign_in().await;
    assert_eq!(address(&consent, "/logos/"), path);
    let (id, version) = path.rsplit_once('.').unwrap();
    for other in [
        format!("{id}.000000000000"),
        format!("/logos/x.{version}"),
        id.to_owned(),
    ] {
        assert_eq!(server.get(&other).await.status, 404, "{other}");
    }
}

#[tokio::test]
async fn a_language_is_chosen_below_the_page_and_kept() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let page = browser.authorize(&acme.request()).await;
    assert!(page.text().contains("<form method=\"get\" action=\"/login\">"));
    let german = browser.visit(&format!("{}&lang=de", page.path)).await;
    assert_eq!(german.heading(), DE.sign_in);
    let wrong = german.type_in("alice", "not the password").await;
    assert!(wrong.text().contains("<html lang=\"de\""));
    let asked = browser.authorize(&acme.request().with("ui_locales", "fr")).await;
    assert_eq!(asked.heading(), DE.sign_in);
    let unknown = browser.visit(&format!("{}&lang=tlh", page.path)).await;
    assert_eq!(unknown.heading(), DE.sign_in);
    let english = browser.visit(&format!("{}&lang=en", page.path)).await;
    assert_eq!(english.heading(), EN.sign_in);
    english.through().await.code();
}

#[tokio::test]
async fn another_user_can_sign_in_from_the_consent_page() {
    let server = Server::start().await;
    let acme = server
        .client_with("acme", |client| client.consent = ConsentRequirement::Require)
        .await;
    let (alice, bob) = (server.user("alice").await, server.user("bob").await);
    let browser = alice.browser();
    let consent = browser.authorize(&acme.request()).await.sign_in().await;
    assert_eq!(consent.page(), "/consent");
    let login = browser.visit(&address(&consent, "/login?")).await;
    assert_eq!(login.page(), "/login");
    let consent = login.type_in(&bob.user.account_id, &bob.password).await;
    assert!(consent.text().contains("bob") && !consent.text().contains("alice"));
    let tokens = acme
        .redeem(&consent.allow().await.callback().code())
        .await
        .tokens();
    assert_eq!(tokens.id().claims["sub"], json!(bob.user.uuid.to_string()));
}

/// The file is stored with the client, shown as a fact, exported, and declared.
#[test]
fn the_logo_of_a_client_is_set_exported_declared_and_removed() {
    let service = Service::new();
    let file = service.folder.path().join("logo.svg");
    fs::write(&file, SVG).unwrap();
    let file = file.to_str().unwrap();
    let add = [
        "client",
        "add",
        "web",
        "--redirect-uri",
        "https://app.example/cb",
        "--json",
    ];
    let added = service.json(&[&add[..], &["--logo-file", file]].concat());
    assert_eq!((&added["has_logo"], &added["logo"]), (&json!(true), &Value::Null));
    let text = shown(&service.run(&["client", "show", "web"]));
    assert!(text.contains("logo"), "{text}");
    let exported = shown(&service.run(&["export"]));
    assert!(exported.contains(&STANDARD.encode(SVG)), "{exported}");
    let removed = service.json(&["client", "update", "web", "--logo-file", "", "--json"]);
    assert_eq!(removed["has_logo"], json!(false));
    fs::write(
        service.folder.path().join("state.toml"),
        "[[client]]\nclient_id = \"web\"\nredirect_uris = [\"https://app.example/cb\"]\nlogo_file = \"logo.svg\"\n",
    )
    .unwrap();
    let plan = shown(&service.run(&["apply", "-f", "state.toml"]));
    assert!(
        plan.contains("bytes of base64, version ") && !plan.contains(&STANDARD.encode(SVG)),
        "{plan}"
    );
    let declared = service.json(&["client", "show", "web", "--json"]);
    assert_eq!(declared["has_logo"], json!(true));
}
