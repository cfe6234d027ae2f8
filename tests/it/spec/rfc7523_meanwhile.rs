//! RFC 7523 section 2.1: a provider that delays its keys cannot delay a change by the operator.

use idsvc::admin::provider::ProviderFields;
use idsvc::flow::token::jwt_bearer::NOT_ACCEPTED;
use idsvc::oauth::client::{Client, GrantType};
use serde_json::json;

use super::rfc7523_exchange::{Scene, scene_with};
use crate::harness::reply::line_of;
use crate::harness::{Reply, until};

/// What comes of an exchange during which the operator does this.
async fn exchange_amid(scene: &Scene, change: impl AsyncFnOnce()) -> Reply {
    let held = scene.upstream.hold_keys();
    let call = scene.exchange(&scene.token(&json!({})));
    let (reply, ()) = tokio::join!(call.with("scope", "openid notes.read").into_future(), async {
        until(async || !scene.upstream.seen("/jwks").is_empty()).await;
        change().await;
        held.notify_one();
    });
    reply
}

async fn amid_a_change_of_the_client(change: fn(&mut Client)) -> Reply {
    let scene = scene_with(|_| {}).await;
    let change = async || scene.server.change_client(&scene.acme, change).await;
    exchange_amid(&scene, change).await
}

async fn amid_a_change_of_the_provider(fields: ProviderFields) -> String {
    let scene = Box::pin(scene_with(|_| {})).await;
    let change = async || drop(scene.server.change_provider("up", fields).await);
    Box::pin(exchange_amid(&scene, change)).await.refusal()
}

#[tokio::test]
async fn the_client_gets_what_it_may_have_by_then() {
    let kept = amid_a_change_of_the_client(|client| client.client_name = Some("Acme".to_owned())).await;
    assert_eq!(kept.tokens().0["scope"], "openid notes.read authenticated");
    let narrowed = amid_a_change_of_the_client(|client| {
        client.scope = "openid".parse().unwrap();
        client.default_scope = client.scope.clone();
    });
    let refusal = narrowed.await.refusal();
    assert!(refusal.starts_with("400 invalid_scope: "), "{refusal}");
    let stopped = amid_a_change_of_the_client(|client| {
        client.grant_types.remove(&GrantType::JwtBearer);
    });
    let refusal = stopped.await.refusal();
    assert!(refusal.starts_with("400 unauthorized_client: "), "{refusal}");
    let parted = amid_a_change_of_the_client(|client| client.providers.clear());
    assert_eq!(parted.await.refusal(), line_of(&NOT_ACCEPTED));
    let disabled = amid_a_change_of_the_client(|client| client.enabled = false);
    assert_eq!(disabled.await.error(), "invalid_client");
}

#[tokio::test]
async fn the_provider_counts_as_its_record_says_by_then() {
    let elsewhere = ProviderFields {
        audiences: Some(vec!["https://other.example".to_owned()]),
        ..ProviderFields::default()
    };
    let refusal = amid_a_change_of_the_provider(elsewhere).await;
    assert!(refusal.starts_with("400 invalid_grant: assertion: "), "{refusal}");
    let disabled = ProviderFields {
        enabled: Some(false),
        ..ProviderFields::default()
    };
    assert_eq!(
        amid_a_change_of_the_provider(disabled).await,
        line_of(&NOT_ACCEPTED)
    );
    let rekeyed = ProviderFields {
        jwks_uri: Some("https://up.example/other".to_owned()),
        ..ProviderFields::default()
    };
    let refusal = amid_a_change_of_the_provider(rekeyed).await;
    assert!(refusal.starts_with("503 temporarily_unavailable: "), "{refusal}");
}
