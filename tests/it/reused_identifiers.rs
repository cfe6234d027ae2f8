//! A client that gets the identifier of a removed one inherits nothing of it.

use std::sync::{Mutex, mpsc};

use idsvc::admin::client;
use idsvc::identity::AuthenticationMethod;
use idsvc::oauth::client::{Client, ConsentRequirement};
use idsvc::store::StoreError;
use idsvc::store::tables::{CLIENTS, CODES, CODES_BY_USER, CONSENTS, FAMILIES};
use serde_json::json;
use uuid::Uuid;

use crate::harness::{Browser, RelyingParty, Server, Tokens, scene, sweep_all, until};

const APPLICATIONS: &str = "/account/applications";

fn asking(client: &mut Client) {
    client.consent = ConsentRequirement::Require;
}

/// The applications that the account page names.
async fn applications(browser: &Browser) -> Vec<String> {
    let page = browser.visit(APPLICATIONS).await;
    let mut forms = page.forms().into_iter();
    let found = forms.find(|form| form.value("decision") == Some("applications"));
    found.map_or_else(Vec::new, |form| {
        form.buttons.into_iter().map(|(_, value)| value).collect()
    })
}

/// How many families and consents there are, and how many codes with and without the index.
fn rows(server: &Server) -> [u64; 4] {
    let read = server.app.core.store.read_blocking(|snapshot| {
        Ok([
            FAMILIES.count(snapshot)?,
            CONSENTS.count(snapshot)?,
            CODES.count(snapshot)?,
            CODES_BY_USER.count(snapshot)?,
        ])
    });
    read.unwrap()
}

/// The browser of a new user who signed in, the tokens of the client, and a code that it has not redeemed.
async fn sign_in(server: &Server, client: &RelyingParty) -> (Browser, Tokens, String) {
    let browser = server.user("alice").await.browser();
    let tokens = client.tokens(&browser).await;
    let code = client.code(&browser).await;
    (browser, tokens, code)
}

#[tokio::test]
async fn a_later_client_of_the_same_identifier_inherits_nothing() {
    let server = Server::start().await;
    let first = server.client_with("acme", asking).await;
    let (browser, tokens, code) = sign_in(&server, &first).await;
    assert_eq!(applications(&browser).await, ["acme"]);
    client::remove(server.admin(), "acme".to_owned()).await.unwrap();
    assert_eq!(rows(&server)[..2], [1, 1], "the removal looks at no grant");

    let second = server.client_with("acme", asking).await;
    assert_eq!(
        second.refresh(tokens.refresh_token()).await.refusal(),
        "400 invalid_grant: refresh_token has been revoked"
    );
    assert_eq!(
        second.redeem(&code).await.refusal(),
        "400 invalid_grant: code is unknown or has expired"
    );
    for token in [tokens.access_token(), tokens.refresh_token()] {
        let verdict = second.introspect(token).await.json();
        assert_eq!(verdict, json!({"active": false}));
    }
    assert!(!second.is_welcome(&tokens).await);
    assert!(applications(&browser).await.is_empty());
    let page = browser.authorize(&second.request()).await;
    assert_eq!(page.page(), "/consent");
    let kept = second
        .redeem(&page.allow().await.callback().code())
        .await
        .tokens();
    assert_eq!(applications(&browser).await, ["acme"]);

    server.advance(server.app.core.policy.lifetimes.access_token.as_secs() + 1);
    sweep_all(&server).await;
    assert_eq!(rows(&server), [1, 1, 1, 1], "what the second client has");
    second.refresh(kept.refresh_token()).await.tokens();
    client::remove(server.admin(), "acme".to_owned()).await.unwrap();
    sweep_all(&server).await;
    assert_eq!(rows(&server)[..2], [0, 0]);
}

/// The requests authenticated before the removal, and their transactions come after it.
#[tokio::test]
async fn requests_that_are_answered_during_the_removal_get_nothing() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let code = acme.code(&browser).await;
    let store = &server.app.core.store;
    let (begin, begun) = mpsc::channel::<()>();
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let writer = store.clone();
    let held = tokio::spawn(async move {
        let hold = writer.write("test_hold", move |_| -> Result<_, StoreError> {
            let _ = begin.send(());
            let _ = wait.lock().unwrap().recv();
            Ok(())
        });
        hold.await
    });
    until(async || begun.try_recv().is_ok()).await;
    let (removed, refreshed, redeemed, ()) = tokio::join!(
        biased;
        client::remove(server.admin(), "acme".to_owned()),
        acme.refresh(tokens.refresh_token()).into_future(),
        acme.redeem(&code).into_future(),
        async {
            until(async || store.stats().queue_depth >= 3).await;
            go.send(()).unwrap();
        },
    );
    held.await.unwrap().unwrap();
    removed.unwrap();
    assert_eq!(refreshed.error(), "invalid_client");
    assert_eq!(redeemed.error(), "invalid_client");
    let again = server.client("acme").await;
    assert!(!again.is_welcome(&tokens).await);
}

/// The rows of a release without incarnations.
#[tokio::test]
async fn grants_of_an_older_release_last_as_long_as_their_client() {
    let server = Server::start().await;
    let first = server.client_with("acme", asking).await;
    let (browser, tokens, code) = sign_in(&server, &first).await;
    server
        .change_client(&first, |client| client.incarnation = Uuid::nil())
        .await;
    let written = server
        .app
        .core
        .store
        .write("test_older_release", |tx| -> Result<_, StoreError> {
            for (id, mut family) in FAMILIES.scan(&*tx, .., 10)? {
                family.authorization.client_incarnation = Uuid::nil();
                FAMILIES.put(tx, &id, &family)?;
            }
            for (key, mut consent) in CONSENTS.scan(&*tx, .., 10)? {
                consent.client_incarnation = Uuid::nil();
                CONSENTS.put(tx, &key, &consent)?;
            }
            for (id, mut code) in CODES.scan(&*tx, .., 10)? {
                code.authorization.client_incarnation = Uuid::nil();
                assert_eq!(code.authorization.factor, AuthenticationMethod::Password);
                CODES.put(tx, &id, &code)?;
            }
            Ok(CLIENTS.get(&*tx, "acme")?.is_some())
        });
    assert!(written.await.unwrap());
    let tokens = first.refresh(tokens.refresh_token()).await.tokens();
    first.redeem(&code).await.tokens();
    assert!(first.is_welcome(&tokens).await);
    let code = first.code(&browser).await;

    client::remove(server.admin(), "acme".to_owned()).await.unwrap();
    let second = server.client_with("acme", asking).await;
    assert_eq!(
        second.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
    assert_eq!(second.redeem(&code).await.error(), "invalid_grant");
    assert!(!second.is_welcome(&tokens).await);
    assert!(applications(&browser).await.is_empty());
    assert_eq!(browser.authorize(&second.request()).await.page(), "/consent");
}
