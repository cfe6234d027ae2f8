//! What one node has changed in clients and keys, the other nodes know with the next request.

use std::time::{Duration, Instant};

use idsvc::admin::client::{self, RemoveClient, RevokeApiKey};
use idsvc::admin::key::RotateKey;
use idsvc::flow::rotate_keys;
use idsvc::oauth::Scope;
use idsvc::oauth::client::StoredSecret;
use idsvc::oauth::redirect_uri::Mismatch;
use idsvc::secret::Digest;

use super::nodes::two_nodes;
use crate::harness::{RelyingParty, Server, until};

/// The client of the other node, as this node answers it.
async fn at(node: &Server, client: &RelyingParty) -> RelyingParty {
    let id = client.client_id();
    until(async || node.app.core.catalog().client(id).is_some()).await;
    node.party(id, &secret_of(id))
}

fn secret_of(client_id: &str) -> String {
    format!("the secret of {client_id}, of more than 32 bytes")
}

#[tokio::test]
async fn what_one_node_has_withdrawn_no_other_node_accepts() {
    let [one, other] = two_nodes().await;
    let acme = one.client("acme").await;
    let there = at(&other, &acme).await;
    let browser = other.user("alice").await.browser();
    let asked = there.request().with("scope", "openid notes.read notes.write");
    let tokens = there.tokens_for(&browser, &asked).await;

    one.change_client(&acme, |client| {
        client.scope = Scope::of(["openid", "notes.read"]).unwrap();
    })
    .await;
    let tokens = there.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(tokens.scope(), ["openid", "notes.read", "authenticated"]);

    let sign_in = other
        .user("bob")
        .await
        .browser()
        .authorize(&there.request())
        .await;
    one.change_client(&acme, |client| {
        client.redirect_uris = vec!["https://acme.example/other".to_owned()];
    })
    .await;
    assert_eq!(sign_in.sign_in().await.error_page_status(), 400);
    let reply = browser.authorize(&there.request()).await;
    assert_eq!(reply.error_page(), format!("400 {}", Mismatch::Unregistered));

    one.change_client(&acme, |client| {
        client.secrets = vec![StoredSecret {
            digest: Digest::of(b"another secret, of more than 32 bytes"),
            ..client.secrets[0].clone()
        }];
    })
    .await;
    let reply = there.refresh(tokens.refresh_token()).await;
    assert_eq!(reply.error(), "invalid_client");
}

#[tokio::test]
async fn what_one_node_has_added_the_others_know() {
    let [one, other] = two_nodes().await;
    let acme = one.client("acme").await;
    let introspect = |token: &str| {
        let call = other.post("/oauth2/introspect");
        call.basic("acme", &secret_of("acme")).with("token", token)
    };
    assert_eq!(introspect("unknown").await.status, 200, "a new client");

    for alg in rotate_keys::indispensable(&one.app.core) {
        let request = RotateKey { alg, at_once: true };
        one.admin().call(request).await.unwrap();
    }
    let browser = one.user("alice").await.browser();
    let tokens = acme.tokens(&browser).await;
    let verdict = introspect(tokens.access_token()).await.json();
    assert_eq!(verdict["active"], true, "a new signing key");

    let added = one
        .admin()
        .call(client::AddApiKey {
            client_id: "acme".to_owned(),
        })
        .await
        .unwrap();
    let secret = added.api_key.unwrap();
    let refresh = |token: &str| {
        let call = other.post("/v4/tokens").basic(secret.reveal(), "");
        call.with("grant_type", "refresh_token")
            .with("refresh_token", token)
    };
    let tokens = refresh(tokens.refresh_token()).await.tokens();
    let which = RevokeApiKey {
        client_id: "acme".to_owned(),
        id: added.id,
    };
    one.admin().call(which).await.unwrap();
    let reply = refresh(tokens.refresh_token()).await;
    assert_eq!(reply.status, 401, "a revoked API key");

    for node in [&one, &other] {
        node.advance(100 * 24 * 60 * 60);
    }
    rotate_keys::keep(&one.app.core).await.unwrap();
    let tokens = acme.tokens(&one.user("bob").await.browser()).await;
    let verdict = introspect(tokens.refresh_token()).await.json();
    assert_eq!(verdict["active"], true, "a new refresh key");
}

/// The record that the other node has in memory is of the client before.
#[tokio::test]
async fn people_sign_in_at_any_node_as_soon_as_their_client_was_removed_and_added_again() {
    let [one, other] = two_nodes().await;
    let acme = one.client("acme").await;
    let there = at(&other, &acme).await;
    let browser = other.user("alice").await.browser();
    for _ in 0..3 {
        let remove = RemoveClient {
            client_id: "acme".to_owned(),
        };
        one.admin().call(remove).await.unwrap();
        one.client("acme").await;
        browser.authorize(&there.request()).await.login_form();
    }
}

#[tokio::test]
async fn unknown_names_cause_ten_questions_a_second_at_most() {
    const REQUESTS: u32 = 5;
    let [node, _] = two_nodes().await;
    let began = Instant::now();
    for _ in 0..REQUESTS {
        let call = node.post("/oauth2/introspect").basic("nobody", "secret");
        let reply = call.with("token", "unknown").await;
        assert_eq!(reply.error(), "invalid_client");
    }
    assert!(began.elapsed() >= (REQUESTS - 1) * Duration::from_millis(100));
}
