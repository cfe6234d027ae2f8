//! `POST /v4/tokens`: an application that has an API key refreshes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idsvc::oauth::api_key;
use idsvc::oauth::client::{Client, StoredApiKey};
use idsvc::random::Random;
use idsvc::secret::{ApiKey, Secret};
use uuid::Uuid;

use crate::harness::reply::line_of;
use crate::harness::wire::Call;
use crate::harness::{Person, RelyingParty, START, Server, Tokens};

const PATH: &str = "/v4/tokens";

fn key() -> (Uuid, Secret<ApiKey>) {
    let id = Random::system().uuid_v4();
    (id, Secret::generate(id.as_bytes(), &Random::system()))
}

fn holding(id: Uuid, key: &Secret<ApiKey>) -> impl FnOnce(&mut Client) {
    let stored = StoredApiKey {
        id,
        digest: key.digest(),
        created_at: START,
    };
    move |client| client.api_keys.push(stored)
}

/// A client with an API key, and tokens that it got for a user.
async fn scene() -> (Server, RelyingParty, Person, String, Tokens) {
    let server = Server::start().await;
    let (id, key) = key();
    let tv = server.client_with("tv", holding(id, &key)).await;
    let alice = server.user("alice").await;
    let tokens = tv.tokens(&alice.browser()).await;
    (server, tv, alice, key.reveal().to_owned(), tokens)
}

fn refresh(server: &Server, authorization: &str, token: &str) -> Call {
    server
        .post(PATH)
        .header("Authorization", authorization)
        .with("grant_type", "refresh_token")
        .with("refresh_token", token)
}

fn basic(text: &str) -> String {
    format!("Basic {}", STANDARD.encode(text))
}

#[tokio::test]
async fn every_form_of_the_header_refreshes() {
    let (server, _, _, key, mut tokens) = scene().await;
    for header in [
        basic(&key),
        basic(&format!("{key}:")),
        basic(&format!(":{key}")),
        basic(&format!("tv:{key}")),
        format!("Basic {key}"),
        format!("basic {key}"),
    ] {
        let fresh = refresh(&server, &header, tokens.refresh_token()).await.tokens();
        assert_ne!(fresh.refresh_token(), tokens.refresh_token(), "{header}");
        assert_eq!(fresh.access().claims["client_id"], "tv");
        tokens = fresh;
    }
}

#[tokio::test]
async fn the_id_token_is_left_out_for_a_client_that_does_without() {
    let (server, tv, _, key, tokens) = scene().await;
    let fresh = refresh(&server, &basic(&key), tokens.refresh_token())
        .await
        .tokens();
    assert_eq!(fresh.0["id_token"], fresh.0["idtoken"]);
    server
        .change_client(&tv, |client| client.id_token_on_refresh = false)
        .await;
    let without = refresh(&server, &basic(&key), fresh.refresh_token())
        .await
        .tokens();
    assert!(without.0.get("id_token").is_none() && without.0.get("idtoken").is_none());
}

#[tokio::test]
async fn a_json_body_refreshes_too() {
    let (server, _, _, key, tokens) = scene().await;
    let body = serde_json::json!({"grant_type": "refresh_token", "refresh_token": tokens.refresh_token()});
    let reply = server
        .post(PATH)
        .header("Authorization", &basic(&key))
        .body("application/json", body.to_string())
        .await;
    reply.tokens();
    let twice = r#"{"grant_type":"refresh_token","refresh_token":"a","refresh_token":"b"}"#;
    let reply = server
        .post(PATH)
        .header("Authorization", &basic(&key))
        .body("application/json", twice)
        .await;
    assert_eq!(reply.error(), "invalid_request");
}

#[tokio::test]
async fn a_key_that_is_not_in_force_is_refused_and_consumes_nothing() {
    let (server, tv, _, key, tokens) = scene().await;
    let stranger = self::key().1;
    let told = line_of(&api_key::UNKNOWN);
    for header in [
        basic(stranger.reveal()),
        basic("tv:secret"),
        basic(&format!("other:{key}")),
        format!("Bearer {key}"),
        "Basic !".to_owned(),
    ] {
        let reply = refresh(&server, &header, tokens.refresh_token()).await;
        assert_eq!(reply.refusal(), told, "{header}");
        let challenged = reply
            .header("www-authenticate")
            .is_some_and(|challenge| challenge.starts_with("Basic"));
        assert!(challenged, "{header}");
    }
    let without = server.post(PATH).with("grant_type", "refresh_token").await;
    assert_eq!(without.refusal(), told);
    server.change_client(&tv, |client| client.enabled = false).await;
    assert_eq!(
        refresh(&server, &basic(&key), tokens.refresh_token())
            .await
            .refusal(),
        told
    );
    server.change_client(&tv, |client| client.enabled = true).await;
    refresh(&server, &basic(&key), tokens.refresh_token())
        .await
        .tokens();
    server.change_client(&tv, |client| client.api_keys.clear()).await;
    assert_eq!(
        refresh(&server, &basic(&key), tokens.refresh_token())
            .await
            .refusal(),
        told
    );
}

#[tokio::test]
async fn the_refresh_token_of_another_client_is_refused_and_stays_good() {
    let (server, _, alice, key, _) = scene().await;
    let acme = server.client("acme").await;
    let foreign = acme.tokens(&alice.browser()).await;
    assert_eq!(
        refresh(&server, &basic(&key), foreign.refresh_token())
            .await
            .error(),
        "invalid_grant"
    );
    acme.refresh(foreign.refresh_token()).await.tokens();
}

#[tokio::test]
async fn nothing_but_a_refresh_happens_here() {
    let (server, tv, alice, key, _) = scene().await;
    let code = tv.code(&alice.browser()).await;
    let reply = server
        .post(PATH)
        .header("Authorization", &basic(&key))
        .with("grant_type", "authorization_code")
        .with("code", &code)
        .await;
    assert_eq!(reply.error(), "unsupported_grant_type");
    let none = server
        .post(PATH)
        .header("Authorization", &basic(&key))
        .with("scope", "openid")
        .await;
    assert_eq!(none.error(), "invalid_request");
}

#[tokio::test]
async fn a_key_opens_no_other_endpoint() {
    let (server, _, _, key, tokens) = scene().await;
    let reply = server
        .post("/oauth2/token")
        .header("Authorization", &basic(&format!("tv:{key}")))
        .with("grant_type", "refresh_token")
        .with("refresh_token", tokens.refresh_token())
        .await;
    assert_eq!(reply.error(), "invalid_client");
}
